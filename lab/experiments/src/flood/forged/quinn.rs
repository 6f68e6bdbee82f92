//! A server on quinn and h3 that validates every client's address with quinn's own Retry. It shows
//! how much capacity another implementation has left under a forged flood without a gateway.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use equic_gateway::parse_size;
use equic_http3::{Fingerprint, crypto_provider};
use equic_quic::Endpoint as Sockets;
use h3::server::RequestStream;
use http::{Response, StatusCode};
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, EndpointConfig, Incoming, ServerConfig, TokioRuntime};
use rustls::pki_types::PrivatePkcs8KeyDer;
use serde_json::json;

use crate::failure::{Failure, Result};
use crate::output::Journal;

/// Maximum number of bytes that a client may request.
const MOST: usize = 100_000_000;
/// Size of the pieces of a body in bytes.
const CHUNK: usize = 64 * 1024;

/// Serves `/bytes/N` over HTTP/3 on quinn, which answers an Initial without one of its tokens with
/// a Retry.
#[derive(clap::Args)]
pub struct QuinnArgs {
    /// Address and port to listen on
    #[arg(long, value_name = "ADDR:PORT")]
    listen: SocketAddr,
    /// Receive buffer of the socket, such as 4MB [default: the system's]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    receive_buffer: Option<u64>,
}

/// Runs the server until the process is ended.
///
/// # Errors
/// Fails if the server cannot listen on the address, or if no certificate can be created.
pub fn serve(args: &QuinnArgs) -> Result {
    crate::signals::runtime(Some(1))?.block_on(carry_out(args))
}

async fn carry_out(args: &QuinnArgs) -> Result {
    let failed = |error| Failure::because(format_args!("cannot listen on {}", args.listen), error);
    let (config, fingerprint) = config()?;
    // The operating system rejects larger values.
    let buffer = args.receive_buffer.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    let mut sockets = Sockets::bind(args.listen, 1, buffer).map_err(failed)?;
    let socket = sockets.swap_remove(0);
    let address = socket.local_addr().map_err(failed)?;
    let runtime = Arc::new(TokioRuntime);
    let endpoint = Endpoint::new(EndpointConfig::default(), Some(config), socket, runtime);
    let endpoint = endpoint.map_err(failed)?;
    Journal::new(true, "equic.lab.quinn/1").entry("", || {
        json!({
            "event": "ready", "address": address, "fingerprint": fingerprint.to_string(),
        })
    });
    while let Some(incoming) = endpoint.accept().await {
        if incoming.remote_address_validated() {
            tokio::spawn(connection(incoming));
        } else {
            // This fails only if the client's address is already validated.
            let _ = incoming.retry();
        }
    }
    Ok(())
}

/// Creates a new certificate for this run. Returns it with its fingerprint.
fn config() -> Result<(ServerConfig, Fingerprint)> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()])
        .map_err(|error| Failure::because("cannot create a certificate", error))?;
    let certificate = made.cert.der().clone();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let fingerprint = Fingerprint::of(&certificate);
    let mut tls = rustls::ServerConfig::builder_with_provider(Arc::new(crypto_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .and_then(|tls| tls.with_no_client_auth().with_single_cert(vec![certificate], key.into()))
        .map_err(|error| Failure::because("TLS does not accept the certificate", error))?;
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let crypto = QuicServerConfig::try_from(tls)
        .map_err(|error| Failure::because("QUIC does not accept the TLS configuration", error))?;
    Ok((ServerConfig::with_crypto(Arc::new(crypto)), fingerprint))
}

/// Handles all requests of a connection. Errors are ignored, because the client reports the
/// results.
async fn connection(incoming: Incoming) {
    let Ok(connection) = incoming.await else { return };
    let connection = h3_quinn::Connection::new(connection);
    let Ok(mut h3) = h3::server::Connection::<_, Bytes>::new(connection).await else { return };
    while let Ok(Some(resolver)) = h3.accept().await {
        tokio::spawn(async move {
            if let Ok((request, stream)) = resolver.resolve_request().await {
                // The error is ignored: a client that has disconnected needs no response.
                let _ = answer(request.uri().path(), stream).await;
            }
        });
    }
}

async fn answer(
    path: &str,
    mut stream: RequestStream<h3_quinn::BidiStream<Bytes>, Bytes>,
) -> Result<(), h3::error::StreamError> {
    let asked = bytes_of(path);
    let mut response = Response::new(());
    if asked.is_none() {
        *response.status_mut() = StatusCode::NOT_FOUND;
    }
    stream.send_response(response).await?;
    let zeroes = Bytes::from_static(&[0; CHUNK]);
    let mut left = asked.unwrap_or(0);
    while left > 0 {
        let now = left.min(CHUNK);
        stream.send_data(zeroes.slice(..now)).await?;
        left -= now;
    }
    stream.finish().await
}

/// Returns N for the path `/bytes/N`.
fn bytes_of(path: &str) -> Option<usize> {
    path.strip_prefix("/bytes/")?.parse().ok().filter(|bytes| *bytes <= MOST)
}

#[cfg(test)]
mod tests {
    use super::{MOST, bytes_of};

    #[test]
    fn quinn_server_limits_the_requested_bytes() {
        assert_eq!(bytes_of("/bytes/10000"), Some(10_000));
        assert_eq!(bytes_of(&format!("/bytes/{}", MOST + 1)), None);
        assert_eq!((bytes_of("/bytes/-1"), bytes_of("/health")), (None, None));
    }
}
