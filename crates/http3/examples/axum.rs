//! Serves a router of axum over HTTP/3, and sends it two requests.
//!
//! `cargo run -p equic-http3 --example axum`

use std::error::Error;

use axum::extract::{Path, Query};
use axum::routing::get;
use axum::{Json, Router};
use equic_http3::{Client, ClientConfig, RequestInfo, Server, ServerConfig, Trust};
use serde::Deserialize;
use tokio::sync::oneshot;

#[derive(Deserialize)]
struct Range {
    from: u32,
    to: u32,
}

/// Returns a router that would serve HTTP/1.1 in the same way.
fn router() -> Router {
    Router::new()
        .route(
            "/hello/{name}",
            get(|Path(name): Path<String>| async move { format!("Hello, {name}!") }),
        )
        .route(
            "/squares",
            get(|Query(range): Query<Range>| async move {
                Json((range.from..range.to).map(|n| n * n).collect::<Vec<u32>>())
            }),
        )
        .route(
            "/address",
            get(|axum::Extension(info): axum::Extension<RequestInfo>| async move {
                info.peer.to_string()
            }),
        )
}

/// Starts the server on a free port of loopback, requests the paths, and returns what it answered.
pub async fn answers(paths: &[&str]) -> Result<Vec<String>, Box<dyn Error>> {
    let server = Server::bind(ServerConfig::new("127.0.0.1:0".parse()?))?;
    let (address, fingerprint) = (server.local_addr(), server.certificate_fingerprint());
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(server.serve(router(), async {
        let _ = stopped.await;
    }));
    // The certificate is self-signed, so the client needs its fingerprint.
    let trust = Trust::Fingerprint(fingerprint);
    let client = Client::new(ClientConfig { trust, ..ClientConfig::default() })?;
    let connection = client.connect(&format!("https://{address}/")).await?;
    let mut answers = Vec::new();
    for path in paths {
        let mut response = connection.get(&path.parse()?).await?;
        let mut content = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            content.extend_from_slice(&chunk);
        }
        answers.push(format!("{} {}", response.status, String::from_utf8(content)?));
    }
    connection.close();
    let _ = stop.send(());
    serving.await??;
    Ok(answers)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    for answer in answers(&["/hello/world", "/squares?from=1&to=5", "/nothing"]).await? {
        println!("{answer}");
    }
    Ok(())
}
