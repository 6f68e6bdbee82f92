//! The `h3` crate's view of a connection.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use equic_wire::VarInt;
use h3::error::Code;
use h3::quic::{self, ConnectionErrorIncoming, StreamErrorIncoming, StreamId, WriteBuf};

use super::error::{ConnectionError, ReadError, WriteError};

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
pub struct Connection(super::Connection);

impl Connection {
    /// Over an open connection.
    pub fn new(connection: super::Connection) -> Connection {
        Connection(connection)
    }
}

/// Opens streams.
#[derive(Clone)]
pub struct OpenStreams(super::Connection);

fn close(connection: &super::Connection, why: Code, reason: &[u8]) {
    connection.close(code(why.value()), &String::from_utf8_lossy(reason));
}

fn poll_open_bidi<B: Buf>(
    connection: &super::Connection,
    cx: &mut Context<'_>,
) -> Poll<Result<BidiStream<B>, StreamErrorIncoming>> {
    connection.poll_open_bi(cx).map_ok(BidiStream::new).map_err(of_connection)
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
        poll_open_bidi(&self.0, cx)
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

impl<B: Buf> quic::OpenStreams<B> for OpenStreams {
    type BidiStream = BidiStream<B>;
    type SendStream = SendStream<B>;

    fn poll_open_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<BidiStream<B>, StreamErrorIncoming>> {
        poll_open_bidi(&self.0, cx)
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
        self.0.poll_accept_uni(cx).map_ok(RecvStream).map_err(connection_error)
    }

    fn poll_accept_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<BidiStream<B>, ConnectionErrorIncoming>> {
        self.0.poll_accept_bi(cx).map_ok(BidiStream::new).map_err(connection_error)
    }

    fn opener(&self) -> OpenStreams {
        OpenStreams(self.0.clone())
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
pub struct RecvStream(super::RecvStream);

impl quic::RecvStream for RecvStream {
    type Buf = Bytes;

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        self.0.poll_chunk(cx).map_err(read_error)
    }

    fn stop_sending(&mut self, error_code: u64) {
        self.0.stop(code(error_code));
    }

    fn recv_id(&self) -> StreamId {
        id(self.0.id())
    }
}

/// A stream of both directions.
pub struct BidiStream<B> {
    send: SendStream<B>,
    receive: RecvStream,
}

impl<B: Buf> BidiStream<B> {
    fn new((send, receive): (super::SendStream, super::RecvStream)) -> BidiStream<B> {
        BidiStream { send: SendStream::new(send), receive: RecvStream(receive) }
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
        self.receive.poll_data(cx)
    }

    fn stop_sending(&mut self, error_code: u64) {
        self.receive.stop_sending(error_code);
    }

    fn recv_id(&self) -> StreamId {
        self.receive.recv_id()
    }
}
