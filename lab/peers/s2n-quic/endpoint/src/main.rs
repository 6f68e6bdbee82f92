//! s2n-quic as an endpoint of the QUIC Interop Runner, with rustls. In this combination, it neither
//! sends nor accepts session tickets. Its crate on crates.io has no HTTP/3, and no public API for
//! key updates.

#![forbid(unsafe_code)]

use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use interop_contract::{Contract, MAX_REQUEST, Request, any, hq_path};
use rustls::crypto::aws_lc_rs::{self, cipher_suite};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use s2n_quic::client::Connect;
use s2n_quic::connection::Handle;
use s2n_quic::provider::endpoint_limits::{ConnectionAttempt, Limiter, Outcome};
use s2n_quic::provider::tls::rustls::{Client as ClientTls, Server as ServerTls};
use s2n_quic::{Client, Connection, Server};
use tokio::task::JoinSet;

const BOTH: [&str; 6] = ["handshake", "transfer", "chacha20", "retry", "multiconnect", "ecn"];

#[tokio::main]
async fn main() -> Result<()> {
    let contract = Contract::read()?;
    contract.require(&BOTH, &[&BOTH[..], &["versionnegotiation"]].concat());
    let contract = Arc::new(contract);
    if contract.server { serve(contract).await } else { fetch(&contract).await }
}

fn provider(contract: &Contract) -> Arc<rustls::crypto::CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    if contract.is("chacha20") {
        provider.cipher_suites = vec![cipher_suite::TLS13_CHACHA20_POLY1305_SHA256];
    }
    Arc::new(provider)
}

/// Sends a Retry to every client without a token.
struct AlwaysRetry(bool);

impl Limiter for AlwaysRetry {
    fn on_connection_attempt(&mut self, _: &ConnectionAttempt) -> Outcome {
        if self.0 { Outcome::retry() } else { Outcome::allow() }
    }
}

async fn serve(contract: Arc<Contract>) -> Result<()> {
    let chain = CertificateDer::pem_file_iter(contract.cert("cert.pem"))?;
    let chain = chain.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_file(contract.cert("priv.key"))?;
    let mut tls = rustls::ServerConfig::builder_with_provider(provider(&contract))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    tls.alpn_protocols = vec![contract.alpn().to_vec()];
    tls.key_log = Arc::new(rustls::KeyLogFile::new());
    let mut server = Server::builder()
        .with_tls(ServerTls::from(tls))?
        .with_endpoint_limits(AlwaysRetry(contract.is("retry")))?
        .with_io(format!("[::]:{}", contract.port).as_str())?
        .start()
        .map_err(|error| anyhow!("{error}"))?;
    while let Some(mut connection) = server.accept().await {
        let contract = Arc::clone(&contract);
        tokio::spawn(async move {
            while let Ok(Some(mut stream)) = connection.accept_bidirectional_stream().await {
                let contract = Arc::clone(&contract);
                tokio::spawn(async move {
                    let answered: Result<()> = async {
                        let mut request = Vec::new();
                        while let Some(data) = stream.receive().await? {
                            request.extend_from_slice(&data);
                            anyhow::ensure!(
                                request.len() <= MAX_REQUEST,
                                "the request is too long"
                            );
                        }
                        stream.send(contract.file(hq_path(&request)?)?.into()).await?;
                        Ok(stream.close().await?)
                    }
                    .await;
                    if let Err(error) = answered {
                        eprintln!("stream: {error:#}");
                    }
                });
            }
        });
    }
    Ok(())
}

async fn fetch(contract: &Contract) -> Result<()> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(contract.cert("ca.pem"))? {
        roots.add(certificate?)?;
    }
    let mut tls = rustls::ClientConfig::builder_with_provider(provider(contract))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![contract.alpn().to_vec()];
    tls.key_log = Arc::new(rustls::KeyLogFile::new());
    let first = contract.first()?;
    let mut client = Client::builder()
        .with_tls(ClientTls::from(tls))?
        .with_io(any(first.address))?
        .start()
        .map_err(|error| anyhow!("{error}"))?;
    let connect = || client.connect(Connect::new(first.address).with_server_name(&*first.host));
    let all = &contract.requests[..];
    match contract.testcase.as_str() {
        "multiconnect" => {
            for request in all {
                hq(contract, connect().await?, std::slice::from_ref(request)).await?;
            }
        }
        _ => hq(contract, connect().await?, all).await?,
    }
    client.wait_idle().await.context("cannot send the last packets")
}

/// Fetches all requests concurrently, and then closes the connection.
async fn hq(contract: &Contract, connection: Connection, requests: &[Request]) -> Result<()> {
    let handle = connection.handle();
    let mut fetches = JoinSet::new();
    for request in requests.iter().cloned() {
        fetches.spawn(get(handle.clone(), request));
    }
    while let Some(fetched) = fetches.join_next().await {
        let (request, content) = fetched??;
        contract.store(&request, &content)?;
    }
    connection.close(0u32.into());
    Ok(())
}

async fn get(mut handle: Handle, request: Request) -> Result<(Request, Vec<u8>)> {
    let mut stream = handle.open_bidirectional_stream().await?;
    stream.send(request.hq().into()).await?;
    stream.finish()?;
    let mut content = Vec::new();
    while let Some(data) = stream.receive().await? {
        content.extend_from_slice(&data);
    }
    Ok((request, content))
}
