//! Errors of connections and streams.

use std::io;
use std::net::SocketAddr;

use equic_transport::{AcceptError, CloseReason, StartError};
use equic_wire::{TransportErrorCode, VarInt};

use crate::printable;

/// The reason why a connection is closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The peer's application closed the connection.
    #[error("closed by peer: {reason} (code {code:#x})")]
    ApplicationClosed {
        /// The application's error code.
        code: u64,
        /// The peer's reason phrase, made [printable](crate::printable).
        reason: String,
    },
    /// The peer's QUIC implementation closed the connection.
    #[error("aborted by peer: {}{}", name(*.code), colon(.reason))]
    ConnectionClosed {
        /// An error code of RFC 9000 s.20.1.
        code: u64,
        /// The peer's reason phrase, made [printable](crate::printable).
        reason: String,
    },
    /// This QUIC implementation closed the connection, usually because the peer violated the
    /// protocol.
    #[error("{}{}", name(*.code), colon(.reason))]
    Transport {
        /// An error code of RFC 9000 s.20.1.
        code: u64,
        /// A description for people.
        reason: String,
    },
    /// The peer no longer has the connection's state and sent a stateless reset (RFC 9000 s.10.3).
    #[error("reset by peer")]
    Reset,
    /// Nothing arrived from the peer within the idle timeout; or the peer did not answer at its new
    /// address and no validated address is left (RFC 9000 s.9.3.2).
    #[error("timed out")]
    TimedOut,
    /// Before anything arrived from the peer, ICMP reported that the peer is unreachable; or this
    /// machine refused to send to the peer (no route, or forbidden by the firewall).
    #[error("{}", unreachable(*.0))]
    Unreachable(io::ErrorKind),
    /// A client's connection attempt could not be accepted. Its packet was corrupted or forged, or
    /// TLS could not start the handshake.
    #[error("not accepted: {0}")]
    NotAccepted(String),
    /// The application on this end closed the connection.
    #[error("closed by this endpoint")]
    LocallyClosed,
    /// The task of the connection's socket no longer runs, because its runtime has ended or its
    /// socket has failed.
    #[error("the endpoint no longer exists")]
    EndpointGone,
}

fn name(code: u64) -> String {
    TransportErrorCode(VarInt::new(code).unwrap_or(VarInt::MAX)).to_string()
}

fn colon(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}

fn unreachable(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::ConnectionRefused => "nothing listens on that port (ICMP: port unreachable)",
        io::ErrorKind::HostUnreachable => "the host cannot be reached",
        io::ErrorKind::PermissionDenied => {
            "a firewall on this machine or on the route forbids the connection"
        }
        io::ErrorKind::AddrNotAvailable => "this machine has no address to send from",
        _ => "there is no route to the network of the peer",
    }
}

impl From<CloseReason> for ConnectionError {
    fn from(reason: CloseReason) -> ConnectionError {
        match reason {
            CloseReason::Local(error) if error.application => ConnectionError::LocallyClosed,
            // A message of TLS may quote data of the peer.
            CloseReason::Local(error) => {
                ConnectionError::Transport { code: error.code, reason: printable(&error.reason) }
            }
            CloseReason::Peer(error) if error.application => ConnectionError::ApplicationClosed {
                code: error.code,
                reason: printable(&error.reason),
            },
            CloseReason::Peer(error) => ConnectionError::ConnectionClosed {
                code: error.code,
                reason: printable(&error.reason),
            },
            CloseReason::IdleTimeout | CloseReason::NoValidatedPath => ConnectionError::TimedOut,
            CloseReason::StatelessReset => ConnectionError::Reset,
            other => ConnectionError::Transport {
                code: TransportErrorCode::INTERNAL_ERROR.0.get(),
                reason: other.to_string(),
            },
        }
    }
}

impl From<AcceptError> for ConnectionError {
    fn from(error: AcceptError) -> ConnectionError {
        match error {
            AcceptError::NotServing => ConnectionError::EndpointGone,
            error => ConnectionError::NotAccepted(error.to_string()),
        }
    }
}

impl From<ConnectionError> for io::Error {
    fn from(error: ConnectionError) -> io::Error {
        let kind = match &error {
            ConnectionError::TimedOut => io::ErrorKind::TimedOut,
            ConnectionError::Unreachable(kind) => *kind,
            ConnectionError::Reset => io::ErrorKind::ConnectionReset,
            ConnectionError::ApplicationClosed { .. }
            | ConnectionError::ConnectionClosed { .. } => io::ErrorKind::ConnectionAborted,
            _ => io::ErrorKind::NotConnected,
        };
        io::Error::new(kind, error)
    }
}

/// The reason why [`Endpoint::connect`](crate::Endpoint::connect) could not start to connect.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The endpoint is closed, or its task no longer runs.
    #[error("the endpoint is closed, or its runtime has ended")]
    EndpointGone,
    /// The server name is neither a DNS name nor an IP address.
    #[error("invalid server name `{0}`: it is neither a DNS name nor an IP address")]
    ServerName(String),
    /// The socket cannot send to this remote address.
    #[error("invalid remote address {0}: {why}", why = why_invalid(.0))]
    Remote(SocketAddr),
    /// The endpoint has no default client configuration.
    #[error(
        "there is no client configuration: call set_default_client_config first, or use connect_with"
    )]
    NoClientConfig,
    /// TLS could not start the handshake, or a transport setting is out of range.
    #[error(transparent)]
    Start(#[from] StartError),
}

fn why_invalid(remote: &SocketAddr) -> &'static str {
    match remote {
        remote if remote.port() == 0 => "port 0 is not a valid port of a server",
        remote if remote.ip().is_unspecified() => "the unspecified address cannot be a destination",
        SocketAddr::V4(_) => "the endpoint's socket is bound to an IPv6 address",
        SocketAddr::V6(_) => "the endpoint's socket is bound to an IPv4 address",
    }
}

/// The reason why a socket could not be bound. It is the inner error of the `io::Error` that
/// [`Endpoint::bind`](crate::Endpoint::bind), [`Endpoint::client`](crate::Endpoint::client) and
/// [`Endpoint::server`](crate::Endpoint::server) return.
#[derive(Debug, thiserror::Error)]
#[error("cannot bind {address}: {error}")]
#[non_exhaustive]
pub struct BindError {
    /// The local address.
    pub address: SocketAddr,
    /// The system's error.
    pub error: io::Error,
}

impl BindError {
    /// Returns a function that wraps an `io::Error`. The result has the same kind and names the
    /// address.
    pub(crate) fn wrap(address: SocketAddr) -> impl Fn(io::Error) -> io::Error {
        move |error| io::Error::new(error.kind(), BindError { address, error })
    }

    /// Returns the system's error from an `io::Error` that may contain a `BindError`. This is for
    /// callers that report the address themselves.
    pub fn system_error(error: io::Error) -> io::Error {
        error.downcast::<BindError>().map_or_else(|other| other, |bind| bind.error)
    }
}

/// The reason why no more data can be read from a stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The peer reset the stream with this application error code.
    #[error("stream reset by peer: error {0}")]
    Reset(u64),
    /// This endpoint has stopped the stream.
    #[error("the stream is closed, because this endpoint has stopped it")]
    Closed,
    /// The stream was opened before the handshake was complete, and the server rejected the early
    /// data. Repeat the request on a new stream.
    #[error("early data rejected")]
    EarlyDataRejected,
    /// The connection is closed.
    #[error("connection lost: {0}")]
    Connection(#[from] ConnectionError),
}

impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> io::Error {
        match error {
            ReadError::Reset(_) => io::Error::new(io::ErrorKind::ConnectionReset, error),
            ReadError::Closed | ReadError::EarlyDataRejected => {
                io::Error::new(io::ErrorKind::NotConnected, error)
            }
            ReadError::Connection(error) => error.into(),
        }
    }
}

/// The reason why a stream could not be read to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadToEndError {
    /// Reading failed.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The stream has more bytes than this limit. The received data is dropped.
    #[error("the stream has more than {0} bytes")]
    TooLong(usize),
}

/// The reason why no more data can be written to a stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The peer requested with STOP_SENDING that this endpoint stop, with this application error
    /// code.
    #[error("sending stopped by peer: error {0}")]
    Stopped(u64),
    /// This endpoint has finished or reset the stream.
    #[error("the stream is closed, because this endpoint has finished or reset it")]
    Closed,
    /// The server rejected the early data: see [`ReadError::EarlyDataRejected`].
    #[error("early data rejected")]
    EarlyDataRejected,
    /// The connection is closed.
    #[error("connection lost: {0}")]
    Connection(#[from] ConnectionError),
}

impl From<WriteError> for io::Error {
    fn from(error: WriteError) -> io::Error {
        match error {
            WriteError::Stopped(_) => io::Error::new(io::ErrorKind::ConnectionReset, error),
            WriteError::Closed | WriteError::EarlyDataRejected => {
                io::Error::new(io::ErrorKind::NotConnected, error)
            }
            WriteError::Connection(error) => error.into(),
        }
    }
}
