//! Runs the workloads of a client on any stack with asynchronous streams.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tokio::task::JoinSet;

use crate::perf::{HEAD, Received, pattern, request, shares};
use crate::{
    Answer, Connection, Effective, FirstByte, OPENING, Protocol, ReceiveStream as _,
    SendStream as _, Stack, Work, unsupported,
};

/// Runs the requested workload of a client, except for workloads that need HTTP/3.
pub async fn run<S: Stack>(
    stack: &S,
    protocol: Protocol,
    work: Work,
    mut effective: Effective,
) -> Result<Answer> {
    if protocol == Protocol::H3 {
        unsupported("HTTP/3");
    }
    let seen = &mut effective;
    let answer = match work {
        Work::Download { bytes, streams, connections } => {
            download(stack, bytes, streams, connections, seen).await?
        }
        Work::Upload { bytes } => upload(stack, bytes, seen).await?,
        Work::Handshakes { time, parallel, resume } => {
            handshakes(stack, time, parallel, resume, seen).await?
        }
        Work::FirstByte { time } => first_byte(stack, time, seen).await?,
        // Only the protocol `perf` allows several streams per connection.
        Work::Loaded { .. } if protocol != Protocol::Perf => {
            unsupported("several streams with the chosen protocol")
        }
        Work::Loaded { time } => crate::loaded::run(stack, time, seen).await?,
        Work::Hold { count } => hold(stack, count, seen).await?,
        Work::Requests { .. } => unsupported("requests"),
    };
    Ok(Answer { effective, ..answer })
}

/// Opens connections, with a limit on the number of concurrent handshakes. If there is only one
/// connection, also returns the duration of its handshake.
pub(crate) async fn connect_all<S: Stack>(
    stack: &S,
    count: usize,
) -> Result<(Vec<S::Connection>, Option<f64>)> {
    let start = Instant::now();
    let mut opening = JoinSet::new();
    let mut connections = Vec::with_capacity(count);
    for number in 0..count {
        if number >= OPENING {
            connections.push(
                opening.join_next().await.context("the task of a connection is missing")???,
            );
        }
        let stack = stack.clone();
        opening.spawn(async move { stack.connect().await });
    }
    while let Some(connection) = opening.join_next().await {
        connections.push(connection??);
    }
    Ok((connections, (count == 1).then(|| start.elapsed().as_secs_f64())))
}

/// Closes connections that are no longer in use.
pub(crate) async fn close_all<S: Stack>(
    stack: &S,
    connections: Vec<Arc<S::Connection>>,
    code: u32,
    effective: &mut Effective,
) {
    for connection in connections {
        connection.observe(effective);
        if let Some(connection) = Arc::into_inner(connection) {
            connection.close(code).await;
        }
    }
    stack.wait_idle().await;
}

async fn download<S: Stack>(
    stack: &S,
    bytes: u64,
    streams: u64,
    connections: u64,
    effective: &mut Effective,
) -> Result<Answer> {
    let (open, handshake_seconds) = connect_all(stack, usize::try_from(connections)?).await?;
    let open: Vec<_> = open.into_iter().map(Arc::new).collect();
    let start = Instant::now();
    let mut fetches = JoinSet::new();
    for (connection, share) in open.iter().zip(shares(bytes, connections)) {
        for share in shares(share, streams) {
            let connection = Arc::clone(connection);
            fetches.spawn(async move { fetch(&*connection, share).await });
        }
    }
    let (mut bytes, mut count) = (0, 0);
    while let Some(fetched) = fetches.join_next().await {
        bytes += fetched??.bytes;
        count += 1;
    }
    let seconds = start.elapsed().as_secs_f64();
    close_all(stack, open, 0, effective).await;
    Ok(Answer { bytes, count, seconds, handshake_seconds, ..Answer::default() })
}

async fn upload<S: Stack>(stack: &S, bytes: u64, effective: &mut Effective) -> Result<Answer> {
    let start = Instant::now();
    let connection = stack.connect().await?;
    let handshake_seconds = Some(start.elapsed().as_secs_f64());
    let start = Instant::now();
    let (mut to, mut from) = connection.open().await?;
    to.send(request(HEAD as u64).to_vec().into()).await?;
    let mut sent = 0;
    while sent < bytes {
        let piece = pattern(sent, bytes - sent);
        sent += piece.len() as u64;
        to.send(piece).await?;
    }
    to.finish().await?;
    let bytes = from.receive_all().await?.at_server();
    let seconds = start.elapsed().as_secs_f64();
    drop((to, from));
    close_all(stack, vec![Arc::new(connection)], 0, effective).await;
    Ok(Answer { bytes, count: 1, seconds, handshake_seconds, ..Answer::default() })
}

/// Requests this number of bytes on a new stream, and receives them.
pub(crate) async fn fetch<C: Connection>(connection: &C, bytes: u64) -> Result<Received> {
    let (mut to, mut from) = connection.open().await?;
    to.send(request(bytes).to_vec().into()).await?;
    to.finish().await?;
    let received = from.receive_all().await?;
    received.finish();
    Ok(received)
}

/// Opens a connection and fetches a few bytes, so that the server's session tickets have arrived
/// when this function returns.
async fn exchange<S: Stack>(stack: &S, wanted: u64) -> Result<(u64, S::Connection)> {
    let connection = stack.connect().await?;
    let received = fetch(&connection, wanted).await?;
    Ok((received.bytes, connection))
}

async fn handshakes<S: Stack>(
    stack: &S,
    time: Duration,
    parallel: usize,
    resume: bool,
    effective: &mut Effective,
) -> Result<Answer> {
    // Opens one connection for each ticket, because some servers send only one ticket per
    // connection. Each of the concurrent connections needs its own ticket.
    let mut preparing = JoinSet::new();
    for _ in 0..if resume { parallel + 1 } else { 1 } {
        let stack = stack.clone();
        preparing.spawn(async move { exchange(&stack, HEAD as u64).await });
    }
    while let Some(prepared) = preparing.join_next().await {
        let (_, connection) = prepared??;
        connection.observe(effective);
        connection.close(0).await;
    }
    let (full, verified) = (stack.full_handshakes(), stack.chains_verified());
    let start = Instant::now();
    let mut workers = JoinSet::new();
    for _ in 0..parallel {
        let stack = stack.clone();
        workers.spawn(async move {
            let (mut bytes, mut count) = (0, 0);
            while start.elapsed() < time {
                let (more, connection) = exchange(&stack, HEAD as u64).await?;
                connection.close(0).await;
                bytes += more;
                count += 1;
            }
            anyhow::Ok((bytes, count))
        });
    }
    let (bytes, count) = sum(workers).await?;
    let seconds = start.elapsed().as_secs_f64();
    let resumed = Some(count - (stack.full_handshakes() - full).min(count));
    let chains_verified = stack.chains_verified().zip(verified).map(|(all, before)| all - before);
    Ok(Answer { bytes, count, resumed, chains_verified, seconds, ..Answer::default() })
}

/// Waits for all workers and adds up their results. Each worker returns its bytes and its
/// completions.
pub(crate) async fn sum(mut workers: JoinSet<Result<(u64, u64)>>) -> Result<(u64, u64)> {
    let (mut bytes, mut count) = (0, 0);
    while let Some(worked) = workers.join_next().await {
        let (more, completed) = worked??;
        bytes += more;
        count += completed;
    }
    Ok((bytes, count))
}

async fn first_byte<S: Stack>(
    stack: &S,
    time: Duration,
    effective: &mut Effective,
) -> Result<Answer> {
    // Runs one exchange first, so that one-time initialization is not measured.
    let (_, connection) = exchange(stack, 1).await?;
    connection.observe(effective);
    connection.close(0).await;
    let mut times = Vec::new();
    let mut bytes = 0;
    let start = Instant::now();
    while start.elapsed() < time {
        let begun = Instant::now();
        let connection = stack.connect().await?;
        let (mut to, mut from) = connection.open().await?;
        to.send(request(1).to_vec().into()).await?;
        to.finish().await?;
        let mut received = Received::default();
        while received.bytes == 0 && from.receive(|data| received.take(data)).await? {}
        times.push(begun.elapsed().as_secs_f64());
        bytes += received.bytes;
        drop((to, from));
        connection.close(0).await;
    }
    let seconds = start.elapsed().as_secs_f64();
    let count = times.len() as u64;
    let first_byte_seconds = FirstByte::of(times);
    Ok(Answer { bytes, count, seconds, first_byte_seconds, ..Answer::default() })
}

async fn hold<S: Stack>(stack: &S, count: usize, effective: &mut Effective) -> Result<Answer> {
    let start = Instant::now();
    let (mut connections, _) = connect_all(stack, count).await?;
    let seconds = start.elapsed().as_secs_f64();
    if let Some(connection) = connections.first() {
        connection.observe(effective);
    }
    crate::held()?;
    let input = || std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
    tokio::task::spawn_blocking(input).await??;
    let open = connections.iter_mut().filter_map(|one| one.is_open().then_some(()));
    Ok(Answer { count: open.count() as u64, seconds, ..Answer::default() })
}
