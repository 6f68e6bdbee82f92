//! Processing of each type of frame (RFC 9000 s.19).

use equic_wire::frame::{
    Frame, FrameError as WireError, FrameErrorKind, Frames, NewConnectionId, Stream,
};
use equic_wire::{ConnectionId, Side};

use super::Connection;
use super::receive::RxPacket;
use super::space::{PathId, SpaceId};
use crate::Timestamp;
use crate::operation::Operation;
use crate::stream::FrameError;
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
    fn on_stream_frame(&mut self, frame: &Frame<'_>) -> Result<(), FrameError> {
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

    /// Processes the payload of a 1-RTT packet that a hook has recovered, if the packet has not
    /// arrived. Accepts STREAM and DATAGRAM frames, up to the first frame of another type. The
    /// sender must send all others again, because it considers the packet lost. A hook must not
    /// supply acknowledgements, keys, connection IDs, paths or the end of the connection.
    ///
    /// # Errors
    /// Returns an error if the peer cannot have sent the content. The frames before it have been
    /// processed.
    pub(super) fn process_recovered(
        &mut self,
        number: u64,
        payload: &[u8],
    ) -> Result<(), Violation> {
        if self.closing.is_closed() || !self.handshake.is_complete() {
            return Ok(());
        }
        if self.spaces.data().received.is_duplicate(number) || !self.extensions.on_recovered(number)
        {
            return Ok(());
        }
        for frame in Frames::new(payload).map_err(|error| Violation::Frame(error.kind))? {
            match frame.map_err(|error| Violation::Frame(error.kind))? {
                Frame::Unknown(_) => break,
                Frame::Datagram(datagram) => {
                    if !self.on_datagram_frame(&datagram) {
                        return Err(Violation::DatagramSize);
                    }
                }
                frame => match self.on_stream_frame(&frame) {
                    Ok(()) => {}
                    // The frame is dropped as if its packet were lost. The peer sends the data
                    // again.
                    Err(FrameError::TooFragmented) => break,
                    Err(FrameError::Close(violation)) => return Err(violation),
                },
            }
        }
        self.stats.packets_recovered += 1;
        Ok(())
    }

    /// Processes a RETIRE_CONNECTION_ID or PATH_RETIRE_CONNECTION_ID frame.
    pub(super) fn on_retire_connection_id(
        &mut self,
        now: Timestamp,
        path: PathId,
        sequence: u64,
        dcid: ConnectionId,
    ) {
        self.notify(Operation::RetireConnectionId, sequence);
        let Some(local) = self.ids.local_of_mut(path) else { return };
        if let Err(violation) = local.on_retire(now, sequence, dcid) {
            self.fail(now, violation);
        }
    }

    /// Processes a NEW_CONNECTION_ID or PATH_NEW_CONNECTION_ID frame.
    pub(super) fn on_new_connection_id(
        &mut self,
        now: Timestamp,
        path: PathId,
        new: &NewConnectionId,
    ) {
        // IDs of an abandoned path would have to be retired at once.
        if self.multipath.as_ref().is_some_and(|paths| !paths.is_alive(path)) {
            return;
        }
        if let Err(violation) = self.take_new_id(path, new) {
            self.fail(now, violation);
        }
    }

    /// Returns true if the peer has validated our address, so that its anti-amplification limit no
    /// longer applies (RFC 9002 A.6).
    pub(super) fn peer_completed_validation(&self) -> bool {
        self.side == Side::Server
            || self.handshake.is_confirmed()
            || self
                .spaces
                .get(SpaceId::Handshake)
                .is_some_and(|own| own.loss.largest_acked().is_some())
    }
}
