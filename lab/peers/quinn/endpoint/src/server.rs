use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use interop_contract::{Contract, MAX_REQUEST, hq_path};
use quinn::{Endpoint, EndpointConfig, Incoming, ServerConfig, TokioRuntime};

pub async fn serve(contract: Arc<Contract>) -> Result<()> {
    let mut config = ServerConfig::with_crypto(Arc::new(crate::server_tls(&contract)?));
    config.transport_config(crate::transport(&contract));
    match contract.preferred {
        Some(SocketAddr::V4(at)) => config.preferred_address_v4(Some(at)),
        Some(SocketAddr::V6(at)) => config.preferred_address_v6(Some(at)),
        None => &mut config,
    };
    let mut own = EndpointConfig::default();
    // Drafts are not supported, so that they cause a Version Negotiation packet.
    own.supported_versions(vec![1]);
    let socket = std::net::UdpSocket::bind(("::", contract.port))?;
    let endpoint = Endpoint::new(own, Some(config), socket, Arc::new(TokioRuntime))?;
    while let Some(incoming) = endpoint.accept().await {
        if contract.is("retry") && !incoming.remote_address_validated() {
            // An error is ignored, because `retry` fails only after an earlier Retry.
            let _ = incoming.retry();
            continue;
        }
        let contract = Arc::clone(&contract);
        tokio::spawn(async move {
            if let Err(error) = connection(incoming, contract).await {
                eprintln!("connection: {error:#}");
            }
        });
    }
    Ok(())
}

async fn connection(incoming: Incoming, contract: Arc<Contract>) -> Result<()> {
    let connecting = incoming.accept()?;
    // 0-RTT requests arrive before the end of the handshake. Other cases wait for that end: if a
    // ClientHello needs two packets, a connection that is accepted early does not learn how many
    // streams it may open.
    let connection = if contract.is("zerortt") {
        match connecting.into_0rtt() {
            Ok((connection, _)) => connection,
            Err(connecting) => connecting.await?,
        }
    } else {
        connecting.await?
    };
    if contract.is("http3") {
        return http3(connection, contract).await;
    }
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

async fn http3(connection: quinn::Connection, contract: Arc<Contract>) -> Result<()> {
    let mut http =
        h3::server::Connection::<_, Bytes>::new(h3_quinn::Connection::new(connection)).await?;
    while let Some(resolver) = http.accept().await? {
        let contract = Arc::clone(&contract);
        tokio::spawn(async move {
            let answered: Result<()> = async {
                let (request, mut stream) = resolver.resolve_request().await?;
                let (status, content) = match contract.file(request.uri().path()) {
                    Ok(content) => (200, content),
                    Err(_) => (404, Vec::new()),
                };
                let head = http::Response::builder().status(status).body(())?;
                stream.send_response(head).await?;
                stream.send_data(content.into()).await?;
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
