//! State that belongs to one path, that is to a pair of addresses (RFC 9000 s.8, 9, 13.4, 14).
//!
//! * `mtu.rs`: how large datagrams may be;
//! * `ecn.rs`: whether ECN marks arrive.

mod ecn;
mod mtu;

pub use ecn::{EcnState, EcnValidation};
pub use mtu::{BASE_SIZE, MtuDiscovery};
