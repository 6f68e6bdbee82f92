//! QUIC over UDP and tokio: [`equic_transport`] with sockets, a clock and tasks around it. It is all that a
//! program needs: what it uses of other crates is here, too ([`rustls`], [`operation`], [`congestion`]).
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
//! An [`Endpoint`] is one UDP socket, or several that share a port; each has a task of its own that
//! receives, times and sends for all connections of that socket. [`Endpoint::connect`] and
//! [`Endpoint::accept`] give a [`Connection`]; [`Connection::open_bi`] and its likes give a
//! [`SendStream`] and a [`RecvStream`], which are tokio's `AsyncWrite` and `AsyncRead`.
//!
//! Every future here can be dropped at any time: nothing that was received is lost. What a dropped read had taken,
//! [`RecvStream::read_to_end`] too, the next read returns. A dropped [`SendStream::write_all`] may have written a part. A writer waits
//! while the stream's send buffer is full, and a reader that does not read holds the peer up by
//! flow control.
//!
//! If a hook, or this library by a mistake, panics while a socket's task works for a connection, that connection ends with
//! [`ConnectionError::Transport`] (INTERNAL_ERROR), and the others go on ([`Endpoint::broken_connections`] counts them). The peer
//! gets a stateless reset. If the panic happens in an application's task, as in [`Connection::attach`], the connection ends the
//! same way when it next sends or receives. This needs `panic = "unwind"`, Cargo's default; with `panic = "abort"` every panic ends the process.
//! A datagram that causes a panic before it reaches a connection is dropped. Any other panic ends the socket's task: its
//! connections end with [`ConnectionError::EndpointGone`], and [`Endpoint::accept`] returns `None`.
//!
//! Every operation of a connection can be watched or replaced by a hook ([`operation`],
//! [`Connection::attach`], [`ClientConfig::with_hooks`]); what happens can be had as a stream of events
//! (`event`, with the feature `qlog`). `examples/` has an echo server, a client that migrates, and
//! datagrams; `docs/quic.md` is for who comes from quinn.
//!
//! Features: `aws-lc-rs` (on unless switched off) and `ring`, crypto providers, of which a program needs one
//! or brings another; `boringssl`, AES-GCM of packets by BoringSSL on x86-64, which takes less time; `qlog`, logs and events; `platform-roots`, the system's root certificates.
//!
//! * `config.rs`: configurations; `endpoint.rs`, `incoming.rs`, `connection.rs`, `identity.rs`, `send.rs`,
//!   `receive.rs`: what an application has in its hands; `error.rs`: what can go wrong;
//! * `aws_lc/`: keys of packets that take less time than rustls's;
//! * `hooks.rs`, `event.rs`: operations and events;
//! * `early.rs`: 0-RTT; `tokens.rs`: tokens of servers, which a client keeps;
//! * `crowd.rs`: connections to one address, which take turns; `cell.rs`: a connection as the task and the application share it; `socket.rs`: a socket as they
//!   do; `driver.rs`: the task; `route.rs`: from datagrams to connections; `local.rs`, `outlets.rs`: several local addresses; `paths.rs`: several paths; `memory.rs`: how much they may have waiting; `batch.rs`: datagrams into
//!   GSO batches; `grouping.rs`: how many of these at once; `udp.rs`: the system's socket; `unreachable.rs`: ICMP errors, as far as they can be
//!   believed; `renew.rs`: fresh connection IDs when keys are rotated; `contain.rs`: panics end one connection only;
//! * `log/`: qlog files and packet traces; `bind.rs`: sockets; `printable.rs`: a peer's text.
//!
//! Locks are taken in the order socket, connection, wake list, and never across an await.

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

pub use equic_transport::operation::TellError;
pub use equic_transport::token::{RetryTokens, RetryVerdict, TokenKey, WallClock};
pub use equic_transport::{
    AcceptError, ClosePathError, DatagramError, EndpointConfig as CoreConfig, ExportError,
    HandshakeData, KeyLimits, MigrateError, OpenPathError, PathInfo, PathStats, PathStatus,
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
