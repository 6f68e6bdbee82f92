//! QUIC (RFC 9000, 9001, 9002) without I/O: the caller supplies datagrams and the time, and sends
//! the datagrams that the transport returns.
//!
//! The crate uses no clock, thread, socket, global or thread-local variable, or random number
//! generator of the system. The same calls always give the same results. The tests and the
//! simulator depend on this. For QUIC over UDP and tokio use `equic-quic`, which is built on this
//! crate.
//!
//! * [`Connection`] is one end of a connection. Its documentation describes the order of calls.
//! * [`Endpoint`] finds the connection of a datagram if several connections share a socket, and
//!   accepts new connections.
//! * [`ClientConfig`] and [`ServerConfig`] contain the TLS configuration of rustls, with a crypto
//!   provider of your choice, and a [`TransportConfig`].
//! * [`crypto`] has the trait for keys that can decrypt packets into another buffer.
//! * [`driver`] has methods of a connection that only event loops need.
//! * [`operation`] has the hooks that can observe or replace each decision and action of a
//!   connection.
//! * [`congestion`] has congestion controllers, and the trait for your own.
//! * [`qlog`] writes logs. [`Violation`] lists the rules of the protocol that a peer can break.
//!
//! This is the loop of a client. `examples/in_memory.rs` has both ends of a connection, and
//! `examples/hook.rs` has a hook.
//!
//! ```no_run
//! # use std::{error::Error, net::UdpSocket, time::Instant};
//! use equic_transport::{DatagramMeta, ClientConfig, Connection, EcnCodepoint, Event, Timestamp};
//!
//! # fn run(tls: rustls::ClientConfig, socket: UdpSocket, seed: [u8; 32]) -> Result<(), Box<dyn Error>> {
//! let config = ClientConfig::new(tls);
//! let (start, server) = (Instant::now(), "192.0.2.1:443".parse()?);
//! let now = || Timestamp::START + start.elapsed();
//! let name = "example.org".try_into()?;
//! let mut connection = Connection::connect(now(), &config, name, server, seed)?;
//! let mut buffer = [0; 65_527];
//! while !connection.is_drained() {
//!     while let Some(sent) = connection.poll_transmit(now(), &mut buffer) {
//!         socket.send_to(&buffer[..sent.size], sent.destination)?;
//!     }
//!     let wait = connection.poll_timeout().map(|at| at.since(now()));
//!     socket.set_read_timeout(wait.filter(|wait| !wait.is_zero()))?;
//!     match socket.recv_from(&mut buffer) {
//!         Ok((size, remote)) => {
//!             let arrival = DatagramMeta { remote, local: None, ecn: EcnCodepoint::NotEct };
//!             connection.handle_datagram(now(), arrival, &mut buffer[..size]);
//!         }
//!         Err(_) => connection.handle_timeout(now()),
//!     }
//!     while let Some(event) = connection.poll_event() {
//!         if event == Event::Connected {
//!             // Open streams: `connection.open(..)`, `connection.streams().write(..)`.
//!         }
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Cargo features: `qlog` and the crypto provider `aws-lc-rs` are enabled by default; `ring` is
//! another provider. A rustls configuration needs a provider. If you enable neither `aws-lc-rs` nor
//! `ring`, the application must supply its own. `null-crypto` enables connections without
//! protection, for simulations. `docs/transport.md` describes the design.

#![forbid(unsafe_code)]

mod cid;
pub mod congestion;
mod connection;
pub mod crypto;
mod endpoint;
mod lazy;
#[cfg(feature = "null-crypto")]
pub mod null;
mod numbered;
pub mod operation;
mod path;
#[cfg(feature = "qlog")]
pub mod qlog;
mod ranges;
mod received;
mod recovery;
mod setters;
mod stream;
#[cfg(test)]
mod testing;
mod time;
pub mod token;
mod violation;
mod wall;

pub use cid::{ConnectionIdGenerator, EndpointEvent, RandomIds};
pub use connection::driver;
pub use connection::{
    ClientConfig, ClosePathError, CloseReason, Connection, ConnectionError, DatagramError,
    DatagramMeta, Event, ExportError, HandshakeData, MigrateError, OpenPathError, PathInfo,
    PathStats, PathStatus, PreferredAddresses, Scheduler, ServerConfig, SettingError, StartError,
    Stats, Transmit, TransportConfig,
};
pub use endpoint::{AcceptError, Endpoint, EndpointConfig, Handle, Incoming, Received};
pub use received::EcnCodepoint;
pub use stream::{
    Pieces, ReadOutcome, StreamConfig, StreamError, StreamEvent, Streams, WriteError,
};
pub use time::Timestamp;
pub use violation::Violation;

/// Types of the wire format, from the crate `equic-wire`.
#[doc(no_inline)]
pub use equic_wire::{
    ConnectionId, Direction, KnownVersion, PathId, ResetToken, Side, StreamId, TransportErrorCode,
    VarInt,
};
