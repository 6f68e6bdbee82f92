//! Tests that logs show every frame as `wire/tests/support/frames.rs` says.

use equic_wire::ConnectionId;
use equic_wire::packet::PacketType;

use super::examples::{Example, ROWS, UNKNOWN};
use super::json::Record;
use super::*;
use crate::Timestamp;

/// Returns all examples of frames, with their bytes.
fn examples() -> impl Iterator<Item = (&'static Example, Vec<u8>)> {
    let known = ROWS.iter().flat_map(|row| row.examples);
    known.chain([&UNKNOWN]).map(|example| (example, example.payload()))
}

/// Returns the event of a 1-RTT packet with this payload.
fn event(payload: &[u8]) -> Event<'_> {
    let form = Form::Short { spin: false, key_phase: false };
    let (packet_type, dcid) = (PacketType::OneRtt, ConnectionId::EMPTY);
    let packet = Packet {
        header: Header { packet_type, number: 17, number_length: 1, dcid, form },
        payload,
        length: 1252,
        ack_delay_exponent: 3,
        checksum: 0,
        mtu_probe: false,
    };
    Event { time: Timestamp::START, path: 0, kind: EventKind::PacketSent(packet) }
}

#[test]
fn qlog_json_of_every_frame() {
    for (example, payload) in examples() {
        let (event, zero) = (event(&payload), Timestamp::START);
        let record = serde_json::to_string(&Record { event: &event, zero }).unwrap();
        let (_, frames) = record.split_once("\"frames\":[").unwrap();
        let (frame, _) = frames.rsplit_once("],\"raw\":{\"length\":1252").unwrap();
        assert_eq!(frame, example.json, "{}", example.bytes);
    }
}

#[test]
fn qlog_text_of_every_frame() {
    for (example, payload) in examples() {
        let mut trace = Trace::new(Vec::new(), Timestamp::START);
        trace.event(&event(&payload));
        let line = String::from_utf8(trace.into_inner()).unwrap();
        let (_, frame) = line.trim_end().split_once("17   1252  ").unwrap();
        assert_eq!(frame, example.text, "{}", example.bytes);
    }
}
