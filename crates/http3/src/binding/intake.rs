//! Receives the unidirectional streams that the peer opens (RFC 9114 s.6.2).
//!
//! Only the control stream is forwarded to `h3`. The QPACK streams are read here, because `h3`
//! would keep them without reading them, and would not notice errors on them or their ends.

use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use equic_quic::{self as quic, ReadError};
use equic_wire::{Reader, Side, StreamId, VarInt, VarIntLen};
use h3::error::Code;
use h3::quic::ConnectionErrorIncoming;

use super::bell::Bell;
use super::control::{Control, Qpack};
use super::frames::Kind;
use super::shared::Shared;
use super::violation::Violation;
use super::{OpenStreams, PIECES, RecvStream, connection_error, refuse};

/// Useless bytes that the peer is charged for each stream of an unknown type.
const UNKNOWN: u64 = 128;

const CONTROL: u64 = 0x0;
const PUSH: u64 = 0x1;
const ENCODER: u64 = 0x2;
const DECODER: u64 = 0x3;

/// A stream whose type is incomplete. The fields are the stream, a buffer for the bytes of the
/// type, and the number of these bytes that have arrived.
struct Typing(quic::RecvStream, [u8; 8], usize);

/// The reason why the connection's streams are no longer read.
enum Broken {
    Violation(Violation),
    Connection(quic::ConnectionError),
}

impl From<Violation> for Broken {
    fn from(violation: Violation) -> Broken {
        Broken::Violation(violation)
    }
}

pub(super) struct Intake {
    /// This bell rings when the peer opens a stream, or when data arrives on a stream that this
    /// module reads.
    bell: Bell,
    streams: Streams,
}

struct Streams {
    connection: quic::Connection,
    shared: Arc<Shared>,
    /// Streams whose type is incomplete. The limit of open streams bounds their number.
    typing: Vec<Typing>,
    control: bool,
    /// The streams of the peer's QPACK encoder and decoder.
    qpack: [Option<(quic::RecvStream, Qpack)>; 2],
    side: Side,
}

impl Intake {
    pub(super) fn new(connection: quic::Connection, shared: Arc<Shared>) -> Intake {
        let side = connection.side();
        let qpack = [None, None];
        let streams =
            Streams { connection, shared, typing: Vec::new(), control: false, qpack, side };
        Intake { bell: Bell::new(), streams }
    }

    /// Returns the peer's control stream when the peer has opened it.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<RecvStream, ConnectionErrorIncoming>> {
        let Intake { bell, streams } = self;
        bell.poll(cx, |cx| streams.poll(cx))
    }
}

impl Streams {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<RecvStream, ConnectionErrorIncoming>> {
        match self.poll_streams(cx) {
            Ok(Some(control)) => Poll::Ready(Ok(control)),
            Ok(None) => Poll::Pending,
            Err(Broken::Connection(error)) => Poll::Ready(Err(connection_error(error))),
            Err(Broken::Violation(violation)) => {
                Poll::Ready(Err(refuse(&self.connection, &self.shared, violation)))
            }
        }
    }

    fn poll_streams(&mut self, cx: &mut Context<'_>) -> Result<Option<RecvStream>, Broken> {
        while let Poll::Ready(stream) = self.connection.poll_accept_uni(cx) {
            self.typing.push(Typing(stream.map_err(Broken::Connection)?, [0; 8], 0));
        }
        let mut at = 0;
        while let Some(Typing(stream, bytes, have)) = self.typing.get_mut(at) {
            match poll_type(cx, stream, bytes, have) {
                Poll::Pending => at += 1,
                // RFC 9114 s.6.2 #9: a stream may end before its type is complete.
                Poll::Ready(None) => drop(self.typing.swap_remove(at)),
                Poll::Ready(Some(kind)) => {
                    let Typing(stream, ..) = self.typing.swap_remove(at);
                    if let Some(control) = self.take(kind, stream)? {
                        return Ok(Some(control));
                    }
                }
            }
        }
        self.check_own(cx)?;
        for (stream, qpack) in self.qpack.iter_mut().flatten() {
            poll_qpack(cx, stream, qpack, &self.shared)?;
        }
        Ok(None)
    }

    /// Checks that the peer has not sent STOP_SENDING for a critical stream (RFC 9114 s.6.2.1, RFC
    /// 9204 s.4.2).
    fn check_own(&self, cx: &mut Context<'_>) -> Result<(), Violation> {
        let critical = self.shared.critical.lock().unwrap_or_else(PoisonError::into_inner);
        let stopped = |id: &StreamId| {
            matches!(self.connection.poll_stopped(cx, *id), Poll::Ready(Ok(Some(_))))
        };
        // `count` polls every stream, so that each of them can wake the task.
        if critical.iter().filter(|id| stopped(id)).count() > 0 {
            Err(Violation::CriticalStreamClosed)
        } else {
            Ok(())
        }
    }

    /// Processes a stream whose type is known. Returns it if it is the control stream.
    fn take(
        &mut self,
        kind: u64,
        mut stream: quic::RecvStream,
    ) -> Result<Option<RecvStream>, Violation> {
        let twice = Err(Violation::SecondCriticalStream);
        match kind {
            CONTROL if std::mem::replace(&mut self.control, true) => twice,
            CONTROL => {
                let open = OpenStreams(self.connection.clone(), Arc::clone(&self.shared));
                let kind = Kind::Control(Control::new(self.side));
                let control = RecvStream::new(stream, kind, &open);
                Ok(Some(control.preceded_by(Bytes::from_static(&[0]))))
            }
            // RFC 9114 s.6.2.2: only servers push, and only if the client permits it (s.4.6).
            PUSH if self.side == Side::Server => Err(Violation::PushStreamFromClient),
            PUSH => Err(Violation::PushNotAllowed),
            // RFC 9204 s.4.2 #5
            ENCODER | DECODER => {
                let place = &mut self.qpack[usize::from(kind == DECODER)];
                if place.is_some() {
                    return twice;
                }
                let qpack = if kind == ENCODER { Qpack::Encoder } else { Qpack::Decoder(None) };
                *place = Some((stream, qpack));
                Ok(None)
            }
            _ => {
                // RFC 9114 s.6.2 #6, s.6.2.3 #1, s.9 #2
                // RFC 9114 s.6.2 #4: a stream of an unknown type is refused, but is not an error.
                let code = Code::H3_STREAM_CREATION_ERROR.value();
                stream.stop(VarInt::new(code).unwrap_or(VarInt::ZERO));
                self.shared.charge(UNKNOWN).map(|()| None)
            }
        }
    }
}

/// Reads the type of a stream, and nothing after it. Returns `None` if the stream ended before its
/// type was complete.
fn poll_type(
    cx: &mut Context<'_>,
    stream: &mut quic::RecvStream,
    bytes: &mut [u8; 8],
    have: &mut usize,
) -> Poll<Option<u64>> {
    loop {
        let wanted = match *have {
            0 => 1,
            _ => VarIntLen::of_first_byte(bytes[0]).bytes(),
        };
        if *have == wanted {
            let kind = Reader::new(&bytes[..wanted]).varint();
            return Poll::Ready(kind.ok().map(VarInt::get));
        }
        match stream.poll_read(cx, &mut bytes[*have..wanted]) {
            Poll::Ready(Ok(count)) if count > 0 => *have += count,
            Poll::Ready(_) => return Poll::Ready(None),
            Poll::Pending => return Poll::Pending,
        }
    }
}

/// Reads what has arrived on a QPACK stream.
fn poll_qpack(
    cx: &mut Context<'_>,
    stream: &mut quic::RecvStream,
    qpack: &mut Qpack,
    shared: &Shared,
) -> Result<(), Broken> {
    for _ in 0..PIECES {
        match stream.poll_read_chunk(cx) {
            Poll::Pending => return Ok(()),
            Poll::Ready(Ok(Some(chunk))) => {
                shared.charge(chunk.len() as u64)?;
                qpack.take(&chunk)?;
            }
            // RFC 9204 s.4.2: these streams must not be closed.
            Poll::Ready(Ok(None) | Err(ReadError::Reset(_))) => {
                return Err(Violation::CriticalStreamClosed.into());
            }
            Poll::Ready(Err(ReadError::Connection(error))) => {
                return Err(Broken::Connection(error));
            }
            // Unreachable: this end does not stop the stream, and a server sends no early data.
            Poll::Ready(Err(_)) => return Ok(()),
        }
    }
    cx.waker().wake_by_ref();
    Ok(())
}
