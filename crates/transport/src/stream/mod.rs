//! Streams (RFC 9000 s.2 to 4): from the bottom up.
//!
//! * `assembler.rs`: bytes that arrive in any order, read in order;
//! * `send_buffer.rs`: bytes to send, kept until the peer has them.

mod assembler;
mod send_buffer;

pub use assembler::{Assembler, TooFragmented};
pub use send_buffer::SendBuffer;
