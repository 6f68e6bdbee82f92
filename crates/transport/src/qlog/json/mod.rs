//! Writes events as JSON (main schema s.7, quic-events). A section number without the name of a
//! document refers to quic-events.
//!
//! * `names.rs`: enumerations with the names of the drafts;
//! * `frame.rs`: packet headers and frames (s.8);
//! * `data.rs`, `parameters.rs`: the field `data` of each event (s.3 to 6).

mod data;
mod frame;
pub(super) mod names;
mod parameters;

use std::fmt::{self, Display};
use std::time::Duration;

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::Event;
use crate::Timestamp;

/// An event, and the timestamp from which its field `time` counts.
pub(super) struct Record<'a> {
    pub event: &'a Event<'a>,
    pub zero: Timestamp,
}

impl Serialize for Record<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("time", &millis(self.event.time.since(self.zero)))?;
        map.serialize_entry("name", &format_args!("quic:{}", names::event(&self.event.kind)))?;
        if self.event.path != 0 {
            // The empty string stands for the first path of the connection (s.3.7).
            map.serialize_entry("tuple", &format_args!("{}", self.event.path))?;
        }
        map.serialize_entry("data", &data::Data(self.event))?;
        map.end()
    }
}

/// Converts a duration to milliseconds, the unit of times in a log (main schema s.1.2).
pub(super) fn millis(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1e6
}

/// Writes a field of a JSON object if the field has a value.
fn optional<M: SerializeMap>(
    map: &mut M,
    key: &str,
    value: Option<impl Serialize>,
) -> Result<(), M::Error> {
    match value {
        Some(value) => map.serialize_entry(key, &value),
        None => Ok(()),
    }
}

/// Bytes, written as a `hexstring` of the main schema.
pub(super) struct Hex<'a>(pub &'a [u8]);

impl Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Serialize for Hex<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A JSON object with one field.
struct One<'a, T>(&'a str, T);

impl<T: Serialize> Serialize for One<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(self.0, &self.1)?;
        map.end()
    }
}

/// Returns a `RawInfo` object that has only the field `length` (main schema s.10).
fn raw(length: u64) -> One<'static, u64> {
    One("length", length)
}
