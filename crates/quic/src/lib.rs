//! QUIC over UDP and tokio: [`equic_transport`] with sockets, a clock and tasks around it.
//!
//! An [`Endpoint`] is one UDP socket, or several that share a port; each has a task of its own that
//! receives, times and sends for all connections of that socket. [`Endpoint::connect`] and
//! [`Endpoint::accept`] give a [`Connection`]; [`Connection::open_bi`] and its likes give a
//! [`SendStream`] and a [`RecvStream`], which are tokio's `AsyncWrite` and `AsyncRead`.
//!
//! Every future here can be dropped at any time: nothing is lost that was not returned. A writer waits
//! while the stream's send buffer is full, and a reader that does not read holds the peer up by
//! flow control.
//!
//! * `endpoint.rs`, `incoming.rs`, `connection.rs`, `send.rs`, `receive.rs`: what an application has in
//!   its hands; `error.rs`: what can go wrong;
//! * `early.rs`: 0-RTT; `tokens.rs`: tokens of servers, which a client keeps;
//! * `cell.rs`: a connection as the task and the application share it; `socket.rs`: a socket as they
//!   do; `driver.rs`: the task; `memory.rs`: how much they may have waiting; `batch.rs`: datagrams into
//!   GSO batches; `udp.rs`: the system's socket; `unreachable.rs`: ICMP errors, as far as they can be
//!   believed;
//! * `log/`: qlog files and packet traces; `bind.rs`: sockets; `printable.rs`: a peer's text.
//!
//! Locks are taken in the order socket, connection, wake list, and never across an await.

mod batch;
mod bind;
mod cell;
mod connection;
mod driver;
mod early;
mod endpoint;
mod error;
mod incoming;
mod log;
mod memory;
mod printable;
mod receive;
mod send;
mod socket;
mod tokens;
mod udp;
mod unreachable;

pub use connection::{Connecting, Connection};
pub use early::EarlyData;
pub use endpoint::{Endpoint, Settings};
pub use error::{ConnectError, ConnectionError, ReadError, WriteError};
pub use incoming::Incoming;
pub use log::{PacketTrace, QlogFolder};
pub use memory::SendMemory;
pub use printable::{is_printable, printable};
pub use receive::RecvStream;
pub use send::SendStream;

pub use equic_transport::{ClientConfig, DatagramError, ServerConfig, Stats, TransportConfig};
