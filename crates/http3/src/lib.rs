//! An HTTP/3 server and client, with hooks for admission.
//!
//! The crate does not depend on the gateway. A server asks an [`Admission`] whether to admit a
//! connection, and reports the connection's end and migrations to it. The `equic` command
//! implements [`Admission`] with the gateway. [`UserSpaceQuota`] enforces the same policy in the
//! application, and is the baseline that the gateway is compared with.
//!
//! Start reading at [`server`] ([`Server::bind`], [`Server::serve`], [`Admission`]), then at
//! [`client`] ([`Client::get`], [`Connection::send`]). [`tls`] generates and reads certificates, and makes QUIC
//! configurations from them and from a [`Trust`]. [`binding`] connects the `h3` crate to
//! [`equic_quic`], and checks what a peer sends before `h3` sees it.
//!
//! The crate prints nothing. It reports events with `tracing`.
//!
//! # Examples
//!
//! A server that answers with a tower service, here a function. A router of axum works in the same
//! way (`examples/axum.rs`):
//!
//! ```no_run
//! use std::convert::Infallible;
//!
//! use equic_http3::http::{Request, Response};
//! use equic_http3::{RequestBody, Server, ServerConfig};
//!
//! async fn answer(request: Request<RequestBody>) -> Result<Response<String>, Infallible> {
//!     Ok(Response::new(format!("You asked for {}.\n", request.uri().path())))
//! }
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Server::bind(ServerConfig::new("[::]:4433".parse()?))?;
//! println!("certificate {}", server.certificate_fingerprint());
//! let ctrl_c = async { drop(tokio::signal::ctrl_c().await) };
//! server.serve(tower::service_fn(answer), ctrl_c).await?;
//! # Ok(())
//! # }
//! ```
//!
//! A client that sends content and prints the response:
//!
//! ```no_run
//! use equic_http3::http::Request;
//! use equic_http3::{Client, ClientConfig};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::new(ClientConfig::default())?;
//! let connection = client.connect("https://example.org/").await?;
//! let request = Request::post("/upload").body("content".to_owned())?;
//! let mut response = connection.send(request).await?;
//! let content = response.body(1_000_000).await?;
//! println!("{}: {content:?}", response.status);
//! client.close().await;
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

pub mod binding;
pub mod client;
pub mod server;
pub mod tls;

mod extension;
mod hooks;
mod message;

pub use client::{Client, ClientConfig, ClientError, Connection, PathAddresses, Response, Timing};
pub use extension::Extension;
pub use hooks::Hooks;
pub use server::{
    Admission, AtLimit, Decision, IdentitySource, Limits, NoQuota, Opened, PathCost, QuotaConfig,
    QuotaError, Rate, Refused, RequestBody, RequestBodyError, RequestInfo, RequestLog,
    RequestRecord, Server, ServerConfig, ServerError, ServerStats, StatsHandle, UserSpaceQuota,
};
pub use tls::{CertificateError, Fingerprint, Identity, KeyLog, Trust, crypto_provider};

/// The version of `h3` whose traits the types of [`binding`] implement.
pub use h3;
/// The version of `http` whose types this crate uses.
pub use http;

/// Congestion control algorithms.
pub use equic_transport::congestion::Algorithm as Congestion;

/// HTTP/3 error codes that this crate closes connections with (RFC 9114 s.8.1).
pub mod h3_code {
    /// H3_NO_ERROR: closed without an error.
    pub const NO_ERROR: u32 = 0x100;
    /// H3_EXCESSIVE_LOAD: closed because the peer exceeds a limit.
    pub const EXCESSIVE_LOAD: u32 = 0x107;
}
