//! Answering one request.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use h3::error::{Code, StreamError};
use h3::server::{RequestResolver, RequestStream};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use tokio::io::{AsyncReadExt, AsyncSeekExt, SeekFrom};
use tokio::sync::watch;
use tokio::time::timeout;

use super::connection::Peer;
use super::files::{Found, Root};
use super::range::{Wanted, wanted};
use super::{Phase, RequestRecord};
use crate::quic;

/// Bytes handed to QUIC at a time.
const CHUNK: usize = 64 * 1024;
static ZEROES: [u8; CHUNK] = [0; CHUNK];

type Resolver = RequestResolver<quic::h3::Connection, Bytes>;
type Stream = RequestStream<quic::h3::BidiStream<Bytes>, Bytes>;

/// What became of a request.
pub(super) enum Outcome {
    Answered,
    /// The request was not HTTP/3, or did not come in time.
    Malformed,
    /// The client went away, or did not take the response.
    Abandoned,
}

enum Body {
    Text(Bytes),
    Zeroes(u64),
    File(tokio::fs::File, u64),
}

impl Body {
    fn len(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::Zeroes(length) | Self::File(_, length) => *length,
        }
    }
}

struct Answer {
    head: Response<()>,
    body: Body,
}

pub(super) async fn run(
    peer: Arc<Peer>,
    address: SocketAddr,
    number: u64,
    resolver: Resolver,
    mut phase: watch::Receiver<Phase>,
) -> Outcome {
    let limits = &peer.context.limits;
    let resolved = tokio::select! {
        resolved = timeout(limits.stall_timeout, resolver.resolve_request()) => resolved,
        () = Phase::CutOff.begun(&mut phase) => return Outcome::Abandoned,
    };
    let (request, mut stream) = match resolved {
        Ok(Ok(resolved)) => resolved,
        Ok(Err(error)) => {
            tracing::debug!(%address, %error, "no request");
            return Outcome::Malformed;
        }
        Err(_) => return Outcome::Malformed,
    };
    let start = Instant::now();
    let answer = match too_early(peer.is_early(), request.method()) {
        Some(answer) => answer,
        None => answer(&peer, &request).await,
    };
    let status = answer.head.status();
    let mut bytes = 0;
    let sent = tokio::select! {
        sent = send(&peer, &mut stream, request.method(), answer, &mut bytes) => sent,
        () = Phase::CutOff.begun(&mut phase) => Err(SendError::CutOff),
    };
    peer.context.stats.0.bytes.add(bytes);
    if let Err(error) = &sent {
        tracing::debug!(%address, %error, "response cut short");
        stream.stop_stream(Code::H3_INTERNAL_ERROR);
    } else {
        peer.context.stats.0.requests.add(1);
    }
    // A body nobody asked for need not come (RFC 9114 s.4.1).
    stream.stop_sending(Code::H3_NO_ERROR);
    if let Some(log) = &peer.context.log {
        log(&RequestRecord {
            peer: address,
            connection: peer.number,
            request: number,
            method: request.method().clone(),
            path: request.uri().path_and_query().map_or_else(String::new, ToString::to_string),
            status,
            bytes,
            duration: start.elapsed(),
            complete: sent.is_ok(),
        });
    }
    if sent.is_ok() { Outcome::Answered } else { Outcome::Abandoned }
}

/// RFC 8470 s.5.2: what may do harm when it is carried out twice has to be asked for again, after the
/// handshake. GET and HEAD only read here.
fn too_early(early: bool, method: &Method) -> Option<Answer> {
    let safe = matches!(*method, Method::GET | Method::HEAD);
    (early && !safe).then(|| text(StatusCode::TOO_EARLY, "not before the handshake is complete\n"))
}

async fn answer(peer: &Peer, request: &Request<()>) -> Answer {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
        answer.head.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return answer;
    }
    let path = request.uri().path();
    // A range is of what GET gives (RFC 9110 s.14.2).
    let none = HeaderMap::new();
    let headers = if *request.method() == Method::GET { request.headers() } else { &none };
    if path == "/health" {
        return text(StatusCode::OK, "ok\n");
    }
    if let Some(number) = path.strip_prefix("/bytes/") {
        return zeroes(number, peer.context.limits.max_bytes, headers);
    }
    match &peer.context.files {
        Some(root) => file(root, path, request.uri().query(), headers).await,
        None => text(StatusCode::NOT_FOUND, "not found\n"),
    }
}

fn zeroes(number: &str, max: u64, headers: &HeaderMap) -> Answer {
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return text(StatusCode::BAD_REQUEST, "/bytes/N: N must be a decimal number\n");
    }
    match number.parse::<u64>() {
        Ok(length) if length <= max => match part(headers, "application/octet-stream", length) {
            Ok((head, part)) => Answer { head, body: Body::Zeroes(part.end - part.start) },
            Err(answer) => *answer,
        },
        // All digits, so what does not parse is too large.
        _ => text(StatusCode::BAD_REQUEST, &format!("/bytes/N: N is at most {max}\n")),
    }
}

async fn file(root: &Root, path: &str, query: Option<&str>, headers: &HeaderMap) -> Answer {
    match root.find(path).await {
        Found::File { file, length, content_type } => {
            let (head, part) = match part(headers, content_type, length) {
                Ok(part) => part,
                Err(answer) => return *answer,
            };
            let mut file = tokio::fs::File::from_std(file);
            if part.start > 0
                && let Err(error) = file.seek(SeekFrom::Start(part.start)).await
            {
                tracing::warn!(path, %error, "cannot seek in file");
                return text(StatusCode::INTERNAL_SERVER_ERROR, "cannot read the file\n");
            }
            Answer { head, body: Body::File(file, part.end - part.start) }
        }
        Found::Directory => {
            let location = match query {
                Some(query) => format!("{path}/?{query}"),
                None => format!("{path}/"),
            };
            let mut answer = text(StatusCode::PERMANENT_REDIRECT, "");
            if let Ok(location) = HeaderValue::try_from(location) {
                answer.head.headers_mut().insert(header::LOCATION, location);
            }
            answer
        }
        Found::Malformed => text(StatusCode::BAD_REQUEST, "malformed path\n"),
        Found::Nothing => text(StatusCode::NOT_FOUND, "not found\n"),
        Found::Failed(error) => {
            tracing::warn!(path, %error, "cannot open file");
            text(StatusCode::INTERNAL_SERVER_ERROR, "cannot read the file\n")
        }
    }
}

/// The head for the part of a body that was asked for, and which it is; an error: there is no such part.
fn part(
    headers: &HeaderMap,
    content_type: &'static str,
    length: u64,
) -> Result<(Response<()>, Range<u64>), Box<Answer>> {
    let (status, range, content_range) = match wanted(headers, length) {
        Wanted::All => (StatusCode::OK, 0..length, None),
        Wanted::Part(part) => {
            let value = format!("bytes {}-{}/{length}", part.start, part.end - 1);
            (StatusCode::PARTIAL_CONTENT, part, Some(value))
        }
        Wanted::Beyond => {
            let mut answer = text(StatusCode::RANGE_NOT_SATISFIABLE, "no such part\n");
            insert(&mut answer.head, &format!("bytes */{length}"));
            return Err(Box::new(answer));
        }
    };
    let mut head = head(status, content_type, range.end - range.start);
    head.headers_mut().insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Some(value) = content_range {
        insert(&mut head, &value);
    }
    Ok((head, range))
}

fn insert(head: &mut Response<()>, content_range: &str) {
    // Digits, and what stands between them.
    if let Ok(value) = HeaderValue::from_str(content_range) {
        head.headers_mut().insert(header::CONTENT_RANGE, value);
    }
}

fn text(status: StatusCode, text: &str) -> Answer {
    let body = Body::Text(Bytes::copy_from_slice(text.as_bytes()));
    Answer { head: head(status, "text/plain; charset=utf-8", body.len()), body }
}

fn head(status: StatusCode, content_type: &'static str, length: u64) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::SERVER, HeaderValue::from_static("equic"));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

#[derive(Debug, thiserror::Error)]
enum SendError {
    #[error("the server is shutting down")]
    CutOff,
    #[error("the client did not take it in time")]
    Stalled,
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error("the file became unreadable: {0}")]
    File(#[from] std::io::Error),
}

async fn send(
    peer: &Peer,
    stream: &mut Stream,
    method: &Method,
    answer: Answer,
    bytes: &mut u64,
) -> Result<(), SendError> {
    let limit = peer.context.limits.stall_timeout;
    macro_rules! in_time {
        ($step:expr) => {
            timeout(limit, $step).await.map_err(|_| SendError::Stalled)??
        };
    }
    in_time!(stream.send_response(answer.head));
    let mut left = if method == Method::HEAD { 0 } else { answer.body.len() };
    let mut body = answer.body;
    while left > 0 {
        let want = left.min(CHUNK as u64) as usize;
        let chunk = match &mut body {
            Body::Text(text) => text.split_to(want),
            Body::Zeroes(_) => Bytes::from_static(&ZEROES[..want]),
            Body::File(file, _) => {
                let mut buffer = vec![0; want];
                // A file that has shrunk ends here: the response cannot keep its word.
                file.read_exact(&mut buffer).await?;
                buffer.into()
            }
        };
        in_time!(stream.send_data(chunk));
        left -= want as u64;
        *bytes += want as u64;
    }
    in_time!(stream.finish());
    Ok(())
}
