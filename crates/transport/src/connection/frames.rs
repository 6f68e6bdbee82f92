//! What a connection does with each type of frame (RFC 9000 s.19): when the peer sends it, and when
//! a packet in which it was sent is acknowledged or lost.

use std::ops::Range;

use bytes::Bytes;
use equic_wire::frame::{Frame, FrameError as WireError, FrameErrorKind, NewToken, Stream};
#[cfg(feature = "qlog")]
use equic_wire::frame::{
    FrameType, NewConnectionId, PathNewConnectionId, PathRetireConnectionId, UnknownFrame,
};
use equic_wire::{ConnectionId, StreamId};

use super::Connection;
use super::receive::RxPacket;
use super::space::{PathId, SpaceId};
#[cfg(feature = "qlog")]
use super::write::{control_frame, varint};
use crate::Timestamp;
use crate::operation::{Extension, Operation};
#[cfg(feature = "qlog")]
use crate::qlog::Retransmitted;
use crate::stream::{Control, FrameError};
use crate::violation::Violation;

impl Connection {
    /// Processes a frame of a packet. Returns false if the packet must be treated as lost.
    pub(super) fn handle_frame(
        &mut self,
        now: Timestamp,
        packet: &RxPacket<'_>,
        frame: &Frame<'_>,
    ) -> bool {
        let &RxPacket { space, path, .. } = packet;
        let dcid = || ConnectionId::cut(packet.dcid);
        let mut outcome = Ok(());
        // The match has no wildcard, so the compiler rejects a new type of frame that is not
        // handled here.
        match frame {
            Frame::Padding(_) | Frame::Ping => {}
            // RFC 10069 s.2.3: on every path, an ACK frame acknowledges packets of path 0.
            Frame::Ack(ack) if space.is_data() => self.process_ack(now, SpaceId::DATA, ack),
            Frame::Ack(ack) => self.process_ack(now, space, ack),
            Frame::Crypto(crypto) => {
                let space = space.of_crypto();
                outcome = self.on_crypto(now, space, crypto.offset().get(), crypto.data());
            }
            Frame::ConnectionClose(close) => self.on_close(now, *close),
            Frame::HandshakeDone => self.confirm(now),
            Frame::NewConnectionId(new) => self.on_new_connection_id(now, PathId::ZERO, new),
            Frame::RetireConnectionId(sequence) => {
                self.on_retire_connection_id(now, PathId::ZERO, sequence.get(), dcid());
            }
            Frame::NewToken(new) => self.on_new_token(new.token()),
            Frame::PathAck(_)
            | Frame::PathAbandon(_)
            | Frame::PathStatusAvailable(_)
            | Frame::PathStatusBackup(_)
            | Frame::PathNewConnectionId(_)
            | Frame::PathRetireConnectionId(_)
            | Frame::MaxPathId(_)
            | Frame::PathsBlocked(_)
            | Frame::PathCidsBlocked(_)
            | Frame::Unknown(_) => {
                // Without negotiated multipath, its frames are of unknown type (RFC 10069 s.2, RFC
                // 9000 s.12.4).
                if !self.on_path_frame(now, dcid(), frame) {
                    let (frame_type, kind) = (frame.frame_type(), FrameErrorKind::UnknownType);
                    let error = WireError { frame_type, kind };
                    self.fail(now, error);
                }
            }
            Frame::Datagram(datagram) => {
                if !self.on_datagram_frame(datagram) {
                    self.fail(now, Violation::DatagramSize);
                }
            }
            Frame::AckFrequency(frequency) => self.on_ack_frequency(now, frequency),
            Frame::ImmediateAck => self.on_immediate_ack(space),
            Frame::PathChallenge(data) => self.on_path_challenge(path, *data),
            Frame::PathResponse(data) => self.on_path_response(*data),
            Frame::Stream(_)
            | Frame::ResetStream(_)
            | Frame::StopSending(_)
            | Frame::MaxData(_)
            | Frame::MaxStreamData(_)
            | Frame::MaxStreams(..)
            | Frame::StreamDataBlocked(_) => outcome = self.on_stream_frame(frame),
            // Credit is granted when there is room, whether the peer asks for it or not.
            Frame::DataBlocked(_) => self.stats.peer_flow_blocked += 1,
            Frame::StreamsBlocked(..) => {}
        }
        match outcome {
            Ok(()) => true,
            Err(FrameError::TooFragmented) => false,
            Err(FrameError::Close(violation)) => {
                self.fail(now, violation);
                true
            }
        }
    }

    /// Processes a STREAM frame.
    #[inline]
    pub(super) fn take_stream(&mut self, stream: &Stream<'_>) -> Result<(), FrameError> {
        let (id, offset) = (stream.stream_id(), stream.offset().get());
        self.streams.on_stream(id, offset, stream.data(), stream.fin())
    }

    /// Processes a frame about streams. Ignores all other frames.
    #[inline]
    pub(super) fn on_stream_frame(&mut self, frame: &Frame<'_>) -> Result<(), FrameError> {
        match frame {
            Frame::Stream(stream) => self.take_stream(stream),
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
                self.stats.peer_flow_blocked += 1;
                self.streams.on_stream_data_blocked(blocked.stream_id)
            }
            _ => Ok(()),
        }
    }
}

/// A frame of a packet in flight, with the data needed when it is acknowledged or lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SentFrame {
    /// ACK up to this packet number of the packet's own space.
    Ack(u64),
    /// PATH_ACK up to this packet number of another path ID.
    PathAck(PathId, u64),
    Crypto(Range<u64>),
    Stream {
        id: StreamId,
        range: Range<u64>,
        fin: bool,
    },
    Control(Control),
    HandshakeDone,
    /// Path ID and sequence number.
    NewConnectionId(PathId, u64),
    RetireConnectionId(PathId, u64),
    /// A frame of multipath.
    Multipath(PathFrame),
    NewToken(Bytes),
    AckFrequency(u64),
    Datagram,
    /// PATH_CHALLENGE or PATH_RESPONSE.
    Validation,
    Ping,
    /// A frame of a hook.
    Extension(Extension),
}

/// A frame of multipath (RFC 10069 s.4), with the data needed when it is acknowledged or lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathFrame {
    Abandon(PathId),
    /// Path ID, and sequence number of the status.
    Status(PathId, u64),
    MaxPathId(PathId),
    /// PATHS_BLOCKED or PATH_CIDS_BLOCKED. It is not sent again.
    Blocked,
}

impl SentFrame {
    /// Returns true if a packet with these frames only validates a path.
    pub(super) fn only_validate(frames: &[SentFrame]) -> bool {
        use SentFrame::{Ack, PathAck, Ping, Validation};
        let idle = |one: &SentFrame| matches!(one, Ack(_) | PathAck(..) | Ping | Validation);
        frames.contains(&Validation) && frames.iter().all(idle)
    }

    /// Returns true if a packet with these frames was sent only because of hooks that other hooks
    /// attached.
    pub(super) fn any_nested(frames: &[SentFrame]) -> bool {
        let mut nested = false;
        for frame in frames {
            match frame {
                SentFrame::Extension(one) if one.nested => nested = true,
                SentFrame::Ack(_) | SentFrame::PathAck(..) | SentFrame::Ping => {}
                _ => return false,
            }
        }
        nested
    }

    /// Returns the frame if the outbox stores it until it is sent, and again after a loss.
    pub(super) fn stored(&self) -> Option<Frame<'_>> {
        match self {
            SentFrame::NewToken(token) => NewToken::new(token).map(Frame::NewToken),
            _ => None,
        }
    }

    /// Processes the acknowledgement of the frame, which was sent in the space `id`. Does nothing
    /// for data of streams, because the caller reports it in runs.
    #[inline]
    pub(super) fn on_acked(&self, connection: &mut Connection, id: SpaceId) {
        match self {
            SentFrame::Ack(largest) => connection.on_ack_acked(id, *largest),
            SentFrame::PathAck(path, largest) => {
                connection.on_ack_acked(SpaceId::Data(*path), *largest);
            }
            SentFrame::Crypto(range) => {
                if let Some(space) = connection.space(id.of_crypto()) {
                    space.crypto_out.get_mut().on_acked(range.clone());
                }
            }
            SentFrame::Control(control) => connection.streams.on_control_acked(*control),
            SentFrame::RetireConnectionId(path, sequence) => {
                if let Some(remote) = connection.ids.remote_of_mut(*path) {
                    remote.on_acked(*sequence);
                }
            }
            SentFrame::Multipath(frame) => {
                if let Some(paths) = &mut connection.multipath {
                    paths.on_acked(*frame);
                }
            }
            SentFrame::Extension(one) => connection.tell_fate(Operation::FrameAcked, one),
            SentFrame::AckFrequency(number) => connection.on_ack_frequency_acked(*number),
            SentFrame::Stream { .. }
            | SentFrame::HandshakeDone
            | SentFrame::NewConnectionId(..)
            | SentFrame::NewToken(_)
            | SentFrame::Datagram
            | SentFrame::Validation
            | SentFrame::Ping => {}
        }
    }

    /// Queues the content of the frame again if it is still relevant (RFC 9000 s.13.3). The packet
    /// was lost in the space `id`, or, if `probe` is true, a probe repeats its content.
    pub(super) fn on_lost(&self, connection: &mut Connection, id: SpaceId, probe: bool) {
        match self {
            // RFC 9221 s.5: a datagram that arrives late is of no use.
            SentFrame::Ack(_)
            | SentFrame::PathAck(..)
            | SentFrame::Validation
            | SentFrame::Ping
            | SentFrame::Datagram => {}
            SentFrame::AckFrequency(number) => connection.acks.on_lost(*number),
            SentFrame::Crypto(range) => {
                // If the space is discarded, its keys are discarded as well.
                if let Some(space) = connection.space(id.of_crypto()) {
                    space.crypto_out.get_mut().on_lost(range.clone());
                }
            }
            SentFrame::Stream { id, range, fin } => {
                connection.streams.on_piece_lost(*id, range.clone(), *fin);
            }
            SentFrame::Control(control) => connection.streams.on_control_lost(*control),
            SentFrame::NewToken(_) => connection.outbox.push(self.clone()),
            SentFrame::HandshakeDone => connection.handshake.on_done_lost(),
            SentFrame::NewConnectionId(path, sequence) => {
                connection.on_new_id_lost(*path, *sequence);
            }
            SentFrame::RetireConnectionId(path, sequence) => {
                connection.on_retirement_lost(*path, *sequence);
            }
            SentFrame::Multipath(frame) => {
                if let Some(paths) = &mut connection.multipath {
                    paths.on_lost(*frame);
                }
            }
            // The fate of a packet that is only probed is still unknown.
            SentFrame::Extension(_) if probe => {}
            SentFrame::Extension(one) => connection.tell_fate(Operation::FrameLost, one),
        }
    }

    /// Returns the frame as a log shows it when its content is sent again, or `None` if the log
    /// does not show it.
    #[cfg(feature = "qlog")]
    pub(super) fn logged(&self, connection: &Connection) -> Option<Retransmitted> {
        Some(Retransmitted::Frame(match self {
            SentFrame::Ack(_)
            | SentFrame::PathAck(..)
            | SentFrame::Validation
            | SentFrame::Ping
            | SentFrame::Datagram => {
                return None;
            }
            // The frame is built again from the present state.
            SentFrame::Multipath(_) => return None,
            // A new request with other values replaces it.
            SentFrame::AckFrequency(_) => return None,
            SentFrame::Crypto(range) => return Some(Retransmitted::Crypto(range.clone())),
            SentFrame::Stream { id, range, fin } => {
                let (range, fin) = (range.clone(), *fin);
                return Some(Retransmitted::Stream { id: *id, range, fin });
            }
            SentFrame::Control(control) => control_frame(*control),
            SentFrame::HandshakeDone => Frame::HandshakeDone,
            // Tokens are secret and never logged.
            SentFrame::NewToken(_) => return None,
            SentFrame::NewConnectionId(path, sequence) => {
                let local = connection.ids.local_of(*path)?;
                let new = local.get(*sequence)?;
                let retire = varint(local.retire_prior_to(new.sequence));
                let sequence = varint(new.sequence);
                let new = NewConnectionId::new(sequence, retire, new.id, new.token)?;
                match *path {
                    PathId::ZERO => Frame::NewConnectionId(new),
                    path_id => Frame::PathNewConnectionId(PathNewConnectionId { path_id, new }),
                }
            }
            SentFrame::RetireConnectionId(PathId::ZERO, sequence) => {
                Frame::RetireConnectionId(varint(*sequence))
            }
            SentFrame::RetireConnectionId(path, sequence) => {
                let (path_id, sequence_number) = (*path, varint(*sequence));
                Frame::PathRetireConnectionId(PathRetireConnectionId { path_id, sequence_number })
            }
            SentFrame::Extension(one) => Frame::Unknown(UnknownFrame {
                frame_type: FrameType(varint(one.frame_type)),
                rest: &[],
            }),
        }))
    }
}
