//! Binds the `h3` crate to a QUIC connection, and checks rules of RFC 9114 and RFC 9204 that `h3` does not check.
//!
//! `frames.rs` takes what comes on a stream apart, and bounds what is kept of it; `fields.rs` looks at
//! field sections (`huffman.rs` decodes their strings, `static_table.rs` has the table), `control.rs` at the control
//! stream and QPACK's, `intake.rs` at streams of one direction; `streams.rs` are streams as `h3` has them;
//! `violation.rs` lists the rules that a peer can break; `shared.rs` is what the streams of a connection share;
//! `requests.rs` has what a server's requests share; `bell.rs` knows whether there is anything to look at.
//! `docs/decisions/0022-before-h3.md` has the reasons.

mod bell;
mod control;
mod fields;
mod frames;
mod huffman;
mod intake;
mod requests;
mod shared;
mod static_table;
mod streams;
mod violation;

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use equic_quic::{ConnectionError, ReadError, WriteError};
use equic_wire::VarInt;
use h3::error::Code;
use h3::quic::{self, ConnectionErrorIncoming, StreamErrorIncoming, StreamId};

use frames::Kind;
use intake::Intake;
use shared::Shared;

pub(crate) use requests::Requests;
pub use shared::FrameLimits;
pub use streams::{BidiStream, RecvStream, SendStream};
pub use violation::Violation;

/// Pieces that are read in a row without a result, before the task yields.
const PIECES: usize = 16;

fn connection_error(error: ConnectionError) -> ConnectionErrorIncoming {
    match error {
        ConnectionError::ApplicationClosed { code, .. } => {
            ConnectionErrorIncoming::ApplicationClose { error_code: code }
        }
        ConnectionError::TimedOut => ConnectionErrorIncoming::Timeout,
        other => ConnectionErrorIncoming::Undefined(Arc::new(other)),
    }
}

fn of_connection(error: ConnectionError) -> StreamErrorIncoming {
    StreamErrorIncoming::ConnectionErrorIncoming { connection_error: connection_error(error) }
}

fn read_error(error: ReadError) -> StreamErrorIncoming {
    match error {
        ReadError::Reset(error_code) => StreamErrorIncoming::StreamTerminated { error_code },
        ReadError::Connection(error) => of_connection(error),
        ReadError::Closed | ReadError::EarlyDataRejected => {
            StreamErrorIncoming::Unknown(Box::new(error))
        }
    }
}

fn write_error(error: WriteError) -> StreamErrorIncoming {
    match error {
        WriteError::Stopped(error_code) => StreamErrorIncoming::StreamTerminated { error_code },
        WriteError::Connection(error) => of_connection(error),
        WriteError::Closed | WriteError::EarlyDataRejected => {
            StreamErrorIncoming::Unknown(Box::new(error))
        }
    }
}

fn id(id: equic_wire::StreamId) -> StreamId {
    // Cannot fail: both have 62 bits.
    StreamId::try_from(id.as_varint().get()).unwrap_or_else(|_| unreachable!("62 bits"))
}

fn code(code: u64) -> VarInt {
    VarInt::new(code).unwrap_or(VarInt::MAX)
}

/// A connection for [`h3::server`] and [`h3::client`].
pub struct QuicConnection {
    open: OpenStreams,
    intake: Intake,
}

impl QuicConnection {
    /// Over an open connection, with the limits of [`FrameLimits::default`].
    pub fn new(connection: equic_quic::Connection) -> QuicConnection {
        QuicConnection::with_limits(connection, FrameLimits::default())
    }

    /// Over an open connection.
    pub fn with_limits(connection: equic_quic::Connection, limits: FrameLimits) -> QuicConnection {
        let shared = Arc::new(Shared::new(limits));
        let intake = Intake::new(connection.clone(), Arc::clone(&shared));
        QuicConnection { open: OpenStreams(connection, shared), intake }
    }

    /// Returns a server's handle to the requests of this connection.
    pub(crate) fn requests(&self) -> Requests {
        Requests(Arc::clone(&self.open.1))
    }

    /// Returns a handle that reports later whether the peer broke a rule.
    pub fn watch(&self) -> Watch {
        Watch(Arc::clone(&self.open.1))
    }
}

/// Reports a violation of HTTP/3 by the peer, and a server's GOAWAY.
#[derive(Clone, Debug)]
pub struct Watch(Arc<Shared>);

impl Watch {
    /// Returns the rule that the peer broke, if the connection was closed because of it.
    pub fn violation(&self) -> Option<Violation> {
        self.0.violation()
    }

    /// Returns the smallest stream ID that a server's GOAWAY frames have named, or `None` before the
    /// first. The server processes no request on that stream or a later one (RFC 9114 s.5.2).
    pub fn goaway(&self) -> Option<u64> {
        self.0.goaway()
    }

    /// Waits until the server's GOAWAY says that it does not process a request. `stream` returns the
    /// ID of the request's stream, or `None` while the stream is not open.
    pub async fn goes_away(&self, stream: impl Fn() -> Option<u64> + Send) {
        self.0.goes_away(stream).await;
    }
}

/// The server has sent GOAWAY, so that no request can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server is going away")]
struct GoingAway;

/// Opens streams.
#[derive(Clone)]
pub struct OpenStreams(equic_quic::Connection, Arc<Shared>);

fn close(connection: &equic_quic::Connection, why: Code, reason: &[u8]) {
    connection.close(code(why.value()), &String::from_utf8_lossy(reason));
}

/// Closes a connection because of what the peer did.
fn refuse(
    connection: &equic_quic::Connection,
    shared: &Shared,
    violation: Violation,
) -> ConnectionErrorIncoming {
    shared.set_violation(violation);
    connection.close(code(violation.code().value()), violation.phrase());
    ConnectionErrorIncoming::Undefined(Arc::new(violation))
}

fn poll_open_bidi<B: Buf>(
    open: &OpenStreams,
    cx: &mut Context<'_>,
) -> Poll<Result<BidiStream<B>, StreamErrorIncoming>> {
    // RFC 9114 s.5.2: no request after GOAWAY. `h3` looks for one before it waits for a stream.
    if open.1.goaway().is_some() {
        return Poll::Ready(Err(StreamErrorIncoming::Unknown(Box::new(GoingAway))));
    }
    let made = |halves| BidiStream::new(halves, Kind::Response, open);
    open.0.poll_open_bi(cx).map_ok(made).map_err(of_connection)
}

fn poll_open_send<B: Buf>(
    open: &OpenStreams,
    cx: &mut Context<'_>,
) -> Poll<Result<SendStream<B>, StreamErrorIncoming>> {
    let made = |stream| SendStream::of_one_direction(stream, &open.1);
    open.0.poll_open_uni(cx).map_ok(made).map_err(of_connection)
}

impl<B: Buf> quic::OpenStreams<B> for QuicConnection {
    type BidiStream = BidiStream<B>;
    type SendStream = SendStream<B>;

    fn poll_open_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<BidiStream<B>, StreamErrorIncoming>> {
        poll_open_bidi(&self.open, cx)
    }

    fn poll_open_send(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<SendStream<B>, StreamErrorIncoming>> {
        poll_open_send(&self.open, cx)
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        close(&self.open.0, code, reason);
    }
}

impl<B: Buf> quic::OpenStreams<B> for OpenStreams {
    type BidiStream = BidiStream<B>;
    type SendStream = SendStream<B>;

    fn poll_open_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<BidiStream<B>, StreamErrorIncoming>> {
        poll_open_bidi(self, cx)
    }

    fn poll_open_send(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<SendStream<B>, StreamErrorIncoming>> {
        poll_open_send(self, cx)
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        close(&self.0, code, reason);
    }
}

impl<B: Buf> quic::Connection<B> for QuicConnection {
    type RecvStream = RecvStream;
    type OpenStreams = OpenStreams;

    fn poll_accept_recv(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<RecvStream, ConnectionErrorIncoming>> {
        self.intake.poll(cx)
    }

    fn poll_accept_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<BidiStream<B>, ConnectionErrorIncoming>> {
        loop {
            let (mut send, mut receive) =
                ready!(self.open.0.poll_accept_bi(cx)).map_err(connection_error)?;
            if self.open.1.requests.admit(send.id().as_varint().get()) {
                let halves = (send, receive);
                return Poll::Ready(Ok(BidiStream::new(halves, Kind::Request, &self.open)));
            }
            // RFC 9114 s.5.2: it is not below the ID that GOAWAY names.
            let rejected = code(Code::H3_REQUEST_REJECTED.value());
            send.reset(rejected);
            receive.stop(rejected);
        }
    }

    fn opener(&self) -> OpenStreams {
        self.open.clone()
    }
}
