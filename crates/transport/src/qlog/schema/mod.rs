//! Checks in tests that a qlog file conforms to the drafts.

mod frames;
mod tables;

use serde_json::Value;

use tables::{ENUMS, FRAMES, MAPS};

/// Returns the records of a qlog file (RFC 7464 s.2). The first one is the header.
///
/// # Errors
/// Fails if the file is not a JSON text sequence.
pub(crate) fn records(file: &[u8]) -> Result<Vec<Value>, String> {
    let mut texts = file.split(|byte| *byte == 0x1e);
    if texts.next() != Some(&[]) {
        return Err("the file does not start with a record separator".into());
    }
    texts
        .map(|text| {
            let body = text.strip_suffix(b"\n").ok_or("a record does not end with a newline")?;
            serde_json::from_slice(body).map_err(|error| error.to_string())
        })
        .collect()
}

/// Checks the header, which is the first record of a qlog file.
pub(crate) fn check_header(record: &Value) -> Result<(), String> {
    check(record, "LogFile")?;
    let time = &record["trace"]["common_fields"]["reference_time"];
    // Main schema s.7.1: a monotonic clock has an unknown epoch.
    if time["clock_type"] == "monotonic" && time["epoch"] != "unknown" {
        return Err("a monotonic clock must have an unknown epoch".into());
    }
    Ok(())
}

/// Checks a record of a qlog file that is an event.
pub(crate) fn check_event(record: &Value) -> Result<(), String> {
    let wrong = |why: String| format!("{why} in {record}");
    check(record, "Event").map_err(wrong)?;
    let name = record["name"].as_str().and_then(|name| name.strip_prefix("quic:"));
    let name = name.filter(|name| name.starts_with(|c: char| c.is_ascii_lowercase()));
    let name = name.ok_or_else(|| wrong("the event name is in no schema".into()))?;
    check(&record["data"], name).map_err(wrong)
}

fn check(value: &Value, kind: &str) -> Result<(), String> {
    let found =
        |holds: bool| if holds { Ok(()) } else { Err(format!("{value} is not of type {kind}")) };
    let below = |limit: u64| found(value.as_u64().is_some_and(|number| number <= limit));
    if let Some((_, fields)) = MAPS.iter().find(|(name, _)| *name == kind) {
        return check_map(value, kind, fields);
    }
    if let Some((_, words)) = ENUMS.iter().find(|(name, _)| *name == kind) {
        let text = value.as_str();
        let crypto = kind == "TransportError"
            && text.is_some_and(|text| text.starts_with("crypto_error_0x1") && text.len() == 18);
        return found(crypto || text.is_some_and(|text| words.split(' ').any(|word| word == text)));
    }
    if kind.contains('|') {
        return found(kind.split('|').any(|one| check(value, one).is_ok()));
    }
    if let Some(list) = kind.strip_prefix('[').and_then(|kind| kind.strip_suffix(']')) {
        let items = value.as_array().ok_or_else(|| format!("{value} is not a list"))?;
        let (least, item) = list.strip_prefix('+').map_or((0, list), |item| (1, item));
        found(items.len() >= least)?;
        return items.iter().try_for_each(|one| check(one, item));
    }
    if let Some(literal) = kind.strip_prefix('\'').and_then(|kind| kind.strip_suffix('\'')) {
        return found(value == literal);
    }
    let is_hex = |text: &str| {
        text.len().is_multiple_of(2)
            && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    match kind {
        "any" => Ok(()),
        "bool" => found(value.is_boolean()),
        "text" => found(value.is_string()),
        "hex" => found(value.as_str().is_some_and(is_hex)),
        "token" => found(value.as_str().is_some_and(|text| is_hex(text) && text.len() == 32)),
        "float" => found(value.is_number()),
        "u8" => below(u8::MAX.into()),
        "u16" => below(u16::MAX.into()),
        "u32" => below(u32::MAX.into()),
        "u64" => below(u64::MAX),
        "AckRange" => {
            check(value, "[u64]")?;
            let numbers: Vec<u64> =
                value.as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
            found(matches!(numbers[..], [_]) || matches!(numbers[..], [from, to] if from < to))
        }
        "Frame" => check_frame(value),
        other => Err(format!("nobody defined {other}")),
    }
}

/// Checks a frame against its fields, and against the draft if the draft defines the frame.
fn check_frame(value: &Value) -> Result<(), String> {
    let kind = value["frame_type"].as_str().unwrap_or_default();
    let ours = frames::SCHEMA.get(kind).ok_or_else(|| format!("{value} is not a frame"))?;
    let ours: Vec<&str> = ours.iter().map(String::as_str).collect();
    check_fields(value, kind, &ours)?;
    if let Some((_, fields)) = FRAMES.iter().find(|(name, _)| *name == kind) {
        check_fields(value, kind, fields)?;
    }
    // The draft requires for these frames that the length "MUST be logged in the qlog raw.length
    // field".
    let data = matches!(kind, "crypto" | "stream" | "datagram");
    if data && value["raw"]["length"].is_null() {
        return Err(format!("{value} has no length"));
    }
    Ok(())
}

fn check_fields(value: &Value, kind: &str, fields: &[&str]) -> Result<(), String> {
    let mut fields = fields.to_vec();
    fields.push("frame_type: text");
    if !fields.contains(&"raw: RawInfo") {
        fields.push("?raw: RawInfo");
    }
    check_map(value, kind, &fields)
}

fn check_map(value: &Value, kind: &str, fields: &[&str]) -> Result<(), String> {
    let map = value.as_object().ok_or_else(|| format!("{value} is not of type {kind}"))?;
    let mut known = Vec::new();
    for field in fields {
        let (name, kind) = field.split_once(": ").expect("a name and a type");
        let (optional, name) = name.strip_prefix('?').map_or((false, name), |name| (true, name));
        known.push(name);
        match map.get(name) {
            Some(value) => check(value, kind).map_err(|why| format!("{name}: {why}"))?,
            None if optional => {}
            None => return Err(format!("{kind} {name} is missing")),
        }
    }
    match map.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(format!("{kind} has no field {name}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The table of the drafts' frames must apply to the logs.
    #[test]
    fn qlog_schema_has_every_frame_of_the_draft() {
        for (name, _) in FRAMES {
            assert!(frames::SCHEMA.contains_key(*name), "{name}");
        }
    }

    /// The checker must reject events that do not conform.
    #[test]
    fn qlog_schema_finds_errors() {
        let event = |name: &str, data: Value| json!({ "time": 1.5, "name": name, "data": data });
        let good = [
            event("quic:spin_bit_updated", json!({ "state": true })),
            event("quic:mtu_updated", json!({ "new": 1400 })),
            event(
                "quic:packet_sent",
                json!({
                    "header": { "packet_type": "1RTT" },
                    "frames": [{ "frame_type": "ack", "acked_ranges": [[1], [3, 4]] }],
                }),
            ),
        ];
        for one in good {
            check_event(&one).unwrap();
        }
        let frame =
            |frame: Value| event("quic:marked_for_retransmit", json!({ "frames": [frame] }));
        let bad = [
            event("quic:spin_bit_updated", json!({ "state": 1 })),
            event("quic:spin_bit_updated", json!({})),
            event("quic:spin_bit_updated", json!({ "state": true, "other": 1 })),
            event("quic:spin_bit", json!({ "state": true })),
            event("spin_bit_updated", json!({ "state": true })),
            event("quic:PacketHeader", json!({ "packet_type": "1RTT" })),
            event("quic:mtu_updated", json!({ "new": 1u64 << 32 })),
            event("quic:mtu_updated", json!({ "new": -1 })),
            event("quic:packet_sent", json!({ "header": { "packet_type": "1-RTT" } })),
            event("quic:connection_id_updated", json!({ "initiator": "local", "new": "0A" })),
            event("quic:connection_id_updated", json!({ "initiator": "local", "new": "0a0" })),
            event("quic:marked_for_retransmit", json!({ "frames": [] })),
            frame(json!({ "frame_type": "stream", "stream_id": 0, "raw": {} })),
            frame(json!({ "frame_type": "ack", "acked_ranges": [[4, 3]] })),
            frame(json!({ "frame_type": "ack", "acked_ranges": [[1, 1]] })),
            frame(json!({ "frame_type": "ack", "acked_ranges": [[1, 2, 3]] })),
            frame(json!({ "frame_type": "max_data", "maximum": 1.5 })),
            frame(json!({ "frame_type": "paddding" })),
            json!({ "time": "1", "name": "quic:spin_bit_updated", "data": { "state": true } }),
        ];
        for one in bad {
            assert!(check_event(&one).is_err(), "{one}");
        }
        assert!(records(b"{}\n").is_err() && records(b"\x1e{}").is_err());
        assert_eq!(records(b"\x1e{}\n\x1e1\n"), Ok(vec![json!({}), json!(1)]));
    }
}
