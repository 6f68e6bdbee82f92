//! Packet protection (RFC 9001) over rustls's QUIC interface; the crypto provider is the caller's.
//!
//! * `phases.rs`: 1-RTT keys and their update (s.6);
//! * `retry.rs`: the integrity tag of Retry packets (s.5.8).

mod phases;
mod retry;
#[cfg(test)]
pub(crate) mod testing;

pub use phases::{OneRttKeys, OpenError};
pub use retry::{RETRY_TAG_LEN, retry_tag};
