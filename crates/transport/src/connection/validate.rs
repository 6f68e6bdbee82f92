//! Ranges of a connection's settings.

use std::time::Duration;

use super::TransportConfig;
use crate::path::BASE_SIZE;

/// Largest variable-length integer (RFC 9000 s.16).
const MAX_VARINT: u64 = (1 << 62) - 1;

/// Largest limit on streams (RFC 9000 s.4.6).
const MAX_STREAMS: u64 = 1 << 60;

/// Largest UDP payload.
const MAX_PAYLOAD: u64 = 65_527;

/// Longest time that any setting takes: sums and multiples of it do not overflow.
const MAX_TIME: Duration = Duration::from_secs(1 << 32);

/// Bytes that the values of all extra transport parameters may have together. They have to fit into the first
/// flight with TLS's own messages.
const MAX_EXTRA: usize = 1024;

/// A setting whose value is out of range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingError {
    /// Path of the field in [`TransportConfig`].
    pub field: &'static str,
    /// The value.
    pub value: String,
    /// Description of the values that are allowed.
    pub range: String,
}

impl std::fmt::Display for SettingError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let SettingError { field, value, range } = self;
        write!(f, "TransportConfig::{field} is {value}: allowed is {range}")
    }
}

impl std::error::Error for SettingError {}

fn number(field: &'static str, value: u64, least: u64, most: u64) -> Result<(), SettingError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(SettingError { field, value: value.to_string(), range: format!("{least} to {most}") })
}

fn time(
    field: &'static str,
    value: Duration,
    least: Duration,
    most: Duration,
) -> Result<(), SettingError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(SettingError {
        field,
        value: format!("{value:?}"),
        range: format!("{least:?} to {most:?}"),
    })
}

impl TransportConfig {
    /// Checks that every setting is in its range.
    ///
    /// # Errors
    /// [`SettingError`] about the first setting that is not.
    pub fn validate(&self) -> Result<(), SettingError> {
        self.validate_streams()?;
        self.validate_recovery()?;
        let ms = Duration::from_millis(1);
        // Zero disables these two.
        if !self.max_idle_timeout.is_zero() {
            time("max_idle_timeout", self.max_idle_timeout, ms, MAX_TIME)?;
        }
        if !self.keep_alive.is_zero() {
            time("keep_alive", self.keep_alive, ms, MAX_TIME)?;
        }
        // A peer rejects 2^14 ms and more (RFC 9000 s.18.2).
        time("max_ack_delay", self.max_ack_delay, Duration::ZERO, Duration::from_millis(16_383))?;
        let base = u64::from(BASE_SIZE);
        number("max_mtu", self.max_mtu.into(), base, MAX_PAYLOAD)?;
        number("initial_mtu", self.initial_mtu.into(), base, MAX_PAYLOAD)?;
        number("connection_ids", self.connection_ids, 1, 1024)?;
        number("max_paths", self.max_paths as u64, 1, 8)?;
        let most = u64::from(u32::MAX);
        number("datagram_receive_buffer", self.datagram_receive_buffer as u64, 0, most)?;
        number("datagram_send_buffer", self.datagram_send_buffer as u64, 0, most)?;
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
            number(field, bytes, 1, MAX_VARINT)?;
        }
        Ok(())
    }

    fn validate_recovery(&self) -> Result<(), SettingError> {
        if let Some(window) = self.initial_window {
            number("initial_window", window, 2 * u64::from(BASE_SIZE), 1 << 32)?;
        }
        number("packet_threshold", self.packet_threshold, 3, 1 << 32)?;
        if !(1.0..=16.0).contains(&self.time_threshold) {
            return Err(SettingError {
                field: "time_threshold",
                value: self.time_threshold.to_string(),
                range: "1 to 16".to_owned(),
            });
        }
        let least = Duration::from_micros(1);
        time("initial_rtt", self.initial_rtt, least, Duration::from_secs(60))
    }

    fn validate_extra_parameters(&self) -> Result<(), SettingError> {
        let mut numbers = std::collections::BTreeSet::new();
        let mut bytes = 0;
        for (number, value) in &self.extra_parameters {
            bytes += value.len();
            if *number > MAX_VARINT || !numbers.insert(number) {
                return Err(SettingError {
                    field: "extra_parameters",
                    value: format!("number {number}"),
                    range: format!("each number once, from 0 to {MAX_VARINT}"),
                });
            }
        }
        number("extra_parameters", bytes as u64, 0, MAX_EXTRA as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(change: impl FnOnce(&mut TransportConfig)) -> Option<&'static str> {
        let mut config = TransportConfig::default();
        change(&mut config);
        config.validate().err().map(|error| error.field)
    }

    #[test]
    fn settings_out_of_range_are_named() {
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
        assert_eq!(field(|c| c.connection_ids = 0), Some("connection_ids"));
        for paths in [0, 9] {
            assert_eq!(field(|c| c.max_paths = paths), Some("max_paths"));
        }
        assert_eq!(field(|c| c.datagram_send_buffer = usize::MAX), Some("datagram_send_buffer"));
        let long = vec![0; 70_000];
        assert_eq!(field(|c| c.extra_parameters = vec![(77, long)]), Some("extra_parameters"));
        let twice = vec![(77, vec![]), (77, vec![])];
        assert_eq!(field(|c| c.extra_parameters = twice), Some("extra_parameters"));
    }

    #[test]
    fn settings_errors_have_field_value_and_range() {
        let config = TransportConfig { max_paths: 99, ..TransportConfig::default() };
        let error = config.validate().unwrap_err();
        assert_eq!(error.to_string(), "TransportConfig::max_paths is 99: allowed is 1 to 8");
    }
}
