//! QUIC (RFC 9000, 9001, 9002) without I/O: bytes and moments in, bytes and moments out.
//!
//! [`Connection`] is where to start reading, then [`Endpoint`]: their docs show the order of calls.
//!
//! No clock, thread, socket, global or random number generator inside: the same calls give the same
//! bytes, which the simulator and the tests stand on. In the making, from the bottom up; what is
//! here is complete in itself:
//!
//! * [`Timestamp`]: moments, the caller's; [`ranges`]: sets of numbers;
//! * [`recovery`]: round-trip time, packets in flight, loss (RFC 9002 s.5, 6);
//! * [`congestion`]: NewReno, CUBIC, BBR, pacing (RFC 9002 s.7, RFC 9438, RFC 9406);
//! * [`stream`]: both parts of a stream, their buffers and windows (RFC 9000 s.2 to 4);
//! * [`crypto`]: keys of packets (RFC 9001);
//! * [`received`]: what to acknowledge and when (RFC 9000 s.13.2);
//! * [`path`]: datagram sizes and ECN (RFC 9000 s.13.4, 14);
//! * [`cid`]: connection IDs (RFC 9000 s.5.1);
//! * [`operation`]: what can be observed and replaced, one connection at a time;
//! * [`qlog`]: what happens, as events for a log;
//! * [`connection`]: all of it together;
//! * [`endpoint`]: many connections on one socket (RFC 9000 s.5.2).

#![forbid(unsafe_code)]

pub mod cid;
pub mod congestion;
pub mod connection;
pub mod crypto;
pub mod endpoint;
pub mod operation;
pub mod path;
pub mod qlog;
pub mod ranges;
pub mod received;
pub mod recovery;
pub mod stream;

#[cfg(test)]
mod testing;
mod time;

pub use connection::Connection;
pub use endpoint::Endpoint;
pub use time::Timestamp;
