//! Binds the `h3` crate to a QUIC connection, and checks rules of RFC 9114 and RFC 9204 that `h3`
//! does not check.
//!
//! Modules:
//!
//! * `frames`: parses the frames of a stream, and limits how much of them is kept;
//! * `fields`: checks field sections; `huffman` decodes their strings, and `static_table` is the
//!   static table of QPACK;
//! * `control`: checks the control stream and the QPACK streams; `intake`: receives the
//!   unidirectional streams;
//! * `streams`: the stream types of `h3`;
//! * `violation`: the rules that a peer can break;
//! * `shared`: the state that the streams of a connection share; `requests`: the state that the
//!   request streams of a server's connection share;
//! * `bell`: remembers whether there is anything to poll.
//!
//! `docs/decisions/0022-before-h3.md` explains why these checks are made before `h3`.

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

/// Largest number of times that a stream is read in a row without a frame for `h3`. The task then
/// yields.
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
        error => StreamErrorIncoming::Unknown(Box::new(error)),
    }
}

fn write_error(error: WriteError) -> StreamErrorIncoming {
    match error {
        WriteError::Stopped(error_code) => StreamErrorIncoming::StreamTerminated { error_code },
        WriteError::Connection(error) => of_connection(error),
        error => StreamErrorIncoming::Unknown(Box::new(error)),
    }
}

fn id(id: equic_wire::StreamId) -> StreamId {
    // Cannot fail: both kinds of ID have 62 bits.
    StreamId::try_from(id.as_varint().get()).unwrap_or_else(|_| unreachable!("62 bits"))
}

fn code(code: u64) -> VarInt {
    VarInt::new(code).unwrap_or(VarInt::MAX)
}

/// A QUIC connection with the traits that [`h3::server`] and [`h3::client`] need.
pub struct QuicConnection {
    open: OpenStreams,
    intake: Intake,
}

impl QuicConnection {
    /// Wraps an open connection, with the limits of [`FrameLimits::default`].
    pub fn new(connection: equic_quic::Connection) -> QuicConnection {
        QuicConnection::with_limits(connection, FrameLimits::default())
    }

    /// Wraps an open connection, with these limits.
    pub fn with_limits(connection: equic_quic::Connection, limits: FrameLimits) -> QuicConnection {
        let shared = Arc::new(Shared::new(limits));
        let intake = Intake::new(connection.clone(), Arc::clone(&shared));
        QuicConnection { open: OpenStreams(connection, shared), intake }
    }

    /// Returns a server's handle to the requests of this connection.
    pub(crate) fn requests(&self) -> Requests {
        Requests(Arc::clone(&self.open.1))
    }

    /// Returns a handle that reports violations of the peer, also after `h3` has taken the
    /// connection.
    pub fn watch(&self) -> Watch {
        Watch(Arc::clone(&self.open.1))
    }
}

/// Reports whether the peer violated HTTP/3, and whether the server sent GOAWAY.
#[derive(Clone, Debug)]
pub struct Watch(Arc<Shared>);

impl Watch {
    /// Returns the rule that the peer broke, or `None` if no violation has closed the connection.
    pub fn violation(&self) -> Option<Violation> {
        self.0.violation()
    }

    /// Returns the smallest stream ID that the server's GOAWAY frames have named, or `None` before
    /// the first GOAWAY. The server processes no request on that stream or a later one (RFC 9114
    /// s.5.2).
    pub fn goaway(&self) -> Option<u64> {
        self.0.goaway()
    }

    /// Waits until the server's GOAWAY covers a request, so that the server will not process it.
    /// `stream` returns the ID of the request's stream, or `None` while the stream is not open.
    pub async fn goes_away(&self, stream: impl Fn() -> Option<u64> + Send) {
        self.0.goes_away(stream).await;
    }
}

/// Error of a request that cannot be sent, because the server has sent GOAWAY.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server is going away")]
struct GoingAway;

/// Opens streams.
#[derive(Clone)]
pub struct OpenStreams(equic_quic::Connection, Arc<Shared>);

fn close(connection: &equic_quic::Connection, why: Code, reason: &[u8]) {
    connection.close(code(why.value()), &String::from_utf8_lossy(reason));
}

/// Closes the connection because the peer broke a rule.
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
    // RFC 9114 s.5.2 #3: no request may follow GOAWAY. `h3` also checks this, but only before it
    // waits for a stream, and GOAWAY may arrive while it waits.
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
            // RFC 9114 s.4.1.1 #4
            // RFC 9114 s.5.2: the ID of the request's stream is not below the ID in GOAWAY, so the
            // request is rejected.
            let rejected = code(Code::H3_REQUEST_REJECTED.value());
            send.reset(rejected);
            receive.stop(rejected);
        }
    }

    fn opener(&self) -> OpenStreams {
        self.open.clone()
    }
}
