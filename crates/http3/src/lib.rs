//! An HTTP/3 server and client, with hooks for admission.
//!
//! The crate does not depend on the gateway. A server asks an [`Admission`] whether to admit a
//! connection, and reports the connection's end and migrations to it. The `equic` command
//! implements [`Admission`] with the gateway. [`UserSpaceQuota`] enforces the same policy in the
//! application, and is the baseline that the gateway is compared with.
//!
//! Start reading at [`server`] ([`Server::bind`], [`Server::run`], [`Admission`]), then at
//! [`client`] ([`Client::get`]). [`tls`] generates and reads certificates, and makes QUIC
//! configurations from them and from a [`Trust`]. [`binding`] connects the `h3` crate to
//! [`equic_quic`], and checks what a peer sends before `h3` sees it.
//!
//! The crate prints nothing. It reports events with `tracing`.

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
    QuotaError, Rate, Refused, RequestLog, RequestRecord, Server, ServerConfig, ServerError,
    ServerStats, StatsHandle, UserSpaceQuota,
};
pub use tls::{CertificateError, Fingerprint, Identity, KeyLog, Trust, crypto_provider};

/// Congestion control algorithms.
pub use equic_transport::congestion::Algorithm as Congestion;

/// HTTP/3 error codes that this crate closes connections with (RFC 9114 s.8.1).
pub mod h3_code {
    /// H3_NO_ERROR: closed without an error.
    pub const NO_ERROR: u32 = 0x100;
    /// H3_EXCESSIVE_LOAD: closed because the peer exceeds a limit.
    pub const EXCESSIVE_LOAD: u32 = 0x107;
}
