//! Implements the stream traits of `h3` over `equic_quic`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use equic_quic::{self as transport, ReadError};
use h3::error::Code;
use h3::quic::{self, ConnectionErrorIncoming, StreamErrorIncoming, StreamId, WriteBuf};

use super::bell::Bell;
use super::frames::{Frames, Kind};
use super::requests::ContentLeft;
use super::shared::Shared;
use super::violation::Violation;
use super::{OpenStreams, PIECES, code, id, read_error, refuse, write_error};

/// Types of the streams that must stay open: control, QPACK encoder and QPACK decoder (RFC 9114
/// s.6.2.1, RFC 9204 s.4.2).
const CRITICAL: [u8; 3] = [0x0, 0x2, 0x3];

/// The sending half of a stream.
pub struct SendStream<B> {
    stream: transport::SendStream,
    /// The data that is being written. Boxed to keep the struct small, because a stream is moved
    /// whenever a future that holds it is moved.
    writing: Box<Option<WriteBuf<B>>>,
    progress: Progress,
}

/// The special treatment that a stream needs when it is used first, or dropped.
enum Progress {
    /// None: the stream has ended, or it carries no message.
    Over,
    /// A unidirectional stream before its type has been written.
    Typeless(Arc<Shared>),
    /// A request whose response has not begun. The flag is set when the response begins.
    Unanswered(Arc<AtomicBool>),
    /// A message that is not complete.
    Incomplete,
}

impl<B: Buf> SendStream<B> {
    pub(super) fn new(stream: transport::SendStream) -> SendStream<B> {
        SendStream { stream, writing: Box::default(), progress: Progress::Incomplete }
    }

    pub(super) fn of_one_direction(
        stream: transport::SendStream,
        shared: &Arc<Shared>,
    ) -> SendStream<B> {
        let progress = Progress::Typeless(Arc::clone(shared));
        SendStream { stream, writing: Box::default(), progress }
    }
}

impl<B> Drop for SendStream<B> {
    fn drop(&mut self) {
        let reset = match self.progress {
            // The message may be incomplete, so it must not end like a complete one.
            _ if std::thread::panicking() => Code::H3_INTERNAL_ERROR,
            Progress::Incomplete => Code::H3_REQUEST_CANCELLED,
            // RFC 9114 s.4.1: if the stream ended cleanly without a response, the client would
            // treat this as an error of the whole connection.
            Progress::Unanswered(_) => Code::H3_REQUEST_INCOMPLETE,
            Progress::Over | Progress::Typeless(_) => return,
        };
        self.stream.reset(code(reset.value()));
    }
}

impl<B: Buf> quic::SendStream<B> for SendStream<B> {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        if let Some(writing) = &mut *self.writing {
            while writing.has_remaining() {
                // Writes the frame's header and its payload together.
                ready!(self.stream.poll_write_buf(cx, writing)).map_err(write_error)?;
            }
            *self.writing = None;
        }
        Poll::Ready(Ok(()))
    }

    fn send_data<T: Into<WriteBuf<B>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        if self.writing.is_some() {
            // Unreachable, because `h3` waits for `poll_ready` first.
            let connection_error =
                ConnectionErrorIncoming::InternalError("data before the stream was ready".into());
            return Err(StreamErrorIncoming::ConnectionErrorIncoming { connection_error });
        }
        let data = data.into();
        match &self.progress {
            Progress::Typeless(shared) => {
                if data.chunk().first().is_some_and(|kind| CRITICAL.contains(kind)) {
                    let mut critical =
                        shared.critical.lock().unwrap_or_else(PoisonError::into_inner);
                    critical.push(self.stream.id());
                }
                self.progress = Progress::Over;
            }
            Progress::Unanswered(answered) => {
                answered.store(true, Ordering::Relaxed);
                self.progress = Progress::Incomplete;
            }
            Progress::Incomplete | Progress::Over => {}
        }
        *self.writing = Some(data);
        Ok(())
    }

    fn poll_finish(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.progress = Progress::Over;
        Poll::Ready(self.stream.finish().map_err(write_error))
    }

    fn reset(&mut self, reset_code: u64) {
        self.progress = Progress::Over;
        self.stream.reset(code(reset_code));
    }

    fn send_id(&self) -> StreamId {
        id(self.stream.id())
    }
}

/// The receiving half of a stream. The state is boxed, because `h3`, applications and runtimes move
/// a stream often, from one future to another.
pub struct RecvStream(Box<Receiver>);

struct Receiver {
    stream: transport::RecvStream,
    connection: transport::Connection,
    shared: Arc<Shared>,
    frames: Frames,
    /// The type of a control stream. `h3` expects to read it before the first frame.
    first: Option<Bytes>,
    /// Bytes that were read but not yet parsed.
    input: Bytes,
    ended: bool,
    /// Set for a control stream only, because `h3` polls it far more often than data arrives.
    bell: Option<Arc<Bell>>,
    /// Set only for a request. Receives the number of content bytes that are still to come.
    content: Option<ContentLeft>,
    /// Set only for a request. The flag is true once the response has begun.
    answered: Option<Arc<AtomicBool>>,
}

impl RecvStream {
    pub(super) fn new(stream: transport::RecvStream, kind: Kind, open: &OpenStreams) -> RecvStream {
        let OpenStreams(connection, shared) = open.clone();
        let bell = matches!(kind, Kind::Control(_)).then(|| Arc::new(Bell::new()));
        let content = matches!(kind, Kind::Request)
            .then(|| ContentLeft::new(stream.id().as_varint().get(), Arc::clone(&shared)));
        let frames = Frames::new(kind, Arc::clone(&shared));
        let input = Bytes::new();
        let first = None;
        RecvStream(Box::new(Receiver {
            stream,
            connection,
            shared,
            frames,
            first,
            input,
            ended: false,
            bell,
            content,
            answered: None,
        }))
    }

    /// Returns the stream with `first` inserted before the bytes that arrive on it.
    pub(super) fn preceded_by(mut self, first: Bytes) -> RecvStream {
        self.0.first = Some(first);
        self
    }
}

impl Drop for RecvStream {
    fn drop(&mut self) {
        if let Some(answered) = &self.0.answered {
            // RFC 9114 s.4.1: H3_NO_ERROR is permitted only after the response. STOP_SENDING has no
            // effect if the request has ended.
            let why = match answered.load(Ordering::Relaxed) {
                true => Code::H3_NO_ERROR,
                false => Code::H3_REQUEST_CANCELLED,
            };
            self.0.stream.stop(code(why.value()));
        }
    }
}

impl Receiver {
    fn fail(&mut self, violation: Violation) -> StreamErrorIncoming {
        if violation.is_stream_error() {
            self.stream.stop(code(violation.code().value()));
            return StreamErrorIncoming::Unknown(Box::new(violation));
        }
        let connection_error = refuse(&self.connection, &self.shared, violation);
        StreamErrorIncoming::ConnectionErrorIncoming { connection_error }
    }

    fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Ok(Some(first)));
        }
        for _ in 0..PIECES {
            match self.frames.next(&mut self.input) {
                Ok(Some(piece)) => {
                    if let Some(content) =
                        self.content.as_mut().filter(|_| self.frames.is_too_long())
                    {
                        content.set_too_long();
                    }
                    return Poll::Ready(Ok(Some(piece)));
                }
                Ok(None) if self.ended => return Poll::Ready(Ok(None)),
                Ok(None) => {}
                Err(violation) => return Poll::Ready(Err(self.fail(violation))),
            }
            let chunk = self.stream.poll_read_chunk(cx);
            if let Some(content) = &mut self.content {
                content.report(self.frames.content_left());
            }
            match ready!(chunk) {
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
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // RFC 9114 s.4.1.1 #7
        // RFC 9114 s.4.1.1 #6: cancels a response that is not read to its end. STOP_SENDING has no
        // effect on a response that was read.
        if self.frames.is_response() {
            self.stream.stop(code(Code::H3_REQUEST_CANCELLED.value()));
        }
    }
}

impl quic::RecvStream for RecvStream {
    type Buf = Bytes;

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        let receiver = &mut *self.0;
        match receiver.bell.clone() {
            Some(bell) => bell.poll(cx, |cx| receiver.poll_piece(cx)),
            None => receiver.poll_piece(cx),
        }
    }

    fn stop_sending(&mut self, error_code: u64) {
        // This code is ignored for responses. For a malformed response, `h3` sends
        // H3_REQUEST_CANCELLED, but H3_MESSAGE_ERROR is right. Only the first code that is sent
        // counts, so the client sends the right one itself. A response that is dropped is cancelled
        // in `drop`.
        let cancels = error_code == Code::H3_REQUEST_CANCELLED.value();
        if !(cancels && self.0.frames.is_response()) {
            self.0.stream.stop(code(error_code));
        }
    }

    fn recv_id(&self) -> StreamId {
        id(self.0.stream.id())
    }
}

/// A bidirectional stream.
pub struct BidiStream<B> {
    send: SendStream<B>,
    receive: RecvStream,
}

impl<B: Buf> BidiStream<B> {
    pub(super) fn new(
        (send, receive): (transport::SendStream, transport::RecvStream),
        kind: Kind,
        open: &OpenStreams,
    ) -> BidiStream<B> {
        let mut send = SendStream::new(send);
        if let Kind::Request = kind {
            let answered = Arc::new(AtomicBool::new(false));
            send.progress = Progress::Unanswered(Arc::clone(&answered));
            let mut receive = RecvStream::new(receive, kind, open);
            receive.0.answered = Some(answered);
            return BidiStream { send, receive };
        }
        BidiStream { send, receive: RecvStream::new(receive, kind, open) }
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
            && let Some(violation) = error.downcast_ref::<Violation>()
        {
            // RFC 9114 s.4.1.2: a malformed message ends both directions.
            quic::SendStream::reset(&mut self.send, violation.code().value());
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream is moved several times before it is read, so it must be only a few words long.
    #[test]
    fn stream_handle_is_small() {
        assert!(size_of::<BidiStream<Bytes>>() <= 64, "{}", size_of::<BidiStream<Bytes>>());
    }
}
