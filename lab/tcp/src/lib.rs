//! A sans-I/O model of the TCP of today's Linux, for simulations. The caller passes segments and
//! times in, and gets segments and times back.
//!
//! Stream data has a length but no content. An application writes a number of bytes, and the other
//! end learns how many have arrived. Headers are real ([`Segment`]), so that their size on the wire
//! is exact. The congestion controllers are those of `equic-transport`, so that QUIC and TCP differ
//! only in their protocols, and older ones for comparison ([`Classic`]). The crate uses no clock, thread, socket or random number generator.
//!
//! [`Connection`] is one end of a connection. Its documentation has the order of the calls.
//!
//! * `segment.rs`: headers and options (RFC 9293 s.3.1, RFC 7323, RFC 2018);
//! * `receiver.rs`: received data, acknowledgements, SACK blocks (RFC 2018, RFC 2883), delayed
//!   ACKs, and the receive window;
//! * `sender/`: data in flight, RACK-TLP (RFC 8985), PRR (RFC 6937), and the retransmission timer
//!   (RFC 6298);
//! * `tls.rs`: TLS above TCP, modelled as flights of the right sizes;
//! * `classic/`: older congestion controllers of TCP;
//! * `connection/`: the handshake and the end of the connection. It connects the other modules.

#![forbid(unsafe_code)]

mod classic;
mod config;
mod connection;
mod receiver;
mod segment;
mod sender;
mod tls;

pub use classic::Classic;
pub use config::TcpConfig;
pub use connection::{CloseReason, Connection, Event, Outgoing, Stats};
pub use segment::{Flags, MAX_HEADER, Malformed, Options, SackBlocks, Segment, Timestamps};
pub use tls::{Session, TlsConfig, TlsVersion};

/// Re-exported from the QUIC transport, because the congestion controllers use this type of
/// timestamp.
#[doc(no_inline)]
pub use equic_transport::Timestamp;
pub use equic_transport::congestion::{Algorithm, TcpController, TcpControllerFactory};
