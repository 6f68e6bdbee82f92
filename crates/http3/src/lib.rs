//! HTTP/3 server and client, with hooks for admission.
//!
//! The crate knows nothing of the gateway. A server asks an [`Admission`] whether to let a
//! connection in and tells it what became of it; whoever binds the two together (the `equic`
//! command) implements [`Admission`] over the gateway. [`UserSpaceQuota`] is the same policy
//! enforced in the application, the baseline the gateway is measured against.
//!
//! Start reading at [`server`] ([`Server::bind`], [`Server::run`], [`Admission`]), then [`client`] ([`Client::get`]).
//! [`tls`] makes and reads certificates, and turns them and a [`Trust`] into QUIC configs. [`binding`] binds the `h3`
//! crate to QUIC of [`equic_quic`], on which the rest stands, and checks what comes before that crate sees it.
//!
//! Nothing here prints; events go to `tracing`.

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

/// Congestion control.
pub use equic_transport::congestion::Algorithm as Congestion;

/// HTTP/3 error codes this crate closes connections with (RFC 9114 s.8.1).
pub mod h3_code {
    /// H3_NO_ERROR: closed because there is nothing more to do.
    pub const NO_ERROR: u32 = 0x100;
    /// H3_EXCESSIVE_LOAD: closed because the peer takes more than its share.
    pub const EXCESSIVE_LOAD: u32 = 0x107;
}
