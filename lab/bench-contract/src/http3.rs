//! HTTP/3 for stacks that the crate h3 supports. The server answers `GET /<bytes>` with this number
//! of bytes of the pattern, and `GET /1k` with 1,024 bytes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bytes::{Buf as _, Bytes};
use h3::client::SendRequest;
use h3::quic;
use tokio::task::{JoinHandle, JoinSet, LocalSet};

use crate::client::{close_all, connect_all, sum};
use crate::perf::{Check, pattern, shares};
use crate::{Answer, Effective, SMALL_BODY, Stack, Work, unsupported};

/// The error code H3_NO_ERROR (RFC 9114 s.8.1).
const NO_ERROR: u32 = 0x100;

/// A stack that the crate h3 supports.
pub trait Http: Stack {
    /// The type of a connection for h3.
    type Transport: quic::Connection<Bytes, OpenStreams = Self::Opener> + 'static;
    /// Type that opens streams of the connection.
    type Opener: quic::OpenStreams<Bytes> + Clone + 'static;

    /// Converts a connection of the stack to the connection type of h3.
    fn transport(connection: &Self::Connection) -> Self::Transport;
}

/// Returns the number of bytes that a path requests, or `None` if the path is unknown.
pub fn size(path: &str) -> Option<u64> {
    match path.strip_prefix('/')? {
        "1k" => Some(SMALL_BODY),
        number => number.parse().ok(),
    }
}

/// Answers all requests of a connection, until the client closes it.
pub async fn serve<C>(connection: C) -> Result<()>
where
    C: quic::Connection<Bytes> + 'static,
    <C as quic::OpenStreams<Bytes>>::BidiStream:
        quic::BidiStream<Bytes, SendStream: Send, RecvStream: Send> + Send + 'static,
{
    let mut http = h3::server::Connection::<_, Bytes>::new(connection).await?;
    while let Ok(Some(resolver)) = http.accept().await {
        tokio::spawn(async move {
            let answered: Result<()> = async {
                let (request, mut stream) = resolver.resolve_request().await?;
                let wanted = size(request.uri().path());
                let status = if wanted.is_some() { 200 } else { 404 };
                stream.send_response(http::Response::builder().status(status).body(())?).await?;
                let (mut at, wanted) = (0, wanted.unwrap_or(0));
                while at < wanted {
                    let piece = pattern(at, wanted - at);
                    at += piece.len() as u64;
                    stream.send_data(piece).await?;
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

/// Runs a workload over HTTP/3.
pub async fn run<S: Http>(
    stack: &S,
    name: &str,
    work: Work,
    mut effective: Effective,
) -> Result<Answer> {
    let seen = &mut effective;
    let local = LocalSet::new();
    let answer = match work {
        Work::Download { bytes, streams, connections } => {
            local.run_until(download(stack, name, bytes, [connections, streams], seen)).await?
        }
        Work::Requests { time, parallel } => {
            local.run_until(requests(stack, name, time, parallel, seen)).await?
        }
        _ => unsupported("the requested workload over HTTP/3"),
    };
    Ok(Answer { effective, ..answer })
}

/// The task that drives an h3 connection, and the client's handle for requests.
type Begun<S> = (JoinHandle<()>, SendRequest<<S as Http>::Opener, Bytes>);

async fn begin<S: Http>(connection: &S::Connection) -> Result<Begun<S>> {
    let (mut driver, http) = h3::client::new(S::transport(connection)).await?;
    let driving = tokio::task::spawn_local(async move {
        // The task that drives the connection ends when the client closes it.
        let _ = driver.wait_idle().await;
    });
    Ok((driving, http))
}

/// Requests a path and receives the whole response. Returns the number of its bytes.
async fn fetch<O>(http: &mut SendRequest<O, Bytes>, uri: http::Uri) -> Result<u64>
where
    O: quic::OpenStreams<Bytes>,
{
    let wanted = size(uri.path()).context("the path of the request is not a number of bytes")?;
    let mut stream = http.send_request(http::Request::get(uri).body(())?).await?;
    stream.finish().await?;
    let status = stream.recv_response().await?.status();
    ensure!(status == 200, "the server answered {status}");
    let mut check = Check::default();
    while let Some(mut data) = stream.recv_data().await? {
        while data.has_remaining() {
            let piece = data.chunk();
            check.take(piece);
            let count = piece.len();
            data.advance(count);
        }
    }
    check.finish();
    ensure!(check.bytes() == wanted, "received {} bytes instead of {wanted}", check.bytes());
    Ok(wanted)
}

async fn download<S: Http>(
    stack: &S,
    name: &str,
    bytes: u64,
    [connections, streams]: [u64; 2],
    effective: &mut Effective,
) -> Result<Answer> {
    let (open, handshake_seconds) = connect_all(stack, usize::try_from(connections)?).await?;
    let open: Vec<_> = open.into_iter().map(Arc::new).collect();
    let mut clients = Vec::new();
    for connection in &open {
        clients.push(begin::<S>(connection).await?);
    }
    let start = Instant::now();
    let mut fetches = JoinSet::new();
    for ((_, http), share) in clients.iter().zip(shares(bytes, connections)) {
        for share in shares(share, streams) {
            let mut http = http.clone();
            let uri: http::Uri = format!("https://{name}/{share}").parse()?;
            fetches.spawn_local(async move { anyhow::Ok((fetch(&mut http, uri).await?, 1)) });
        }
    }
    let (bytes, count) = sum(fetches).await?;
    let seconds = start.elapsed().as_secs_f64();
    for (driving, http) in clients {
        drop(http);
        driving.abort();
    }
    close_all(stack, open, NO_ERROR, effective).await;
    Ok(Answer { bytes, count, seconds, handshake_seconds, ..Answer::default() })
}

async fn requests<S: Http>(
    stack: &S,
    name: &str,
    time: Duration,
    parallel: usize,
    effective: &mut Effective,
) -> Result<Answer> {
    let (open, handshake_seconds) = connect_all(stack, 1).await?;
    let open: Vec<_> = open.into_iter().map(Arc::new).collect();
    let (driving, http) = begin::<S>(open.first().context("no connection is open")?).await?;
    let uri: http::Uri = format!("https://{name}/1k").parse()?;
    let start = Instant::now();
    let mut workers = JoinSet::new();
    for _ in 0..parallel {
        let (mut http, uri) = (http.clone(), uri.clone());
        workers.spawn_local(async move {
            let (mut bytes, mut count) = (0, 0);
            while start.elapsed() < time {
                bytes += fetch(&mut http, uri.clone()).await?;
                count += 1;
            }
            anyhow::Ok((bytes, count))
        });
    }
    let (bytes, count) = sum(workers).await?;
    let seconds = start.elapsed().as_secs_f64();
    drop(http);
    driving.abort();
    close_all(stack, open, NO_ERROR, effective).await;
    Ok(Answer { bytes, count, seconds, handshake_seconds, ..Answer::default() })
}
