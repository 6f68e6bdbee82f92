//! Output of the programs: the address that a server listens on, and the results of a client.

use std::io::Write as _;
use std::net::SocketAddr;

use anyhow::Result;
use nix::sys::socket::{getsockopt, sockopt};
use serde::Serialize;

use crate::{CONNECTION_WINDOW, Knobs, SMALL_EXCHANGE, STREAM_WINDOW};

/// Object that a client prints at its end.
#[derive(Debug, Default, Serialize)]
pub struct Answer {
    /// Bytes of payload that arrived: here, or for an upload at the server by its own account.
    pub bytes: u64,
    /// Streams, handshakes, requests or connections that were completed.
    pub count: u64,
    /// Handshakes that were resumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumed: Option<u64>,
    /// Certificate chains of the others that the client verified; none: each. It remembers the rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chains_verified: Option<u64>,
    /// From the first request to the last byte, without the handshake.
    pub seconds: f64,
    /// Of the connection's handshake, where there is one connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handshake_seconds: Option<f64>,
    /// From the start of a connection to its first byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_byte_seconds: Option<FirstByte>,
    /// Times of small exchanges, alone and beside a bulk download.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Settings in force at the client.
    pub effective: Effective,
}

impl Answer {
    /// Of exchanges of [`SMALL_EXCHANGE`] bytes, from the seconds that they took alone and beside a bulk download of which
    /// so many bytes came in `seconds`. Without a latency if there were none of one kind.
    pub fn of_loaded(
        unloaded: Vec<f64>,
        loaded: Vec<f64>,
        bulk_bytes: u64,
        seconds: f64,
    ) -> Answer {
        let count = loaded.len() as u64;
        let bytes = bulk_bytes + count * SMALL_EXCHANGE;
        let latency = Exchanges::of(unloaded)
            .zip(Exchanges::of(loaded))
            .map(|(unloaded, loaded)| Latency { unloaded, loaded, bulk_bytes });
        Answer { bytes, count, seconds, latency, ..Answer::default() }
    }
}

/// Times to the first byte, in seconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct FirstByte {
    /// Half of them are shorter.
    pub median: f64,
    /// 95 of 100 are shorter.
    pub p95: f64,
}

impl FirstByte {
    /// Of so many of them; none of none.
    pub fn of(seconds: Vec<f64>) -> Option<FirstByte> {
        let [median, p95] = ranks(seconds, [50, 95])?;
        Some(FirstByte { median, p95 })
    }
}

/// Times of small exchanges on one connection, without and with a bulk download on it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
    /// Before the bulk download.
    pub unloaded: Exchanges,
    /// While it ran.
    pub loaded: Exchanges,
    /// Bytes of the bulk download that arrived meanwhile.
    pub bulk_bytes: u64,
}

/// Times of exchanges, in seconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Exchanges {
    /// Half of them are shorter.
    pub median: f64,
    /// 99 of 100 are shorter.
    pub p99: f64,
}

impl Exchanges {
    /// Of so many of them; none of none.
    pub fn of(seconds: Vec<f64>) -> Option<Exchanges> {
        let [median, p99] = ranks(seconds, [50, 99])?;
        Some(Exchanges { median, p99 })
    }
}

/// The times at or above shares in percent, as ranks go; none of none.
fn ranks<const N: usize>(mut seconds: Vec<f64>, percent: [usize; N]) -> Option<[f64; N]> {
    seconds.sort_by(f64::total_cmp);
    let last = seconds.len().checked_sub(1)?;
    Some(percent.map(|percent| seconds[(last * percent).div_ceil(100)]))
}

/// Settings in force at an end.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Effective {
    /// Name and version.
    pub implementation: String,
    /// `native`, or `shared` for a stack that brings no sockets and runs on quinn-udp.
    pub io: &'static str,
    /// SO_RCVBUF as the kernel counts it: twice what was asked for. None: the stack does not tell.
    pub receive_buffer: Option<usize>,
    /// SO_SNDBUF, the same.
    pub send_buffer: Option<usize>,
    /// Flow control of a stream, in bytes.
    pub stream_window: Option<u64>,
    /// Flow control of a connection, in bytes.
    pub connection_window: Option<u64>,
    /// Congestion control.
    pub congestion: Option<&'static str>,
    /// The cipher suite by its name in RFC 8446.
    pub cipher: Option<String>,
    /// The largest UDP payload that was sent or would have been, in bytes.
    pub max_payload: Option<u16>,
    /// Segmentation offload, sending.
    pub gso: Option<bool>,
    /// The same, receiving.
    pub gro: Option<bool>,
    /// The library that encrypts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crypto: Option<&'static str>,
}

impl Effective {
    /// Of an implementation that does all that was asked for; the socket's buffers are looked at.
    pub fn new(
        implementation: String,
        io: &'static str,
        socket: &impl std::os::fd::AsFd,
        knobs: &Knobs,
    ) -> Result<Effective> {
        Ok(Effective {
            implementation,
            io,
            receive_buffer: Some(getsockopt(socket, sockopt::RcvBuf)?),
            send_buffer: Some(getsockopt(socket, sockopt::SndBuf)?),
            stream_window: Some(STREAM_WINDOW),
            connection_window: Some(CONNECTION_WINDOW),
            congestion: Some(knobs.congestion().name()),
            cipher: Some(knobs.cipher().name().to_owned()),
            max_payload: Some(knobs.payload()),
            gso: Some(knobs.gso.unwrap_or(true)),
            gro: Some(true),
            crypto: None,
        })
    }
}

/// `quinn 0.11.12`: what a lock file says of a package.
pub fn report(lock: &str, package: &str) -> String {
    let mark = format!("name = \"{package}\"\nversion = \"");
    let rest = lock.split_once(&mark).map(|(_, rest)| rest);
    let version = rest.and_then(|rest| rest.split_once('"')).map_or("?", |(version, _)| version);
    format!("{package} {version}")
}

impl Answer {
    /// Prints it.
    pub fn print(&self) -> Result<()> {
        line(&serde_json::to_string(self)?)
    }
}

/// Says that the server listens, and what is in force.
pub fn ready(address: SocketAddr, effective: &Effective) -> Result<()> {
    line(&format!("ready {address}"))?;
    line(&format!("effective {}", serde_json::to_string(effective)?))
}

/// Says again what is in force, once a server knows more than before its first connection.
pub fn again(effective: &Effective) -> Result<()> {
    line(&format!("effective {}", serde_json::to_string(effective)?))
}

/// Says that all connections are there.
pub fn held() -> Result<()> {
    line("held")
}

fn line(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks() {
        let of = |count: u32| FirstByte::of((1..=count).rev().map(f64::from).collect());
        let hundred = of(101).unwrap();
        assert_eq!((hundred.median, hundred.p95), (51.0, 96.0));
        let one = of(1).unwrap();
        assert_eq!((one.median, one.p95), (1.0, 1.0));
        assert!(of(0).is_none());
        let exchanges = Exchanges::of((1..=1001).rev().map(f64::from).collect()).unwrap();
        assert_eq!((exchanges.median, exchanges.p99), (501.0, 991.0));
    }

    #[test]
    fn what_exchanges_beside_a_bulk_download_come_to() {
        let answer = Answer::of_loaded(vec![1.0, 3.0, 2.0], vec![5.0, 4.0], 1_000_000, 9.0);
        let latency = answer.latency.unwrap();
        assert_eq!((answer.count, answer.bytes, answer.seconds), (2, 1_002_048, 9.0));
        assert_eq!((latency.unloaded.median, latency.loaded.median), (2.0, 5.0));
        assert_eq!(latency.bulk_bytes, 1_000_000);
        assert!(Answer::of_loaded(vec![], vec![5.0], 0, 9.0).latency.is_none());
    }
}
