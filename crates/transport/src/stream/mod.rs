//! Streams (RFC 9000 s.2 to 4). The files, from the lowest layer to the highest:
//!
//! * `assembler.rs`: reassembles bytes that arrive in any order; `pages.rs`: memory for these
//!   bytes; `pieces.rs`: data that the application takes together with its memory; `place.rs`:
//!   decrypts packets directly into that memory;
//! * `send_buffer.rs`: bytes to send, which are kept until the peer has acknowledged them;
//! * `flow.rs`: flow control windows of streams and of the connection (s.4);
//! * `send.rs`, `receive.rs`: the two parts of a stream and their states (s.3);
//! * `set/`: all streams of a connection.

mod assembler;
mod flow;
mod pages;
mod pieces;
mod place;
mod receive;
mod send;
mod send_buffer;
mod set;

pub(crate) use assembler::Assembler;
pub(crate) use pages::{PagePool, Pages};
pub use pieces::Pieces;
pub use receive::ReadOutcome;
#[cfg(feature = "qlog")]
pub(crate) use receive::ReceiveState;
#[cfg(feature = "qlog")]
pub(crate) use send::SendState;
pub use send::WriteError;
pub(crate) use send_buffer::SendBuffer;
pub(crate) use set::{Control, FrameError, PeerLimits, WrittenPiece};
pub use set::{StreamConfig, StreamError, StreamEvent, Streams};
