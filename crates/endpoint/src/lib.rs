//! HTTP/3 server and client with admission hooks, and the load generators the experiments use.
//!
//! The room knows nothing of the gateway. A server asks an [`Admission`] whether to let a
//! connection in and tells it what became of it; whoever binds the two together (the `equic`
//! command) implements [`Admission`] over the gateway. [`UserSpaceQuota`] is the same policy
//! enforced in the application, the baseline the gateway is measured against.
//!
//! Start reading at [`admission`] (the hooks), then [`server`] ([`Server::bind`], [`Server::run`]),
//! then [`client`] ([`Client::get`]), then [`load`] (clients by the hundred, one sample a request).
//! [`certificate`] makes and reads certificates; `tls` turns them and a [`Trust`] into QUIC configs.
//!
//! [`http3`] binds the `h3` crate to QUIC of [`equic_quic`], on which the rest stands, and checks
//! what comes before that crate sees it.
//!
//! Nothing here prints; events go to `tracing`.

#![forbid(unsafe_code)]

pub mod admission;
pub mod certificate;
pub mod client;
pub mod http3;
pub mod load;
pub mod quota;
pub mod server;

mod extension;
mod hooks;
mod message;
mod tls;

pub use admission::{Admission, Decision, NoQuota, Opened, Refused};
pub use certificate::{CertificateError, Fingerprint, Identity};
pub use client::{Client, ClientConfig, ClientError, Connection, PathAddresses, Response, Timing};
pub use extension::Extension;
pub use hooks::Hooks;
pub use quota::{AtLimit, QuotaConfig, QuotaError, Rate, UserSpaceQuota};
pub use server::{
    IdentitySource, Limits, PathCost, RequestLog, RequestRecord, Server, ServerConfig, ServerError,
    ServerStats, StatsHandle,
};
pub use tls::{KeyLog, Trust, crypto_provider};

/// Congestion control.
pub use equic_transport::congestion::Algorithm as Congestion;

/// HTTP/3 error codes this crate closes connections with (RFC 9114 s.8.1).
pub mod h3_code {
    /// H3_NO_ERROR: closed because there is nothing more to do.
    pub const NO_ERROR: u32 = 0x100;
    /// H3_EXCESSIVE_LOAD: closed because the peer takes more than its share.
    pub const EXCESSIVE_LOAD: u32 = 0x107;
}
