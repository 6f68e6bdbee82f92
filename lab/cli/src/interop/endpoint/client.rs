//! The client of the interop endpoint: fetches all requests at once, on a single connection or on
//! several if the test case needs them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use bytes::Buf as _;
use equic_http3::binding as quic_h3;
use equic_quic::{ClientConfig, Connection, EarlyData, Endpoint};
use equic_wire::VarInt;
use tokio::task::JoinSet;

use super::{Contract, Request, tls};
use crate::failure::{Failure, Result};

/// H3_NO_ERROR (RFC 9114 s.8.1).
const H3_NO_ERROR: u32 = 0x100;
/// Maximum time to wait at the end until the last packets are sent.
const LEAVING: Duration = Duration::from_secs(3);
/// Number of bytes that the client receives before it migrates.
const FIRST: u64 = 100_000;
/// The client's address after the migration. Like the first one, it is on the loopback interface.
const SECOND: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
/// Interval at which the client checks whether a key update is permitted, or how many bytes have
/// arrived.
const LOOK: Duration = Duration::from_millis(5);

pub(super) async fn fetch(contract: &Contract) -> Result {
    let first = contract.requests.first();
    let first = first.ok_or_else(|| Failure::usage("REQUESTS is not set"))?;
    let client = Client {
        contract,
        first,
        endpoint: Endpoint::new(
            tls::settings(contract)?,
            None,
            vec![UdpSocket::bind(any(first.address))?],
        )?,
        config: tls::client(contract)?,
    };
    let done = client.cases().await;
    // Ignore a timeout: the result of the test case does not depend on whether the last packets
    // arrive.
    let _ = tokio::time::timeout(LEAVING, client.endpoint.wait_idle()).await;
    done
}

/// Returns the unspecified address of the same family as `other`.
fn any(other: SocketAddr) -> SocketAddr {
    match other {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

struct Client<'a> {
    contract: &'a Contract,
    first: &'a Request,
    endpoint: Endpoint,
    config: ClientConfig,
}

impl Client<'_> {
    async fn cases(&self) -> Result {
        let all = &self.contract.requests[..];
        match self.contract.testcase.as_str() {
            "resumption" => {
                let (one, others) = all.split_at(1);
                self.hq(&self.connect().await?, one).await?;
                self.hq(&self.connect().await?, others).await
            }
            "zerortt" => {
                let (one, others) = all.split_at(1);
                self.hq(&self.connect().await?, one).await?;
                self.early(others).await
            }
            // The test case `versionnegotiation` has nothing to fetch.
            "versionnegotiation" => {
                self.connect().await?.close(VarInt::ZERO, "");
                Ok(())
            }
            "multiconnect" => {
                for request in all {
                    self.hq(&self.connect().await?, std::slice::from_ref(request)).await?;
                }
                Ok(())
            }
            "http3" => self.http3(self.connect().await?).await,
            "keyupdate" => {
                let connection = self.connect().await?;
                let updating = tokio::spawn(update_keys(connection.clone()));
                self.hq(&connection, all).await?;
                updating.await.map_err(|error| Failure::because("the key update failed", error))
            }
            "connectionmigration" => {
                let connection = self.connect().await?;
                let moving = tokio::spawn(go_elsewhere(
                    self.endpoint.clone(),
                    connection.clone(),
                    self.first.address,
                ));
                self.hq(&connection, all).await?;
                moving.await.map_err(|error| Failure::because("the migration", error))?
            }
            "multipath" => {
                let connection = self.connect().await?;
                self.endpoint.add_local_address(SECOND)?;
                let (fetched, opened) =
                    tokio::join!(self.hq(&connection, all), connection.open_path(SECOND));
                opened.map_err(|error| Failure::because("cannot open the second path", error))?;
                fetched
            }
            _ => self.hq(&self.connect().await?, all).await,
        }
    }

    async fn connect(&self) -> Result<Connection> {
        Ok(self.endpoint.connect_with(&self.config, self.first.address, &self.first.host)?.await?)
    }

    /// Sends the requests in 0-RTT packets. If the server rejects 0-RTT, sends the requests again
    /// after the handshake.
    async fn early(&self, requests: &[Request]) -> Result {
        let (address, host) = (self.first.address, &self.first.host);
        let connecting = self.endpoint.connect_with(&self.config, address, host)?;
        let connection = connecting.into_0rtt().map_err(|_| {
            Failure::new("no 0-RTT: the server has sent no session ticket that allows it")
        })?;
        let asked = self.store(Self::ask(&connection, requests)).await;
        match connection.handshake().await? {
            EarlyData::Rejected => self.hq(&connection, requests).await,
            EarlyData::Accepted | EarlyData::None => {
                asked?;
                connection.close(VarInt::ZERO, "");
                Ok(())
            }
        }
    }

    /// Fetches the requests over HTTP/0.9, and closes the connection.
    async fn hq(&self, connection: &Connection, requests: &[Request]) -> Result {
        self.store(Self::ask(connection, requests)).await?;
        connection.close(VarInt::ZERO, "");
        Ok(())
    }

    fn ask(connection: &Connection, requests: &[Request]) -> JoinSet<Result<(Request, Vec<u8>)>> {
        let mut fetches = JoinSet::new();
        for request in requests.iter().cloned() {
            let connection = connection.clone();
            fetches.spawn(async move {
                let (mut send, mut receive) = connection.open_bi().await?;
                send.write_all(format!("GET {}\r\n", request.path).as_bytes()).await?;
                send.finish()?;
                let mut content = Vec::new();
                while let Some(data) = receive.read_chunk().await? {
                    content.extend_from_slice(&data);
                }
                Ok::<_, Failure>((request, content))
            });
        }
        fetches
    }

    async fn store(&self, mut fetches: JoinSet<Result<(Request, Vec<u8>)>>) -> Result {
        while let Some(fetched) = fetches.join_next().await {
            let (request, content) = fetched??;
            self.contract.store(&request, &content)?;
        }
        Ok(())
    }

    async fn http3(&self, connection: Connection) -> Result {
        let transport = quic_h3::QuicConnection::new(connection.clone());
        let (mut driver, http) = h3::client::new(transport).await?;
        let driving = tokio::spawn(async move { driver.wait_idle().await });
        let mut fetches = JoinSet::new();
        for request in self.contract.requests.iter().cloned() {
            let mut http = http.clone();
            fetches.spawn(async move {
                let get = http::Request::get(&request.url).body(())?;
                let mut stream = http.send_request(get).await?;
                stream.finish().await?;
                let status = stream.recv_response().await?.status();
                if !status.is_success() {
                    return Err(Failure::new(format!("{}: {status}", request.url)));
                }
                let mut content = Vec::new();
                while let Some(mut data) = stream.recv_data().await? {
                    content.extend_from_slice(&data.copy_to_bytes(data.remaining()));
                }
                Ok((request, content))
            });
        }
        self.store(fetches).await?;
        driving.abort();
        connection.close(VarInt::from_u32(H3_NO_ERROR), "");
        Ok(())
    }
}

/// Migrates in the middle of the transfer by rebinding the client's socket. Does nothing if the
/// connection has already migrated to the server's preferred address.
async fn go_elsewhere(endpoint: Endpoint, connection: Connection, server: SocketAddr) -> Result {
    while connection.stats().bytes_received < FIRST && connection.close_reason().is_none() {
        tokio::time::sleep(LOOK).await;
    }
    if connection.remote_address() == server {
        endpoint.rebind(UdpSocket::bind(any(server))?)?;
    }
    Ok(())
}

/// Initiates a key update as soon as the endpoint may do so. That is the case once the handshake is
/// confirmed (RFC 9001 s.6.1).
async fn update_keys(connection: Connection) {
    while connection.close_reason().is_none() && !connection.update_keys() {
        tokio::time::sleep(LOOK).await;
    }
}
