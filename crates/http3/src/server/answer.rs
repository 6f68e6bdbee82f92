//! Chooses the answer to a request: a resource, a part of one, or an error status.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use nix::errno::Errno;
use tokio::time::timeout;

use super::body::{Body, OpenFile, Source};
use super::connection::Peer;
use super::files::{FileLookup, Root};
use super::range::{Wanted, wanted};

/// A response: its status and header fields, and the source of its content.
pub(super) struct Answer {
    pub head: Response<()>,
    pub body: Body,
}

/// Returns the response 425 if an early request has a method that is not safe, because an attacker
/// can replay early requests (RFC 8470 s.5.2). The client then sends the request again after the
/// handshake. GET and HEAD are safe, because they only read.
// RFC 9114 s.10.9 #1
pub(super) fn too_early(early: bool, method: &Method) -> Option<Answer> {
    let safe = matches!(*method, Method::GET | Method::HEAD);
    (early && !safe)
        .then(|| text(StatusCode::TOO_EARLY, "send the request again after the handshake\n"))
}

/// Returns the response to a request whose header fields are larger than the limit (RFC 9114
/// s.4.2.2). The response has no content, because the request's method is not known and may be
/// HEAD.
pub(super) fn fields_too_long() -> Answer {
    text(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "")
}

pub(super) async fn answer(peer: &Peer, request: &Request<()>) -> Answer {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut answer =
            text(StatusCode::METHOD_NOT_ALLOWED, "this server supports only GET and HEAD\n");
        answer.head.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return answer;
    }
    // RFC 9110 s.7.4: this server has resources only for the scheme `https`.
    if !request.uri().scheme_str().is_some_and(|scheme| scheme.eq_ignore_ascii_case("https")) {
        return text(StatusCode::BAD_REQUEST, "only https\n");
    }
    let path = request.uri().path();
    // RFC 9110 s.14.2: Range applies to GET only, so other methods use an empty map.
    let none = HeaderMap::new();
    let headers = if *request.method() == Method::GET { request.headers() } else { &none };
    if path == "/health" {
        return text(StatusCode::OK, "ok\n");
    }
    if let Some(number) = path.strip_prefix("/bytes/") {
        return zeroes(number, peer.context.limits.max_bytes, headers);
    }
    match &peer.context.files {
        Some(root) => file(peer, root, path, request.uri().query(), headers).await,
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
        // All characters are digits, so a number that does not parse is too large.
        _ => text(StatusCode::BAD_REQUEST, &format!("/bytes/N: N is at most {max}\n")),
    }
}

fn busy(peer: &Peer) -> Answer {
    peer.context.stats.0.shed.add(1);
    let mut answer =
        text(StatusCode::SERVICE_UNAVAILABLE, "too many files are open: try again later\n");
    answer.head.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    answer
}

async fn file(
    peer: &Peer,
    root: &Root,
    path: &str,
    query: Option<&str>,
    headers: &HeaderMap,
) -> Answer {
    let context = &peer.context;
    let room =
        timeout(context.limits.shed_after, Arc::clone(&context.open_files).acquire_owned()).await;
    let Ok(Ok(permit)) = room else { return busy(peer) };
    match root.find(path).await {
        FileLookup::File { file, identity, length, content_type } => {
            let (head, part) = match part(headers, content_type, length) {
                Ok(part) => part,
                Err(answer) => return *answer,
            };
            let source = Source {
                path: path.to_owned(),
                identity,
                offset: part.start,
                left: part.end - part.start,
                open: Some(OpenFile::new(file, context, permit)),
            };
            Answer { head, body: Body::File(source) }
        }
        FileLookup::Directory => {
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
        FileLookup::Malformed => text(StatusCode::BAD_REQUEST, "malformed path\n"),
        FileLookup::Nothing => text(StatusCode::NOT_FOUND, "not found\n"),
        FileLookup::Failed(error)
            if matches!(
                error.raw_os_error().map(Errno::from_raw),
                Some(Errno::EMFILE | Errno::ENFILE)
            ) =>
        {
            busy(peer)
        }
        FileLookup::Failed(error) => {
            tracing::warn!(path, %error, "cannot open file");
            text(StatusCode::INTERNAL_SERVER_ERROR, "cannot read the file\n")
        }
    }
}

/// Returns the status and header fields of the response, and the range of the body that the request
/// asks for. If the body has no such range, returns a response with status 416 as the error.
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
            let mut answer = text(
                StatusCode::RANGE_NOT_SATISFIABLE,
                "the requested range is outside of the file\n",
            );
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
    // Cannot fail: the value has only ASCII letters, digits and separators.
    if let Ok(value) = HeaderValue::from_str(content_range) {
        head.headers_mut().insert(header::CONTENT_RANGE, value);
    }
}

fn text(status: StatusCode, text: &str) -> Answer {
    let body = Body::Text(Bytes::copy_from_slice(text.as_bytes()));
    Answer { head: head(status, "text/plain; charset=utf-8", body.left()), body }
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
