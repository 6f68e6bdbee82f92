//! Processing of each type of frame (RFC 9000 s.19).

use equic_wire::frame::{Frame, NewConnectionId};
use equic_wire::{ConnectionId, Side, TransportErrorCode};

use super::Connection;
use super::path::PathKey;
use super::space::SpaceId;
use crate::Timestamp;
use crate::cid::{IdError, NewId};
use crate::operation::Operation;
use crate::stream::FrameError;

impl Connection {
    /// Takes in a frame of a packet sent to `dcid`; false: the packet is to be treated as lost.
    pub(super) fn handle_frame(
        &mut self,
        now: Timestamp,
        space: SpaceId,
        path: PathKey,
        dcid: ConnectionId,
        frame: &Frame<'_>,
    ) -> bool {
        let outcome = match frame {
            Frame::Padding(_) | Frame::Ping => Ok(()),
            Frame::Ack(ack) => {
                self.process_ack(now, space, ack);
                Ok(())
            }
            Frame::Crypto(crypto) => {
                self.on_crypto(now, space, crypto.offset().get(), crypto.data())
            }
            Frame::ConnectionClose(close) => {
                self.on_close(now, *close);
                Ok(())
            }
            Frame::HandshakeDone => {
                self.confirm(now);
                Ok(())
            }
            Frame::NewConnectionId(new) => {
                self.on_new_connection_id(now, new);
                Ok(())
            }
            Frame::RetireConnectionId(sequence) => {
                let input = sequence.get();
                self.notify(Operation::RetireConnectionId, input);
                if self.ids.local.on_retire(sequence.get(), dcid).is_err() {
                    let code = TransportErrorCode::PROTOCOL_VIOLATION;
                    self.fail(now, code, "it retires a connection ID that it cannot");
                }
                Ok(())
            }
            Frame::NewToken(new) => {
                self.on_new_token(new.token());
                Ok(())
            }
            Frame::Unknown(unknown) => {
                let error = unknown.error();
                self.fail(now, error.code(), &error.to_string());
                Ok(())
            }
            Frame::Datagram(datagram) => {
                if !self.on_datagram_frame(datagram) {
                    let code = TransportErrorCode::PROTOCOL_VIOLATION;
                    self.fail(now, code, "a datagram larger than we take");
                }
                Ok(())
            }
            Frame::AckFrequency(frequency) => {
                self.on_ack_frequency(now, frequency);
                Ok(())
            }
            Frame::ImmediateAck => {
                self.on_immediate_ack(space);
                Ok(())
            }
            Frame::PathChallenge(data) => {
                self.on_path_challenge(path, *data);
                Ok(())
            }
            Frame::PathResponse(data) => {
                self.on_path_response(*data);
                Ok(())
            }
            _ => self.handle_stream_frame(frame),
        };
        match outcome {
            Ok(()) => true,
            Err(FrameError::TooFragmented) => false,
            Err(FrameError::Close(code)) => {
                self.fail(now, code, "a stream's limits or states were broken");
                true
            }
        }
    }

    fn handle_stream_frame(&mut self, frame: &Frame<'_>) -> Result<(), FrameError> {
        match frame {
            Frame::Stream(stream) => {
                let offset = stream.offset().get();
                self.streams.on_stream(stream.stream_id(), offset, stream.data(), stream.fin())
            }
            Frame::ResetStream(reset) => {
                let (code, size) = (reset.error_code.get(), reset.final_size.get());
                self.streams.on_reset(reset.stream_id, code, size)
            }
            Frame::StopSending(stop) => self.streams.on_stop(stop.stream_id, stop.error_code.get()),
            Frame::MaxData(limit) => {
                self.streams.on_max_data(limit.get());
                Ok(())
            }
            Frame::MaxStreamData(max) => {
                self.streams.on_max_stream_data(max.stream_id, max.limit.get())
            }
            Frame::MaxStreams(direction, count) => {
                self.streams.on_max_streams(*direction, count.get());
                Ok(())
            }
            Frame::StreamDataBlocked(blocked) => {
                self.streams.on_stream_data_blocked(blocked.stream_id)
            }
            // What to do about it is done when there is room.
            _ => Ok(()),
        }
    }

    fn on_new_connection_id(&mut self, now: Timestamp, new: &NewConnectionId) {
        let id = NewId {
            sequence: new.sequence_number().get(),
            id: new.connection_id(),
            token: new.reset_token(),
        };
        match self.ids.remote.on_new(id, new.retire_prior_to().get()) {
            Ok(()) => {}
            Err(IdError::Limit) => {
                let code = TransportErrorCode::CONNECTION_ID_LIMIT_ERROR;
                self.fail(now, code, "too many connection IDs");
            }
            Err(IdError::Violation) => {
                let code = TransportErrorCode::PROTOCOL_VIOLATION;
                self.fail(now, code, "a connection ID that contradicts another");
            }
        }
    }

    /// Whether the peer has validated our address, so that it is no longer held to three times what we
    /// sent (RFC 9002 A.6).
    pub(super) fn peer_completed_validation(&self) -> bool {
        self.side == Side::Server
            || self.handshake.is_confirmed()
            || self.spaces[SpaceId::Handshake].loss.largest_acked().is_some()
    }
}
