//! State that belongs to one path, that is to a pair of addresses (RFC 9000 s.8, 9, 13.4, 14).
//!
//! * `mtu.rs`: how large datagrams may be;
//! * `ecn.rs`: whether ECN marks arrive.

mod ecn;
mod mtu;

#[cfg(feature = "qlog")]
pub use ecn::EcnState;
pub(crate) use ecn::EcnValidation;
pub(crate) use mtu::{BASE_SIZE, MtuDiscovery};
