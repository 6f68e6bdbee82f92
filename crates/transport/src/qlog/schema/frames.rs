//! The schema of frames in logs. It follows from the fields of the frames.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use equic_wire::frame::{Field, FieldValue, Frames};

use crate::qlog::examples::{ROWS, UNKNOWN};

/// Fields of each frame with their types, in the notation of `tables.rs`. A field that some
/// examples of a frame do not have is optional.
pub(super) static SCHEMA: LazyLock<BTreeMap<String, Vec<String>>> = LazyLock::new(|| {
    let mut examples: BTreeMap<String, Vec<Types>> = BTreeMap::new();
    for example in ROWS.iter().flat_map(|row| row.examples).chain([&UNKNOWN]) {
        let payload = example.payload();
        let frame = Frames::new(&payload).unwrap().next().unwrap().unwrap();
        let mut fields = Types::new();
        frame.fields().for_each(|field| fields.extend(types(&field)));
        examples.entry(frame.name().to_ascii_lowercase()).or_default().push(fields);
    }
    examples.into_iter().map(|(name, examples)| (name, union(&examples))).collect()
});

/// Names of fields, with `?` before the name of an optional field, and the type of each.
type Types = BTreeMap<&'static str, &'static str>;

/// Returns the entries of the JSON object for a field.
fn types(field: &Field<'_>) -> Vec<(&'static str, &'static str)> {
    let name = field.name;
    match field.value {
        FieldValue::Integer(_) | FieldValue::FrameType(_) | FieldValue::ErrorCode(_) => {
            vec![(name, "u64")]
        }
        FieldValue::Word(_) => vec![(name, "text")],
        FieldValue::StreamType(_) => vec![(name, "StreamType")],
        FieldValue::Duration(_) => vec![(name, "float")],
        FieldValue::Bytes(_) => vec![(name, "hex")],
        FieldValue::ConnectionId(_) => vec![("connection_id_length", "u8"), (name, "hex")],
        FieldValue::PathId(_) => vec![(name, "u32")],
        FieldValue::ApplicationError(_) => vec![(name, "'unknown'"), ("error_code", "u64")],
        FieldValue::TransportError(_) => vec![(name, "TransportError"), ("?error_code", "u64")],
        FieldValue::Reason(_) => vec![("?reason", "text"), ("?reason_bytes", "hex")],
        FieldValue::PayloadLength(_) | FieldValue::DataLength(_) => vec![(name, "RawInfo")],
        FieldValue::TokenLength(_) => vec![(name, "Token")],
        FieldValue::Data { .. } => {
            vec![("offset", "u64"), ("?fin", "bool"), (name, "RawInfo")]
        }
        FieldValue::Ack(_) => vec![
            ("?ack_delay", "float"),
            (name, "[+AckRange]"),
            ("?ect1", "u64"),
            ("?ect0", "u64"),
            ("?ce", "u64"),
        ],
    }
}

/// Returns the fields of all examples of a frame, as `name: type` or `?name: type`.
fn union(examples: &[Types]) -> Vec<String> {
    let mut all: BTreeMap<&str, (bool, Vec<&str>)> = BTreeMap::new();
    for (name, kind) in examples.iter().flatten() {
        let plain = name.trim_start_matches('?');
        let everywhere = examples.iter().all(|example| example.contains_key(plain));
        let (optional, kinds) = all.entry(plain).or_default();
        *optional |= !everywhere;
        if !kinds.contains(kind) {
            kinds.push(kind);
        }
    }
    let line = |(name, (optional, kinds)): (&str, (bool, Vec<&str>))| {
        format!("{}{name}: {}", if optional { "?" } else { "" }, kinds.join("|"))
    };
    all.into_iter().map(line).collect()
}
