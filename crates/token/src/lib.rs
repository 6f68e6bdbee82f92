//! Retry tokens and verifiable connection IDs. A gateway makes and checks them in the kernel, and
//! the servers behind it check and make them with the same keys. `docs/retry.md` specifies the
//! formats and what they protect against; `bpf/proof.h` of the gateway does the same in C.
//!
//! ```
//! use equic_token::{Clock, KeyRing, RetryToken};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A gateway, or a server, that sends Retry packets:
//! let ring = KeyRing::generate(Clock::Monotonic)?;
//! let client = "192.0.2.1:4711".parse()?;
//! let original = equic_wire::ConnectionId::new(&[1; 8])?;
//! let retry_source = equic_wire::ConnectionId::new(&[2; 8])?;
//! let token = RetryToken::new(client, original, retry_source, ring.now()).seal(&ring)?;
//!
//! // A server behind the gateway, whose `ring` can be a copy (`KeyRing::to_bytes`):
//! let proof = RetryToken::open(&ring, ring.now(), client, retry_source.as_bytes(), &token)?;
//! // The transport parameters that the client compares (RFC 9000 s.7.3):
//! assert_eq!(proof.original, original); // original_destination_connection_id
//! assert_eq!(proof.retry_source, retry_source); // retry_source_connection_id
//! # Ok(())
//! # }
//! ```
//!
//! * `ring.rs`: keys by epoch, their rotation, and their serialized form;
//! * `token.rs`: Retry tokens;
//! * `id.rs`: connection IDs; `nonce.rs`: their nonces, which do not repeat and cannot be linked;
//! * `host.rs`: the host's clock, in every time namespace.

#![forbid(unsafe_code)]

pub mod host;
mod id;
mod nonce;
mod ring;
mod token;

pub use id::{IdError, IdFormat, IdGenerator, ProvenId};
pub use ring::{Clock, Epoch, Key, KeyRing, RingError};
pub use token::{RetryToken, SealError, TokenError};

pub use equic_wire::ConnectionId;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/retry.md")]
struct Retry;
