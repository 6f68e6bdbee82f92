//! Computes the summary of a run from its records.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use equic_report::number;
use equic_report::stats::Sample;
use equic_report::stats::modes::{DipTest, halves};

use super::read::Run;
use super::summary::{
    Beside, Disturbed, Estimate, Fault, Marks, Medians, Modes, RoundFigure, Row, SUMMARY, Summary,
    UnderLoad,
};
use crate::answer::Latency;
use crate::record::{End, Failure, Figures, Key, Record};
use crate::registry::OURS;
use crate::watch::Bounds;

/// Maximum p-value for which a sample counts as having two modes.
const TWO_MODES: f64 = 0.05;
/// Protocol name of TCP with TLS, the reference of ratios.
const TCP: &str = "perf-tcp";
/// Order of the workloads in tables. Other workloads follow.
const WORKLOADS: [&str; 11] = [
    "download",
    "upload",
    "streams",
    "connections",
    "transfer",
    "handshakes",
    "resumed",
    "requests",
    "ttfb",
    "loaded",
    "idle",
];

/// Summarises a run. The same records give the same summary.
#[must_use]
pub fn summarise(run: &Run) -> Summary {
    let seed = run.seed();
    let mut attempts: BTreeMap<&Key, BTreeSet<(i64, u32)>> = BTreeMap::new();
    for record in run.records.iter().filter(|record| record.round >= 0) {
        attempts.entry(&record.key).or_default().insert((record.round, record.attempt));
    }
    let mut cells: BTreeMap<&Key, Vec<&Record>> = BTreeMap::new();
    for record in run.counted() {
        cells.entry(&record.key).or_default().push(record);
    }
    let mut noisy: BTreeMap<&Key, Vec<&Record>> = BTreeMap::new();
    for record in run.records.iter().filter(|one| one.attempt == 1 && one.disturbed().is_some()) {
        noisy.entry(&record.key).or_default().push(record);
        cells.entry(&record.key).or_default();
    }
    let bounds = bounds(run);
    let mut numbers = Numbers { dips: DipTest::new(seed) };
    let mut rows: Vec<Row> = cells
        .iter()
        .map(|(key, records)| {
            let attempts = attempts.get(key).map_or(0, BTreeSet::len);
            let mut row = numbers.row(key, records, attempts);
            if row.measured == 0 {
                disturb(&mut row, noisy.get(key).map_or(&[], Vec::as_slice), bounds);
            }
            row
        })
        .collect();
    rows.sort_by(|a, b| order(&a.key, &b.key));
    relate_to_tcp(&mut rows);
    relate_to_ours(&mut rows);
    let starts: Sample = run.records.iter().map(|record| record.started).collect();
    let ends: Sample =
        run.records.iter().map(|record| record.started + record.wall_seconds).collect();
    let name = run.dir.canonicalize().unwrap_or_else(|_| run.dir.clone());
    Summary {
        schema: SUMMARY.to_owned(),
        name: name.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
        started: starts.min().unwrap_or(0.0),
        ended: ends.max().unwrap_or(0.0),
        seed,
        attempts: run.records.len(),
        cut: run.cut,
        unreadable: run.unreadable.clone(),
        implementations: run.implementations(),
        rows,
        profiles: run.profiles.clone(),
        plan: run.plan.clone(),
        manifest: run.manifest.clone(),
    }
}

/// Returns the limits of other activity above which an attempt of the run counted as disturbed.
fn bounds(run: &Run) -> Bounds {
    let of = &run.plan["options"]["bounds"];
    // The defaults of `equic-lab bench run`, for samples without a plan.
    let usual = Bounds { steal: 0.05, foreign: 0.1 };
    serde_json::from_value(of.clone()).unwrap_or(usual)
}

/// Adds figures that were measured on a busy machine to a row that has no other figures.
fn disturb(row: &mut Row, records: &[&Record], bounds: Bounds) {
    let figures = || records.iter().filter_map(|record| record.disturbed());
    let Some(unit) = figures().map(|one| one.unit.clone()).next() else { return };
    let values: Sample = figures().filter(|one| one.unit == unit).map(|one| one.value).collect();
    let Some(median) = values.median() else { return };
    let most = |read: fn(&Record) -> f64| records.iter().map(|one| read(one)).fold(0.0, f64::max);
    let (foreign, steal) = (most(|one| one.noise.foreign), most(|one| one.noise.steal));
    // Suggests an option whose limit accepts all attempts, in steps of 5 %.
    let option = |name: &str, part: f64, bound: f64| {
        let percent = ((part * 20.0).ceil() * 5.0).min(100.0);
        (part > bound).then(|| format!("{name} {percent:.0}"))
    };
    let accept = [
        option("--max-foreign", foreign, bounds.foreign),
        option("--max-steal", steal, bounds.steal),
    ];
    let accept = accept.into_iter().flatten().collect::<Vec<_>>().join(" ");
    row.disturbed = Some(Disturbed { n: values.len(), median, foreign, steal, accept });
    row.unit = unit;
}

struct Numbers {
    dips: DipTest,
}

impl Numbers {
    fn row(&mut self, key: &Key, records: &[&Record], attempts: usize) -> Row {
        let measured: Vec<(&Record, &Figures)> = records
            .iter()
            .filter_map(|record| match &record.end {
                End::Measured { figures } => Some((*record, &**figures)),
                End::Unsupported { .. } | End::Failed { .. } => None,
            })
            .collect();
        let unit = measured.first().map(|(_, figures)| figures.unit.clone()).unwrap_or_default();
        // Figures of different units must not be mixed. Otherwise, a defective runner could make a
        // stack look slow.
        let (measured, other): (Vec<_>, Vec<_>) = measured
            .into_iter()
            .partition(|(_, figures)| figures.unit == unit && figures.is_sound());
        let mut faults = faults(records);
        if let Some((first, figures)) = other.first() {
            faults.push(Fault {
                failure: Failure::Lied,
                why: format!(
                    "{} is no figure in {unit}",
                    number::measured(figures.value, &figures.unit)
                ),
                rounds: other.iter().map(|(record, _)| record.round).collect(),
                logs: first.logs.clone(),
            });
        }
        let points: Vec<RoundFigure> = measured
            .iter()
            .map(|(record, figures)| {
                let units = figures.units();
                let (server_cpu, client_cpu) = figures.work_cpu();
                RoundFigure {
                    round: record.round,
                    started: record.started,
                    value: figures.value,
                    server_cpu: server_cpu / units,
                    client_cpu: client_cpu / units,
                }
            })
            .collect();
        let all = |read: &dyn Fn(&Figures) -> Option<f64>| -> Sample {
            measured.iter().filter_map(|(_, figures)| read(figures)).collect()
        };
        let values: Sample = points.iter().map(|point| point.value).collect();
        let last = measured.last().map(|(_, figures)| *figures);
        Row {
            key: key.clone(),
            rounds: records.len(),
            measured: measured.len(),
            attempts,
            noisy: measured.iter().filter(|(record, _)| record.noise.too_much).count(),
            unsupported: records.iter().find_map(|record| match &record.end {
                End::Unsupported { why } => Some(why.clone()),
                _ => None,
            }),
            faults,
            modes: self.modes(&values),
            value: estimate(&values),
            disturbed: None,
            marks: marks(&measured),
            server_cpu: cpu_time(&points, |point| point.server_cpu),
            client_cpu: cpu_time(&points, |point| point.client_cpu),
            handshake: estimate(&all(&|figures| figures.handshake_seconds)),
            latency: under_load(&measured),
            process: estimate(&all(&|figures| Some(figures.process_seconds))),
            to_tcp: None,
            tcp: None,
            beside: None,
            medians: medians(&measured),
            client_effective: last.and_then(|figures| figures.client_effective.clone()),
            server_effective: last.and_then(|figures| figures.server_effective.clone()),
            unit,
            points,
        }
    }

    fn modes(&mut self, sample: &Sample) -> Option<Modes> {
        let p = self.dips.test(sample)?.p;
        let halves = halves(sample).filter(|_| p < TWO_MODES)?;
        Some(Modes {
            p,
            low: halves.low,
            low_count: halves.low_count,
            high: halves.high,
            high_count: halves.high_count,
        })
    }
}

/// Adds the ratios to TCP with TLS, computed within rounds, to rows with the same workload, path
/// and settings. If TCP was measured with several pairs, the reference is the first one whose
/// client and server are the same implementation.
fn relate_to_tcp(rows: &mut [Row]) {
    let key = |row: &Row| {
        (row.key.workload.clone(), row.key.path.clone(), row.key.point.clone(), row.unit.clone())
    };
    let mut baselines: BTreeMap<_, (String, BTreeMap<i64, f64>, bool)> = BTreeMap::new();
    let is_tcp = |row: &&Row| row.key.protocol == TCP && row.measured > 0;
    let (own, mixed): (Vec<&Row>, Vec<&Row>) =
        rows.iter().filter(is_tcp).partition(|row| row.key.client == row.key.server);
    for row in own.into_iter().chain(mixed) {
        let name = format!("{}>{}", row.key.client, row.key.server);
        let values = row.points.iter().map(|point| (point.round, point.value)).collect();
        baselines.entry(key(row)).or_insert((name, values, row.clock_is_doubted()));
    }
    for row in rows.iter_mut().filter(|row| row.key.protocol != TCP) {
        let Some((name, values, doubted)) = baselines.get(&key(row)) else { continue };
        let ratios: Sample = row
            .points
            .iter()
            .filter_map(|point| Some(point.value / values.get(&point.round)?))
            .collect();
        row.to_tcp = estimate(&ratios);
        row.tcp = row.to_tcp.map(|_| name.clone());
        row.marks.tcp_clock_doubted = row.to_tcp.is_some() && *doubted;
    }
}

/// Returns the CPU time of a server or client. Returns `None` if it used no more than its start
/// needs.
fn cpu_time(points: &[RoundFigure], read: fn(&RoundFigure) -> f64) -> Option<Estimate> {
    estimate(&points.iter().map(read).collect()).filter(|cpu| cpu.median > 0.0)
}

fn marks(measured: &[(&Record, &Figures)]) -> Marks {
    let count = |is: fn(&Figures) -> bool| measured.iter().filter(|(_, one)| is(one)).count();
    Marks {
        cpu_with_start: count(|one| one.client_start_cpu_seconds.is_none()),
        clock_doubted: count(|one| one.clock_doubt.is_some()),
        clock_doubt: measured.iter().find_map(|(_, one)| one.clock_doubt.clone()),
        // `relate_to_tcp` sets this field later.
        tcp_clock_doubted: false,
        server_restless: count(|one| one.server_restless),
        server_killed: count(|one| one.server_killed),
    }
}

/// Adds the ratios to eQUIC, computed within rounds, to implementations that were measured with
/// themselves. A machine that becomes slower affects both figures of a round.
fn relate_to_ours(rows: &mut [Row]) {
    let cpu = |point: &RoundFigure| point.server_cpu + point.client_cpu;
    for rows in rows.chunk_by_mut(|a, b| a.place() == b.place()) {
        let is_ours = |row: &&Row| row.key.client == OURS && row.is_with_itself();
        let Some(ours) = rows.iter().find(is_ours) else { continue };
        let ours: BTreeMap<i64, RoundFigure> =
            ours.points.iter().map(|point| (point.round, *point)).collect();
        for row in rows.iter_mut().filter(|row| row.is_with_itself()) {
            let ratio = |read: &dyn Fn(&RoundFigure) -> f64| {
                let ratios = row
                    .points
                    .iter()
                    .filter_map(|point| Some(read(point) / read(ours.get(&point.round)?)));
                (row.key.client != OURS).then(|| estimate(&ratios.collect())).flatten()
            };
            let (value, cpu_ratio) = (ratio(&|point| point.value), ratio(&cpu));
            let cpu = estimate(&row.points.iter().map(cpu).collect());
            row.beside = Some(Beside { cpu, value, cpu_ratio });
        }
    }
}

/// Returns estimates of the latency of small exchanges during a bulk download. Returns `None` if
/// there were no such exchanges.
fn under_load(measured: &[(&Record, &Figures)]) -> Option<UnderLoad> {
    let of = |read: &dyn Fn(&Latency, f64) -> f64| {
        let values = measured.iter().filter_map(|(_, figures)| {
            figures.latency.as_ref().map(|latency| read(latency, figures.seconds))
        });
        estimate(&values.collect())
    };
    Some(UnderLoad {
        unloaded_median: of(&|latency, _| latency.unloaded.median)?,
        unloaded_p99: of(&|latency, _| latency.unloaded.p99)?,
        loaded_median: of(&|latency, _| latency.loaded.median)?,
        p99_ratio: of(&|latency, _| latency.loaded.p99 / latency.unloaded.p99)?,
        bulk: of(&|latency, seconds| 8.0 * latency.bulk_bytes as f64 / seconds)?,
    })
}

/// Returns the median of a sample and its uncertainty, or `None` if the sample is empty.
pub fn estimate(sample: &Sample) -> Option<Estimate> {
    Some(Estimate {
        n: sample.len(),
        median: sample.median()?,
        interval: sample.median_95(),
        mad: sample.mad()?,
        min: sample.min()?,
        max: sample.max()?,
        mean: sample.mean()?,
        deviation: sample.standard_deviation().unwrap_or(0.0),
    })
}

fn faults(records: &[&Record]) -> Vec<Fault> {
    let mut faults: BTreeMap<(Failure, String), Fault> = BTreeMap::new();
    for record in records {
        let End::Failed { failure, why } = &record.end else { continue };
        let fault = faults.entry((*failure, alike(why))).or_insert_with(|| Fault {
            failure: *failure,
            why: why.clone(),
            rounds: Vec::new(),
            logs: record.logs.clone(),
        });
        fault.rounds.push(record.round);
    }
    faults.into_values().collect()
}

/// Replaces the numbers in a failure's reason, so that `6 of 9 bytes` and `7 of 9 bytes` count as
/// the same failure.
fn alike(why: &str) -> String {
    let mut alike = String::with_capacity(why.len());
    for c in why.chars() {
        if !c.is_ascii_digit() {
            alike.push(c);
        } else if !alike.ends_with('#') {
            alike.push('#');
        }
    }
    alike
}

fn medians(measured: &[(&Record, &Figures)]) -> Medians {
    let of = |read: &dyn Fn(&Figures) -> Option<f64>| {
        measured.iter().filter_map(|(_, figures)| read(figures)).collect::<Sample>().median()
    };
    let noise = |read: &dyn Fn(&Record) -> f64| {
        measured.iter().map(|(record, _)| read(record)).collect::<Sample>().median()
    };
    let count = |count: Option<u64>| count.map(|count| count as f64);
    Medians {
        server_peak_rss: of(&|figures| Some(figures.server_peak_rss as f64)),
        client_peak_rss: of(&|figures| Some(figures.client_peak_rss as f64)),
        server_udp_drops: of(&|figures| count(figures.server_udp_drops)),
        client_udp_drops: of(&|figures| count(figures.client_udp_drops)),
        softnet_drops: of(&|figures| count(figures.softnet_drops)),
        server_packets_per_send: of(&|figures| figures.server_packets_per_send),
        client_packets_per_receive: of(&|figures| figures.client_packets_per_receive),
        chains_verified: of(&|figures| count(figures.chains_verified)),
        steal: noise(&|record| record.noise.steal),
        foreign: noise(&|record| record.noise.foreign),
    }
}

/// Defines the order of rows. Tables are ordered by workload, protocol, path and settings. In a
/// table, eQUIC is first.
fn order(a: &Key, b: &Key) -> Ordering {
    let workload = |key: &Key| {
        WORKLOADS.iter().position(|name| *name == key.workload).unwrap_or(WORKLOADS.len())
    };
    let name = |name: &String| (name != OURS, name.to_owned());
    workload(a)
        .cmp(&workload(b))
        .then_with(|| a.workload.cmp(&b.workload))
        .then_with(|| a.path.cmp(&b.path))
        .then_with(|| a.protocol.cmp(&b.protocol))
        .then_with(|| points(&a.point, &b.point))
        .then_with(|| name(&a.client).cmp(&name(&b.client)))
        .then_with(|| name(&a.server).cmp(&name(&b.server)))
}

/// Compares the values of swept settings: numbers by value, and everything else by name.
fn points(a: &BTreeMap<String, String>, b: &BTreeMap<String, String>) -> Ordering {
    a.keys().cmp(b.keys()).then_with(|| {
        let values = a.values().zip(b.values());
        values.fold(Ordering::Equal, |order, (a, b)| {
            order.then_with(|| match (a.parse::<f64>(), b.parse::<f64>()) {
                (Ok(a), Ok(b)) => a.total_cmp(&b),
                _ => a.cmp(b),
            })
        })
    })
}
