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
//!
//! Files:
//!
//! * `config.rs`: configurations; `endpoint.rs`, `incoming.rs`, `connection.rs`, `identity.rs`,
//!   `send.rs`, `receive.rs`: the types that an application uses; `error.rs`: errors;
//! * `aws_lc/`: packet keys that take less time than rustls's;
//! * `hooks.rs`, `event.rs`: operations and events;
//! * `early.rs`: 0-RTT; `tokens.rs`: tokens of servers, which a client stores;
//! * `crowd.rs`: connections to one address, which take turns;
//! * `cell.rs`: a connection, shared by the task and the application; `socket.rs`: a socket, shared
//!   in the same way;
//! * `driver.rs`: the task; `route.rs`: finds the connection of a datagram;
//! * `local.rs`, `outlets.rs`: several local addresses; `paths.rs`: several paths; `memory.rs`: the
//!   limit on waiting data;
//! * `batch.rs`: combines datagrams into GSO batches; `grouping.rs`: the number of batches to send
//!   at once;
//! * `udp.rs`: the system's socket; `unreachable.rs`: ICMP errors, and which of them to trust;
//! * `renew.rs`: fresh connection IDs when keys are rotated; `contain.rs`: limits a panic to one
//!   connection;
//! * `log/`: qlog files and packet traces; `bind.rs`: sockets; `printable.rs`: a peer's text.
//!
//! Lock order: socket, connection, wake list. No lock is held across an await.

#![forbid(unsafe_code)]

#[cfg(feature = "aws-lc-rs")]
mod aws_lc;
mod batch;
mod bind;
mod cell;
mod clock;
mod config;
mod connection;
mod contain;
mod crowd;
mod driver;
mod early;
mod endpoint;
mod error;
#[cfg(feature = "qlog")]
pub mod event;
mod grouping;
mod hooks;
mod identity;
mod incoming;
mod local;
#[cfg(feature = "qlog")]
mod log;
mod memory;
mod notices;
mod outlets;
mod paths;
mod printable;
mod receive;
mod renew;
mod route;
mod send;
mod sendmsg;
mod socket;
mod socket_ids;
mod steer;
mod tokens;
mod udp;
mod unreachable;
mod verified;

#[cfg(feature = "aws-lc-rs")]
pub use aws_lc::{AWS_LC_PROVIDER_LIBRARIES, aws_lc_provider};
pub use clock::system_clock;
pub use config::{
    ClientConfig, ConfigError, EndpointConfig, ServerConfig, SocketIdGenerator, default_provider,
    prefer_post_quantum,
};
pub use connection::{Connecting, Connection};
pub use early::EarlyData;
pub use endpoint::Endpoint;
pub use error::{BindError, ConnectError, ConnectionError, ReadError, ReadToEndError, WriteError};
pub use hooks::NewConnection;
pub use incoming::{Incoming, IncomingFuture};
#[cfg(feature = "qlog")]
pub use log::{PacketTrace, QlogFolder};
pub use memory::SendMemory;
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
