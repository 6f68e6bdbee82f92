//! Checks the duration that a client reports for its work against observations of the runner.
//!
//! * CPU time is a lower bound. A process with `n` CPUs cannot use more than `n` seconds of CPU
//!   time per second of work.
//! * The counters of the receiver's interfaces give another lower bound. The time between two reads
//!   of the counters counts as work if bytes were still arriving at both. If other processes use
//!   the interface, too, this bound can only raise a doubt.
//! * The lifetime of the client's process, minus that of a client that fetches one byte, is about
//!   the duration of the work.
//!
//! If the reported duration is impossible, the attempt fails (`lied`). If it is only unexplained,
//! the figure is marked as doubted.

use std::time::{Duration, Instant};

use equic_report::number;

use crate::context::CellContext;
use crate::counters::Counters;
use crate::site::{Host, Site};
use crate::{Answer, Size, Workload};

/// Minimum number of bytes of a transfer that is checked. A smaller one may end before the counters
/// are read twice.
const FEWEST: u64 = 1_000_000;
/// CPU time in seconds that a process may use after its work. `PART` is the share of a bound that a
/// reported time must reach.
const SLACK: f64 = 0.1;
const PART: f64 = 0.8;

/// Counts the bytes that arrive at the receiver's interfaces during a transfer.
pub(crate) struct Passage {
    /// Number of bytes of the transfer. `None` if it is too small to check, or if the workload has
    /// no such number.
    bytes: Option<u64>,
    upload: bool,
    before: Option<u64>,
    first: Option<Instant>,
    last: Option<Instant>,
}

impl Passage {
    pub(crate) fn begin(context: &CellContext<'_>, what: Workload) -> Passage {
        let transfers =
            matches!(what, Workload::Download | Workload::Streams | Workload::Connections);
        let upload = what == Workload::Upload;
        let bytes = context.size.bytes;
        let bytes = ((transfers || upload) && bytes >= FEWEST).then_some(bytes);
        let mut passage = Passage { bytes, upload, before: None, first: None, last: None };
        passage.before = bytes.and_then(|_| passage.received(context));
        passage
    }

    fn received(&self, context: &CellContext<'_>) -> Option<u64> {
        let site = if self.upload { &context.server } else { &context.client };
        site.counters().map(|Counters { received, .. }| received)
    }

    /// Reads the counters of the interfaces. Called when no other part of the runner waits.
    pub(crate) fn look(&mut self, context: &CellContext<'_>) {
        let (Some(bytes), Some(before)) = (self.bytes, self.before) else { return };
        let asked = Instant::now();
        let Some(now) = self.received(context) else { return };
        self.note(now.saturating_sub(before), bytes, asked, Instant::now());
    }

    /// Records values of the counters. `asked` and `told` are the times before and after they were
    /// read.
    fn note(&mut self, came: u64, bytes: u64, asked: Instant, told: Instant) {
        // Handshakes and traffic of other processes are smaller than this.
        if came >= bytes / 50 && self.first.is_none() {
            self.first = Some(told);
        }
        if came < bytes - bytes / 50 {
            self.last = Some(asked);
        }
    }

    /// Returns a lower bound of the time in which the bytes arrived, or `None` if it was not
    /// observed.
    pub(crate) fn lasted(&self) -> Option<Duration> {
        self.last?.checked_duration_since(self.first?)
    }
}

/// Observations of the runner during an attempt, with times in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Lifetime of the client's process.
    pub process: f64,
    /// Lifetime of a client that fetches one byte, in seconds. `None` if it was not measured.
    pub probe: Option<f64>,
    /// Lower bound of the time in which the bytes arrived, in seconds. `None` if it was not
    /// observed.
    pub passage: Option<f64>,
    /// True if no other process uses the interfaces.
    pub alone: bool,
    /// CPU time of the server for its work, without its start.
    pub server_cpu: Option<Computed>,
    /// CPU time of the client for its work, without its start.
    pub client_cpu: Option<Computed>,
}

/// CPU time that a process used for its work, in seconds, divided by the number of its CPUs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Computed {
    pub work: f64,
    /// CPU time in seconds that the start of the process took. It is measured once, and subtracted
    /// from the total. On a busy machine, the CPU time of a start varies by as much as its own
    /// size. Reported times are therefore judged as if the start had taken twice as long.
    pub start: f64,
}

impl Seen {
    /// Computes the CPU times of server and client for their work. Each argument has the total CPU
    /// time and that of the start. If the start of a program was not measured, its CPU time is not
    /// used as a bound.
    pub(crate) fn computed(
        context: &CellContext<'_>,
        server: (f64, Option<f64>),
        client: (f64, Option<f64>),
    ) -> Seen {
        let on_cpus = |(all, start): (f64, Option<f64>), site: &Site<'_>| {
            let cpus = site.cpus.len() as f64;
            let start = start.filter(|_| cpus > 0.0)?;
            Some(Computed { work: (all - start) / cpus, start: start / cpus })
        };
        let hosts = (context.server.host, context.client.host);
        Seen {
            alone: matches!(hosts, (Host::Here(Some(_)), Host::Here(Some(_)))),
            server_cpu: on_cpus(server, &context.server),
            client_cpu: on_cpus(client, &context.client),
            ..Seen::default()
        }
    }
}

/// Returns the duration from which figures are computed. It is the duration that the client
/// reports. If no other process uses the interfaces, it is at least the time in which the bytes
/// arrived.
pub(crate) fn bounded(seconds: f64, seen: &Seen) -> f64 {
    seconds.max(seen.passage.filter(|_| seen.alone).unwrap_or(0.0))
}

/// Compares the time that the client reports with the observations of the runner. Returns the
/// reason if the time is doubted.
///
/// # Errors
/// The reason why the time is impossible.
pub(crate) fn check(
    what: Workload,
    size: &Size,
    answer: &Answer,
    seen: &Seen,
) -> Result<Option<String>, String> {
    let shown = |seconds: f64| number::measured(seconds, "s");
    let claim = shown(answer.seconds);
    // In these workloads, clients also do work before their clock starts.
    let work = match what {
        Workload::Idle | Workload::Transfer => return Ok(None),
        Workload::Loaded | Workload::Resumed => 2.0 * answer.seconds,
        _ => answer.seconds,
    };
    let passage = seen
        .passage
        .filter(|_| seen.alone)
        .map(|seconds| (seconds, 0.0, "bytes of the transfer kept arriving for"));
    let cpu = |cpu: Option<Computed>, whose| cpu.map(|cpu| (cpu.work, SLACK.max(cpu.start), whose));
    let bounds = [
        passage,
        cpu(seen.client_cpu, "the client used the CPU for"),
        cpu(seen.server_cpu, "the server used the CPU for"),
    ];
    for (seconds, slack, whose) in bounds.into_iter().flatten() {
        if work < PART * seconds - slack {
            return Err(format!("the client reports {claim}, but {whose} {}", shown(seconds)));
        }
    }
    if let Some(seconds) = seen.passage.filter(|seconds| work < 0.95 * seconds) {
        return Ok(Some(format!(
            "the client reports {claim}, but bytes of the transfer kept arriving for {}",
            shown(seconds)
        )));
    }
    let Some(probe) = seen.probe else { return Ok(None) };
    // If the probe takes this long, it would explain any reported time.
    if probe > 2.0 * seen.process + SLACK {
        let (process, start) = (shown(seen.process), shown(probe));
        return Ok(Some(format!(
            "the client process takes {start} to transfer 1 byte, but only {process} to transfer all bytes"
        )));
    }
    let (left, allowed) = (seen.process - probe - work, (0.25 * work + probe).max(SLACK));
    let known = matches!(what, Workload::Resumed).then_some(size.seconds).unwrap_or(0.0);
    Ok((left > allowed + known).then(|| {
        let (process, start) = (shown(seen.process), shown(probe));
        format!("the client reports {claim}, but the client process ran for {process}, and a transfer of 1 byte takes only {start}")
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(seconds: f64) -> Answer {
        Answer { seconds, ..Answer::default() }
    }

    fn computed(work: f64) -> Option<Computed> {
        Some(Computed { work, start: 0.01 })
    }

    fn checked(what: Workload, seconds: f64, seen: Seen) -> Result<bool, String> {
        check(what, &Size::usual(), &answer(seconds), &seen).map(|doubt| doubt.is_some())
    }

    #[test]
    fn clock_of_the_client_is_checked_against_runner_observations() {
        // The attempt is a transfer of 250 MB at 1.41 Gbit/s. The client takes 60 ms to fetch one
        // byte.
        let seen = Seen {
            process: 1.5,
            probe: Some(0.06),
            passage: Some(1.35),
            alone: true,
            server_cpu: computed(1.2),
            client_cpu: computed(1.0),
        };
        assert_eq!(checked(Workload::Download, 1.42, seen), Ok(false));
        // A fifth.
        let why = checked(Workload::Download, 1.42 / 5.0, seen).unwrap_err();
        assert!(why.contains("284") && why.contains("1.35"), "{why}");
        // Each case has only one of the observations, to test each bound separately.
        let others = Seen { alone: false, ..seen };
        let why = checked(Workload::Download, 0.284, others).unwrap_err();
        assert!(why.contains("the client used the CPU"), "{why}");
        let server = Seen { client_cpu: None, ..others };
        let why = checked(Workload::Upload, 0.284, server).unwrap_err();
        assert!(why.contains("the server used the CPU"), "{why}");
        // If other processes use the interface, its counters raise only a doubt. The lifetime of
        // the process also raises only a doubt.
        let shared = Seen { server_cpu: None, ..server };
        assert_eq!(checked(Workload::Download, 0.284, shared), Ok(true));
        let process = Seen { passage: None, ..shared };
        assert_eq!(checked(Workload::Download, 0.284, process), Ok(true));
        assert_eq!(checked(Workload::Download, 1.42, process), Ok(false));
        // If a client starts its clock too late, its time is doubted and corrected.
        assert_eq!((bounded(1.2, &seen), bounded(1.4, &seen)), (1.35, 1.4));
        assert_eq!(bounded(1.2, &Seen { alone: false, ..seen }), 1.2);
        assert_eq!(
            checked(Workload::Download, 1.2, Seen { server_cpu: None, client_cpu: None, ..seen }),
            Ok(true)
        );
        // If one byte takes longer than all bytes, the probe does not explain the difference.
        let slow = Seen { probe: Some(4.0), ..process };
        assert_eq!(checked(Workload::Download, 0.284, slow), Ok(true));
        // Without any observation, no reported time is doubted.
        assert_eq!(
            checked(Workload::Download, 0.001, Seen { process: 60.0, ..Seen::default() }),
            Ok(false)
        );
    }

    #[test]
    fn clock_is_not_doubted_if_the_start_took_twice_as_long() {
        let seen = |start| Seen {
            process: 0.5,
            probe: Some(0.3),
            client_cpu: Some(Computed { work: 0.173, start }),
            ..Seen::default()
        };
        assert_eq!(checked(Workload::Download, 0.01, seen(0.2)), Ok(false));
        assert!(checked(Workload::Download, 0.01, seen(0.02)).is_err());
    }

    #[test]
    fn clock_is_checked_for_counted_workloads() {
        let seen = |process| Seen { process, probe: Some(0.1), ..Seen::default() };
        assert_eq!(checked(Workload::Handshakes, 3.0, seen(3.2)), Ok(false));
        // The client worked on handshakes for fifteen seconds, but reports three.
        assert_eq!(checked(Workload::Handshakes, 3.0, seen(15.0)), Ok(true));
        // The phase without the bulk download, and the phase in which tickets are fetched, come
        // before the client's clock starts.
        assert_eq!(checked(Workload::Loaded, 3.0, seen(6.2)), Ok(false));
        assert_eq!(checked(Workload::Resumed, 3.0, seen(4.0)), Ok(false));
        assert_eq!(checked(Workload::Loaded, 3.0, seen(20.0)), Ok(true));
        let cpu = Seen { client_cpu: computed(12.0), ..seen(15.0) };
        assert!(checked(Workload::Requests, 3.0, cpu).is_err());
        assert_eq!(checked(Workload::Idle, 0.001, seen(100.0)), Ok(false));
    }

    #[test]
    fn clock_measures_passage_between_two_samples() {
        let begun = Instant::now();
        let at = |milliseconds| begun + Duration::from_millis(milliseconds);
        let mut passage =
            Passage { bytes: Some(100), upload: false, before: Some(0), first: None, last: None };
        for (came, milliseconds) in [(0, 10), (1, 20), (40, 30), (97, 80), (98, 130), (130, 180)] {
            passage.note(came, 100, at(milliseconds), at(milliseconds + 1));
        }
        assert_eq!(passage.lasted(), Some(Duration::from_millis(49)));
        let mut soon = Passage { first: None, last: None, ..passage };
        soon.note(0, 100, at(10), at(11));
        soon.note(100, 100, at(60), at(61));
        assert_eq!(soon.lasted(), None);
    }
}
