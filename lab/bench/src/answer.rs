//! Parses the object that a client prints at its end (docs/bench-contract.md).

use serde::{Deserialize, Deserializer, Serialize};

/// The object that a client prints. Unknown fields are ignored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Bytes of payload that arrived. For an upload, the bytes that the server reported.
    pub bytes: u64,
    /// Number of completed streams, handshakes, requests or connections.
    pub count: u64,
    /// Number of handshakes that were resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed: Option<u64>,
    /// Number of certificate chains that the client verified, if it caches valid chains. `None` if
    /// it verified each chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chains_verified: Option<u64>,
    /// Time from the first request to the last byte, without the handshake, in seconds.
    pub seconds: f64,
    /// Duration of the handshake in seconds, if there was only one connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshake_seconds: Option<f64>,
    /// Percentiles of the time from the start of a connection to its first byte, for workloads that
    /// measure it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte_seconds: Option<FirstByte>,
    /// Durations of small exchanges without and during a bulk download, for workloads that measure
    /// them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Settings in force at the client.
    pub effective: Effective,
}

/// Percentiles of the time to the first byte over many connections, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FirstByte {
    /// The median.
    pub median: f64,
    /// The 95th percentile of the time to the first byte, in seconds.
    pub p95: f64,
}

/// Durations of small exchanges on one connection, without and during a bulk download on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// Durations of the exchanges before the bulk download.
    pub unloaded: Exchanges,
    /// Durations of the exchanges during the bulk download.
    pub loaded: Exchanges,
    /// Bytes of the bulk download that arrived during these exchanges.
    pub bulk_bytes: u64,
}

/// Percentiles of the durations of exchanges, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exchanges {
    /// The median.
    pub median: f64,
    /// The 99th percentile of the durations, in seconds.
    pub p99: f64,
}

impl Exchanges {
    /// Returns true if the durations are plausible. `seconds` is the total time of all exchanges.
    #[must_use]
    pub fn is_sound(&self, seconds: f64) -> bool {
        self.median > 0.0 && (self.median..=seconds).contains(&self.p99)
    }
}

/// Settings in force at an endpoint. A setting that the endpoint reports as null is unknown, and
/// becomes 0, false or an empty text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Effective {
    /// Name and version of the implementation.
    pub implementation: String,
    /// `native`, or `shared` for a stack that does no socket I/O itself and runs on quinn-udp.
    pub io: String,
    /// SO_RCVBUF in bytes, as the kernel counts it: twice the requested size.
    #[serde(default, deserialize_with = "told")]
    pub receive_buffer: u64,
    /// SO_SNDBUF in bytes, as the kernel counts it: twice the requested size.
    #[serde(default, deserialize_with = "told")]
    pub send_buffer: u64,
    /// Flow control window of a stream, in bytes.
    #[serde(default, deserialize_with = "told")]
    pub stream_window: u64,
    /// Flow control window of a connection, in bytes.
    #[serde(default, deserialize_with = "told")]
    pub connection_window: u64,
    /// Congestion control algorithm.
    #[serde(default, deserialize_with = "told")]
    pub congestion: String,
    /// Name of the cipher suite in RFC 8446. `None` if the stack does not report it.
    pub cipher: Option<String>,
    /// The largest UDP payload, in bytes.
    #[serde(default, deserialize_with = "told")]
    pub max_payload: u64,
    /// True if one system call sends several datagrams as one buffer (GSO).
    #[serde(default, deserialize_with = "told")]
    pub gso: bool,
    /// True if one system call receives several datagrams as one buffer (GRO).
    #[serde(default, deserialize_with = "told")]
    pub gro: bool,
}

fn told<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_latency_requires_exactly_its_fields() {
        let effective = r#""effective":{"implementation":"a 1","io":"native","cipher":null}"#;
        let read = |latency: &str| {
            let text =
                format!(r#"{{"bytes":1,"count":1,"seconds":0.5,"latency":{latency},{effective}}}"#);
            serde_json::from_str::<Answer>(&text).map(|answer| answer.latency)
        };
        let times = r#"{"median":0.5,"p99":0.75}"#;
        let whole = format!(r#"{{"unloaded":{times},"loaded":{times},"bulk_bytes":7}}"#);
        let Latency { unloaded, loaded, bulk_bytes } = read(&whole).unwrap().unwrap();
        assert_eq!((unloaded, loaded.median, loaded.p99, bulk_bytes), (loaded, 0.5, 0.75, 7));
        for bad in [
            "{}",
            &whole.replace("\"bulk_bytes\":7", "\"bulk_bytes\":-7"),
            &whole.replace("\"bulk_bytes\":7", "\"bulk_bytes\":7.5"),
            &whole.replace(",\"p99\":0.75", ""),
            &whole.replace("0.75", "null"),
            &whole.replace("0.75", "1e999"),
            &whole.replace("p99", "p98"),
            &whole.replace("{\"unloaded", "{\"more\":1,\"unloaded"),
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
        let sound = |median, p99| Exchanges { median, p99 }.is_sound(2.0);
        assert!(sound(0.1, 0.1) && sound(0.1, 2.0));
        for (median, p99) in [(0.0, 1.0), (-0.1, 1.0), (0.2, 0.1), (0.1, 2.1), (f64::NAN, 1.0)] {
            assert!(!sound(median, p99), "{median} {p99}");
        }
        assert!(!sound(0.1, f64::NAN));
    }

    #[test]
    fn answer_fields_may_be_absent_or_null() {
        let text = r#"{"bytes":1,"count":1,"seconds":0.5,"effective":{"implementation":"a 1",
            "io":"native","receive_buffer":null,"send_buffer":7,"stream_window":null,
            "connection_window":null,"congestion":null,"cipher":null,"max_payload":null,
            "gso":null,"gro":true}}"#;
        let effective = serde_json::from_str::<Answer>(text).unwrap().effective;
        assert_eq!((effective.receive_buffer, effective.send_buffer), (0, 7));
        assert_eq!((effective.gso, effective.gro, &*effective.congestion), (false, true, ""));
    }
}
