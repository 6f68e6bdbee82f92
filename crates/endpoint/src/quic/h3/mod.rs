//! The `h3` crate's view of a connection, and what of RFC 9114 and RFC 9204 is checked before it.
//!
//! `frames.rs` takes what comes on a stream apart, and bounds what is kept of it; `fields.rs` looks at
//! field sections, `control.rs` at the control stream and QPACK's, `intake.rs` at streams of one
//! direction; `fault.rs` says what can be wrong. `docs/decisions/0022-before-h3.md` has the reasons.

mod control;
mod fault;
mod fields;
mod frames;
mod intake;

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use equic_wire::VarInt;
use h3::error::Code;
use h3::quic::{self, ConnectionErrorIncoming, StreamErrorIncoming, StreamId, WriteBuf};

use super::error::{ConnectionError, ReadError, WriteError};
use fault::{Fault, Ward};
use frames::{Frames, Kind};
use intake::Intake;

pub use fault::{FrameLimits, Malformed, Violation};

/// Pieces that are read in a row for nothing to hand on, before others have their turn.
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
    // Both have 62 bits, so that it cannot fail.
    StreamId::try_from(id.as_varint().get()).unwrap_or_else(|_| unreachable!("62 bits"))
}

fn code(code: u64) -> VarInt {
    VarInt::new(code).unwrap_or(VarInt::MAX)
}

/// A connection for [`h3::server`] and [`h3::client`].
pub struct Connection {
    open: OpenStreams,
    intake: Intake,
}

impl Connection {
    /// Over an open connection, with the limits of [`FrameLimits::default`].
    pub fn new(connection: super::Connection) -> Connection {
        Connection::with_limits(connection, FrameLimits::default())
    }

    /// Over an open connection.
    pub fn with_limits(connection: super::Connection, limits: FrameLimits) -> Connection {
        let ward = Arc::new(Ward::new(limits));
        let intake = Intake::new(connection.clone(), Arc::clone(&ward));
        Connection { open: OpenStreams(connection, ward), intake }
    }

    /// Says, later, which rule the peer broke.
    pub fn watch(&self) -> Watch {
        Watch(Arc::clone(&self.open.1))
    }
}

/// Watches whether the peer keeps to HTTP/3.
#[derive(Clone, Debug)]
pub struct Watch(Arc<Ward>);

impl Watch {
    /// The rule that the peer broke, if that is why the connection was closed.
    pub fn violation(&self) -> Option<Violation> {
        self.0.violation()
    }
}

/// Opens streams.
#[derive(Clone)]
pub struct OpenStreams(super::Connection, Arc<Ward>);

fn close(connection: &super::Connection, why: Code, reason: &[u8]) {
    connection.close(code(why.value()), &String::from_utf8_lossy(reason));
}

/// Closes a connection because of what the peer did.
fn refuse(
    connection: &super::Connection,
    ward: &Ward,
    why: Code,
    reason: &'static str,
) -> ConnectionErrorIncoming {
    ward.set_violation(Violation { code: why, reason });
    close(connection, why, reason.as_bytes());
    ConnectionErrorIncoming::Undefined(Arc::new(Violation { code: why, reason }))
}

fn poll_open_bidi<B: Buf>(
    open: &OpenStreams,
    cx: &mut Context<'_>,
) -> Poll<Result<BidiStream<B>, StreamErrorIncoming>> {
    let made = |halves| BidiStream::new(halves, Kind::Response, open);
    open.0.poll_open_bi(cx).map_ok(made).map_err(of_connection)
}

fn poll_open_send<B: Buf>(
    connection: &super::Connection,
    cx: &mut Context<'_>,
) -> Poll<Result<SendStream<B>, StreamErrorIncoming>> {
    connection.poll_open_uni(cx).map_ok(SendStream::new).map_err(of_connection)
}

impl<B: Buf> quic::OpenStreams<B> for Connection {
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
        poll_open_send(&self.open.0, cx)
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
        poll_open_send(&self.0, cx)
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        close(&self.0, code, reason);
    }
}

impl<B: Buf> quic::Connection<B> for Connection {
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
        let made = |halves| BidiStream::new(halves, Kind::Request, &self.open);
        self.open.0.poll_accept_bi(cx).map_ok(made).map_err(connection_error)
    }

    fn opener(&self) -> OpenStreams {
        self.open.clone()
    }
}

/// The sending half of a stream.
pub struct SendStream<B> {
    stream: super::SendStream,
    writing: Option<WriteBuf<B>>,
}

impl<B: Buf> SendStream<B> {
    fn new(stream: super::SendStream) -> SendStream<B> {
        SendStream { stream, writing: None }
    }
}

impl<B: Buf> quic::SendStream<B> for SendStream<B> {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        if let Some(writing) = &mut self.writing {
            while writing.has_remaining() {
                let count = ready!(self.stream.poll_write_some(cx, writing.chunk()))
                    .map_err(write_error)?;
                writing.advance(count);
            }
            self.writing = None;
        }
        Poll::Ready(Ok(()))
    }

    fn send_data<T: Into<WriteBuf<B>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        if self.writing.is_some() {
            // `h3` waits for `poll_ready` first.
            let connection_error =
                ConnectionErrorIncoming::InternalError("data before the stream was ready".into());
            return Err(StreamErrorIncoming::ConnectionErrorIncoming { connection_error });
        }
        self.writing = Some(data.into());
        Ok(())
    }

    fn poll_finish(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        Poll::Ready(self.stream.finish().map_err(write_error))
    }

    fn reset(&mut self, reset_code: u64) {
        self.stream.reset(code(reset_code));
    }

    fn send_id(&self) -> StreamId {
        id(self.stream.id())
    }
}

/// The receiving half of a stream.
pub struct RecvStream {
    stream: super::RecvStream,
    connection: super::Connection,
    ward: Arc<Ward>,
    frames: Frames,
    /// A control stream's type, which `h3` wants to see.
    first: Option<Bytes>,
    /// What was read and not taken apart yet.
    input: Bytes,
    ended: bool,
}

impl RecvStream {
    fn new(stream: super::RecvStream, kind: Kind, open: &OpenStreams) -> RecvStream {
        let OpenStreams(connection, ward) = open.clone();
        let frames = Frames::new(kind, Arc::clone(&ward));
        let input = Bytes::new();
        RecvStream { stream, connection, ward, frames, first: None, input, ended: false }
    }

    fn fail(&mut self, fault: Fault) -> StreamErrorIncoming {
        match fault {
            Fault::Connection(why, reason) => {
                let connection_error = refuse(&self.connection, &self.ward, why, reason);
                StreamErrorIncoming::ConnectionErrorIncoming { connection_error }
            }
            Fault::Stream(why, reason) => {
                self.stream.stop(code(why.value()));
                StreamErrorIncoming::Unknown(Box::new(Malformed { code: why, reason }))
            }
        }
    }
}

impl quic::RecvStream for RecvStream {
    type Buf = Bytes;

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Ok(Some(first)));
        }
        for _ in 0..PIECES {
            match self.frames.next(&mut self.input) {
                Ok(Some(piece)) => return Poll::Ready(Ok(Some(piece))),
                Ok(None) if self.ended => return Poll::Ready(Ok(None)),
                Ok(None) => {}
                Err(fault) => return Poll::Ready(Err(self.fail(fault))),
            }
            match ready!(self.stream.poll_chunk(cx)) {
                Ok(Some(chunk)) => self.input = chunk,
                Ok(None) => {
                    self.ended = true;
                    return Poll::Ready(self.frames.end().map_err(|fault| self.fail(fault)));
                }
                Err(error) => {
                    return Poll::Ready(Err(match (self.frames.on_reset(), &error) {
                        (Some(fault), ReadError::Reset(_)) => self.fail(fault),
                        _ => read_error(error),
                    }));
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn stop_sending(&mut self, error_code: u64) {
        self.stream.stop(code(error_code));
    }

    fn recv_id(&self) -> StreamId {
        id(self.stream.id())
    }
}

/// A stream of both directions.
pub struct BidiStream<B> {
    send: SendStream<B>,
    receive: RecvStream,
}

impl<B: Buf> BidiStream<B> {
    fn new(
        (send, receive): (super::SendStream, super::RecvStream),
        kind: Kind,
        open: &OpenStreams,
    ) -> BidiStream<B> {
        BidiStream { send: SendStream::new(send), receive: RecvStream::new(receive, kind, open) }
    }
}

impl<B: Buf> quic::BidiStream<B> for BidiStream<B> {
    type SendStream = SendStream<B>;
    type RecvStream = RecvStream;

    fn split(self) -> (SendStream<B>, RecvStream) {
        (self.send, self.receive)
    }
}

impl<B: Buf> quic::SendStream<B> for BidiStream<B> {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_ready(cx)
    }

    fn send_data<T: Into<WriteBuf<B>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.send.send_data(data)
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_finish(cx)
    }

    fn reset(&mut self, reset_code: u64) {
        self.send.reset(reset_code);
    }

    fn send_id(&self) -> StreamId {
        self.send.send_id()
    }
}

impl<B: Buf> quic::RecvStream for BidiStream<B> {
    type Buf = Bytes;

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        let data = self.receive.poll_data(cx);
        if let Poll::Ready(Err(StreamErrorIncoming::Unknown(error))) = &data
            && let Some(Malformed { code: why, .. }) = error.downcast_ref()
        {
            // RFC 9114 s.4.1.2: both directions.
            self.send.stream.reset(code(why.value()));
        }
        data
    }

    fn stop_sending(&mut self, error_code: u64) {
        self.receive.stop_sending(error_code);
    }

    fn recv_id(&self) -> StreamId {
        self.receive.recv_id()
    }
}
