//! Common parts of implementations measured by `equic-lab bench` (docs/bench-contract.md): their
//! command line, the defaults that are the same for all, and the object that a client prints.
//!
//! [`command`] parses the arguments, and [`Knobs`] are the settings that may differ from the
//! defaults. [`socket`] and [`tls`] create sockets and TLS configurations. [`perf`] and [`http3`]
//! are the protocols. A stack with asynchronous streams ([`Stack`]) can use the complete client
//! [`client::run`], and its server can answer requests with [`server::answer`]. Other stacks
//! implement both themselves. [`tcp`] is TLS over TCP. Only adapters need this crate, including the
//! adapter for eQUIC.
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

pub use answer::{
    Answer, Effective, Exchanges, FirstByte, Latency, effective_again, held, ready, report,
};
pub use command::{Client, Protocol, Role, Server, Work};
pub use knobs::{Cipher, Congestion, Knobs};
pub use stack::{Connection, ReceiveStream, SendStream, Stack};

/// ALPN of the protocol `perf` (draft-banks-quic-performance).
pub const PERF: &[u8] = b"perf";
/// ALPN of HTTP/3 (RFC 9114 s.3.1).
pub const H3: &[u8] = b"h3";
/// Default SO_RCVBUF and SO_SNDBUF in bytes, before the kernel doubles them.
pub const BUFFER: usize = 4 << 20;
/// Flow control window of a stream in all programs, in bytes.
pub const STREAM_WINDOW: u64 = 16 << 20;
/// Flow control window of a connection in all programs, in bytes.
pub const CONNECTION_WINDOW: u64 = 32 << 20;
/// Maximum number of streams of each kind that a peer may open.
pub const STREAMS: u32 = 1024;
/// Default for the largest UDP payload, in bytes.
pub const PAYLOAD: u16 = 1452;
/// Idle timeout of connections, except for the idle connections of `--hold`.
pub const IDLE: Duration = Duration::from_secs(600);
/// Size of the response to `GET /1k`, in bytes.
pub const SMALL_BODY: u64 = 1024;
/// Bytes that each small exchange of the workload `--loaded` requests.
pub const SMALL_EXCHANGE: u64 = 1024;
/// Bytes that the bulk download of `--loaded` requests: more than can arrive in any measured time.
pub const BULK: u64 = 1 << 44;
/// Maximum number of concurrent handshakes for `--hold` and `--connections`.
pub const OPENING: usize = 32;
/// Exit status of a program that does not support the workload.
pub const UNSUPPORTED: i32 = 127;
/// Exit status of a client that received bytes other than those that the server sent.
pub const CORRUPTED: i32 = 3;

/// Ends the process with the exit status for an unsupported workload.
pub fn unsupported(what: &str) -> ! {
    eprintln!("unsupported: {what}");
    std::process::exit(UNSUPPORTED)
}
