use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use bench_contract::perf::{HEAD, Received, ZEROS, request, shares};
use bench_contract::{Answer, Client, Effective, OPENING, PERF, Work, unsupported};
use bytes::Bytes;
use rustls::crypto::aws_lc_rs;
use s2n_quic::Connection;
use s2n_quic::client::Connect;
use s2n_quic::connection::Handle;
use s2n_quic::provider::tls::rustls::Client as Tls;
use s2n_quic::stream::ReceiveStream;
use tokio::io::AsyncReadExt as _;
use tokio::task::JoinSet;

/// What connects.
#[derive(Clone)]
struct Stage {
    endpoint: s2n_quic::Client,
    client: Client,
    /// Handshakes that were not resumed.
    full: Arc<AtomicU64>,
}

pub async fn run(client: &Client) -> Result<()> {
    if matches!(client.work, Work::Requests { .. } | Work::Handshakes { resume: true, .. }) {
        unsupported();
    }
    let provider = aws_lc_rs::default_provider();
    let (mut tls, full) = bench_contract::tls::client(&client.ca, provider, PERF)?;
    tls.resumption = rustls::client::Resumption::disabled();
    let socket = bench_contract::client_socket(client.connect)?;
    let effective = Effective::new("s2n-quic", "native", &socket)?;
    let endpoint = s2n_quic::Client::builder()
        .with_tls(Tls::from(tls))?
        .with_limits(crate::limits()?)?
        .with_io(crate::io(socket, client.connect)?)?
        .start()
        .map_err(|error| anyhow!("{error}"))?;
    let stage = Stage { endpoint, client: client.clone(), full };
    let answer = match client.work {
        Work::Download { bytes, streams } => stage.download(bytes, streams, effective).await?,
        Work::Upload { bytes } => stage.upload(bytes, effective).await?,
        Work::Handshakes { time, parallel, .. } => {
            stage.handshakes(time, parallel, effective).await?
        }
        Work::Hold { count } => stage.hold(count, effective).await?,
        Work::Requests { .. } => unsupported(),
    };
    answer.print()
}

impl Stage {
    async fn connect(&self) -> Result<Connection> {
        let to = Connect::new(self.client.connect).with_server_name(&*self.client.name);
        Ok(self.endpoint.connect(to).await?)
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
            fetches.spawn(fetch(connection.handle(), share));
        }
        let (mut bytes, mut count) = (0, 0);
        while let Some(fetched) = fetches.join_next().await {
            bytes += fetched??.bytes;
            count += 1;
        }
        let seconds = start.elapsed().as_secs_f64();
        connection.close(0u32.into());
        let handshake_seconds = Some(handshake);
        Ok(Answer { bytes, count, resumed: None, seconds, handshake_seconds, effective })
    }

    async fn upload(&self, bytes: u64, effective: Effective) -> Result<Answer> {
        let (connection, handshake) = self.connect_timed().await?;
        let start = Instant::now();
        let stream = connection.handle().open_bidirectional_stream().await?;
        let (mut receive, mut send) = stream.split();
        send.send(Bytes::copy_from_slice(&request(HEAD as u64))).await?;
        let mut left = bytes;
        while left > 0 {
            let count = usize::try_from(left).unwrap_or(ZEROS.len()).min(ZEROS.len());
            send.send(Bytes::from_static(&ZEROS[..count])).await?;
            left -= count as u64;
        }
        send.finish()?;
        let received = receive_all(&mut receive).await?;
        let seconds = start.elapsed().as_secs_f64();
        connection.close(0u32.into());
        let (bytes, handshake_seconds) = (received.at_server(), Some(handshake));
        Ok(Answer { bytes, count: 1, resumed: None, seconds, handshake_seconds, effective })
    }

    /// A connection with the smallest of exchanges.
    async fn exchange(&self) -> Result<u64> {
        let connection = self.connect().await?;
        let received = fetch(connection.handle(), HEAD as u64).await?;
        connection.close(0u32.into());
        Ok(received.bytes)
    }

    async fn handshakes(
        &self,
        time: Duration,
        parallel: usize,
        effective: Effective,
    ) -> Result<Answer> {
        self.exchange().await?;
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
        let (mut bytes, mut count) = (0, 0);
        while let Some(worked) = workers.join_next().await {
            let (more, completed) = worked??;
            bytes += more;
            count += completed;
        }
        let seconds = start.elapsed().as_secs_f64();
        let full = self.full.load(Ordering::Relaxed) - full;
        let resumed = Some(count - full);
        Ok(Answer { bytes, count, resumed, seconds, handshake_seconds: None, effective })
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
        // A connection that is over refuses to be pinged.
        let open = connections.iter_mut().filter_map(|one| one.ping().ok()).count() as u64;
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
async fn fetch(mut handle: Handle, bytes: u64) -> Result<Received> {
    let stream = handle.open_bidirectional_stream().await?;
    let (mut receive, mut send) = stream.split();
    send.send(Bytes::copy_from_slice(&request(bytes))).await?;
    send.finish()?;
    receive_all(&mut receive).await
}

async fn receive_all(stream: &mut ReceiveStream) -> Result<Received> {
    let mut received = Received::default();
    let mut chunks = [const { Bytes::new() }; 64];
    let mut open = true;
    while open {
        let (count, more) = stream.receive_vectored(&mut chunks).await?;
        for chunk in &mut chunks[..count] {
            received.take(&std::mem::take(chunk));
        }
        open = more;
    }
    Ok(received)
}
