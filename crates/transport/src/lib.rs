//! QUIC (RFC 9000, 9001, 9002) without I/O: datagrams and moments in, datagrams and moments out.
//!
//! There is no clock, thread, socket, global or random number generator inside: the same calls give the same
//! results, which the tests and a simulator stand on. (A key that offers more than rustls asks for does so through a variable of its
//! thread, which is empty otherwise: [`OpenTo`].) Whoever wants QUIC over UDP and tokio takes `equic-quic`,
//! which is made of this crate.
//!
//! * [`Connection`] is one end of a connection. Its documentation says in which order it is called.
//! * [`Endpoint`] finds the connection that a datagram is for, where several share a socket, and takes new ones.
//! * [`ClientConfig`] and [`ServerConfig`] hold the TLS of rustls, with a crypto provider of your choice, and a
//!   [`TransportConfig`].
//! * [`operation`]: each decision and action of a connection has a name, and can be watched or replaced by a
//!   hook on that connection. [`congestion`]: controllers, and how to bring one. [`qlog`]: logs.
//!
//! A client's part of the work; `examples/in_memory.rs` has both ends, and `examples/hook.rs` a hook:
//!
//! ```no_run
//! # use std::{error::Error, net::UdpSocket, sync::Arc, time::Instant};
//! use equic_transport::{DatagramMeta, ClientConfig, Connection, EcnCodepoint, Event, Timestamp};
//!
//! # fn run(tls: rustls::ClientConfig, socket: UdpSocket, seed: [u8; 32]) -> Result<(), Box<dyn Error>> {
//! let config = ClientConfig { tls: Arc::new(tls), transport: Arc::default() };
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
//!             // Open streams: `connection.open(..)`, `connection.write(..)`.
//!         }
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Cargo features, on unless switched off: `qlog`, and the crypto provider `aws-lc-rs`; `ring` is another provider.
//! A program needs one, in its rustls configuration; with neither it brings its own. `null-crypto` are connections
//! without protection, for simulations. How it is built is in `docs/transport.md`.

#![forbid(unsafe_code)]

mod cid;
pub mod congestion;
mod connection;
mod crypto;
mod endpoint;
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
mod rested;
mod stream;
#[cfg(test)]
mod testing;
mod time;
pub mod token;
mod wall;

pub use cid::{ConnectionIdGenerator, EndpointEvent, RandomIds};
pub use connection::{
    ClientConfig, ClosePathError, CloseReason, Connection, ConnectionError, DatagramError,
    DatagramMeta, Event, ExportError, HandshakeData, MigrateError, OpenPathError, PathInfo,
    PathStats, PathStatus, PreferredAddresses, Scheduler, ServerConfig, SettingError, StartError,
    Stats, Transmit, TransportConfig,
};
pub use crypto::{KeyLimits, OpenTo};
pub use endpoint::{AcceptError, Endpoint, EndpointConfig, Handle, Incoming, Received};
pub use received::EcnCodepoint;
pub use stream::{
    Pieces, ReadOutcome, StreamConfig, StreamError, StreamEvent, Streams, WriteError,
};
pub use time::Timestamp;

/// From the crate of QUIC's wire format.
#[doc(no_inline)]
pub use equic_wire::{
    ConnectionId, Direction, KnownVersion, PathId, ResetToken, Side, StreamId, TransportErrorCode,
    VarInt,
};
