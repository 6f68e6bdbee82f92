//! Permitted ranges of settings.

use std::collections::BTreeSet;
use std::time::Duration;

use super::TransportConfig;
use super::config::has_tls;
use crate::path::BASE_SIZE;

/// Largest variable-length integer (RFC 9000 s.16).
const MAX_VARINT: u64 = (1 << 62) - 1;

/// Largest limit on streams (RFC 9000 s.4.6).
const MAX_STREAMS: u64 = 1 << 60;

/// Largest UDP payload.
const MAX_PAYLOAD: u16 = 65_527;

/// Longest time of any setting. Sums and multiples of it do not overflow.
pub(crate) const MAX_TIME: Duration = Duration::from_secs(1 << 32);

/// Shortest idle timeout. A shorter one ends a connection before its first round trip is complete.
const MIN_IDLE_TIMEOUT: Duration = Duration::from_millis(100);

/// Smallest window or send buffer in bytes: the size of the smallest datagram of a handshake. With
/// less, a stream is sent in many small packets, and a window of 0 blocks it forever.
const MIN_WINDOW: u64 = BASE_SIZE as u64;

/// Smallest limit on packets for a set of keys. A key update takes some round trips, in which
/// thousands of packets may be sent.
const MIN_PACKETS_PER_KEY: u64 = 10_000;

/// Smallest limit on forged packets. With less, an attacker that knows a connection ID can end the
/// connection with a few packets.
const MIN_FORGED_PACKETS: u64 = 1_000;

/// Maximum size in bytes of all extra transport parameters together. They must fit into the first
/// flight with the messages of TLS.
const MAX_EXTRA: usize = 1024;

/// Bytes counted for the ID and the length of an extra transport parameter.
const EXTRA_HEADER: usize = 10;

/// A setting whose value is out of range.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SettingError {
    /// Name of the structure that has the field, for example `TransportConfig`.
    pub config: &'static str,
    /// Path of the field in that structure.
    pub field: &'static str,
    /// The value that is out of range.
    pub value: String,
    /// Description of the permitted values.
    pub range: String,
}

impl SettingError {
    /// Returns the same error for a structure that contains the checked one as a field.
    #[must_use]
    pub fn inside(self, config: &'static str) -> SettingError {
        SettingError { config, ..self }
    }
}

impl std::fmt::Display for SettingError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let SettingError { config, field, value, range } = self;
        write!(f, "{config}::{field} is {value}: allowed is {range}")
    }
}

impl std::error::Error for SettingError {}

fn error(field: &'static str, value: String, range: String) -> SettingError {
    SettingError { config: "TransportConfig", field, value, range }
}

/// Checks that a number is from `least` to `most`.
pub(crate) fn number(
    field: &'static str,
    value: u64,
    least: u64,
    most: u64,
) -> Result<(), SettingError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(error(field, value.to_string(), format!("{least} to {most}")))
}

/// Checks that a time is from `least` to `most`.
pub(crate) fn time(
    field: &'static str,
    value: Duration,
    least: Duration,
    most: Duration,
) -> Result<(), SettingError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(error(field, format!("{value:?}"), format!("{least:?} to {most:?}")))
}

/// Variant of [`time`] for a setting that zero disables.
fn optional_time(
    field: &'static str,
    value: Duration,
    least: Duration,
    most: Duration,
) -> Result<(), SettingError> {
    if value.is_zero() {
        return Ok(());
    }
    time(field, value, least, most).map_err(|error| SettingError {
        range: format!("{}, or zero for never", error.range),
        ..error
    })
}

impl TransportConfig {
    /// Checks that every setting is in its range. With valid settings, a connection can transfer
    /// data over any path that supports `initial_mtu`.
    ///
    /// | fields | range |
    /// |---|---|
    /// | `streams.max_streams_bidi`, `streams.max_streams_uni` | 0 to 2^60 |
    /// | the other fields of `streams` | 1,200 to 2^62 - 1 |
    /// | `initial_window` | 2,400 to 2^32, or `None` |
    /// | `packet_threshold`, `time_threshold` | 3 to 2^32, 1 to 16 |
    /// | `initial_rtt` | 1 microsecond to 60 s |
    /// | `max_idle_timeout` | 100 ms to 2^32 s, or zero for never |
    /// | `keep_alive` | 1 ms to 2^32 s, or zero for never |
    /// | `max_ack_delay` | 0 to 16,383 ms |
    /// | `max_mtu` | 1,200 to 65,527 |
    /// | `initial_mtu` | 1,200 to `max_mtu` |
    /// | `connection_ids`, `max_paths` | 1 to 1,024, 1 to 8 |
    /// | `datagram_receive_buffer`, `datagram_send_buffer` | 0 to 2^32 - 1 |
    /// | `key_limits.packets_per_key` | 10,000 or more |
    /// | `key_limits.forged_packets` | 1,000 or more |
    /// | `versions` | each once; empty means version 1 |
    /// | `first_version` | one of `versions`, or `None` |
    /// | `extra_parameters` | each ID once, up to 2^62 - 1; 1,024 bytes in all, plus 10 for each |
    ///
    /// # Errors
    /// Returns a [`SettingError`] for the first setting that is out of its range.
    pub fn validate(&self) -> Result<(), SettingError> {
        self.validate_streams()?;
        self.validate_recovery()?;
        let ms = Duration::from_millis(1);
        optional_time("max_idle_timeout", self.max_idle_timeout, MIN_IDLE_TIMEOUT, MAX_TIME)?;
        optional_time("keep_alive", self.keep_alive, ms, MAX_TIME)?;
        // A peer rejects 2^14 ms and more (RFC 9000 s.18.2).
        time("max_ack_delay", self.max_ack_delay, Duration::ZERO, 16_383 * ms)?;
        let base = u64::from(BASE_SIZE);
        number("max_mtu", self.max_mtu.into(), base, MAX_PAYLOAD.into())?;
        number("initial_mtu", self.initial_mtu.into(), base, self.max_mtu.into()).map_err(
            |error| SettingError { range: format!("{} (max_mtu)", error.range), ..error },
        )?;
        number("connection_ids", self.connection_ids, 1, 1024)?;
        number("max_paths", self.max_paths as u64, 1, 8)?;
        let most = u64::from(u32::MAX);
        number("datagram_receive_buffer", self.datagram_receive_buffer as u64, 0, most)?;
        number("datagram_send_buffer", self.datagram_send_buffer as u64, 0, most)?;
        let limits = self.key_limits;
        number(
            "key_limits.packets_per_key",
            limits.packets_per_key,
            MIN_PACKETS_PER_KEY,
            u64::MAX,
        )?;
        number("key_limits.forged_packets", limits.forged_packets, MIN_FORGED_PACKETS, u64::MAX)?;
        let mut versions = self.versions.iter();
        while let Some(version) = versions.next() {
            if versions.as_slice().contains(version) {
                let value = format!("{:?}", self.versions);
                return Err(error("versions", value, "each version once".to_owned()));
            }
        }
        if let Some(first) = self.first_version
            && has_tls(first)
            && !self.spoken().any(|version| version == first)
        {
            let range = format!("one of versions ({:?})", self.spoken().collect::<Vec<_>>());
            return Err(error("first_version", format!("{first:?}"), range));
        }
        self.validate_extra_parameters()
    }

    fn validate_streams(&self) -> Result<(), SettingError> {
        let streams = &self.streams;
        number("streams.max_streams_bidi", streams.max_streams_bidi, 0, MAX_STREAMS)?;
        number("streams.max_streams_uni", streams.max_streams_uni, 0, MAX_STREAMS)?;
        for (field, bytes) in [
            ("streams.stream_window", streams.stream_window),
            ("streams.max_stream_window", streams.max_stream_window),
            ("streams.connection_window", streams.connection_window),
            ("streams.max_connection_window", streams.max_connection_window),
            ("streams.send_buffer", streams.send_buffer),
            ("streams.max_send_buffer", streams.max_send_buffer),
            ("streams.connection_send_buffer", streams.connection_send_buffer),
        ] {
            number(field, bytes, MIN_WINDOW, MAX_VARINT)?;
        }
        Ok(())
    }

    fn validate_recovery(&self) -> Result<(), SettingError> {
        if let Some(window) = self.initial_window {
            number("initial_window", window, 2 * u64::from(BASE_SIZE), 1 << 32)?;
        }
        number("packet_threshold", self.packet_threshold, 3, 1 << 32)?;
        if !(1.0..=16.0).contains(&self.time_threshold) {
            let value = self.time_threshold.to_string();
            return Err(error("time_threshold", value, "1 to 16".to_owned()));
        }
        let least = Duration::from_micros(1);
        time("initial_rtt", self.initial_rtt, least, Duration::from_secs(60))
    }

    fn validate_extra_parameters(&self) -> Result<(), SettingError> {
        let mut numbers = BTreeSet::new();
        let mut bytes = 0usize;
        for (number, value) in &self.extra_parameters {
            bytes = bytes.saturating_add(value.len()).saturating_add(EXTRA_HEADER);
            if *number > MAX_VARINT || !numbers.insert(number) {
                let range = format!("each number once, from 0 to {MAX_VARINT}");
                return Err(error("extra_parameters", format!("number {number}"), range));
            }
        }
        if bytes > MAX_EXTRA {
            let range = format!(
                "at most {MAX_EXTRA} bytes in total, where each parameter counts {EXTRA_HEADER} additional bytes"
            );
            return Err(error("extra_parameters", format!("{bytes} bytes"), range));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use equic_wire::KnownVersion;

    use super::*;

    fn field(change: impl FnOnce(&mut TransportConfig)) -> Option<&'static str> {
        let mut config = TransportConfig::default();
        change(&mut config);
        config.validate().err().map(|error| error.field)
    }

    #[test]
    fn config_out_of_range_is_named() {
        assert_eq!(field(|_| {}), None);
        assert_eq!(
            field(|c| c.streams.max_streams_bidi = 1 << 63),
            Some("streams.max_streams_bidi")
        );
        assert_eq!(field(|c| c.streams.max_streams_uni = 1 << 63), Some("streams.max_streams_uni"));
        assert_eq!(field(|c| c.streams.stream_window = 0), Some("streams.stream_window"));
        assert_eq!(
            field(|c| c.streams.connection_window = u64::MAX),
            Some("streams.connection_window")
        );
        assert_eq!(field(|c| c.streams.send_buffer = 0), Some("streams.send_buffer"));
        assert_eq!(field(|c| c.initial_window = Some(0)), Some("initial_window"));
        assert_eq!(field(|c| c.streams.max_send_buffer = 1199), Some("streams.max_send_buffer"));
        assert_eq!(field(|c| c.packet_threshold = 2), Some("packet_threshold"));
        for threshold in [0.5, f32::NAN, f32::INFINITY] {
            assert_eq!(field(|c| c.time_threshold = threshold), Some("time_threshold"));
        }
        for rtt in [Duration::ZERO, Duration::MAX] {
            assert_eq!(field(|c| c.initial_rtt = rtt), Some("initial_rtt"));
        }
        assert_eq!(field(|c| c.max_idle_timeout = Duration::MAX), Some("max_idle_timeout"));
        assert_eq!(field(|c| c.keep_alive = Duration::from_nanos(1)), Some("keep_alive"));
        assert_eq!(field(|c| c.max_ack_delay = Duration::from_secs(17)), Some("max_ack_delay"));
        assert_eq!(field(|c| c.max_mtu = 100), Some("max_mtu"));
        assert_eq!(field(|c| c.initial_mtu = 100), Some("initial_mtu"));
        assert_eq!(field(|c| c.initial_mtu = 9000), Some("initial_mtu"));
        assert_eq!(field(|c| (c.initial_mtu, c.max_mtu) = (9000, 9000)), None);
        assert_eq!(field(|c| c.connection_ids = 0), Some("connection_ids"));
        for paths in [0, 9] {
            assert_eq!(field(|c| c.max_paths = paths), Some("max_paths"));
        }
        assert_eq!(field(|c| c.datagram_send_buffer = usize::MAX), Some("datagram_send_buffer"));
        assert_eq!(field(|c| c.key_limits.packets_per_key = 0), Some("key_limits.packets_per_key"));
        assert_eq!(field(|c| c.key_limits.forged_packets = 1), Some("key_limits.forged_packets"));
        let twice = vec![KnownVersion::V1, KnownVersion::V2, KnownVersion::V1];
        assert_eq!(field(|c| c.versions = twice), Some("versions"));
        assert_eq!(field(|c| c.versions = Vec::new()), None);
        assert_eq!(field(|c| c.first_version = Some(KnownVersion::V2)), None);
        let other = vec![KnownVersion::V2];
        let first = Some(KnownVersion::V1);
        assert_eq!(
            field(|c| (c.versions, c.first_version) = (other, first)),
            Some("first_version")
        );
        let many = (0..200).map(|number| (1000 + number, Vec::new())).collect();
        assert_eq!(field(|c| c.extra_parameters = many), Some("extra_parameters"));
        let long = vec![0; 70_000];
        assert_eq!(field(|c| c.extra_parameters = vec![(77, long)]), Some("extra_parameters"));
        let twice = vec![(77, vec![]), (77, vec![])];
        assert_eq!(field(|c| c.extra_parameters = twice), Some("extra_parameters"));
    }

    #[test]
    fn config_error_has_field_value_and_range() {
        let config = TransportConfig { max_paths: 99, ..TransportConfig::default() };
        let error = config.validate().unwrap_err();
        assert_eq!(error.to_string(), "TransportConfig::max_paths is 99: allowed is 1 to 8");
        let config = TransportConfig { max_idle_timeout: Duration::from_nanos(1), ..config };
        assert_eq!(
            config.validate().unwrap_err().to_string(),
            "TransportConfig::max_idle_timeout is 1ns: allowed is 100ms to 4294967296s, or zero for never"
        );
    }
}
