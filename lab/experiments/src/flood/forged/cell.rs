//! One measurement: one arm (a protection of the server) under a flood of one rate from forged
//! sources.

use std::time::Duration;

use equic_load::{Outcome, Sample};
use equic_netns::flood::FloodReport;
use equic_netns::measure::NetCounters;
use equic_report::stats;
use serde::{Deserialize, Serialize};

use super::super::guard::Guard;
use super::super::plan::CLIENT;
use super::super::steps::{self, BenchStage, Counters};
use super::plan::{Arm, ForgedPlan};
use crate::failure::{Failure, Result};
use crate::part::{PATIENCE, Part, Placement, now};

/// The connections from before the flood count as active when the server has received this many
/// datagrams.
const AT_WORK: u64 = 1_000;

/// Results of one measurement.
pub(in super::super) type Cell = steps::Cell<Arm, Clients>;

/// Results of the newcomers, and of the connections from before the flood.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in super::super) struct Clients {
    /// Number of newcomers that started. `newcomers_served` is the number of newcomers that got
    /// their response.
    pub newcomers: u64,
    pub newcomers_served: u64,
    /// Median duration of the successful newcomers in milliseconds, from the first packet of the
    /// handshake to the last byte, or null if no newcomer succeeded. `newcomer_p99_ms` is the 99th
    /// percentile.
    pub newcomer_median_ms: Option<f64>,
    pub newcomer_p99_ms: Option<f64>,
    /// Bytes per second on the connections from before the flood. `established_failures` is the
    /// number of failed requests on these connections.
    pub established_bytes_per_s: f64,
    pub established_failures: u64,
}

impl BenchStage<'_, ForgedPlan> {
    /// Makes one measurement of an arm under a flood of one rate.
    pub(super) fn measure(&self, round: usize, arm: Arm, pps: Option<u64>) -> Result<Cell> {
        let (lab, plan) = (self.lab, self.plan);
        let guard = self.guard(arm)?;
        let (mut server, pin) = steps::server(lab, plan.server_cpu, &plan.server(arm, lab))?;
        let mut established = self.established(&mut server, &pin)?;
        let target = steps::target(lab, arm);
        let args = plan.flood(target, pps, round as u64 + 1);
        let mut flood = steps::flood(lab, plan.flood_cpu, target, &args)?;
        steps::lead(&mut [&mut server, &mut flood, &mut established])?;

        let before = Counters::read(lab, &server)?;
        let begun = now()?;
        let host = lab.client(CLIENT);
        let placement = Placement { host, cpu: plan.server_cpu, nice: false };
        let args = plan.newcomers(host, lab.server(), &pin);
        let newcomers = Part::start("newcomers", &placement, &args)?;
        let patience = Duration::from_secs_f64(plan.seconds) + PATIENCE;
        let others = &mut [&mut server, &mut flood, &mut established];
        // If the newcomers have not ended in time, `finish` fails with an error.
        steps::watch(others, patience, || Ok(newcomers.ended()))?;
        let seconds = now()? - begun;
        let newcomers = newcomers.finish()?.samples;
        let work = Counters::read(lab, &server)?.since(&before, seconds);
        let dropped = guard.dropped()?;

        flood.stop();
        let flood: FloodReport = flood.finish()?.reported("report")?;
        established.stop();
        let established = established.finish()?.samples;
        server.stop();
        server.finish()?;
        guard.finish()?;
        let served: stats::Sample =
            newcomers.iter().filter(well).map(|sample| sample.duration_ms).collect();
        let (bytes, failures) = within(&established, begun, begun + seconds);
        Ok(Cell {
            round,
            arm,
            flood_pps: pps,
            sent_pps: flood.pps,
            clients: Clients {
                newcomers: newcomers.len() as u64,
                newcomers_served: served.len() as u64,
                newcomer_median_ms: served.median(),
                newcomer_p99_ms: served.nearest_rank(99.0),
                established_bytes_per_s: bytes as f64 / seconds,
                established_failures: failures,
            },
            server: work,
            dropped,
        })
    }

    fn guard(&self, arm: Arm) -> Result<Guard> {
        let (lab, plan) = (self.lab, self.plan);
        match arm {
            Arm::Gateway | Arm::GatewayRetry => {
                let args = plan.gateway(lab, arm == Arm::GatewayRetry);
                Guard::gateway(lab.server(), plan.flood_cpu, &args)
            }
            Arm::Nftables => Guard::nftables(lab.server(), &plan.rules(false)),
            Arm::NftablesInAll => Guard::nftables(lab.server(), &plan.rules(true)),
            Arm::Elsewhere | Arm::Nothing | Arm::ServerRetry | Arm::QuinnRetry => Ok(Guard::Nobody),
        }
    }

    /// Opens the connections from before the flood, and waits until they are active.
    fn established(&self, server: &mut Part, pin: &str) -> Result<Part> {
        let (lab, plan) = (self.lab, self.plan);
        let placement = Placement { host: lab.client(CLIENT), cpu: plan.server_cpu, nice: false };
        let datagrams = || NetCounters::of(lab.server()).map(|net| net.udp4.in_datagrams);
        let before = datagrams()?;
        let args = plan.established(lab.server(), pin);
        let mut part = Part::start("established connections", &placement, &args)?;
        let at_work = || Ok(datagrams()?.saturating_sub(before) >= AT_WORK);
        if !steps::watch(&mut [server, &mut part], PATIENCE, at_work)? {
            let what = "the connections that were opened before the flood got no answers";
            let seconds = PATIENCE.as_secs();
            return Err(Failure::new(format!("{what} within {seconds} s")));
        }
        Ok(part)
    }
}

/// Returns true if the newcomer got its response.
fn well(sample: &&Sample) -> bool {
    sample.outcome == Outcome::Ok
}

/// Returns the bytes of successful requests and the number of failed requests. Only requests that
/// ended between two times (seconds of CLOCK_MONOTONIC) are counted.
fn within(samples: &[Sample], from: f64, to: f64) -> (u64, u64) {
    let ended =
        |sample: &&Sample| (from..=to).contains(&((sample.start_ms + sample.duration_ms) / 1000.0));
    let (mut bytes, mut failures) = (0, 0);
    for sample in samples.iter().filter(ended) {
        match sample.outcome {
            Outcome::Ok => bytes += sample.bytes,
            _ => failures += 1,
        }
    }
    (bytes, failures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goodput_counts_requests_that_ended_in_the_window() {
        let sample = |start_ms: f64, duration_ms: f64, outcome: Outcome| Sample {
            start_ms,
            duration_ms,
            client: 0,
            handshake_ms: None,
            outcome,
            bytes: 100,
        };
        let samples = [
            sample(500.0, 100.0, Outcome::Ok),
            sample(900.0, 200.0, Outcome::Ok),
            sample(1500.0, 100.0, Outcome::Ok),
            sample(1500.0, 400.0, Outcome::Timeout),
            sample(1900.0, 200.0, Outcome::Timeout),
        ];
        assert_eq!(within(&samples, 1.0, 2.0), (200, 1));
        assert_eq!(within(&samples, 3.0, 4.0), (0, 0));
    }
}
