//! A connection of the client, and the responses on it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use equic_quic::{self as quic, ConnectionError, EarlyData};
use equic_wire::{KnownVersion, VarInt};
use h3::client::{RequestStream, SendRequest};
use h3::error::StreamError;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, StatusCode, header};
use tokio::time::Instant;

use super::{ClientError, Target, in_time};
use crate::binding::{self, FrameLimits, Watch};
use crate::{h3_code, message};

/// Header fields of a response, at most, as RFC 9114 s.4.2.2 counts them.
const MAX_FIELD_SECTION: u64 = 64 * 1024;

/// An open connection; clones are the same one. It is closed when the last clone, and the last
/// [`Response`] on it, is dropped.
#[derive(Clone)]
pub struct Connection {
    shared: Arc<Shared>,
    send: SendRequest<binding::OpenStreams, Bytes>,
}

struct Shared {
    quic: quic::Connection,
    watch: Watch,
    target: Target,
    peer: SocketAddr,
    handshake: Duration,
    /// Requests did not wait for the handshake.
    early: bool,
    timeout: Option<Duration>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.quic.close(VarInt::from_u32(h3_code::NO_ERROR), "");
    }
}

impl Shared {
    /// Says what a stream's error comes from: if the connection is gone, why it is.
    fn error(&self, error: &StreamError) -> ClientError {
        if let Some(violation) = self.watch.violation() {
            return self.http(violation.to_string());
        }
        match (self.quic.close_reason(), error) {
            (Some(source), _) if !matches!(source, ConnectionError::LocallyClosed) => {
                ClientError::Lost { peer: self.peer, source }
            }
            (_, StreamError::RemoteTerminate { code, .. }) => {
                self.http(format!("the server gave the stream up ({code})"))
            }
            _ => {
                let reason = error.to_string();
                // What was found before `h3`, which has no word for it.
                self.http(reason.strip_prefix("Undefined error: ").unwrap_or(&reason).to_owned())
            }
        }
    }

    fn http(&self, reason: String) -> ClientError {
        ClientError::Http { peer: self.peer, reason }
    }
}

impl Connection {
    /// `handshake`: how long it took; none: nothing waits for it.
    pub(super) async fn new(
        quic: quic::Connection,
        target: Target,
        peer: SocketAddr,
        handshake: Option<Duration>,
        timeout: Option<Duration>,
    ) -> Result<Self, ClientError> {
        let limits =
            FrameLimits { field_section: MAX_FIELD_SECTION as usize, ..FrameLimits::default() };
        let transport = binding::QuicConnection::with_limits(quic.clone(), limits);
        let shared = Arc::new(Shared {
            quic,
            watch: transport.watch(),
            target,
            peer,
            handshake: handshake.unwrap_or_default(),
            early: handshake.is_none(),
            timeout,
        });
        let mut builder = h3::client::builder();
        builder.max_field_section_size(MAX_FIELD_SECTION).send_grease(false);
        let start = Instant::now();
        let deadline = timeout.and_then(|limit| start.checked_add(limit));
        let (mut driver, send) = in_time(deadline, start, "handshake", async {
            builder.build::<_, _, Bytes>(transport).await.map_err(|error| {
                match shared.quic.close_reason() {
                    Some(source) => ClientError::Lost { peer, source },
                    None => ClientError::Http { peer, reason: error.to_string() },
                }
            })
        })
        .await?;
        // Ends when the connection is closed, by either side.
        tokio::spawn(async move {
            let reason = driver.wait_idle().await;
            tracing::debug!(%peer, %reason, "connection closed");
        });
        Ok(Self { shared, send })
    }

    /// GETs a path (with query), which must begin with a slash. The response's body has yet to come.
    ///
    /// # Errors
    /// A connection that is, or gets, closed; a server that does not keep to HTTP/3; no response
    /// within [`super::ClientConfig::timeout`].
    pub async fn get(&self, path: &PathAndQuery) -> Result<Response, ClientError> {
        self.request(Method::GET, path).await
    }

    /// As [`get`](Self::get), with any method and an empty body.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn request(
        &self,
        method: Method,
        path: &PathAndQuery,
    ) -> Result<Response, ClientError> {
        let deadline = self.shared.timeout.and_then(|limit| Instant::now().checked_add(limit));
        self.request_until(method, path, deadline).await
    }

    /// As [`request`](Self::request), within a deadline of the caller's.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn request_until(
        &self,
        method: Method,
        path: &PathAndQuery,
        deadline: Option<Instant>,
    ) -> Result<Response, ClientError> {
        let start = Instant::now();
        let wrong =
            |e: http::Error| ClientError::Path { path: path.to_string(), reason: e.to_string() };
        let uri = self.shared.target.uri(path).map_err(wrong)?;
        let is_head = method == Method::HEAD;
        // RFC 8470 s.2: others may do harm if they are carried out twice.
        let is_safe = method.is_safe();
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header(header::USER_AGENT, concat!("equic/", env!("CARGO_PKG_VERSION")))
            .body(())
            .map_err(wrong)?;
        if !is_safe {
            in_time(deadline, start, "handshake", async {
                let peer = self.shared.peer;
                let done = self.shared.quic.handshake().await;
                done.map_err(|source| ClientError::Handshake { peer, source })
            })
            .await?;
        }
        let mut send = self.send.clone();
        let (head, stream) = in_time(deadline, start, "request", async {
            let exchange = async {
                let mut stream = send.send_request(request).await?;
                stream.finish().await?;
                loop {
                    let head = stream.recv_response().await?;
                    // Interim responses come before the final one (RFC 9114 s.4.1), so many at most as
                    // are let through to here.
                    if !head.status().is_informational() {
                        return Ok((head, stream));
                    }
                }
            };
            exchange.await.map_err(|error| self.shared.error(&error))
        })
        .await?;
        let (parts, ()) = head.into_parts();
        let malformed = |reason: &str| self.shared.http(format!("a malformed response: {reason}"));
        message::check_fields(&parts.headers).map_err(malformed)?;
        let announced = match message::content_length(&parts.headers).map_err(malformed)? {
            // RFC 9110 s.6.4.1: no content, whatever is announced.
            _ if is_head || matches!(parts.status.as_u16(), 204 | 304) => Some(0),
            announced => announced,
        };
        Ok(Response {
            status: parts.status,
            headers: parts.headers,
            timing: Timing {
                handshake: self.shared.handshake,
                first_byte: start.elapsed(),
                total: None,
            },
            received: 0,
            announced,
            start,
            deadline,
            stream,
            connection: self.clone(),
        })
    }

    /// The version of QUIC that is spoken.
    pub fn version(&self) -> KnownVersion {
        self.shared.quic.version()
    }

    /// The server's address.
    pub fn peer(&self) -> SocketAddr {
        self.shared.peer
    }

    /// Outcome of the requests that were sent before the handshake was complete
    /// ([`super::ClientConfig::early_data`]), as far as it is known.
    pub fn early_data(&self) -> EarlyData {
        if self.shared.early { self.shared.quic.early_data() } else { EarlyData::None }
    }

    /// Duration of the handshake; zero where nothing waited for it.
    pub fn handshake(&self) -> Duration {
        self.shared.handshake
    }

    /// True if requests can still be sent on the connection.
    pub fn is_open(&self) -> bool {
        self.shared.quic.close_reason().is_none()
    }

    /// Waits until the connection is closed, by either side, and says why.
    pub async fn closed(&self) -> ConnectionError {
        self.shared.quic.closed().await
    }

    /// Closes the connection now, with H3_NO_ERROR; responses under way fail.
    pub fn close(&self) {
        self.shared.quic.close(VarInt::from_u32(h3_code::NO_ERROR), "");
    }

    /// Round-trip time as QUIC estimates it now.
    pub fn rtt(&self) -> Duration {
        self.shared.quic.rtt()
    }

    /// The paths that are open.
    pub fn paths(&self) -> Vec<quic::PathInfo> {
        self.shared.quic.paths()
    }

    /// Counters of the QUIC connection.
    pub fn stats(&self) -> quic::Stats {
        self.shared.quic.stats()
    }
}

/// Durations of the parts of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The handshake of the connection, whether this request or an earlier one waited for it.
    pub handshake: Duration,
    /// From sending the request to the response's header fields.
    pub first_byte: Duration,
    /// From sending the request to the end of the body; none while it has not come.
    pub total: Option<Duration>,
}

/// A response: status and header fields, and the body as it comes.
pub struct Response {
    /// Status code.
    pub status: StatusCode,
    /// Header fields.
    pub headers: HeaderMap,
    timing: Timing,
    received: u64,
    announced: Option<u64>,
    start: Instant,
    deadline: Option<Instant>,
    stream: RequestStream<binding::BidiStream<Bytes>, Bytes>,
    connection: Connection,
}

impl Response {
    /// The next piece of the body; none at its end.
    ///
    /// # Errors
    /// A connection or stream that is closed, a timeout, a body of another length than announced.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, ClientError> {
        if self.timing.total.is_some() {
            return Ok(None);
        }
        let stream = &mut self.stream;
        let shared = &self.connection.shared;
        let data = in_time(self.deadline, self.start, "request", async {
            let data = stream.recv_data().await.map_err(|error| shared.error(&error))?;
            Ok(data.map(|mut data| data.copy_to_bytes(data.remaining())))
        })
        .await?;
        self.received += data.as_ref().map_or(0, |data| data.len() as u64);
        let ended = data.is_none();
        match self.announced {
            Some(announced)
                if self.received > announced || (ended && self.received < announced) =>
            {
                return Err(ClientError::Length { received: self.received, announced });
            }
            _ => {}
        }
        if ended {
            self.timing.total = Some(self.start.elapsed());
        }
        Ok(data)
    }

    /// Reads the body to its end and throws it away; returns its length in bytes.
    ///
    /// # Errors
    /// As [`chunk`](Self::chunk).
    pub async fn drain(&mut self) -> Result<u64, ClientError> {
        while self.chunk().await?.is_some() {}
        Ok(self.received)
    }

    /// Reads the body into memory, up to `limit` bytes.
    ///
    /// # Errors
    /// As [`chunk`](Self::chunk), and a body over the limit.
    pub async fn body(&mut self, limit: u64) -> Result<Bytes, ClientError> {
        let mut body = BytesMut::new();
        while let Some(data) = self.chunk().await? {
            if self.received > limit {
                return Err(ClientError::TooLarge { limit });
            }
            body.extend_from_slice(&data);
        }
        Ok(body.freeze())
    }

    /// Bytes of body received so far.
    pub fn bytes(&self) -> u64 {
        self.received
    }

    /// Bytes of body to expect, if the response says so: its `content-length`, or none at all where
    /// there can be no content.
    pub fn announced(&self) -> Option<u64> {
        self.announced
    }

    /// Durations of the parts of the exchange; complete after the body's end.
    pub fn timing(&self) -> Timing {
        self.timing
    }

    /// The connection the response came on.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }
}
