use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bench_contract::perf::{HEAD, Received, ZEROS, request, shares};
use bench_contract::{Answer, Client, Effective, H3, OPENING, PERF, SMALL_BODY, Work};
use bytes::{Buf as _, Bytes};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, Endpoint, EndpointConfig, TokioRuntime};
use rustls::crypto::ring;
use tokio::io::AsyncReadExt as _;
use tokio::task::JoinSet;

/// What connects.
#[derive(Clone)]
struct Stage {
    endpoint: Endpoint,
    client: Client,
    /// Handshakes that were not resumed.
    full: Arc<AtomicU64>,
}

pub async fn run(client: &Client) -> Result<()> {
    let alpn = if matches!(client.work, Work::Requests { .. }) { H3 } else { PERF };
    let (mut tls, full) = bench_contract::tls::client(&client.ca, ring::default_provider(), alpn)?;
    if let Work::Handshakes { resume: false, .. } = client.work {
        tls.resumption = rustls::client::Resumption::disabled();
    }
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(Arc::new(tls))?));
    config.transport_config(crate::transport()?);
    let socket = bench_contract::client_socket(client.connect)?;
    let effective = Effective::new("quinn", "native", &socket)?;
    let own = EndpointConfig::default();
    let mut endpoint = Endpoint::new(own, None, socket, Arc::new(TokioRuntime))?;
    endpoint.set_default_client_config(config);
    let stage = Stage { endpoint, client: client.clone(), full };
    let answer = match client.work {
        Work::Download { bytes, streams } => stage.download(bytes, streams, effective).await?,
        Work::Upload { bytes } => stage.upload(bytes, effective).await?,
        Work::Handshakes { time, parallel, resume } => {
            stage.handshakes(time, parallel, resume, effective).await?
        }
        Work::Requests { time, parallel } => stage.requests(time, parallel, effective).await?,
        Work::Hold { count } => stage.hold(count, effective).await?,
    };
    answer.print()
}

impl Stage {
    async fn connect(&self) -> Result<Connection> {
        Ok(self.endpoint.connect(self.client.connect, &self.client.name)?.await?)
    }

    async fn connect_timed(&self) -> Result<(Connection, f64)> {
        let start = Instant::now();
        let connection = self.connect().await?;
        Ok((connection, start.elapsed().as_secs_f64()))
    }

    async fn download(&self, bytes: u64, streams: u64, effective: Effective) -> Result<Answer> {
        let (connection, handshake) = self.connect_timed().await?;
        let start = Instant::now();
        let mut fetches = JoinSet::new();
        for share in shares(bytes, streams) {
            fetches.spawn(fetch(connection.clone(), share));
        }
        let (mut bytes, mut count) = (0, 0);
        while let Some(fetched) = fetches.join_next().await {
            bytes += fetched??.bytes;
            count += 1;
        }
        let seconds = start.elapsed().as_secs_f64();
        connection.close(0u32.into(), b"");
        self.endpoint.wait_idle().await;
        let handshake_seconds = Some(handshake);
        Ok(Answer { bytes, count, resumed: None, seconds, handshake_seconds, effective })
    }

    async fn upload(&self, bytes: u64, effective: Effective) -> Result<Answer> {
        let (connection, handshake) = self.connect_timed().await?;
        let start = Instant::now();
        let (mut send, mut receive) = connection.open_bi().await?;
        send.write_all(&request(HEAD as u64)).await?;
        let mut left = bytes;
        while left > 0 {
            let count = usize::try_from(left).unwrap_or(ZEROS.len()).min(ZEROS.len());
            send.write_chunk(Bytes::from_static(&ZEROS[..count])).await?;
            left -= count as u64;
        }
        send.finish()?;
        let mut received = Received::default();
        while let Some(chunk) = receive.read_chunk(usize::MAX, true).await? {
            received.take(&chunk.bytes);
        }
        let seconds = start.elapsed().as_secs_f64();
        connection.close(0u32.into(), b"");
        self.endpoint.wait_idle().await;
        let (bytes, handshake_seconds) = (received.at_server(), Some(handshake));
        Ok(Answer { bytes, count: 1, resumed: None, seconds, handshake_seconds, effective })
    }

    /// A connection with the smallest of exchanges, after which the server's tickets are here.
    async fn exchange(&self) -> Result<u64> {
        let connection = self.connect().await?;
        let received = fetch(connection.clone(), HEAD as u64).await?;
        connection.close(0u32.into(), b"");
        Ok(received.bytes)
    }

    async fn handshakes(
        &self,
        time: Duration,
        parallel: usize,
        resume: bool,
        effective: Effective,
    ) -> Result<Answer> {
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
                anyhow::Ok((bytes, count))
            });
        }
        let (bytes, count) = sum(workers).await?;
        let seconds = start.elapsed().as_secs_f64();
        let full = self.full.load(Ordering::Relaxed) - full;
        let resumed = Some(count - full);
        Ok(Answer { bytes, count, resumed, seconds, handshake_seconds: None, effective })
    }

    async fn requests(
        &self,
        time: Duration,
        parallel: usize,
        effective: Effective,
    ) -> Result<Answer> {
        let (connection, handshake) = self.connect_timed().await?;
        let transport = h3_quinn::Connection::new(connection.clone());
        let (mut driver, http) = h3::client::new(transport).await?;
        let driving = tokio::spawn(async move { driver.wait_idle().await });
        let uri: http::Uri = format!("https://{}/1k", self.client.name).parse()?;
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
                    ensure!(status == 200 && body == SMALL_BODY, "{status}, {body} bytes");
                    bytes += body as u64;
                    count += 1;
                }
                anyhow::Ok((bytes, count))
            });
        }
        let (bytes, count) = sum(workers).await?;
        let seconds = start.elapsed().as_secs_f64();
        drop(http);
        driving.abort();
        connection.close(0x100u32.into(), b"");
        self.endpoint.wait_idle().await;
        let handshake_seconds = Some(handshake);
        Ok(Answer { bytes, count, resumed: None, seconds, handshake_seconds, effective })
    }

    async fn hold(&self, count: usize, effective: Effective) -> Result<Answer> {
        let start = Instant::now();
        let mut opening = JoinSet::new();
        let mut connections = Vec::with_capacity(count);
        for number in 0..count {
            if number >= OPENING {
                connections.push(opening.join_next().await.context("a connection")???);
            }
            let stage = self.clone();
            opening.spawn(async move { stage.connect().await });
        }
        while let Some(connection) = opening.join_next().await {
            connections.push(connection??);
        }
        let seconds = start.elapsed().as_secs_f64();
        bench_contract::held();
        tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
        let open = connections.iter().filter(|one| one.close_reason().is_none()).count() as u64;
        Ok(Answer {
            bytes: 0,
            count: open,
            resumed: None,
            seconds,
            handshake_seconds: None,
            effective,
        })
    }
}

/// Fetches so many bytes on a stream.
async fn fetch(connection: Connection, bytes: u64) -> Result<Received> {
    let (mut send, mut receive) = connection.open_bi().await?;
    send.write_all(&request(bytes)).await?;
    send.finish()?;
    let mut received = Received::default();
    while let Some(chunk) = receive.read_chunk(usize::MAX, true).await? {
        received.take(&chunk.bytes);
    }
    Ok(received)
}

/// What all workers did, each bytes and completions.
async fn sum(mut workers: JoinSet<Result<(u64, u64)>>) -> Result<(u64, u64)> {
    let (mut bytes, mut count) = (0, 0);
    while let Some(worked) = workers.join_next().await {
        let (more, completed) = worked??;
        bytes += more;
        count += completed;
    }
    Ok((bytes, count))
}
