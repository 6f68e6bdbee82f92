//! What a client prints at its end (docs/bench-contract.md).

use serde::{Deserialize, Serialize};

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
    /// What was in force.
    pub effective: Effective,
}

/// Times to the first byte over many connections, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FirstByte {
    /// The median.
    pub median: f64,
    /// What 95 % did not exceed.
    pub p95: f64,
}

/// What was in force at the client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Effective {
    /// Name and version.
    pub implementation: String,
    /// `native`, or `shared` for a stack without sockets of its own, on quinn-udp.
    pub io: String,
    /// SO_RCVBUF in bytes, as the kernel counts: twice what was asked for.
    pub receive_buffer: u64,
    /// SO_SNDBUF, the same.
    pub send_buffer: u64,
    /// Flow control of a stream, in bytes.
    pub stream_window: u64,
    /// Flow control of a connection, in bytes.
    pub connection_window: u64,
    /// Congestion control.
    pub congestion: String,
    /// The cipher suite by its name in RFC 8446; none: the stack does not tell.
    pub cipher: Option<String>,
    /// The largest UDP payload, in bytes.
    pub max_payload: u64,
    /// Whether several datagrams are sent by one system call as one buffer.
    pub gso: bool,
    /// The same for receiving.
    pub gro: bool,
}
