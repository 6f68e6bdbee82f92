//! The client.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Buf as _;
use equic_bench::{Answer, Effective};
use equic_endpoint::quic::{self, ClientConfig, Connection, Endpoint};
use equic_wire::VarInt;
use nix::sys::socket::{getsockopt, sockopt};
use tokio::task::JoinSet;

use super::perf::{HEAD, Received, receive, send};
use super::{
    CONNECTION_WINDOW, Client, H3, MAX_PAYLOAD, PERF, SMALL_BODY, STREAM_WINDOW, settings, socket,
    tls, transport,
};
use crate::failure::{Done, Failure};
use crate::output;

/// Connections that are opened at a time for --hold.
const OPENING: usize = 32;
/// H3_NO_ERROR (RFC 9114 s.8.1).
const NO_ERROR: VarInt = VarInt::from_u32(0x100);

/// What connects.
#[derive(Clone)]
struct Stage {
    endpoint: Endpoint,
    config: ClientConfig,
    server: SocketAddr,
    name: String,
    /// Handshakes that were not resumed.
    full: Arc<AtomicU64>,
}

/// Does what was asked for, and prints what came of it.
pub async fn run(args: &Client) -> Done {
    let alpn = if args.requests.is_some() { H3 } else { PERF };
    let (mut tls, full) = tls::client(&args.ca, alpn)?;
    if !args.resume {
        tls.resumption = rustls::client::Resumption::disabled();
    }
    let config = ClientConfig { tls: Arc::new(tls), transport: transport() };
    let socket = socket(SocketAddr::new(local_address(args.connect)?, 0))?;
    let effective = effective(&socket)?;
    let endpoint = Endpoint::client(socket, settings()?)?;
    let (server, name) = (args.connect, args.name.clone());
    let stage = Stage { endpoint, config, server, name, full };
    let parallel = usize::from(args.parallel);
    let mut answer = match args {
        Client { download: Some(bytes), streams, .. } => stage.download(*bytes, *streams).await?,
        Client { upload: Some(bytes), .. } => stage.upload(*bytes).await?,
        Client { handshakes: Some(time), resume, .. } => {
            stage.handshakes(*time, parallel, *resume).await?
        }
        Client { requests: Some(time), .. } => stage.requests(*time, parallel).await?,
        Client { hold: Some(count), .. } => stage.hold(*count).await?,
        // The group of arguments wants one of them.
        _ => return Err(Failure::usage("nothing to do")),
    };
    answer.effective = effective;
    output::line(serde_json::to_string(&answer)?)
}

/// The address that leads to the server.
fn local_address(server: SocketAddr) -> Done<IpAddr> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let probe = UdpSocket::bind((any, 0))?;
    probe.connect(server)?;
    Ok(probe.local_addr()?.ip())
}

fn effective(socket: &UdpSocket) -> Done<Effective> {
    Ok(Effective {
        implementation: format!("equic {}", env!("CARGO_PKG_VERSION")),
        io: "native".to_owned(),
        receive_buffer: getsockopt(socket, sockopt::RcvBuf)? as u64,
        send_buffer: getsockopt(socket, sockopt::SndBuf)? as u64,
        stream_window: STREAM_WINDOW,
        connection_window: CONNECTION_WINDOW,
        congestion: "cubic".to_owned(),
        cipher: Some("TLS_AES_128_GCM_SHA256".to_owned()),
        max_payload: MAX_PAYLOAD.into(),
        gso: true,
        gro: true,
    })
}

impl Stage {
    async fn connect(&self) -> Done<Connection> {
        Ok(self.endpoint.connect(&self.config, self.server, &self.name)?.await?)
    }

    /// The only connection, and how long its handshake took.
    async fn connect_timed(&self) -> Done<(Connection, Option<f64>)> {
        let start = Instant::now();
        let connection = self.connect().await?;
        Ok((connection, Some(start.elapsed().as_secs_f64())))
    }

    async fn close(&self, connection: Connection, code: VarInt) {
        connection.close(code, "");
        drop(connection);
        self.endpoint.wait_idle().await;
    }

    async fn download(&self, bytes: u64, streams: u64) -> Done<Answer> {
        let (connection, handshake_seconds) = self.connect_timed().await?;
        let start = Instant::now();
        let mut fetches = JoinSet::new();
        for stream in 0..streams {
            let rest = if stream == 0 { bytes % streams } else { 0 };
            fetches.spawn(fetch(connection.clone(), bytes / streams + rest));
        }
        let (mut bytes, mut count) = (0, 0);
        while let Some(fetched) = fetches.join_next().await {
            bytes += fetched??.bytes;
            count += 1;
        }
        let seconds = start.elapsed().as_secs_f64();
        self.close(connection, VarInt::ZERO).await;
        Ok(Answer { bytes, count, seconds, handshake_seconds, ..Answer::default() })
    }

    async fn upload(&self, bytes: u64) -> Done<Answer> {
        let (connection, handshake_seconds) = self.connect_timed().await?;
        let start = Instant::now();
        let (mut to, mut from) = connection.open_bi().await?;
        send(&mut to, HEAD as u64, HEAD as u64 + bytes).await?;
        let arrived = receive(&mut from).await?.number()?;
        let seconds = start.elapsed().as_secs_f64();
        drop((to, from));
        self.close(connection, VarInt::ZERO).await;
        let count = 1;
        Ok(Answer { bytes: arrived, count, seconds, handshake_seconds, ..Answer::default() })
    }

    /// A connection with the smallest of exchanges, after which the server's tickets are here.
    async fn exchange(&self) -> Done<u64> {
        let connection = self.connect().await?;
        let received = fetch(connection.clone(), HEAD as u64).await?;
        connection.close(VarInt::ZERO, "");
        Ok(received.bytes)
    }

    async fn handshakes(&self, time: Duration, parallel: usize, resume: bool) -> Done<Answer> {
        // As many tickets as there will be connections at a time; each brings more than it takes.
        for _ in 0..if resume { parallel + 1 } else { 1 } {
            self.exchange().await?;
        }
        let full = self.full.load(Ordering::Relaxed);
        let start = Instant::now();
        let mut workers = JoinSet::new();
        for _ in 0..parallel {
            let stage = self.clone();
            workers.spawn(async move {
                let (mut bytes, mut count) = (0, 0);
                while start.elapsed() < time {
                    bytes += stage.exchange().await?;
                    count += 1;
                }
                Done::Ok((bytes, count))
            });
        }
        let (bytes, count) = sum(workers).await?;
        let seconds = start.elapsed().as_secs_f64();
        let full = self.full.load(Ordering::Relaxed) - full;
        let resumed = Some(count - full);
        Ok(Answer { bytes, count, resumed, seconds, ..Answer::default() })
    }

    async fn requests(&self, time: Duration, parallel: usize) -> Done<Answer> {
        let (connection, handshake_seconds) = self.connect_timed().await?;
        let transport = quic::h3::Connection::new(connection.clone());
        let (mut driver, http) = h3::client::new(transport).await?;
        let driving = tokio::spawn(async move { driver.wait_idle().await });
        let uri: http::Uri = format!("https://{}/1k", self.name).parse()?;
        let start = Instant::now();
        let mut workers = JoinSet::new();
        for _ in 0..parallel {
            let (mut http, uri) = (http.clone(), uri.clone());
            workers.spawn(async move {
                let (mut bytes, mut count) = (0, 0);
                while start.elapsed() < time {
                    let get = http::Request::get(uri.clone()).body(())?;
                    let mut stream = http.send_request(get).await?;
                    stream.finish().await?;
                    let status = stream.recv_response().await?.status();
                    let mut body = 0;
                    while let Some(data) = stream.recv_data().await? {
                        body += data.remaining();
                    }
                    if status != 200 || body != SMALL_BODY {
                        return Err(Failure::new(format!("{status}, {body} bytes")));
                    }
                    bytes += body as u64;
                    count += 1;
                }
                Done::Ok((bytes, count))
            });
        }
        let (bytes, count) = sum(workers).await?;
        let seconds = start.elapsed().as_secs_f64();
        drop(http);
        driving.abort();
        self.close(connection, NO_ERROR).await;
        Ok(Answer { bytes, count, seconds, handshake_seconds, ..Answer::default() })
    }

    async fn hold(&self, count: usize) -> Done<Answer> {
        let start = Instant::now();
        let mut opening = JoinSet::new();
        let mut connections = Vec::with_capacity(count);
        for number in 0..count {
            if number >= OPENING
                && let Some(connection) = opening.join_next().await
            {
                connections.push(connection??);
            }
            let stage = self.clone();
            opening.spawn(async move { stage.connect().await });
        }
        while let Some(connection) = opening.join_next().await {
            connections.push(connection??);
        }
        let seconds = start.elapsed().as_secs_f64();
        output::line("held")?;
        let input = || std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        tokio::task::spawn_blocking(input).await??;
        let count = connections.iter().filter(|one| one.close_reason().is_none()).count() as u64;
        Ok(Answer { count, seconds, ..Answer::default() })
    }
}

/// Fetches so many bytes on a stream.
async fn fetch(connection: Connection, bytes: u64) -> Done<Received> {
    let (mut to, mut from) = connection.open_bi().await?;
    send(&mut to, bytes, HEAD as u64).await?;
    Ok(receive(&mut from).await?)
}

/// What all workers did, each bytes and completions.
async fn sum(mut workers: JoinSet<Done<(u64, u64)>>) -> Done<(u64, u64)> {
    let (mut bytes, mut count) = (0, 0);
    while let Some(worked) = workers.join_next().await {
        let (more, completed) = worked??;
        bytes += more;
        count += completed;
    }
    Ok((bytes, count))
}
