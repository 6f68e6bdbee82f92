//! QUIC over UDP and tokio: [`equic_transport`] with sockets, a clock and tasks. A program needs no
//! other crate for QUIC. This crate re-exports what a program uses of other crates ([`rustls`],
//! [`operation`], [`congestion`]).
//!
//! ```no_run
//! # async fn client() -> Result<(), Box<dyn std::error::Error>> {
//! use equic_quic::{ClientConfig, Endpoint};
//!
//! let config = ClientConfig::with_platform_roots()?.with_alpn(&[b"echo"]);
//! let endpoint = Endpoint::client("[::]:0".parse()?)?;
//! let connection = endpoint.connect_with(&config, "192.0.2.1:4433".parse()?, "localhost")?.await?;
//! let (mut send, mut receive) = connection.open_bi().await?;
//! send.write_all(b"hello").await?;
//! send.finish()?;
//! println!("{:?}", receive.read_to_end(1 << 20).await?);
//! # Ok(())
//! # }
//! ```
//!
//! A server for this client:
//!
//! ```no_run
//! # use equic_quic::rustls::pki_types::{CertificateDer, PrivateKeyDer};
//! # async fn server(
//! #     chain: Vec<CertificateDer<'static>>,
//! #     key: PrivateKeyDer<'static>,
//! # ) -> Result<(), Box<dyn std::error::Error>> {
//! use equic_quic::{Endpoint, ServerConfig};
//!
//! let config = ServerConfig::with_single_cert(chain, key)?.with_alpn(&[b"echo"]);
//! let endpoint = Endpoint::server(config, "[::]:4433".parse()?)?;
//! while let Some(incoming) = endpoint.accept().await {
//!     tokio::spawn(async move {
//!         let connection = incoming.await?;
//!         while let Ok((mut send, mut receive)) = connection.accept_bi().await {
//!             send.write_all(&receive.read_to_end(1 << 20).await?).await?;
//!         }
//!         Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//!     });
//! }
//! # Ok(())
//! # }
//! ```
//!
//! An [`Endpoint`] is one UDP socket, or several that share a port. Each socket has a task that
//! receives, runs timers and sends for all connections of that socket. [`Endpoint::connect`] and
//! [`Endpoint::accept`] give a [`Connection`]. [`Connection::open_bi`] and similar functions give a
//! [`SendStream`] and a [`RecvStream`], which implement tokio's `AsyncWrite` and `AsyncRead`.
//!
//! Every future of this crate can be dropped at any time without losing received data. If a read is
//! dropped, also [`RecvStream::read_to_end`], the next read returns the data that the dropped one
//! had taken. A dropped [`SendStream::write_all`] may have written a part. A writer waits while the
//! stream's send buffer is full. If a reader does not read, flow control stops the peer.
//!
//! A hook may panic while a socket's task works for a connection. This library may also panic,
//! because of a bug. That connection then ends with [`ConnectionError::Transport`]
//! (INTERNAL_ERROR), and the others continue. [`Endpoint::broken_connections`] counts such
//! connections. The peer gets a stateless reset. If the panic happens in an application's task, as
//! in [`Connection::attach`], the connection ends the same way when it next sends or receives. This
//! needs `panic = "unwind"`, Cargo's default; with `panic = "abort"`, every panic ends the process.
//! A datagram that causes a panic before it reaches a connection is dropped. Any other panic ends
//! the socket's task: its connections end with [`ConnectionError::EndpointGone`], and
//! [`Endpoint::accept`] returns `None`.
//!
//! A hook can watch or replace every operation of a connection ([`operation`],
//! [`Connection::attach`], [`ClientConfig::with_hooks`]). With the feature `qlog`, a program can
//! read a connection's events as a stream (`event`). `examples/` has an echo server, a client that
//! migrates, and datagrams. `docs/quic.md` helps users of quinn to change over.
//!
//! Features:
//!
//! * `aws-lc-rs` (enabled by default) and `ring`: crypto providers. A program needs one of them, or
//!   supplies another provider;
//! * `boringssl`: BoringSSL protects AES-GCM packets on x86-64, which takes less time;
//! * `qlog`: logs and events;
//! * `platform-roots`: the system's root certificates.

#![forbid(unsafe_code)]

// Files, from the top layer to the bottom. A file uses files of its own layer and of lower layers:
//
// * applications create an endpoint: `endpoint.rs`; `local.rs`: its further local addresses;
// * a socket's task: `driver.rs`; `route.rs`: finds the connection of a datagram; `renew.rs`: fresh
//   connection IDs when keys are rotated; `icmp.rs`: ends unreachable connections; `contain.rs`:
//   limits a panic to one connection;
// * a client's connection attempt: `incoming.rs`;
// * what an application does with a connection: `handshake.rs`, `streams.rs`, `hooks.rs`,
//   `identity.rs`, `paths.rs`, then `connection.rs`, `send.rs`, `receive.rs`;
// * state that a task and applications share: `socket.rs`: a socket; `shared.rs`: a connection;
//   `endpoint_shared.rs`: what all sockets of an endpoint share;
// * what this state consists of: `bottleneck.rs`: connections to one address, which take turns;
//   `driver_handle.rs`: the task's list of work; `attempts.rs`: the queue of connection attempts;
//   `wakers.rs`: tasks that wait for events; `tokens.rs`: tokens of servers, which a client
//   stores; `memory.rs`: the limit on waiting data; `notices.rs`: the limit on log lines;
//   `grouping.rs`: the number of GSO batches to send at once;
// * configurations: `config.rs`, `socket_ids.rs`, `verified.rs`, `clock.rs`; `log/`: qlog files and
//   packet traces; `event.rs`: events; `new_connection.rs`: a connection before its first packet;
// * the system's sockets: `batch.rs`: combines datagrams into GSO batches; `send_sockets.rs`:
//   several local addresses; `udp.rs`, `sendmsg.rs`, `bind.rs`, `steer.rs`; `unreachable.rs`: ICMP
//   errors, and which of them to trust;
// * `error.rs`: errors; `early.rs`: the outcome of 0-RTT; `printable.rs`: a peer's text; `aws_lc/`:
//   packet keys that take less time than rustls's.
//
// `tests/quic/layers.rs` fails if too many files import each other in a cycle.
//
// Lock order: socket, connection, then the task's list of work (`driver_handle.rs`) or the queue of
// connection attempts (`attempts.rs`). No lock is held across an await.

mod attempts;
#[cfg(feature = "aws-lc-rs")]
mod aws_lc;
mod batch;
mod bind;
mod bottleneck;
mod clock;
mod config;
mod connection;
mod contain;
mod driver;
mod driver_handle;
mod early;
mod endpoint;
mod endpoint_shared;
mod error;
#[cfg(feature = "qlog")]
pub mod event;
mod grouping;
mod handshake;
mod hooks;
mod icmp;
mod identity;
mod incoming;
mod local;
#[cfg(feature = "qlog")]
mod log;
mod memory;
mod new_connection;
mod notices;
mod paths;
mod printable;
mod receive;
mod renew;
mod route;
mod send;
mod send_sockets;
mod sendmsg;
mod shared;
mod socket;
mod socket_ids;
mod steer;
mod streams;
mod tokens;
mod udp;
mod unreachable;
mod verified;
mod wakers;

#[cfg(feature = "aws-lc-rs")]
pub use aws_lc::{AWS_LC_PROVIDER_LIBRARIES, aws_lc_provider};
pub use clock::system_clock;
pub use config::{
    ClientConfig, ConfigError, EndpointConfig, ServerConfig, SocketIdGenerator, default_provider,
    prefer_post_quantum,
};
pub use connection::Connection;
pub use early::EarlyData;
pub use endpoint::Endpoint;
pub use error::{BindError, ConnectError, ConnectionError, ReadError, ReadToEndError, WriteError};
pub use handshake::Connecting;
pub use incoming::{Incoming, IncomingFuture};
#[cfg(feature = "qlog")]
pub use log::{PacketTrace, QlogFolder};
pub use memory::SendMemory;
pub use new_connection::NewConnection;
pub use paths::PathError;
pub use printable::{is_printable, printable};
pub use receive::RecvStream;
pub use send::SendStream;
pub use socket_ids::HiddenNumber;
pub use verified::CachingVerifier;

pub use equic_transport::crypto::KeyLimits;
pub use equic_transport::operation::TellError;
pub use equic_transport::token::{RetryTokens, RetryVerdict, TokenKey, WallClock};
pub use equic_transport::{
    AcceptError, ClosePathError, DatagramError, EndpointConfig as CoreConfig, ExportError,
    HandshakeData, MigrateError, OpenPathError, PathInfo, PathStats, PathStatus,
    PreferredAddresses, Scheduler, SettingError, StartError, Stats, StreamConfig, Timestamp,
    TransportConfig, congestion, operation,
};
pub use equic_transport::{ConnectionIdGenerator, RandomIds};
pub use equic_wire::{
    ConnectionId, Direction, KnownVersion, PathId, ResetToken, Side, StreamId, TransportErrorCode,
    VarInt,
};
pub use rustls;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/quic.md")]
struct ComingFromQuinn;
