//! One measurement: one arm (a protection of the server) under a flood of one rate.

use std::time::{Duration, Instant};

use equic_load::Summary;
use equic_netns::flood::FloodReport;
use serde::{Deserialize, Serialize};

use super::guard::Guard;
use super::plan::{ATTACKER, Arm, CLIENT, FloodPlan};
use super::steps::{self, BenchStage, Counters};
use crate::failure::Result;
use crate::part::{PATIENCE, Part, Placement};

/// Results of one measurement.
pub(super) type Cell = steps::Cell<Arm, Clients>;

/// Results of the legitimate client's requests.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Clients {
    /// Successful requests of the legitimate client per second.
    pub requests_per_s: f64,
    /// Median duration of the successful requests in milliseconds, or null if no request succeeded.
    /// `p99_ms` is the 99th percentile.
    pub median_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    /// Number of all requests. `failures` is the number of failed requests.
    pub requests: u64,
    pub failures: u64,
}

impl BenchStage<'_, FloodPlan> {
    /// Makes one measurement of an arm under a flood of one rate.
    pub(super) fn measure(&self, round: usize, arm: Arm, pps: Option<u64>) -> Result<Cell> {
        let (lab, plan) = (self.lab, self.plan);
        let guard = self.guard(arm)?;
        let (mut server, pin) =
            steps::server(lab, plan.server_cpu, &plan.server(arm, lab, lab.id()))?;
        let target = steps::target(lab, arm);
        let args = plan.flood(lab.client(ATTACKER), target, pps, round as u64 + 1);
        let mut flood = steps::flood(lab, plan.flood_cpu, target, &args)?;
        steps::lead(&mut [&mut server, &mut flood])?;

        let before = Counters::read(lab, &server)?;
        let placement = Placement { host: lab.client(CLIENT), cpu: plan.server_cpu, nice: false };
        let begun = Instant::now();
        let client = Part::start("client", &placement, &plan.client(lab.server(), &pin))?;
        let patience = Duration::from_secs_f64(plan.seconds) + PATIENCE;
        // If the client has not ended in time, `finish` fails with an error.
        steps::watch(&mut [&mut server, &mut flood], patience, || Ok(client.ended()))?;
        let summary: Summary = client.finish()?.reported("summary")?;
        let seconds = begun.elapsed().as_secs_f64();
        let work = Counters::read(lab, &server)?.since(&before, seconds);
        let dropped = guard.dropped()?;

        flood.stop();
        let flood: FloodReport = flood.finish()?.reported("report")?;
        server.stop();
        server.finish()?;
        guard.finish()?;
        Ok(Cell {
            round,
            arm,
            flood_pps: pps,
            sent_pps: flood.pps,
            clients: Clients {
                requests_per_s: summary.rps,
                median_ms: summary.median_ms,
                p99_ms: summary.p99_ms,
                requests: summary.requests,
                failures: summary.failures(),
            },
            server: work,
            dropped,
        })
    }

    fn guard(&self, arm: Arm) -> Result<Guard> {
        let (lab, plan) = (self.lab, self.plan);
        match arm {
            Arm::Gateway => Guard::gateway(lab.server(), plan.flood_cpu, &plan.gateway(lab.id())),
            Arm::Nftables => Guard::nftables(lab.server(), &plan.rules()?),
            Arm::Elsewhere | Arm::UserSpace | Arm::Nothing => Ok(Guard::Nobody),
        }
    }
}
