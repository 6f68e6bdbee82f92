//! Writes `samples.csv` and `summary.csv`, for a spreadsheet or a statistics program.

use std::collections::HashSet;
use std::path::Path;

use serde::Serialize;

use super::read::Run;
use super::summary::{Row, Summary};
use super::{ResultError, show};
use crate::record::{End, Failure, Figures, Record, WhyNot};

/// A line of `samples.csv`, which describes an attempt. Fields that were not measured are empty.
#[derive(Serialize)]
struct Sample<'a> {
    workload: &'a str,
    protocol: &'a str,
    path: &'a str,
    point: String,
    client: &'a str,
    server: &'a str,
    round: i64,
    sequence: u64,
    attempt: u32,
    counts: bool,
    why_not: Option<WhyNot>,
    started_unix_s: f64,
    wall_s: f64,
    outcome: &'static str,
    failure: Option<Failure>,
    why: String,
    value: Option<f64>,
    unit: &'a str,
    bytes: Option<u64>,
    count: Option<u64>,
    seconds: Option<f64>,
    process_s: Option<f64>,
    handshake_s: Option<f64>,
    unloaded_median_s: Option<f64>,
    unloaded_p99_s: Option<f64>,
    loaded_median_s: Option<f64>,
    loaded_p99_s: Option<f64>,
    bulk_bytes: Option<u64>,
    server_cpu_s: Option<f64>,
    client_cpu_s: Option<f64>,
    server_peak_rss_bytes: Option<u64>,
    client_peak_rss_bytes: Option<u64>,
    server_udp_drops: Option<u64>,
    client_udp_drops: Option<u64>,
    softnet_drops: Option<u64>,
    server_packets_per_send: Option<f64>,
    client_packets_per_receive: Option<f64>,
    steal: f64,
    foreign: f64,
    too_noisy: bool,
    clock_doubt: String,
    logs: Option<&'a str>,
}

impl<'a> Sample<'a> {
    /// Creates the line of a record. `ended` is true if the record is the final outcome of its
    /// round.
    fn new(record: &'a Record, ended: bool) -> Sample<'a> {
        let (outcome, failure, why, figures): (_, _, &str, Option<&Figures>) = match &record.end {
            End::Measured { figures } => ("measured", None, "", Some(figures)),
            End::Unsupported { why } => ("unsupported", None, why, None),
            End::Failed { failure, why } => ("failed", Some(*failure), why, None),
        };
        let key = &record.key;
        let latency = figures.and_then(|figures| figures.latency);
        Sample {
            workload: &key.workload,
            protocol: &key.protocol,
            path: &key.path,
            point: show::point(&key.point),
            client: &key.client,
            server: &key.server,
            round: record.round,
            sequence: record.sequence,
            attempt: record.attempt,
            counts: ended && figures.is_some_and(Figures::is_sound),
            why_not: record.why_not,
            started_unix_s: record.started,
            wall_s: record.wall_seconds,
            outcome,
            failure,
            why: harmless(why),
            value: figures.map(|figures| figures.value),
            unit: figures.map_or("", |figures| &figures.unit),
            bytes: figures.map(|figures| figures.bytes),
            count: figures.map(|figures| figures.count),
            seconds: figures.map(|figures| figures.seconds),
            process_s: figures.map(|figures| figures.process_seconds),
            handshake_s: figures.and_then(|figures| figures.handshake_seconds),
            unloaded_median_s: latency.map(|latency| latency.unloaded.median),
            unloaded_p99_s: latency.map(|latency| latency.unloaded.p99),
            loaded_median_s: latency.map(|latency| latency.loaded.median),
            loaded_p99_s: latency.map(|latency| latency.loaded.p99),
            bulk_bytes: latency.map(|latency| latency.bulk_bytes),
            server_cpu_s: figures.map(|figures| figures.server_cpu_seconds),
            client_cpu_s: figures.map(|figures| figures.client_cpu_seconds),
            server_peak_rss_bytes: figures.map(|figures| figures.server_peak_rss),
            client_peak_rss_bytes: figures.map(|figures| figures.client_peak_rss),
            server_udp_drops: figures.and_then(|figures| figures.server_udp_drops),
            client_udp_drops: figures.and_then(|figures| figures.client_udp_drops),
            softnet_drops: figures.and_then(|figures| figures.softnet_drops),
            server_packets_per_send: figures.and_then(|figures| figures.server_packets_per_send),
            client_packets_per_receive: figures
                .and_then(|figures| figures.client_packets_per_receive),
            steal: record.noise.steal,
            foreign: record.noise.foreign,
            too_noisy: record.noise.too_much,
            clock_doubt: harmless(
                figures.and_then(|figures| figures.clock_doubt.as_deref()).unwrap_or_default(),
            ),
            logs: record.logs.as_deref(),
        }
    }
}

/// A line of `summary.csv`: the summary of a cell.
#[derive(Serialize)]
struct Line<'a> {
    workload: &'a str,
    protocol: &'a str,
    path: &'a str,
    point: String,
    client: &'a str,
    server: &'a str,
    unit: &'a str,
    rounds: usize,
    measured: usize,
    failed: usize,
    unsupported: bool,
    noisy: usize,
    median: Option<f64>,
    low_95: Option<f64>,
    high_95: Option<f64>,
    mad: Option<f64>,
    min: Option<f64>,
    max: Option<f64>,
    mean: Option<f64>,
    standard_deviation: Option<f64>,
    two_modes_p: Option<f64>,
    server_cpu_median: Option<f64>,
    client_cpu_median: Option<f64>,
    handshake_s_median: Option<f64>,
    unloaded_median_s_median: Option<f64>,
    unloaded_p99_s_median: Option<f64>,
    loaded_median_s_median: Option<f64>,
    loaded_to_unloaded_p99_median: Option<f64>,
    bulk_bit_s_median: Option<f64>,
    process_s_median: Option<f64>,
    to_tcp_median: Option<f64>,
    to_tcp_low_95: Option<f64>,
    to_tcp_high_95: Option<f64>,
    clock_doubted: usize,
    to_tcp_clock_doubted: bool,
    trouble: String,
}

impl<'a> Line<'a> {
    fn new(row: &'a Row) -> Line<'a> {
        let key = &row.key;
        let value = row.value.as_ref();
        let latency = row.latency.as_ref();
        Line {
            workload: &key.workload,
            protocol: &key.protocol,
            path: &key.path,
            point: show::point(&key.point),
            client: &key.client,
            server: &key.server,
            unit: &row.unit,
            rounds: row.rounds,
            measured: row.measured,
            failed: row.failed(),
            unsupported: row.unsupported.is_some(),
            noisy: row.noisy,
            median: value.map(|value| value.median),
            low_95: value.and_then(|value| value.interval).map(|ends| ends.low),
            high_95: value.and_then(|value| value.interval).map(|ends| ends.high),
            mad: value.map(|value| value.mad),
            min: value.map(|value| value.min),
            max: value.map(|value| value.max),
            mean: value.map(|value| value.mean),
            standard_deviation: value.map(|value| value.deviation),
            two_modes_p: row.modes.map(|modes| modes.p),
            server_cpu_median: row.server_cpu.map(|cpu| cpu.median),
            client_cpu_median: row.client_cpu.map(|cpu| cpu.median),
            handshake_s_median: row.handshake.map(|handshake| handshake.median),
            unloaded_median_s_median: latency.map(|latency| latency.unloaded_median.median),
            unloaded_p99_s_median: latency.map(|latency| latency.unloaded_p99.median),
            loaded_median_s_median: latency.map(|latency| latency.loaded_median.median),
            loaded_to_unloaded_p99_median: latency.map(|latency| latency.p99_ratio.median),
            bulk_bit_s_median: latency.map(|latency| latency.bulk.median),
            process_s_median: row.process.map(|process| process.median),
            to_tcp_median: row.to_tcp.map(|ratio| ratio.median),
            to_tcp_low_95: row.to_tcp.and_then(|ratio| ratio.interval).map(|ends| ends.low),
            to_tcp_high_95: row.to_tcp.and_then(|ratio| ratio.interval).map(|ends| ends.high),
            clock_doubted: row.marks.clock_doubted,
            to_tcp_clock_doubted: row.marks.tcp_clock_doubted,
            trouble: show::trouble(row).unwrap_or_default(),
        }
    }
}

/// Changes text that comes from other programs so that no spreadsheet interprets it as a formula.
fn harmless(text: &str) -> String {
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    if formula { format!("'{text}") } else { text.to_owned() }
}

/// Writes both files into a folder: `samples.csv` with every attempt, and `summary.csv` with every
/// cell.
///
/// # Errors
/// [`ResultError::Csv`].
pub fn write(dir: &Path, run: &Run, summary: &Summary) -> Result<(), ResultError> {
    let ended: HashSet<*const Record> = run.counted().into_iter().map(std::ptr::from_ref).collect();
    let samples = run
        .records
        .iter()
        .map(|record| Sample::new(record, ended.contains(&std::ptr::from_ref(record))));
    equic_report::csv::write(dir.join("samples.csv"), samples)?;
    equic_report::csv::write(dir.join("summary.csv"), summary.rows.iter().map(Line::new))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::harmless;

    #[test]
    fn csv_escapes_spreadsheet_formulas() {
        assert_eq!(harmless("=cmd|' /C calc'!A0"), "'=cmd|' /C calc'!A0");
        assert_eq!(harmless("client: 1 = 2"), "client: 1 = 2");
        assert_eq!(harmless(""), "");
    }
}
