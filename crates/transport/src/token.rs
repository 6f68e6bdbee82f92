//! Tokens that validate a client's address (RFC 9000 s.8.1), and devices that issue them for a
//! server.
//!
//! * [`TokenKey`]: the key of an endpoint's own tokens, for
//!   [`EndpointConfig::token_key`](crate::EndpointConfig::token_key), with the [`WallClock`] that
//!   determines when they expire.
//! * [`RetryTokens`]: checks tokens that a device in front of the endpoint has issued, and returns
//!   a [`RetryVerdict`] for each.

pub use crate::endpoint::{RetryTokens, RetryVerdict, TokenKey};
pub use crate::wall::WallClock;
