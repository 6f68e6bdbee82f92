use std::sync::Arc;

use anyhow::Result;
use bench_contract::perf::{Piece, Request};
use bench_contract::{H3, PERF, SMALL_BODY, Server};
use bytes::Bytes;
use quinn::crypto::rustls::{HandshakeData, QuicServerConfig};
use quinn::{Connection, Endpoint, EndpointConfig, Incoming, RecvStream, SendStream, TokioRuntime};
use rustls::crypto::ring;

pub async fn serve(server: &Server) -> Result<()> {
    let ticketer = ring::Ticketer::new()?;
    let tls = bench_contract::tls::server(server, ring::default_provider(), ticketer, &[PERF, H3])?;
    let mut config =
        quinn::ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(Arc::new(tls))?));
    config.transport_config(crate::transport()?);
    let socket = bench_contract::socket(server.listen)?;
    let own = EndpointConfig::default();
    let endpoint = Endpoint::new(own, Some(config), socket, Arc::new(TokioRuntime))?;
    bench_contract::ready(endpoint.local_addr()?);
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(async move {
            if let Err(error) = connection(incoming).await {
                eprintln!("connection: {error:#}");
            }
        });
    }
    Ok(())
}

async fn connection(incoming: Incoming) -> Result<()> {
    let connection = incoming.await?;
    let data = connection.handshake_data().and_then(|data| data.downcast::<HandshakeData>().ok());
    if data.and_then(|data| data.protocol).as_deref() == Some(H3) {
        return http3(connection).await;
    }
    while let Ok((send, receive)) = connection.accept_bi().await {
        tokio::spawn(async move {
            if let Err(error) = perf(send, receive).await {
                eprintln!("stream: {error:#}");
            }
        });
    }
    Ok(())
}

async fn perf(mut send: SendStream, mut receive: RecvStream) -> Result<()> {
    let mut request = Request::default();
    while let Some(chunk) = receive.read_chunk(usize::MAX, true).await? {
        request.received(&chunk.bytes);
    }
    request.finished()?;
    while request.left() > 0 {
        let count = match request.next() {
            Piece::Counted(bytes) => send.write(bytes).await?,
            Piece::Zeros(bytes) => {
                send.write_chunk(Bytes::from_static(bytes)).await?;
                bytes.len()
            }
        };
        request.sent(count);
    }
    Ok(send.finish()?)
}

async fn http3(connection: Connection) -> Result<()> {
    let connection = h3_quinn::Connection::new(connection);
    let mut http = h3::server::Connection::<_, Bytes>::new(connection).await?;
    // Closed by the client: the end.
    while let Ok(Some(resolver)) = http.accept().await {
        tokio::spawn(async move {
            let answered: Result<()> = async {
                let (request, mut stream) = resolver.resolve_request().await?;
                let found = request.uri().path() == "/1k";
                let status = if found { 200 } else { 404 };
                stream.send_response(http::Response::builder().status(status).body(())?).await?;
                if found {
                    let body = &bench_contract::perf::ZEROS[..SMALL_BODY];
                    stream.send_data(Bytes::from_static(body)).await?;
                }
                Ok(stream.finish().await?)
            }
            .await;
            if let Err(error) = answered {
                eprintln!("request: {error:#}");
            }
        });
    }
    Ok(())
}
