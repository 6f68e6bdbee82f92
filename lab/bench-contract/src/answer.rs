//! The JSON that measured programs print: a server its address, a client its results.

use std::io::Write as _;
use std::net::SocketAddr;

use anyhow::Result;
use nix::sys::socket::{getsockopt, sockopt};
use serde::Serialize;

use crate::{CONNECTION_WINDOW, Knobs, SMALL_EXCHANGE, STREAM_WINDOW};

/// The answer: the object that a client prints when its workload has ended.
#[derive(Debug, Default, Serialize)]
pub struct Answer {
    /// Bytes of payload that arrived. For an upload, the bytes that the server reports.
    pub bytes: u64,
    /// Number of streams, handshakes, requests or connections that were completed.
    pub count: u64,
    /// Number of resumed handshakes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumed: Option<u64>,
    /// Number of certificate chains that the client verified, if it caches valid chains. `None`
    /// means that it verified each chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chains_verified: Option<u64>,
    /// Time from the first request to the last byte, without the handshake, in seconds.
    pub seconds: f64,
    /// Duration of the handshake in seconds, if there is one connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handshake_seconds: Option<f64>,
    /// Percentiles of the time from the start of a connection to its first byte. `None` for
    /// workloads that do not measure it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_byte_seconds: Option<FirstByte>,
    /// Durations of small exchanges, without and during a bulk download. `None` for workloads that
    /// do not measure them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Settings in force at the client.
    pub effective: Effective,
}

impl Answer {
    /// Returns the answer of the workload with small exchanges of [`SMALL_EXCHANGE`] bytes. The
    /// arguments are the durations of these exchanges in seconds, without and during a bulk
    /// download, and the bytes of the download that arrived in `seconds`. The answer has no latency
    /// if one of the two phases had no exchange.
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

/// Percentiles of the time to the first byte of several connections, in seconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct FirstByte {
    /// The median.
    pub median: f64,
    /// The 95th percentile of the time to the first byte, in seconds.
    pub p95: f64,
}

impl FirstByte {
    /// Returns the percentiles of these durations, or `None` if there are no durations.
    pub fn of(seconds: Vec<f64>) -> Option<FirstByte> {
        let [median, p95] = ranks(seconds, [50, 95])?;
        Some(FirstByte { median, p95 })
    }
}

/// Durations of small exchanges on one connection, without and during a bulk download on it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
    /// Durations of the exchanges before the bulk download.
    pub unloaded: Exchanges,
    /// Durations of the exchanges during the bulk download.
    pub loaded: Exchanges,
    /// Bytes of the bulk download that arrived during these exchanges.
    pub bulk_bytes: u64,
}

/// Percentiles of the durations of exchanges, in seconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Exchanges {
    /// The median.
    pub median: f64,
    /// The 99th percentile of the durations, in seconds.
    pub p99: f64,
}

impl Exchanges {
    /// Returns the percentiles of these durations, or `None` if there are no durations.
    pub fn of(seconds: Vec<f64>) -> Option<Exchanges> {
        let [median, p99] = ranks(seconds, [50, 99])?;
        Some(Exchanges { median, p99 })
    }
}

/// Returns these percentiles of durations by the nearest-rank method, or `None` if there are no
/// durations.
fn ranks<const N: usize>(mut seconds: Vec<f64>, percent: [usize; N]) -> Option<[f64; N]> {
    seconds.sort_by(f64::total_cmp);
    let last = seconds.len().checked_sub(1)?;
    Some(percent.map(|percent| seconds[(last * percent).div_ceil(100)]))
}

/// Settings in force at an endpoint.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Effective {
    /// Name and version of the implementation.
    pub implementation: String,
    /// `native`, or `shared` for a stack that does no socket I/O itself and runs on quinn-udp.
    pub io: &'static str,
    /// SO_RCVBUF as the kernel counts it: twice the requested size. `None` if the stack does not
    /// report it.
    pub receive_buffer: Option<usize>,
    /// SO_SNDBUF as the kernel counts it: twice the requested size. `None` if the stack does not
    /// report it.
    pub send_buffer: Option<usize>,
    /// Flow control window of a stream, in bytes.
    pub stream_window: Option<u64>,
    /// Flow control window of a connection, in bytes.
    pub connection_window: Option<u64>,
    /// Congestion control algorithm.
    pub congestion: Option<&'static str>,
    /// Name of the cipher suite in RFC 8446.
    pub cipher: Option<String>,
    /// The largest UDP payload that was sent or could have been sent, in bytes.
    pub max_payload: Option<u16>,
    /// True if segmentation offload is used for sending (GSO).
    pub gso: Option<bool>,
    /// True if segmentation offload is used for receiving (GRO).
    pub gro: Option<bool>,
    /// Name of the cryptographic library.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crypto: Option<&'static str>,
}

impl Effective {
    /// Returns the settings of an implementation that applies every requested setting. The sizes of
    /// the buffers are read from the socket.
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

/// Returns the name and version of a package in a lock file, such as `quinn 0.11.12`.
pub fn report(lock: &str, package: &str) -> String {
    let mark = format!("name = \"{package}\"\nversion = \"");
    let rest = lock.split_once(&mark).map(|(_, rest)| rest);
    let version = rest.and_then(|rest| rest.split_once('"')).map_or("?", |(version, _)| version);
    format!("{package} {version}")
}

impl Answer {
    /// Prints the answer to standard output.
    pub fn print(&self) -> Result<()> {
        line(&serde_json::to_string(self)?)
    }
}

/// Prints the address on which the server listens, and the settings in force.
pub fn ready(address: SocketAddr, effective: &Effective) -> Result<()> {
    line(&format!("ready {address}"))?;
    line(&format!("effective {}", serde_json::to_string(effective)?))
}

/// Prints the settings in force a second time, for a server that knows more settings at its end
/// than before its first connection.
pub fn effective_again(effective: &Effective) -> Result<()> {
    line(&format!("effective {}", serde_json::to_string(effective)?))
}

/// Prints the line that reports that all idle connections are open (`--hold`).
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
    fn answer_percentiles_are_by_nearest_rank() {
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
    fn answer_of_a_loaded_run_has_both_latencies() {
        let answer = Answer::of_loaded(vec![1.0, 3.0, 2.0], vec![5.0, 4.0], 1_000_000, 9.0);
        let latency = answer.latency.unwrap();
        assert_eq!((answer.count, answer.bytes, answer.seconds), (2, 1_002_048, 9.0));
        assert_eq!((latency.unloaded.median, latency.loaded.median), (2.0, 5.0));
        assert_eq!(latency.bulk_bytes, 1_000_000);
        assert!(Answer::of_loaded(vec![], vec![5.0], 0, 9.0).latency.is_none());
    }
}
