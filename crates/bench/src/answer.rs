//! The object that a client prints at its end (docs/bench-contract.md).

use serde::{Deserialize, Deserializer, Serialize};

/// The object that a client prints; fields that are not known here are ignored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Bytes of payload that arrived; for an upload at the server, by its own account.
    pub bytes: u64,
    /// Streams, handshakes, requests or connections that were completed.
    pub count: u64,
    /// Handshakes that were resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed: Option<u64>,
    /// From the first request to the last byte, without the handshake.
    pub seconds: f64,
    /// Of the only connection's handshake, where there is only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshake_seconds: Option<f64>,
    /// From the start of a connection to its first byte, where that is measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte_seconds: Option<FirstByte>,
    /// Settings in force at the client.
    pub effective: Effective,
}

/// Times to the first byte over many connections, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FirstByte {
    /// The median.
    pub median: f64,
    /// The 95th percentile.
    pub p95: f64,
}

/// Settings in force at an end. A stack says null where it does not know: 0, false and empty here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Effective {
    /// Name and version.
    pub implementation: String,
    /// `native`, or `shared` for a stack without sockets of its own, on quinn-udp.
    pub io: String,
    /// SO_RCVBUF in bytes, as the kernel counts: twice what was asked for.
    #[serde(default, deserialize_with = "told")]
    pub receive_buffer: u64,
    /// SO_SNDBUF, the same.
    #[serde(default, deserialize_with = "told")]
    pub send_buffer: u64,
    /// Flow control of a stream, in bytes.
    #[serde(default, deserialize_with = "told")]
    pub stream_window: u64,
    /// Flow control of a connection, in bytes.
    #[serde(default, deserialize_with = "told")]
    pub connection_window: u64,
    /// Congestion control.
    #[serde(default, deserialize_with = "told")]
    pub congestion: String,
    /// The cipher suite by its name in RFC 8446; none: the stack does not tell.
    pub cipher: Option<String>,
    /// The largest UDP payload, in bytes.
    #[serde(default, deserialize_with = "told")]
    pub max_payload: u64,
    /// True if several datagrams are sent by one system call as one buffer.
    #[serde(default, deserialize_with = "told")]
    pub gso: bool,
    /// The same for receiving.
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
    fn what_is_not_told_is_no_error() {
        let text = r#"{"bytes":1,"count":1,"seconds":0.5,"effective":{"implementation":"a 1",
            "io":"native","receive_buffer":null,"send_buffer":7,"stream_window":null,
            "connection_window":null,"congestion":null,"cipher":null,"max_payload":null,
            "gso":null,"gro":true}}"#;
        let effective = serde_json::from_str::<Answer>(text).unwrap().effective;
        assert_eq!((effective.receive_buffer, effective.send_buffer), (0, 7));
        assert_eq!((effective.gso, effective.gro, &*effective.congestion), (false, true, ""));
    }
}
