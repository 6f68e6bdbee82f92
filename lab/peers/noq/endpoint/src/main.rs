//! noq as an endpoint of `equic-lab interop`. It runs only the case for several paths (RFC 10069),
//! and plain transfers. noq implements draft-ietf-quic-multipath-17, which has the same code
//! points. In all other respects it equals quinn, from which it was forked, and quinn has an
//! endpoint of its own.

#![forbid(unsafe_code)]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use interop_contract::{Contract, MAX_REQUEST, any, hq_path};
use noq::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use noq::{
    ClientConfig, Connection, Endpoint, FourTuple, Incoming, PathError, PathStatus, ServerConfig,
    TransportConfig,
};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::task::JoinSet;

const CASES: [&str; 3] = ["handshake", "transfer", "multipath"];
/// The client's second address, on the loopback interface like its first one.
const SECOND: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
/// Time between two attempts to open the second path, until the server has provided connection IDs
/// for it.
const LOOK: Duration = Duration::from_millis(5);
/// Maximum number of concurrent paths.
const PATHS: u32 = 4;

#[tokio::main]
async fn main() -> Result<()> {
    let contract = Contract::read()?;
    contract.require(&CASES, &CASES);
    let contract = Arc::new(contract);
    if contract.server { serve(contract).await } else { fetch(&contract).await }
}

fn transport(contract: &Contract) -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    if contract.is("multipath") {
        transport.max_concurrent_multipath_paths(PATHS);
    }
    Arc::new(transport)
}

fn client_tls(contract: &Contract) -> Result<QuicClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(contract.cert("ca.pem"))? {
        roots.add(certificate?)?;
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![contract.alpn().to_vec()];
    tls.key_log = Arc::new(rustls::KeyLogFile::new());
    Ok(QuicClientConfig::try_from(Arc::new(tls))?)
}

fn server_tls(contract: &Contract) -> Result<QuicServerConfig> {
    let chain = CertificateDer::pem_file_iter(contract.cert("cert.pem"))?;
    let chain = chain.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_file(contract.cert("priv.key"))?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    tls.alpn_protocols = vec![contract.alpn().to_vec()];
    tls.key_log = Arc::new(rustls::KeyLogFile::new());
    Ok(QuicServerConfig::try_from(Arc::new(tls))?)
}

async fn fetch(contract: &Contract) -> Result<()> {
    let first = contract.first()?;
    // One socket serves all local addresses, because noq sets the source address of each datagram.
    let endpoint = Endpoint::client(any(first.address))?;
    let mut config = ClientConfig::new(Arc::new(client_tls(contract)?));
    config.transport_config(transport(contract));
    endpoint.set_default_client_config(config);
    let connection = endpoint.connect(first.address, &first.host)?.await?;
    if contract.is("multipath") {
        second_path(&connection, FourTuple::new(first.address, Some(SECOND))).await?;
    }
    files(contract, &connection).await?;
    connection.close(0u32.into(), b"");
    endpoint.wait_idle().await;
    Ok(())
}

/// Opens the second path as soon as the server has provided connection IDs for it.
async fn second_path(connection: &Connection, tuple: FourTuple) -> Result<()> {
    loop {
        match connection.open_path(tuple, PathStatus::Available).await {
            Err(PathError::RemoteCidsExhausted) => tokio::time::sleep(LOOK).await,
            opened => {
                opened.context("cannot open the second path")?;
                return Ok(());
            }
        }
    }
}

async fn files(contract: &Contract, connection: &Connection) -> Result<()> {
    let mut fetches = JoinSet::new();
    for request in contract.requests.iter().cloned() {
        let connection = connection.clone();
        fetches.spawn(async move {
            let (mut send, mut receive) = connection.open_bi().await?;
            send.write_all(&request.hq()).await?;
            send.finish()?;
            anyhow::Ok((request, receive.read_to_end(usize::MAX).await?))
        });
    }
    while let Some(fetched) = fetches.join_next().await {
        let (request, content) = fetched??;
        contract.store(&request, &content)?;
    }
    Ok(())
}

async fn serve(contract: Arc<Contract>) -> Result<()> {
    let mut config = ServerConfig::with_crypto(Arc::new(server_tls(&contract)?));
    config.transport_config(transport(&contract));
    let endpoint = Endpoint::server(config, ([0; 16], contract.port).into())?;
    while let Some(incoming) = endpoint.accept().await {
        let contract = Arc::clone(&contract);
        tokio::spawn(async move {
            if let Err(error) = answer(incoming, contract).await {
                eprintln!("connection: {error:#}");
            }
        });
    }
    Ok(())
}

async fn answer(incoming: Incoming, contract: Arc<Contract>) -> Result<()> {
    let connection = incoming.await?;
    // The loop ends when the client closes the connection.
    while let Ok((mut send, mut receive)) = connection.accept_bi().await {
        let contract = Arc::clone(&contract);
        tokio::spawn(async move {
            let answered: Result<()> = async {
                let request = receive.read_to_end(MAX_REQUEST).await?;
                send.write_all(&contract.file(hq_path(&request)?)?).await?;
                Ok(send.finish()?)
            }
            .await;
            if let Err(error) = answered {
                eprintln!("stream: {error:#}");
            }
        });
    }
    Ok(())
}
