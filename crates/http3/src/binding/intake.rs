//! Streams of one direction that the peer opens (RFC 9114 s.6.2).
//!
//! Only the control stream goes on to `h3`. That would keep QPACK's streams and never read them, so
//! that nothing on them would be an error, and their ends would not be noticed.

use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use equic_quic::{self as quic, ReadError};
use equic_wire::{Reader, Side, StreamId, VarInt, VarIntLen};
use h3::error::Code;
use h3::quic::ConnectionErrorIncoming;

use super::bell::Bell;
use super::control::{Control, Qpack};
use super::fault::{Fault, Ward};
use super::frames::{Kind, closed};
use super::{OpenStreams, PIECES, RecvStream, connection_error, refuse};

/// Useless bytes that a stream of an unknown type is counted as.
const UNKNOWN: u64 = 128;

const CONTROL: u64 = 0x0;
const PUSH: u64 = 0x1;
const ENCODER: u64 = 0x2;
const DECODER: u64 = 0x3;

/// A stream whose type has not come yet: so many bytes of it have.
struct Typing(quic::RecvStream, [u8; 8], usize);

/// Reason that a stream is not looked at any longer.
enum Broken {
    Fault(Fault),
    Connection(quic::ConnectionError),
}

impl From<Fault> for Broken {
    fn from(fault: Fault) -> Broken {
        Broken::Fault(fault)
    }
}

pub(super) struct Intake {
    /// Rings when a stream comes, or something on those that are here.
    bell: Bell,
    streams: Streams,
}

struct Streams {
    connection: quic::Connection,
    ward: Arc<Ward>,
    /// At most as many as the peer may have open at a time.
    typing: Vec<Typing>,
    control: bool,
    /// The streams of the peer's encoder and decoder.
    qpack: [Option<(quic::RecvStream, Qpack)>; 2],
    side: Side,
}

impl Intake {
    pub(super) fn new(connection: quic::Connection, ward: Arc<Ward>) -> Intake {
        let side = connection.side();
        let qpack = [None, None];
        let streams = Streams { connection, ward, typing: Vec::new(), control: false, qpack, side };
        Intake { bell: Bell::new(), streams }
    }

    /// The peer's control stream.
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
            Err(Broken::Fault(Fault::Connection(code, reason) | Fault::Stream(code, reason))) => {
                Poll::Ready(Err(refuse(&self.connection, &self.ward, code, reason)))
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
                // RFC 9114 s.6.2: that is no error.
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
            poll_qpack(cx, stream, qpack, &self.ward)?;
        }
        Ok(None)
    }

    /// Checks that the peer wants all of the streams that must stay open (RFC 9114 s.6.2.1, RFC 9204
    /// s.4.2).
    fn check_own(&self, cx: &mut Context<'_>) -> Result<(), Fault> {
        let critical = self.ward.critical.lock().unwrap_or_else(PoisonError::into_inner);
        let stopped = |id: &StreamId| {
            matches!(self.connection.poll_stopped(cx, *id), Poll::Ready(Ok(Some(_))))
        };
        // All of them, so that each wakes the task.
        if critical.iter().filter(|id| stopped(id)).count() > 0 { Err(closed()) } else { Ok(()) }
    }

    /// A stream's type is known.
    fn take(
        &mut self,
        kind: u64,
        mut stream: quic::RecvStream,
    ) -> Result<Option<RecvStream>, Fault> {
        let twice = Err(Fault::Connection(
            Code::H3_STREAM_CREATION_ERROR,
            "a second stream of a type of which there is one",
        ));
        match kind {
            CONTROL if std::mem::replace(&mut self.control, true) => twice,
            CONTROL => {
                let open = OpenStreams(self.connection.clone(), Arc::clone(&self.ward));
                let kind = Kind::Control(Control::new(self.side));
                let control = RecvStream::new(stream, kind, &open);
                Ok(Some(control.preceded_by(Bytes::from_static(&[0]))))
            }
            // RFC 9114 s.6.2.2: of a client there is none; a server's would have to be allowed
            // (s.4.6).
            PUSH if self.side == Side::Server => {
                let reason = "a push stream of a client";
                Err(Fault::Connection(Code::H3_STREAM_CREATION_ERROR, reason))
            }
            PUSH => {
                let reason = "a push that was never allowed";
                Err(Fault::Connection(Code::H3_ID_ERROR, reason))
            }
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
                // RFC 9114 s.6.2.
                let code = Code::H3_STREAM_CREATION_ERROR.value();
                stream.stop(VarInt::new(code).unwrap_or(VarInt::ZERO));
                self.ward.charge(UNKNOWN).map(|()| None)
            }
        }
    }
}

/// Reads a stream's type and no more; none: it ended before.
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

/// Reads what came on a stream of QPACK.
fn poll_qpack(
    cx: &mut Context<'_>,
    stream: &mut quic::RecvStream,
    qpack: &mut Qpack,
    ward: &Ward,
) -> Result<(), Broken> {
    for _ in 0..PIECES {
        match stream.poll_read_chunk(cx) {
            Poll::Pending => return Ok(()),
            Poll::Ready(Ok(Some(chunk))) => {
                ward.charge(chunk.len() as u64)?;
                qpack.take(&chunk)?;
            }
            // RFC 9204 s.4.2.
            Poll::Ready(Ok(None) | Err(ReadError::Reset(_))) => return Err(closed().into()),
            Poll::Ready(Err(ReadError::Connection(error))) => {
                return Err(Broken::Connection(error));
            }
            // Nobody here stops it, and a server has no early data.
            Poll::Ready(Err(ReadError::Closed | ReadError::EarlyDataRejected)) => return Ok(()),
        }
    }
    cx.waker().wake_by_ref();
    Ok(())
}
