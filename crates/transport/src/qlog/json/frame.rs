//! Writes packet headers and frames as JSON (quic-events s.8).

use equic_wire::Version;
use equic_wire::frame::{Ack, AckRange, Crypto, Field, FieldValue, Fields, Frame, Stream};
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
        frame(&mut map, self.0.name(), self.0.fields(), self.1)?;
        map.end()
    }
}

/// Logs the range of the data that is sent again, but not the data itself.
impl Serialize for Retransmitted {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let (name, fields) = match self {
            Retransmitted::Crypto(range) => {
                ("CRYPTO", Crypto::fields_of(range.start, range.end - range.start))
            }
            Retransmitted::Stream { id, range, fin } => {
                let length = range.end - range.start;
                ("STREAM", Stream::fields_of(*id, range.start, length, *fin))
            }
            Retransmitted::Frame(frame) => (frame.name(), frame.fields()),
        };
        frame(&mut map, name, fields, 0)?;
        map.end()
    }
}

/// The RFC's name of a frame in lower case, which is the draft's name for it. Frames that the draft
/// does not define are named in the same way. The draft permits other values of `$QuicFrame`.
struct Name(&'static str);

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.to_ascii_lowercase())
    }
}

fn frame<M: SerializeMap>(
    map: &mut M,
    name: &'static str,
    mut fields: Fields<'_>,
    exponent: u8,
) -> Result<(), M::Error> {
    map.serialize_entry("frame_type", &Name(name))?;
    fields.try_for_each(|one| field(map, &one, exponent))
}

/// Writes a field. Some fields become several entries of the JSON object.
fn field<M: SerializeMap>(map: &mut M, field: &Field<'_>, exponent: u8) -> Result<(), M::Error> {
    let name = field.name;
    match field.value {
        FieldValue::Integer(value) => map.serialize_entry(name, &value.get()),
        FieldValue::Word(word) => map.serialize_entry(name, word),
        FieldValue::StreamType(direction) => map.serialize_entry(name, names::direction(direction)),
        FieldValue::Duration(duration) => map.serialize_entry(name, &millis(duration)),
        FieldValue::Bytes(bytes) => map.serialize_entry(name, &Hex(bytes)),
        FieldValue::ConnectionId(id) => {
            map.serialize_entry("connection_id_length", &id.len())?;
            map.serialize_entry(name, &Hex(id.as_bytes()))
        }
        FieldValue::PathId(id) => map.serialize_entry(name, &id.get()),
        FieldValue::FrameType(frame_type) => map.serialize_entry(name, &frame_type.0.get()),
        FieldValue::ErrorCode(code) => map.serialize_entry(name, &code.0.get()),
        FieldValue::ApplicationError(code) => unknown_error(map, name, code.get()),
        FieldValue::TransportError(code) => match names::transport_error(code) {
            Some(error) => map.serialize_entry(name, &error),
            None => unknown_error(map, name, code.0.get()),
        },
        FieldValue::Reason(reason) => match std::str::from_utf8(reason) {
            Ok(text) => map.serialize_entry(name, text),
            Err(_) => map.serialize_entry("reason_bytes", &Hex(reason)),
        },
        FieldValue::PayloadLength(length) => {
            map.serialize_entry(name, &One("payload_length", length))
        }
        FieldValue::DataLength(length) => map.serialize_entry(name, &raw(length)),
        FieldValue::TokenLength(length) => map.serialize_entry(name, &One("raw", raw(length))),
        FieldValue::Data { offset, length, fin } => {
            map.serialize_entry("offset", &offset)?;
            optional(map, "fin", fin.then_some(true))?;
            map.serialize_entry(name, &raw(length))
        }
        FieldValue::Ack(frame) => ack(map, name, &frame, exponent),
    }
}

/// Writes an error code without a name. The names of application errors are unknown here, because
/// the application defines them.
fn unknown_error<M: SerializeMap>(
    map: &mut M,
    name: &'static str,
    code: u64,
) -> Result<(), M::Error> {
    map.serialize_entry(name, "unknown")?;
    map.serialize_entry("error_code", &code)
}

fn ack<M: SerializeMap>(
    map: &mut M,
    name: &'static str,
    ack: &Ack<'_>,
    exponent: u8,
) -> Result<(), M::Error> {
    map.serialize_entry("ack_delay", &millis(ack.delay(exponent)))?;
    map.serialize_entry(name, &Ranges(ack))?;
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
