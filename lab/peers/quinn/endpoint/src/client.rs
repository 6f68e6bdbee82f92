use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use bytes::Buf as _;
use interop_contract::{Contract, Request, any};
use quinn::{ClientConfig, Connection, ConnectionError, Endpoint, EndpointConfig, TokioRuntime};
use tokio::task::JoinSet;

/// Draft 29, which quinn supports but no server of these tests does. It makes the server send a
/// Version Negotiation packet.
const UNKNOWN_VERSION: u32 = 0xff00_001d;
/// Number of bytes to receive before the key update or the migration.
const FIRST: usize = 100_000;

pub async fn fetch(contract: &Contract) -> Result<()> {
    let first = contract.first()?;
    let mut config = ClientConfig::new(Arc::new(crate::client_tls(contract)?));
    config.transport_config(crate::transport(contract));
    let socket = std::net::UdpSocket::bind(any(first.address))?;
    let own = EndpointConfig::default();
    let mut endpoint = Endpoint::new(own, None, socket, Arc::new(TokioRuntime))?;
    if contract.is("versionnegotiation") {
        config.version(UNKNOWN_VERSION);
    }
    endpoint.set_default_client_config(config);
    let done = cases(contract, &endpoint).await;
    // Waits until the last packets are sent.
    let _ = tokio::time::timeout(Duration::from_secs(3), endpoint.wait_idle()).await;
    done
}

async fn cases(contract: &Contract, endpoint: &Endpoint) -> Result<()> {
    let first = contract.first()?;
    let connect = || endpoint.connect(first.address, &first.host);
    let all = &contract.requests[..];
    match contract.testcase.as_str() {
        "versionnegotiation" => match connect()?.await {
            Err(ConnectionError::VersionMismatch) => Ok(()),
            other => {
                bail!("expected a version mismatch, but got: {:?}", other.map(|_| "a connection"))
            }
        },
        "resumption" | "zerortt" => {
            let connection = connect()?.await?;
            hq(contract, &connection, &all[..1]).await?;
            close(&connection);
            let connection = if contract.is("zerortt") {
                let early = connect()?.into_0rtt();
                early
                    .map_err(|_| {
                        anyhow::anyhow!(
                            "no 0-RTT: the server has sent no session ticket that allows it"
                        )
                    })?
                    .0
            } else {
                connect()?.await?
            };
            hq(contract, &connection, &all[1..]).await?;
            close(&connection);
            Ok(())
        }
        "multiconnect" => {
            for request in all {
                let connection = connect()?.await?;
                hq(contract, &connection, std::slice::from_ref(request)).await?;
                close(&connection);
            }
            Ok(())
        }
        "http3" => http3(contract, connect()?.await?).await,
        _ => {
            let connection = connect()?.await?;
            let turn = match contract.testcase.as_str() {
                "keyupdate" => Some(Turn::Key),
                "connectionmigration" => Some(Turn::Place(endpoint.clone())),
                _ => None,
            };
            let turning = turn.map(|turn| tokio::spawn(turn.when_due(connection.clone())));
            hq(contract, &connection, all).await?;
            close(&connection);
            match turning {
                Some(turning) => turning.await?,
                None => Ok(()),
            }
        }
    }
}

/// An action in the middle of a transfer.
enum Turn {
    Key,
    Place(Endpoint),
}

impl Turn {
    async fn when_due(self, connection: Connection) -> Result<()> {
        while connection.stats().udp_rx.bytes < FIRST as u64 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        match self {
            Turn::Key => connection.force_key_update(),
            Turn::Place(endpoint) => {
                endpoint.rebind(std::net::UdpSocket::bind(any(endpoint.local_addr()?))?)?;
            }
        }
        Ok(())
    }
}

fn close(connection: &Connection) {
    connection.close(0u32.into(), b"");
}

async fn hq(contract: &Contract, connection: &Connection, requests: &[Request]) -> Result<()> {
    let mut fetches = JoinSet::new();
    for request in requests.iter().cloned() {
        let connection = connection.clone();
        fetches.spawn(async move {
            let (mut send, mut receive) = connection.open_bi().await?;
            send.write_all(&request.hq()).await?;
            send.finish()?;
            let content = receive.read_to_end(usize::MAX).await?;
            anyhow::Ok((request, content))
        });
    }
    while let Some(fetched) = fetches.join_next().await {
        let (request, content) = fetched??;
        contract.store(&request, &content)?;
    }
    Ok(())
}

async fn http3(contract: &Contract, connection: Connection) -> Result<()> {
    let transport = h3_quinn::Connection::new(connection.clone());
    let (mut driver, http) = h3::client::new(transport).await?;
    let driving = tokio::spawn(async move { driver.wait_idle().await });
    let mut fetches = JoinSet::new();
    for request in contract.requests.iter().cloned() {
        let mut http = http.clone();
        fetches.spawn(async move {
            let get = http::Request::get(&request.url).body(())?;
            let mut stream = http.send_request(get).await?;
            stream.finish().await?;
            let status = stream.recv_response().await?.status();
            if !status.is_success() {
                bail!("{}: {status}", request.url);
            }
            let mut content = Vec::new();
            while let Some(mut data) = stream.recv_data().await? {
                content.extend_from_slice(&data.copy_to_bytes(data.remaining()));
            }
            Ok((request, content))
        });
    }
    while let Some(fetched) = fetches.join_next().await {
        let (request, content) = fetched??;
        contract.store(&request, &content)?;
    }
    drop(http);
    driving.abort();
    connection.close(0x100u32.into(), b"");
    Ok(())
}
