//! State of a path, which is a pair of addresses (RFC 9000 s.8, 9, 13.4, 14).
//!
//! * `mtu.rs`: finds the largest datagram size that the path carries;
//! * `ecn.rs`: validates that the path preserves ECN marks.

mod ecn;
mod mtu;

#[cfg(feature = "qlog")]
pub use ecn::EcnState;
pub(crate) use ecn::EcnValidation;
pub(crate) use mtu::{BASE_SIZE, MtuDiscovery};
