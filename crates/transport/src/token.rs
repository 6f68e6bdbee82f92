//! Tokens that validate a client's address (RFC 9000 s.8.1), and how a server judges them.
//!
//! * [`TokenKey`]: the key of an endpoint's own tokens, for
//!   [`EndpointConfig::token_key`](crate::EndpointConfig::token_key), with the [`WallClock`] that
//!   determines when they expire.
//! * [`RetryTokens`]: recognises tokens that a device in front of the endpoint issued, and returns
//!   a [`RetryVerdict`] for each.

pub use crate::endpoint::{RetryTokens, RetryVerdict, TokenKey};
pub use crate::wall::WallClock;
