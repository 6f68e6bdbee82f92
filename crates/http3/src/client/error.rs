//! Errors of a client, and their classification in the results of a load test.

use std::net::SocketAddr;
use std::time::Duration;

use equic_quic::{ConnectError, ConnectionError, SettingError};
use equic_wire::TransportErrorCode;

use crate::h3_code;
use crate::tls::{CertificateError, WRONG_FINGERPRINT};

/// Error of a request that failed or could not be sent.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The URL cannot be used.
    #[error("cannot use the URL {url:?}: {reason}")]
    Url {
        /// The URL that the caller gave.
        url: String,
        /// Explains to the user what is wrong with the URL.
        reason: String,
    },
    /// The path of a request cannot be used.
    #[error("cannot ask for the path {path:?}: {reason}")]
    Path {
        /// The path that the caller gave.
        path: String,
        /// Explains to the user what is wrong with the path.
        reason: String,
    },
    /// The host has no address that can be reached.
    #[error("cannot resolve {host}: {reason}")]
    Resolve {
        /// Host of the URL.
        host: String,
        /// The resolver's error.
        reason: String,
    },
    /// The source address cannot be used.
    #[error("cannot send from {address}: {source}")]
    Bind {
        /// The requested source address.
        address: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// The CA file cannot be used.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// A setting is out of range.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The connection attempt could not be started.
    #[error("cannot connect to {peer}: {source}")]
    Start {
        /// The server's address.
        peer: SocketAddr,
        /// The error that QUIC reported.
        source: ConnectError,
    },
    /// The handshake failed.
    #[error("cannot connect to {peer}: {source}{}", hint(source))]
    Handshake {
        /// The server's address.
        peer: SocketAddr,
        /// The error that QUIC reported.
        source: ConnectionError,
    },
    /// The connection was lost.
    #[error("the connection to {peer} was lost: {source}")]
    Lost {
        /// The server's address.
        peer: SocketAddr,
        /// The error that QUIC reported.
        source: ConnectionError,
    },
    /// HTTP/3 failed, on the connection or the request's stream.
    #[error("the exchange with {peer} failed: {reason}")]
    Http {
        /// The server's address.
        peer: SocketAddr,
        /// Explains to the user what went wrong in HTTP/3.
        reason: String,
    },
    /// The server did not process the request, or the request is idempotent and its connection was
    /// lost. In both cases the request may be sent again on another connection.
    #[error("{peer} did not process the request: {why}{}", attempts(*times))]
    Unprocessed {
        /// The server's address.
        peer: SocketAddr,
        /// The reason why the last attempt was not processed.
        why: Unprocessed,
        /// Number of attempts, including attempts in which the connection ended before the request
        /// was sent.
        times: u32,
    },
    /// The length of the body is not the announced one.
    #[error("the body has {received} bytes, but the server announced {announced}")]
    Length {
        /// Number of body bytes that were received.
        received: u64,
        /// Value of the response's `content-length`, in bytes.
        announced: u64,
    },
    /// The content of the request failed, or does not match its Content-Length. The client has
    /// cancelled the request.
    #[error("the content of the request failed: {source}")]
    Content {
        /// The error of the content.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The body is larger than the caller permitted.
    #[error("the body of the response is larger than the permitted {limit} bytes")]
    TooLarge {
        /// Largest size that the caller permitted, in bytes.
        limit: u64,
    },
    /// The handshake or the request took too long.
    #[error("{what} timed out after {after:.1?}")]
    Timeout {
        /// "handshake", "request" or "name resolution".
        what: &'static str,
        /// Time after which the client gave up.
        after: Duration,
    },
}

/// Reason why a request may be sent again on another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unprocessed {
    /// The server reset the request's stream with H3_REQUEST_REJECTED (RFC 9114 s.4.1.1).
    #[error("the server rejected the request (H3_REQUEST_REJECTED)")]
    Rejected,
    /// The server sent GOAWAY before the request was sent, or its GOAWAY covers the request (RFC
    /// 9114 s.5.2).
    #[error("the server is going away (GOAWAY)")]
    GoingAway,
    /// The request was in early data that the server rejected (RFC 8470 s.3).
    #[error("the server rejected the early data")]
    EarlyData,
    /// The connection ended before the request was sent, or before its response arrived. The server
    /// had answered earlier requests on this connection. If the request was sent, its method is
    /// idempotent, so it may be repeated (RFC 9110 s.9.2.2).
    #[error("the server closed the connection")]
    Closed,
}

fn attempts(times: u32) -> String {
    if times > 1 { format!(", after {times} attempts on new connections") } else { String::new() }
}

/// Returns what the user can do about the error.
fn hint(error: &ConnectionError) -> &'static str {
    match error {
        // rustls reports this error if a server presents the certificate of a CA as its own, which
        // is not permitted (RFC 5280 s.4.2.1.9).
        ConnectionError::Transport { reason, .. } if reason.contains("CaUsedAsEndEntity") => {
            " (the server presents a CA certificate as its own certificate; `openssl req -x509` creates such certificates by default. To trust exactly this certificate, use --pin FINGERPRINT, which `openssl x509 -in FILE -noout -fingerprint -sha256` prints. Or create the certificate again with `-addext basicConstraints=critical,CA:FALSE`, and use --ca FILE)"
        }
        // The message already says what to do.
        ConnectionError::Transport { reason, .. } if reason.contains(WRONG_FINGERPRINT) => "",
        ConnectionError::Transport { code, .. } if is_crypto(*code) => {
            " (if the server's certificate is not trusted, use --ca FILE, --pin FINGERPRINT, or --insecure)"
        }
        ConnectionError::TimedOut => {
            " (the server did not answer: check that a QUIC server listens at this address)"
        }
        _ => "",
    }
}

/// Returns `true` for CRYPTO_ERROR: the codes 0x0100 to 0x01ff (RFC 9001 s.4.8).
fn is_crypto(code: u64) -> bool {
    code >> 8 == 1
}

/// Kind of failure, as the results of a load test count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// The server refused the connection or the request: CONNECTION_REFUSED, H3_EXCESSIVE_LOAD, or
    /// H3_REQUEST_REJECTED.
    Refused,
    /// No answer arrived in time.
    Timeout,
    /// Any other failure. The field is its name in the results.
    Error(&'static str),
}

impl ClientError {
    /// Returns `true` if no server answered, because the address cannot be reached or no answer
    /// arrived in time.
    pub(super) fn is_silence(&self) -> bool {
        use ConnectionError::{TimedOut, Unreachable};
        matches!(
            self,
            Self::Handshake { source: Unreachable(_) | TimedOut, .. }
                | Self::Timeout { .. }
                | Self::Start { .. }
        )
    }

    /// Returns the kind of failure as which results count this error.
    pub fn failure(&self) -> Failure {
        match self {
            Self::Timeout { .. } => Failure::Timeout,
            Self::Handshake { source, .. } | Self::Lost { source, .. } => of_connection(source),
            Self::Url { .. } | Self::Path { .. } => Failure::Error("url"),
            Self::Resolve { .. } => Failure::Error("resolve"),
            Self::Bind { .. } => Failure::Error("bind"),
            Self::Certificate(_) => Failure::Error("certificate"),
            Self::Setting(_) | Self::Start { .. } => Failure::Error("config"),
            Self::Http { .. } => Failure::Error("http"),
            Self::Unprocessed { why: Unprocessed::Rejected, .. } => Failure::Refused,
            Self::Unprocessed { .. } => Failure::Error("closed"),
            Self::Content { .. } => Failure::Error("content"),
            Self::Length { .. } | Self::TooLarge { .. } => Failure::Error("length"),
        }
    }
}

fn of_connection(error: &ConnectionError) -> Failure {
    match error {
        ConnectionError::TimedOut => Failure::Timeout,
        ConnectionError::Unreachable(_) => Failure::Error("unreachable"),
        // RFC 9000 s.20.1.
        ConnectionError::ConnectionClosed { code, .. }
            if *code == TransportErrorCode::CONNECTION_REFUSED.0.get() =>
        {
            Failure::Refused
        }
        ConnectionError::ApplicationClosed { code, .. }
            if *code == u64::from(h3_code::EXCESSIVE_LOAD) =>
        {
            Failure::Refused
        }
        ConnectionError::Transport { code, .. }
        | ConnectionError::ConnectionClosed { code, .. }
            if is_crypto(*code) =>
        {
            Failure::Error("tls")
        }
        ConnectionError::Transport { .. } => Failure::Error("protocol"),
        ConnectionError::Reset => Failure::Error("reset"),
        _ => Failure::Error("closed"),
    }
}
