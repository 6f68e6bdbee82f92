//! Writes packet headers and frames as JSON (quic-events s.8).

use equic_wire::frame::{Ack, AckRange, ConnectionClose, Frame, FrameType, NewConnectionId};
use equic_wire::{PathId, StreamId, Version};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

use super::{Hex, One, millis, names, optional, raw};
use crate::qlog::{Form, Header, Packet, Retransmitted, Unprotected};

/// Writes a `PacketHeader` (s.8.7).
impl Serialize for Header<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("packet_type", names::packet(self.packet_type))?;
        map.serialize_entry("packet_number", &self.number)?;
        map.serialize_entry("packet_number_length", &self.number_length)?;
        match self.form {
            Form::Long { version, scid, length, token } => {
                map.serialize_entry("version", &Hex(&version.0.to_be_bytes()))?;
                map.serialize_entry("scil", &scid.len())?;
                map.serialize_entry("dcil", &self.dcid.len())?;
                map.serialize_entry("scid", &Hex(scid.as_bytes()))?;
                map.serialize_entry("dcid", &Hex(self.dcid.as_bytes()))?;
                map.serialize_entry("length", &length)?;
                if !token.is_empty() {
                    // Do not log the token itself, because it is valid for another connection.
                    map.serialize_entry("token", &One("raw", raw(token.len() as u64)))?;
                }
            }
            // A short header is logged without its connection ID, which is in the last
            // `connection_id_updated` event.
            Form::Short { spin, key_phase } => {
                map.serialize_entry("spin_bit", &spin)?;
                map.serialize_entry("key_phase_bit", &key_phase)?;
            }
        }
        map.end()
    }
}

impl Serialize for Unprotected<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let (name, version) = match self {
            Unprotected::Retry(retry) => ("retry", Version::from(retry.version())),
            Unprotected::VersionNegotiation(_) => ("version_negotiation", Version(0)),
        };
        map.serialize_entry("packet_type", name)?;
        let ids = |dcid: &[u8], scid: &[u8], map: &mut S::SerializeMap| {
            map.serialize_entry("scil", &scid.len())?;
            map.serialize_entry("dcil", &dcid.len())?;
            map.serialize_entry("scid", &Hex(scid))?;
            map.serialize_entry("dcid", &Hex(dcid))
        };
        map.serialize_entry("version", &Hex(&version.0.to_be_bytes()))?;
        match self {
            Unprotected::Retry(retry) => {
                ids(retry.dcid().as_bytes(), retry.scid().as_bytes(), &mut map)?;
                map.serialize_entry("token", &RetryToken(retry.token().len() as u64))?;
            }
            Unprotected::VersionNegotiation(packet) => {
                ids(packet.dcid(), packet.scid(), &mut map)?;
            }
        }
        map.end()
    }
}

/// A token. Only its length is logged.
struct RetryToken(u64);

impl Serialize for RetryToken {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("type", "retry")?;
        map.serialize_entry("raw", &raw(self.0))?;
        map.end()
    }
}

/// The frames of a packet, written as the list `[* $QuicFrame]` of the draft.
pub(super) struct FrameList<'a>(pub &'a Packet<'a>);

impl Serialize for FrameList<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        for frame in self.0.frames() {
            list.serialize_element(&Timed(&frame, self.0.ack_delay_exponent))?;
        }
        list.end()
    }
}

/// A frame, and the exponent for its ACK Delay field.
struct Timed<'a>(&'a Frame<'a>, u8);

impl Serialize for Timed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("frame_type", name(self.0))?;
        fields(&mut map, self.0, self.1)?;
        map.end()
    }
}

/// Logs the range of the data that is sent again, but not the data itself.
impl Serialize for Retransmitted {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self {
            Retransmitted::Crypto(range) => {
                map.serialize_entry("frame_type", "crypto")?;
                crypto(&mut map, range.start, range.end - range.start)?;
            }
            Retransmitted::Stream { id, range, fin } => {
                map.serialize_entry("frame_type", "stream")?;
                stream(&mut map, *id, range.start, range.end - range.start, *fin)?;
            }
            Retransmitted::Frame(frame) => {
                map.serialize_entry("frame_type", name(frame))?;
                fields(&mut map, frame, 0)?;
            }
        }
        map.end()
    }
}

fn name(frame: &Frame<'_>) -> &'static str {
    match frame {
        Frame::Padding(_) => "padding",
        Frame::Ping => "ping",
        Frame::Ack(_) => "ack",
        Frame::ResetStream(_) => "reset_stream",
        Frame::StopSending(_) => "stop_sending",
        Frame::Crypto(_) => "crypto",
        Frame::NewToken(_) => "new_token",
        Frame::Stream(_) => "stream",
        Frame::MaxData(_) => "max_data",
        Frame::MaxStreamData(_) => "max_stream_data",
        Frame::MaxStreams(..) => "max_streams",
        Frame::DataBlocked(_) => "data_blocked",
        Frame::StreamDataBlocked(_) => "stream_data_blocked",
        Frame::StreamsBlocked(..) => "streams_blocked",
        Frame::NewConnectionId(_) => "new_connection_id",
        Frame::RetireConnectionId(_) => "retire_connection_id",
        Frame::PathChallenge(_) => "path_challenge",
        Frame::PathResponse(_) => "path_response",
        Frame::ConnectionClose(_) => "connection_close",
        Frame::HandshakeDone => "handshake_done",
        Frame::Datagram(_) => "datagram",
        // draft-ietf-quic-ack-frequency defines no qlog names for its frames. The draft permits
        // other values of `$QuicFrame`.
        Frame::AckFrequency(_) => "ack_frequency",
        Frame::ImmediateAck => "immediate_ack",
        // RFC 10069 defines no qlog names for its frames, either.
        Frame::PathAck(_) => "path_ack",
        Frame::PathAbandon(_) => "path_abandon",
        Frame::PathStatusAvailable(_) => "path_status_available",
        Frame::PathStatusBackup(_) => "path_status_backup",
        Frame::PathNewConnectionId(_) => "path_new_connection_id",
        Frame::PathRetireConnectionId(_) => "path_retire_connection_id",
        Frame::MaxPathId(_) => "max_path_id",
        Frame::PathsBlocked(_) => "paths_blocked",
        Frame::PathCidsBlocked(_) => "path_cids_blocked",
        Frame::Unknown(_) => "unknown",
    }
}

fn fields<M: SerializeMap>(map: &mut M, frame: &Frame<'_>, exponent: u8) -> Result<(), M::Error> {
    match frame {
        Frame::Ping | Frame::HandshakeDone | Frame::ImmediateAck => Ok(()),
        Frame::Padding(count) => map.serialize_entry("raw", &One("payload_length", count.get())),
        Frame::Ack(frame) => ack(map, frame, exponent),
        Frame::ResetStream(reset) => {
            map.serialize_entry("stream_id", &reset.stream_id.as_varint().get())?;
            application_error(map, reset.error_code.get())?;
            map.serialize_entry("final_size", &reset.final_size.get())
        }
        Frame::StopSending(stop) => {
            map.serialize_entry("stream_id", &stop.stream_id.as_varint().get())?;
            application_error(map, stop.error_code.get())
        }
        Frame::Crypto(frame) => crypto(map, frame.offset().get(), frame.data().len() as u64),
        Frame::NewToken(new) => {
            let length = new.token().len() as u64;
            map.serialize_entry("token", &One("raw", raw(length)))
        }
        Frame::Stream(frame) => {
            let length = frame.data().len() as u64;
            stream(map, frame.stream_id(), frame.offset().get(), length, frame.fin())
        }
        Frame::MaxData(limit) => map.serialize_entry("maximum", &limit.get()),
        Frame::DataBlocked(limit) => map.serialize_entry("limit", &limit.get()),
        Frame::MaxStreamData(max) => {
            map.serialize_entry("stream_id", &max.stream_id.as_varint().get())?;
            map.serialize_entry("maximum", &max.limit.get())
        }
        Frame::StreamDataBlocked(blocked) => {
            map.serialize_entry("stream_id", &blocked.stream_id.as_varint().get())?;
            map.serialize_entry("limit", &blocked.limit.get())
        }
        Frame::MaxStreams(direction, count) => {
            map.serialize_entry("stream_type", names::direction(*direction))?;
            map.serialize_entry("maximum", &count.get())
        }
        Frame::StreamsBlocked(direction, count) => {
            map.serialize_entry("stream_type", names::direction(*direction))?;
            map.serialize_entry("limit", &count.get())
        }
        Frame::NewConnectionId(new) => new_connection_id(map, new),
        Frame::RetireConnectionId(sequence) => {
            map.serialize_entry("sequence_number", &sequence.get())
        }
        Frame::PathChallenge(data) | Frame::PathResponse(data) => {
            map.serialize_entry("data", &Hex(data))
        }
        Frame::ConnectionClose(frame) => close(map, frame),
        Frame::Datagram(datagram) => map.serialize_entry("raw", &raw(datagram.data.len() as u64)),
        Frame::AckFrequency(ack) => {
            map.serialize_entry("sequence_number", &ack.sequence_number.get())?;
            let threshold = ack.ack_eliciting_threshold.get();
            map.serialize_entry("ack_eliciting_threshold", &threshold)?;
            let delay = millis(ack.requested_max_ack_delay());
            map.serialize_entry("requested_max_ack_delay", &delay)?;
            map.serialize_entry("reordering_threshold", &ack.reordering_threshold.get())
        }
        Frame::Unknown(unknown) => {
            map.serialize_entry("frame_type_bytes", &unknown.frame_type.0.get())
        }
        Frame::PathAck(_)
        | Frame::PathAbandon(_)
        | Frame::PathStatusAvailable(_)
        | Frame::PathStatusBackup(_)
        | Frame::PathNewConnectionId(_)
        | Frame::PathRetireConnectionId(_)
        | Frame::MaxPathId(_)
        | Frame::PathsBlocked(_)
        | Frame::PathCidsBlocked(_) => multipath(map, frame, exponent),
    }
}

/// Writes the fields of multipath frames, with the names in the figures of RFC 10069.
fn multipath<M: SerializeMap>(
    map: &mut M,
    frame: &Frame<'_>,
    exponent: u8,
) -> Result<(), M::Error> {
    let path = |map: &mut M, id: PathId| map.serialize_entry("path_id", &id.get());
    match frame {
        Frame::PathAck(of_path) => {
            path(map, of_path.path_id)?;
            ack(map, &of_path.ack, exponent)
        }
        Frame::PathAbandon(abandon) => {
            path(map, abandon.path_id)?;
            map.serialize_entry("error_code", &abandon.error_code.0.get())
        }
        Frame::PathStatusAvailable(status) | Frame::PathStatusBackup(status) => {
            path(map, status.path_id)?;
            map.serialize_entry("path_status_sequence_number", &status.sequence_number.get())
        }
        Frame::PathNewConnectionId(of_path) => {
            path(map, of_path.path_id)?;
            new_connection_id(map, &of_path.new)
        }
        Frame::PathRetireConnectionId(retire) => {
            path(map, retire.path_id)?;
            map.serialize_entry("sequence_number", &retire.sequence_number.get())
        }
        Frame::MaxPathId(id) | Frame::PathsBlocked(id) => {
            map.serialize_entry("maximum_path_id", &id.get())
        }
        Frame::PathCidsBlocked(blocked) => {
            path(map, blocked.path_id)?;
            map.serialize_entry("next_sequence_number", &blocked.next_sequence_number.get())
        }
        _ => Ok(()),
    }
}

fn new_connection_id<M: SerializeMap>(map: &mut M, new: &NewConnectionId) -> Result<(), M::Error> {
    let id = new.connection_id();
    map.serialize_entry("sequence_number", &new.sequence_number().get())?;
    map.serialize_entry("retire_prior_to", &new.retire_prior_to().get())?;
    map.serialize_entry("connection_id_length", &id.len())?;
    // Do not log the stateless reset token, because it could be used to end the connection.
    map.serialize_entry("connection_id", &Hex(id.as_bytes()))
}

/// The names of application errors are unknown here, because the application defines them.
fn application_error<M: SerializeMap>(map: &mut M, code: u64) -> Result<(), M::Error> {
    map.serialize_entry("error", "unknown")?;
    map.serialize_entry("error_code", &code)
}

fn crypto<M: SerializeMap>(map: &mut M, offset: u64, length: u64) -> Result<(), M::Error> {
    map.serialize_entry("offset", &offset)?;
    map.serialize_entry("raw", &raw(length))
}

fn stream<M: SerializeMap>(
    map: &mut M,
    id: StreamId,
    offset: u64,
    length: u64,
    fin: bool,
) -> Result<(), M::Error> {
    map.serialize_entry("stream_id", &id.as_varint().get())?;
    map.serialize_entry("offset", &offset)?;
    optional(map, "fin", fin.then_some(true))?;
    map.serialize_entry("raw", &raw(length))
}

fn ack<M: SerializeMap>(map: &mut M, ack: &Ack<'_>, exponent: u8) -> Result<(), M::Error> {
    map.serialize_entry("ack_delay", &millis(ack.delay(exponent)))?;
    map.serialize_entry("acked_ranges", &Ranges(ack))?;
    let Some(ecn) = ack.ecn() else { return Ok(()) };
    map.serialize_entry("ect1", &ecn.ect1.get())?;
    map.serialize_entry("ect0", &ecn.ect0.get())?;
    map.serialize_entry("ce", &ecn.ce.get())
}

struct Ranges<'a>(&'a Ack<'a>);

impl Serialize for Ranges<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.ranges().map(|range: AckRange| {
            let (smallest, largest) = (range.smallest().get(), range.largest().get());
            if smallest == largest { vec![smallest] } else { vec![smallest, largest] }
        }))
    }
}

/// Writes a `ConnectionCloseFrame` (s.8.13.21).
fn close<M: SerializeMap>(map: &mut M, close: &ConnectionClose<'_>) -> Result<(), M::Error> {
    let reason = match close {
        ConnectionClose::Transport { error_code, frame_type, reason } => {
            map.serialize_entry("error_space", "transport")?;
            match names::transport_error(*error_code) {
                Some(name) => map.serialize_entry("error", &name)?,
                None => application_error(map, error_code.0.get())?,
            }
            if *frame_type != FrameType::PADDING {
                map.serialize_entry("trigger_frame_type", &frame_type.0.get())?;
            }
            reason
        }
        ConnectionClose::Application { error_code, reason } => {
            map.serialize_entry("error_space", "application")?;
            application_error(map, error_code.get())?;
            reason
        }
    };
    match std::str::from_utf8(reason) {
        Ok(text) => map.serialize_entry("reason", text),
        Err(_) => map.serialize_entry("reason_bytes", &Hex(reason)),
    }
}
