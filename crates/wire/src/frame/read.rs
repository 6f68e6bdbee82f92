//! Reads the frames in the payload of a packet.

use super::frame_type::{STREAM, STREAM_LAST, number};
use super::multipath::read_path_id;
use super::{
    Ack, AckFrequency, ConnectionClose, Crypto, DatagramFrame, Frame, FrameError, FrameErrorKind,
    FrameType, NewConnectionId, NewToken, PathAbandon, PathAck, PathCidsBlocked,
    PathNewConnectionId, PathRetireConnectionId, PathStatus, ResetStream, StopSending, Stream,
    StreamLimit, UnknownFrame,
};
use crate::cursor::{Reader, UnexpectedEnd};
use crate::packet::PacketType;
use crate::{Direction, Side, StreamCount, StreamId, TransportErrorCode};
use core::num::NonZeroUsize;

/// An iterator over the frames of a packet's payload, in order. It ends after the first malformed
/// frame. It also ends after a frame of unknown type. To continue after such a frame, call
/// [`Frames::resume`] with the bytes behind it.
#[derive(Clone, Copy, Debug)]
pub struct Frames<'a> {
    reader: Reader<'a>,
}

impl From<UnexpectedEnd> for FrameErrorKind {
    fn from(_: UnexpectedEnd) -> Self {
        FrameErrorKind::Truncated
    }
}

impl<'a> Frames<'a> {
    /// Creates an iterator over the frames of `payload`, which must be decrypted and authenticated.
    ///
    /// # Errors
    /// Fails with PROTOCOL_VIOLATION if the payload is empty (RFC 9000 s.12.4).
    pub const fn new(payload: &'a [u8]) -> Result<Self, FrameError> {
        if payload.is_empty() {
            return Err(FrameError {
                frame_type: FrameType::PADDING,
                kind: FrameErrorKind::NoFrames,
            });
        }
        Ok(Frames { reader: Reader::new(payload) })
    }

    /// The bytes of the payload that have not been read yet.
    pub const fn rest(&self) -> &'a [u8] {
        self.reader.rest()
    }

    /// Continues after an unknown frame. `rest` is the part of [`UnknownFrame::rest`] behind the
    /// fields that the extension has read.
    pub const fn resume(&mut self, rest: &'a [u8]) {
        self.reader = Reader::new(rest);
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, FrameError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let frame = Frame::read(&mut self.reader);
        if frame.is_err() {
            self.reader.take_rest();
        }
        Some(frame)
    }
}

impl<'a> Frame<'a> {
    /// Reads one frame. A frame of unknown type takes all remaining bytes, and so does a frame that
    /// has data but no Length field.
    ///
    /// # Errors
    /// Fails if the frame is malformed. The type of the packet is not considered. After an error,
    /// the position of `reader` is unspecified.
    #[inline]
    pub fn read(reader: &mut Reader<'a>) -> Result<Frame<'a>, FrameError> {
        let frame_type = FrameType::read(reader)?;
        Frame::read_fields(reader, frame_type).map_err(|kind| FrameError { frame_type, kind })
    }

    /// Checks that `sender` may send the frame in a packet of type `packet`.
    ///
    /// # Errors
    /// Fails with PROTOCOL_VIOLATION if such packets must not contain the frame, or if this side
    /// must not send it. A frame of unknown type passes, because its extension must check it.
    pub fn check_allowed(&self, packet: PacketType, sender: Side) -> Result<(), FrameError> {
        let frame_type = self.frame_type();
        if frame_type.allowed_in(packet) == Some(false) {
            return Err(FrameError { frame_type, kind: FrameErrorKind::WrongPacketType });
        }
        if !frame_type.may_be_sent_by(sender) {
            return Err(FrameError { frame_type, kind: FrameErrorKind::WrongSender });
        }
        Ok(())
    }

    fn read_fields(
        reader: &mut Reader<'a>,
        frame_type: FrameType,
    ) -> Result<Frame<'a>, FrameErrorKind> {
        Ok(match frame_type.0.get() {
            number::PADDING => Frame::Padding(read_padding(reader)),
            number::PING => Frame::Ping,
            number::ACK => Frame::Ack(Ack::read_fields(reader, false)?),
            number::ACK_ECN => Frame::Ack(Ack::read_fields(reader, true)?),
            number::RESET_STREAM => Frame::ResetStream(ResetStream {
                stream_id: read_stream_id(reader)?,
                error_code: reader.varint()?,
                final_size: reader.varint()?,
            }),
            number::STOP_SENDING => Frame::StopSending(StopSending {
                stream_id: read_stream_id(reader)?,
                error_code: reader.varint()?,
            }),
            number::CRYPTO => Frame::Crypto(Crypto::read(reader)?),
            number::NEW_TOKEN => Frame::NewToken(
                NewToken::new(reader.varint_bytes()?).ok_or(FrameErrorKind::EmptyToken)?,
            ),
            stream @ STREAM..=STREAM_LAST => Frame::Stream(Stream::read(reader, stream)?),
            number::MAX_DATA => Frame::MaxData(reader.varint()?),
            number::MAX_STREAM_DATA => Frame::MaxStreamData(read_stream_limit(reader)?),
            number::MAX_STREAMS_BIDI => {
                Frame::MaxStreams(Direction::Bidirectional, read_stream_count(reader)?)
            }
            number::MAX_STREAMS_UNI => {
                Frame::MaxStreams(Direction::Unidirectional, read_stream_count(reader)?)
            }
            number::DATA_BLOCKED => Frame::DataBlocked(reader.varint()?),
            number::STREAM_DATA_BLOCKED => Frame::StreamDataBlocked(read_stream_limit(reader)?),
            number::STREAMS_BLOCKED_BIDI => {
                Frame::StreamsBlocked(Direction::Bidirectional, read_stream_count(reader)?)
            }
            number::STREAMS_BLOCKED_UNI => {
                Frame::StreamsBlocked(Direction::Unidirectional, read_stream_count(reader)?)
            }
            number::NEW_CONNECTION_ID => Frame::NewConnectionId(NewConnectionId::read(reader)?),
            number::RETIRE_CONNECTION_ID => Frame::RetireConnectionId(reader.varint()?),
            number::PATH_CHALLENGE => Frame::PathChallenge(*reader.array()?),
            number::PATH_RESPONSE => Frame::PathResponse(*reader.array()?),
            number::CONNECTION_CLOSE => Frame::ConnectionClose(ConnectionClose::Transport {
                error_code: TransportErrorCode(reader.varint()?),
                frame_type: FrameType(reader.varint()?),
                reason: reader.varint_bytes()?,
            }),
            number::CONNECTION_CLOSE_APPLICATION => {
                Frame::ConnectionClose(ConnectionClose::Application {
                    error_code: reader.varint()?,
                    reason: reader.varint_bytes()?,
                })
            }
            number::HANDSHAKE_DONE => Frame::HandshakeDone,
            number::DATAGRAM => {
                Frame::Datagram(DatagramFrame { data: reader.take_rest(), to_end_of_packet: true })
            }
            number::DATAGRAM_LEN => Frame::Datagram(DatagramFrame {
                data: reader.varint_bytes()?,
                to_end_of_packet: false,
            }),
            number::ACK_FREQUENCY => Frame::AckFrequency(AckFrequency {
                sequence_number: reader.varint()?,
                ack_eliciting_threshold: reader.varint()?,
                requested_max_ack_delay_us: reader.varint()?,
                reordering_threshold: reader.varint()?,
            }),
            number::IMMEDIATE_ACK => Frame::ImmediateAck,
            _ if frame_type.is_multipath() => return Frame::read_multipath(reader, frame_type),
            _ => Frame::Unknown(UnknownFrame { frame_type, rest: reader.take_rest() }),
        })
    }

    /// Reads the fields of a multipath frame (RFC 10069).
    fn read_multipath(
        reader: &mut Reader<'a>,
        frame_type: FrameType,
    ) -> Result<Frame<'a>, FrameErrorKind> {
        Ok(match frame_type.0.get() {
            number::PATH_ACK => Frame::PathAck(PathAck::read(reader, false)?),
            number::PATH_ACK_ECN => Frame::PathAck(PathAck::read(reader, true)?),
            number::PATH_ABANDON => Frame::PathAbandon(PathAbandon::read(reader)?),
            number::PATH_STATUS_AVAILABLE => Frame::PathStatusAvailable(PathStatus::read(reader)?),
            number::PATH_STATUS_BACKUP => Frame::PathStatusBackup(PathStatus::read(reader)?),
            number::PATH_NEW_CONNECTION_ID => {
                Frame::PathNewConnectionId(PathNewConnectionId::read(reader)?)
            }
            number::PATH_RETIRE_CONNECTION_ID => {
                Frame::PathRetireConnectionId(PathRetireConnectionId::read(reader)?)
            }
            number::MAX_PATH_ID => Frame::MaxPathId(read_path_id(reader)?),
            number::PATHS_BLOCKED => Frame::PathsBlocked(read_path_id(reader)?),
            number::PATH_CIDS_BLOCKED => Frame::PathCidsBlocked(PathCidsBlocked::read(reader)?),
            _ => Frame::Unknown(UnknownFrame { frame_type, rest: reader.take_rest() }),
        })
    }
}

/// Reads all zero bytes that follow a PADDING frame, which are PADDING frames too. Returns the
/// number of PADDING frames, including the first.
fn read_padding(reader: &mut Reader<'_>) -> NonZeroUsize {
    // Compares 16 bytes at a time, because a large part of a packet may be padding.
    let (chunks, _) = reader.rest().as_chunks::<16>();
    let zero_chunks = chunks.iter().take_while(|chunk| u128::from_ne_bytes(**chunk) == 0).count();
    let before = reader.len();
    let _ = reader.bytes(zero_chunks.saturating_mul(16));
    let rest = reader.rest();
    let zeros = rest.iter().take_while(|byte| **byte == 0).count();
    let _ = reader.bytes(zeros);
    NonZeroUsize::MIN.saturating_add(before.saturating_sub(reader.len()))
}

fn read_stream_id(reader: &mut Reader<'_>) -> Result<StreamId, UnexpectedEnd> {
    reader.varint().map(StreamId::from)
}

fn read_stream_limit(reader: &mut Reader<'_>) -> Result<StreamLimit, UnexpectedEnd> {
    Ok(StreamLimit { stream_id: read_stream_id(reader)?, limit: reader.varint()? })
}

fn read_stream_count(reader: &mut Reader<'_>) -> Result<StreamCount, FrameErrorKind> {
    StreamCount::new(reader.varint()?.get()).ok_or(FrameErrorKind::StreamCountTooLarge)
}
