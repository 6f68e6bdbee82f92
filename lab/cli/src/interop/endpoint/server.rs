//! The server of the interop endpoint: serves files over HTTP/0.9 or HTTP/3.

use std::net::Ipv6Addr;
use std::sync::Arc;

use bytes::Bytes;
use equic_http3::binding as quic_h3;
use equic_quic::{Connection, Endpoint, Incoming, RecvStream, SendStream};

use super::{Contract, MAX_REQUEST, tls};
use crate::failure::{Failure, Result};
use crate::output;
use crate::signals::Signals;

/// Runs the server until a signal arrives.
pub(super) async fn serve(contract: Contract) -> Result {
    let mut signals = Signals::new()?;
    let config = tls::server(&contract)?;
    let sockets = Endpoint::bind((Ipv6Addr::UNSPECIFIED, contract.port).into(), 1, None)?;
    let endpoint = Endpoint::new(tls::settings(&contract)?, Some(config), sockets)?;
    let contract = Arc::new(contract);
    loop {
        let incoming = tokio::select! {
            incoming = endpoint.accept() => incoming,
            _ = signals.next() => return Ok(()),
        };
        let Some(incoming) = incoming else { return Err(Failure::new("the socket failed")) };
        if contract.is("retry") && !incoming.is_validated() {
            incoming.retry();
            continue;
        }
        let contract = Arc::clone(&contract);
        tokio::spawn(async move {
            if let Err(failure) = connection(incoming, contract).await {
                output::notice(format_args!("a connection: {failure}"));
            }
        });
    }
}

async fn connection(incoming: Incoming, contract: Arc<Contract>) -> Result {
    let connecting = incoming.accept()?;
    let connection = if contract.is("zerortt") {
        // 0-RTT is safe here, because a replayed request only reads a file again.
        connecting.into_0rtt().map_err(|_| Failure::new("no connection"))?
    } else {
        connecting.await?
    };
    if contract.is("http3") {
        return http3(connection, contract).await;
    }
    // Serve the streams until the client closes the connection.
    while let Ok((send, receive)) = connection.accept_bi().await {
        let contract = Arc::clone(&contract);
        tokio::spawn(async move {
            if let Err(failure) = answer(send, receive, &contract).await {
                output::notice(format_args!("a stream: {failure}"));
            }
        });
    }
    Ok(())
}

async fn answer(mut send: SendStream, mut receive: RecvStream, contract: &Contract) -> Result {
    let mut request = Vec::new();
    while let Some(data) = receive.read_chunk().await? {
        request.extend_from_slice(&data);
        if request.len() > MAX_REQUEST {
            return Err(Failure::new("the request is incomplete"));
        }
    }
    let request = String::from_utf8_lossy(&request);
    let path = request.strip_prefix("GET ").map(str::trim);
    let path = path.ok_or_else(|| Failure::new("the request is not a GET request"))?;
    send.write_chunk(contract.file(path)?.into()).await?;
    Ok(send.finish()?)
}

async fn http3(connection: Connection, contract: Arc<Contract>) -> Result {
    let mut http =
        h3::server::Connection::<_, Bytes>::new(quic_h3::QuicConnection::new(connection)).await?;
    while let Some(resolver) = http.accept().await? {
        let contract = Arc::clone(&contract);
        tokio::spawn(async move {
            let answered: Result = async {
                let (request, mut stream) = resolver.resolve_request().await?;
                let (status, content) = match contract.file(request.uri().path()) {
                    Ok(content) => (200, content),
                    Err(_) => (404, Vec::new()),
                };
                stream.send_response(http::Response::builder().status(status).body(())?).await?;
                stream.send_data(content.into()).await?;
                Ok(stream.finish().await?)
            }
            .await;
            if let Err(failure) = answered {
                output::notice(format_args!("a request: {failure}"));
            }
        });
    }
    Ok(())
}
