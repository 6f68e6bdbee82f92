//! The server.

use std::sync::Arc;

use bytes::Bytes;
use equic_endpoint::quic::{
    self, Connection, Endpoint, Incoming, RecvStream, SendStream, ServerConfig,
};

use super::perf::{receive, send, small_body};
use super::{H3, Server, settings, socket, tls, transport};
use crate::failure::Done;
use crate::output;

/// Serves until the process is ended.
pub async fn serve(args: &Server) -> Done {
    let tls = Arc::new(tls::server(&args.cert, &args.key)?);
    let config = Arc::new(ServerConfig { tls, transport: transport(), preferred_addresses: None });
    let endpoint = Endpoint::server(vec![socket(args.listen)?], settings()?, config)?;
    output::line(format_args!("ready {}", endpoint.local_addr()?))?;
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(async move {
            if let Err(failure) = connection(incoming).await {
                output::notice(failure);
            }
        });
    }
    Ok(())
}

async fn connection(incoming: Incoming) -> Done {
    let connection = incoming.accept()?.await?;
    if connection.alpn().as_deref() == Some(H3) {
        // A future of its own: connections of the other protocol need no room for it.
        return Box::pin(http3(connection)).await;
    }
    // Until the client closes it.
    while let Ok((send, receive)) = connection.accept_bi().await {
        tokio::spawn(async move {
            if let Err(failure) = answer(send, receive).await {
                output::notice(failure);
            }
        });
    }
    Ok(())
}

async fn answer(mut to: SendStream, mut from: RecvStream) -> Done {
    let request = receive(&mut from).await?;
    send(&mut to, request.payload(), request.number()?).await
}

async fn http3(connection: Connection) -> Done {
    let connection = quic::h3::Connection::new(connection);
    let mut http = h3::server::Connection::<_, Bytes>::new(connection).await?;
    while let Ok(Some(resolver)) = http.accept().await {
        tokio::spawn(async move {
            let answered: Done = async {
                let (request, mut stream) = resolver.resolve_request().await?;
                let found = request.uri().path() == "/1k";
                let status = if found { 200 } else { 404 };
                stream.send_response(http::Response::builder().status(status).body(())?).await?;
                if found {
                    stream.send_data(small_body()).await?;
                }
                Ok(stream.finish().await?)
            }
            .await;
            if let Err(failure) = answered {
                output::notice(failure);
            }
        });
    }
    Ok(())
}
