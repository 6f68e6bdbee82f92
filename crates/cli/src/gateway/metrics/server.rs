//! The HTTP server of the metrics: GET and HEAD for three pages. Clients may be slow, hostile or
//! numerous.
//!
//! A connection serves one request and ends after ten seconds at the latest. There are at most 32
//! connections. A further connection closes the oldest one, so that idle clients cannot lock out
//! others. A separate thread reads the gateway, once for all clients that ask at the same time.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::source::{Health, Source};

/// Maximum number of simultaneous connections. A further connection closes the oldest one.
const CONNECTIONS: usize = 32;
/// Maximum lifetime of a connection.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause after accept(2) failed, for example because no file descriptor was free.
const PAUSE: Duration = Duration::from_millis(100);
/// Maximum size of a request line with its headers, in bytes.
const REQUEST_HEAD: usize = 16 * 1024;
const PLAIN: &str = "text/plain; charset=utf-8";
const INDEX: &str = "<!doctype html><title>eQUIC gateway</title><h1>eQUIC gateway</h1>\
    <p><a href=\"/metrics\">Metrics</a>, <a href=\"/healthz\">health</a></p>\n";

/// Serves requests until the runtime ends.
pub(super) async fn serve(listener: TcpListener, source: Source) {
    let source = Arc::new(source);
    let mut open: VecDeque<JoinHandle<()>> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // The next successful scrape clears the condition that this reports.
                source.tell(&format!("cannot accept connections: {error}"));
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        open.retain(|connection| !connection.is_finished());
        if open.len() >= CONNECTIONS
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        open.push_back(tokio::spawn(connection(stream, Arc::clone(&source))));
    }
}

async fn connection(stream: TcpStream, source: Arc<Source>) {
    let service = service_fn(move |request| answer(request, Arc::clone(&source)));
    let serving = hyper::server::conn::http1::Builder::new()
        .keep_alive(false)
        // A client may close its sending side after the request, as `nc -N` does, and must still
        // get the response.
        .half_close(true)
        .max_buf_size(REQUEST_HEAD)
        .header_read_timeout(None)
        .serve_connection(TokioIo::new(stream), service);
    // The result is ignored, because an error only affects this client.
    let _ = tokio::time::timeout(PATIENCE, serving).await;
}

async fn answer(
    request: Request<Incoming>,
    source: Arc<Source>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refusal = page(
            StatusCode::METHOD_NOT_ALLOWED,
            PLAIN,
            "this method is not supported: use GET or HEAD\n",
        );
        refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Ok(refusal);
    }
    Ok(match request.uri().path() {
        "/metrics" => metrics(source).await,
        "/healthz" => healthz(source).await,
        "/" => page(StatusCode::OK, "text/html; charset=utf-8", INDEX),
        _ => page(
            StatusCode::NOT_FOUND,
            PLAIN,
            "there is no such page: the metrics are at /metrics\n",
        ),
    })
}

async fn metrics(source: Arc<Source>) -> Response<Full<Bytes>> {
    match tokio::task::spawn_blocking(move || source.text()).await {
        Ok(Ok(text)) => page(StatusCode::OK, prometheus::TEXT_FORMAT, text),
        Ok(Err(failure)) => page(StatusCode::INTERNAL_SERVER_ERROR, PLAIN, format!("{failure}\n")),
        Err(_) => page(
            StatusCode::INTERNAL_SERVER_ERROR,
            PLAIN,
            "the state of the gateway cannot be read\n",
        ),
    }
}

async fn healthz(source: Arc<Source>) -> Response<Full<Bytes>> {
    let unavailable = |why: String| page(StatusCode::SERVICE_UNAVAILABLE, PLAIN, why);
    match tokio::task::spawn_blocking(move || source.health()).await {
        Ok(Health::Well) => page(StatusCode::OK, PLAIN, "ok\n"),
        Ok(Health::Gone) => unavailable("no gateway is running\n".to_owned()),
        Ok(Health::Unreadable(why)) => unavailable(format!("the gateway cannot be read: {why}\n")),
        Err(_) => unavailable("the state of the gateway cannot be read\n".to_owned()),
    }
}

/// Builds a response. hyper omits the body for HEAD requests.
fn page(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
