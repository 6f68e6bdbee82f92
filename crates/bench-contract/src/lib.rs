//! Common parts of implementations measured by `equic bench` (docs/bench-contract.md): their command line,
//! the figures that are the same for all, and the object that a client prints.
//!
//! [`command`] is what it is told and [`Knobs`] what may be other than usual; [`socket`] are its sockets and
//! [`tls`] its certificates; [`perf`] and [`http3`] are what is spoken. Stacks whose streams are awaited
//! ([`Stack`]) get their whole client from [`client::run`] and the answers of their server from
//! [`server::answer`]; others do those works by themselves. [`tcp`] is TLS over TCP. Nobody but adapters and ours as one needs this.
//!
//! ```
//! use equic_bench_contract::{http3, perf};
//!
//! assert_eq!(http3::size("/1k"), Some(1024));
//! assert_eq!(http3::size("/5000000"), Some(5_000_000));
//! let mut check = perf::Check::default();
//! check.take(perf::pattern_bytes(0, 1000));
//! assert_eq!((check.bytes(), check.wrong()), (1000, None));
//! ```

#![forbid(unsafe_code)]

mod answer;
pub mod client;
pub mod command;
pub mod http3;
mod knobs;
mod loaded;
pub mod perf;
pub mod server;
pub mod socket;
mod stack;
pub mod tcp;
pub mod tls;

use std::time::Duration;

pub use answer::{Answer, Effective, Exchanges, FirstByte, Latency, again, held, ready, report};
pub use command::{Client, Protocol, Role, Server, Work};
pub use knobs::{Cipher, Congestion, Knobs};
pub use stack::{Connection, ReceiveStream, SendStream, Stack};

/// ALPN of draft-banks-quic-performance.
pub const PERF: &[u8] = b"perf";
/// ALPN of HTTP/3 (RFC 9114 s.3.1).
pub const H3: &[u8] = b"h3";
/// SO_RCVBUF and SO_SNDBUF where nothing else is asked for, in bytes, before the kernel doubles them.
pub const BUFFER: usize = 4 << 20;
/// Flow control of a stream, in bytes.
pub const STREAM_WINDOW: u64 = 16 << 20;
/// Flow control of a connection, in bytes.
pub const CONNECTION_WINDOW: u64 = 32 << 20;
/// Streams of a kind that a peer may have open.
pub const STREAMS: u32 = 1024;
/// The largest UDP payload where nothing else is asked for, in bytes.
pub const PAYLOAD: u16 = 1452;
/// Nothing is idle for so long, except connections that are held.
pub const IDLE: Duration = Duration::from_secs(600);
/// Size of the response to `GET /1k`, in bytes.
pub const SMALL_BODY: u64 = 1024;
/// Bytes of a small exchange of `--loaded`.
pub const SMALL_EXCHANGE: u64 = 1024;
/// Bytes that the bulk download of `--loaded` asks for: more than comes in any time that is measured.
pub const BULK: u64 = 1 << 44;
/// Connections that are opened at a time for `--hold` and `--connections`.
pub const OPENING: usize = 32;
/// Exit status: it does not do that.
pub const UNSUPPORTED: i32 = 127;
/// Exit status: what arrived is not what was sent.
pub const CORRUPTED: i32 = 3;

/// Ends the process: it does not do that.
pub fn unsupported(what: &str) -> ! {
    eprintln!("does not do {what}");
    std::process::exit(UNSUPPORTED)
}
