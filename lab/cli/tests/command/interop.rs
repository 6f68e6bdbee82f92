//! Tests of eQUIC's own endpoint for the QUIC Interop Runner with the plugin exchange enabled. The
//! peer is quinn, which does not support the exchange. Files must arrive intact, and connections
//! must end without an error.

use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use equic_interop::Certificates;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::common::{EQUIC_LAB, finish};

/// Size of the transferred file in bytes. It exceeds the flow control windows several times, both
/// that for a plugin's bundle and that of a stream.
const FILE: usize = 300_000;

/// Directories of an endpoint, and an unsigned plugin that it offers.
struct Files {
    folder: tempfile::TempDir,
    certificates: PathBuf,
    plugin: PathBuf,
}

impl Files {
    fn new() -> Files {
        let folder = tempfile::tempdir().unwrap();
        Certificates::write(&folder.path().join("certificates"), 1).unwrap();
        let certificates = folder.path().join("certificates/usual");
        let manifest = "name = \"any\"\nversion = \"1.0.0\"\nauthor = \"A test\"\nabi = 2\nsteps = 1000\n\
            capabilities = [\"observe\"]\n[[operations]]\noperation = \"UpdateRtt\"\nanchor = \"after\"\nfunction = \"f\"\n";
        let plugin = folder.path().join("any.qplug");
        fs::write(&plugin, equic_plugin::pack(manifest, &[7; 5000], None).unwrap()).unwrap();
        for name in ["www", "downloads"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        fs::write(folder.path().join("www/file"), content()).unwrap();
        Files { folder, certificates, plugin }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns a command that runs the endpoint with the plugin exchange enabled.
    fn endpoint(&self, role: &str) -> Command {
        let mut command = Command::new(EQUIC_LAB);
        command.args(["interop-endpoint", "--plugins", "--push"]).arg(&self.plugin);
        command.env("ROLE", role).env("TESTCASE", "transfer");
        command.env("CERTS", &self.certificates).env_remove("SSLKEYLOGFILE").env_remove("QLOGDIR");
        command.env("WWW", self.path("www")).env("DOWNLOADS", self.path("downloads"));
        command
    }
}

fn content() -> Vec<u8> {
    (0..FILE).map(|at| (at * 31 % 251) as u8).collect()
}

fn certificates(path: &Path) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_file_iter(path).unwrap().map(Result::unwrap).collect()
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// A running server, which is killed when the value is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn interop_with_a_client_without_plugins_succeeds() {
    let files = Files::new();
    // Choose a free port by binding and closing a socket. The endpoint cannot choose a port itself.
    let port = UdpSocket::bind("[::]:0").unwrap().local_addr().unwrap().port();
    let mut command = files.endpoint("server");
    let child = command.env("PORT", port.to_string()).stdin(Stdio::null()).spawn().unwrap();
    let _server = Server(child);
    let mut roots = rustls::RootCertStore::empty();
    for certificate in certificates(&files.certificates.join("ca.pem")) {
        roots.add(certificate).unwrap();
    }
    let mut tls = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"hq-interop".to_vec()];
    let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(tls).unwrap();
    let config = quinn::ClientConfig::new(Arc::new(crypto));
    let endpoint = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    // If the server does not listen yet, the client repeats its first packets.
    let address = ([127, 0, 0, 1], port).into();
    let connection = endpoint.connect_with(config, address, "127.0.0.1").unwrap().await.unwrap();
    for _ in 0..3 {
        let (mut send, mut receive) = connection.open_bi().await.unwrap();
        send.write_all(b"GET /file\r\n").await.unwrap();
        send.finish().unwrap();
        assert!(receive.read_to_end(2 * FILE).await.unwrap() == content());
    }
    assert!(connection.close_reason().is_none(), "{:?}", connection.close_reason());
    connection.close(0u32.into(), b"");
    endpoint.wait_idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interop_with_a_server_without_plugins_succeeds() {
    let files = Files::new();
    let key = PrivateKeyDer::from_pem_file(files.certificates.join("priv.key")).unwrap();
    let mut tls = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(certificates(&files.certificates.join("cert.pem")), key)
        .unwrap();
    tls.alpn_protocols = vec![b"hq-interop".to_vec()];
    let crypto = quinn::crypto::rustls::QuicServerConfig::try_from(tls).unwrap();
    let config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
    let server = quinn::Endpoint::server(config, "127.0.0.1:0".parse().unwrap()).unwrap();
    let address = server.local_addr().unwrap();
    let served = tokio::spawn(async move {
        let connection = server.accept().await.unwrap().await.unwrap();
        while let Ok((mut send, mut receive)) = connection.accept_bi().await {
            assert_eq!(receive.read_to_end(1000).await.unwrap(), b"GET /file\r\n");
            send.write_all(&content()).await.unwrap();
            send.finish().unwrap();
        }
        connection.closed().await
    });
    let mut command = files.endpoint("client");
    command.env("REQUESTS", format!("https://{address}/file"));
    let out = tokio::task::spawn_blocking(move || finish(command)).await.unwrap();
    assert_eq!(out.code, Some(0), "{out:?}");
    assert!(fs::read(files.path("downloads/file")).unwrap() == content());
    let reason = served.await.unwrap();
    let usual = matches!(&reason, quinn::ConnectionError::ApplicationClosed(close) if close.error_code == 0u32.into());
    assert!(usual, "{reason}");
}
