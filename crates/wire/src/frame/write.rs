//! Writes frames as bytes.

use super::{ConnectionClose, Frame};
use crate::cursor::{BufferFull, Counter, Sink, Writer};
use crate::varint::VarInt;

impl Frame<'_> {
    /// Returns the number of bytes that [`Frame::write`] writes.
    pub fn encoded_len(&self) -> usize {
        Counter::of(|counter| self.encode(counter))
    }

    /// Writes the frame. Integers take their shortest encoding. An exception are the ranges of an
    /// ACK frame that was received: they are copied unchanged.
    ///
    /// # Errors
    /// Fails if there is no room for the frame. Nothing is written then.
    pub fn write(&self, writer: &mut Writer<'_>) -> Result<(), BufferFull> {
        writer.atomically(|writer| self.encode(writer))
    }

    fn encode(&self, sink: &mut impl Sink) -> Result<(), BufferFull> {
        let frame_type = self.frame_type().0;
        match self {
            Frame::Padding(len) => sink.zeros(len.get()),
            Frame::Ping | Frame::HandshakeDone | Frame::ImmediateAck => sink.varint(frame_type),
            Frame::Ack(ack) => ack.encode(sink),
            Frame::ResetStream(reset) => varints(
                sink,
                [frame_type, reset.stream_id.as_varint(), reset.error_code, reset.final_size],
            ),
            Frame::StopSending(stop) => {
                varints(sink, [frame_type, stop.stream_id.as_varint(), stop.error_code])
            }
            Frame::Crypto(crypto) => crypto.encode(sink),
            Frame::NewToken(token) => {
                sink.varint(frame_type)?;
                sink.varint_bytes(token.token())
            }
            Frame::Stream(stream) => stream.encode(sink),
            Frame::MaxData(value)
            | Frame::DataBlocked(value)
            | Frame::RetireConnectionId(value) => varints(sink, [frame_type, *value]),
            Frame::MaxStreamData(limit) | Frame::StreamDataBlocked(limit) => {
                varints(sink, [frame_type, limit.stream_id.as_varint(), limit.limit])
            }
            Frame::MaxStreams(_, count) | Frame::StreamsBlocked(_, count) => {
                varints(sink, [frame_type, count.as_varint()])
            }
            Frame::NewConnectionId(new) => new.encode(sink),
            Frame::PathChallenge(data) | Frame::PathResponse(data) => {
                sink.varint(frame_type)?;
                sink.bytes(data)
            }
            Frame::ConnectionClose(close) => {
                sink.varint(frame_type)?;
                encode_close(sink, close)
            }
            Frame::Datagram(datagram) => datagram.encode(sink),
            Frame::AckFrequency(frequency) => varints(
                sink,
                [
                    frame_type,
                    frequency.sequence_number,
                    frequency.ack_eliciting_threshold,
                    frequency.requested_max_ack_delay_us,
                    frequency.reordering_threshold,
                ],
            ),
            Frame::PathAck(ack) => ack.encode(sink),
            Frame::PathAbandon(abandon) => {
                varints(sink, [frame_type, abandon.path_id.as_varint(), abandon.error_code.0])
            }
            Frame::PathStatusAvailable(status) | Frame::PathStatusBackup(status) => {
                varints(sink, [frame_type, status.path_id.as_varint(), status.sequence_number])
            }
            Frame::PathNewConnectionId(new) => new.encode(sink),
            Frame::PathRetireConnectionId(retire) => {
                varints(sink, [frame_type, retire.path_id.as_varint(), retire.sequence_number])
            }
            Frame::MaxPathId(path_id) | Frame::PathsBlocked(path_id) => {
                varints(sink, [frame_type, path_id.as_varint()])
            }
            Frame::PathCidsBlocked(blocked) => varints(
                sink,
                [frame_type, blocked.path_id.as_varint(), blocked.next_sequence_number],
            ),
            Frame::Unknown(unknown) => {
                sink.varint(frame_type)?;
                sink.bytes(unknown.rest)
            }
        }
    }
}

fn varints<const N: usize>(sink: &mut impl Sink, values: [VarInt; N]) -> Result<(), BufferFull> {
    values.into_iter().try_for_each(|value| sink.varint(value))
}

fn encode_close(sink: &mut impl Sink, close: &ConnectionClose<'_>) -> Result<(), BufferFull> {
    match close {
        ConnectionClose::Transport { error_code, frame_type, reason } => {
            varints(sink, [error_code.0, frame_type.0])?;
            sink.varint_bytes(reason)
        }
        ConnectionClose::Application { error_code, reason } => {
            sink.varint(*error_code)?;
            sink.varint_bytes(reason)
        }
    }
}
