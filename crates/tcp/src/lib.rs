//! TCP without I/O, as Linux has it today, for simulations: segments and moments in, segments and moments out.
//!
//! Bytes of a stream have no content here, only numbers: an application says how many it writes, and hears how
//! many came. Headers are real ([`Segment`]), so that what they cost on the wire is counted to the byte.
//! Congestion controllers are those of `equic-transport`, so that QUIC and TCP differ in what the protocols
//! make of them and in nothing else. There is no clock, thread, socket or random number generator inside.
//!
//! [`Connection`] is one end of a connection; its documentation says in which order it is called.
//!
//! * `segment.rs`: headers and options (RFC 9293 s.3.1, RFC 7323, RFC 2018);
//! * `receiver.rs`: what came, acknowledgements, SACK blocks (RFC 2018, RFC 2883), delayed ACKs, the window;
//! * `sender/`: what is in flight, RACK-TLP (RFC 8985), PRR (RFC 6937), the retransmission timer (RFC 6298);
//! * `tls.rs`: TLS above it, as flights of the right sizes;
//! * `connection/`: the handshake, the end, and how these come together.

#![forbid(unsafe_code)]

mod config;
mod connection;
mod receiver;
mod segment;
mod sender;
mod tls;

pub use config::TcpConfig;
pub use connection::{CloseReason, Connection, Event, Outgoing, Stats};
pub use segment::{Flags, MAX_HEADER, Malformed, Options, SackBlocks, Segment, Timestamps};
pub use tls::{Session, TlsConfig, TlsVersion};

/// From the crate of QUIC's transport: controllers serve both.
#[doc(no_inline)]
pub use equic_transport::Timestamp;
pub use equic_transport::congestion::{Algorithm, Classic, ControllerFactory};
