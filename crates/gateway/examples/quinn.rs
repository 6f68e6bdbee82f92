//! A quinn server with a gateway in front of it. Any other server needs the lines marked `eQUIC`,
//! too. The rest is the same as in quinn's own examples.
//!
//!     cargo run --release -p equic-gateway --example quinn -- eth0 4433
//!
//! The server answers every bidirectional stream with the data received on it (ALPN `echo`). Each
//! source may hold 8 connections and open 20 per second. The kernel drops packets that would open
//! more.

use std::error::Error;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;

use equic_gateway::{Config, Gateway, Mode, ObjectSource, Service}; // eQUIC
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, Incoming, ServerConfig};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let interface = arguments.next().ok_or("usage: quinn INTERFACE PORT")?;
    let port: u16 = arguments.next().ok_or("usage: quinn INTERFACE PORT")?.parse()?;

    // -- eQUIC: load the program, set the limits, and attach it. It is detached when this process
    // ends.
    let gateway = Gateway::load(&Config::for_port(port), ObjectSource::Embedded)?;
    gateway.control().set("max_connections", "8")?;
    gateway.control().set("new_per_source", "20/s burst 40")?;
    gateway.attach(&interface, Mode::Auto)?;
    let service = gateway.ledger()?.service_at(0)?;
    // --

    let listen = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    let endpoint = Endpoint::server(server_config()?, listen)?;
    println!("listening on {}", endpoint.local_addr()?);
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(connection(incoming, service.clone()));
    }
    Ok(())
}

async fn connection(incoming: Incoming, service: Service) {
    // -- eQUIC: a source at its limit is refused before the handshake.
    if service.full(incoming.remote_address()) {
        return incoming.refuse();
    }
    // --
    let address = incoming.remote_address(); // eQUIC
    let Ok(connection) = incoming.await else { return };

    // -- eQUIC: the handshake is complete, so the connection counts until `guard` is dropped.
    let guard = service.opened(address);
    if guard.over_limit() {
        return connection.close(1u32.into(), b"too many connections");
    }
    // The connection counts for this address until it is closed. Do not count by
    // `remote_address`: a single packet from a forged address changes it, and quinn does not report
    // when it validates another address.
    let closed = connection.clone();
    tokio::spawn(async move { (closed.closed().await, drop(guard)) });
    // --

    while let Ok((mut send, mut receive)) = connection.accept_bi().await {
        let Ok(request) = receive.read_to_end(64 * 1024).await else { continue };
        let _ = send.write_all(&request).await;
        let _ = send.finish();
    }
}

fn server_config() -> Result<ServerConfig, Box<dyn Error>> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()])?;
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())?;
    tls.alpn_protocols = vec![b"echo".to_vec()];
    Ok(ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?)))
}
