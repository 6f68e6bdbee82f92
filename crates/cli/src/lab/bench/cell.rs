//! One measurement: an arm under a flood of one rate, once.

use std::time::{Duration, Instant};

use equic_endpoint::load::Summary;
use equic_lab::Lab;
use equic_lab::flood::FloodReport;
use equic_lab::measure::{NetCounters, ProcessCpu};
use serde::{Deserialize, Serialize};

use super::guard::{self, Guard};
use super::plan::{ATTACKER, Arm, BYSTANDER, CLIENT, Plan};
use crate::failure::Done;
use crate::part::{PATIENCE, Part, Seat};

/// Time between two looks at the parts' output.
pub(super) const LOOK: Duration = Duration::from_millis(20);
/// Time for which the flood is there before the client comes: what a rate lets in at once is through by then.
pub(super) const LEAD: Duration = Duration::from_secs(1);

/// Results of one measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Cell {
    pub round: usize,
    pub arm: Arm,
    /// Initials a second that were ordered; null is all that the CPU could send.
    pub flood_pps: Option<u64>,
    /// Initials a second that were sent.
    pub sent_pps: f64,
    /// Requests of the legitimate client that went well, a second.
    pub requests_per_s: f64,
    /// Durations of these, milliseconds; null: there were none.
    pub median_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    /// Requests made, and those that failed.
    pub requests: u64,
    pub failures: u64,
    /// CPU time of the server, per cent of one CPU.
    pub server_cpu_percent: f64,
    /// Datagrams that reached the server's socket, and those that found its buffer full.
    pub datagrams: u64,
    pub socket_full: u64,
    /// Packets the gateway or nftables dropped.
    pub dropped: Option<u64>,
}

/// The lab and the plan that every measurement needs.
pub(super) struct Stage<'a> {
    pub lab: &'a Lab,
    pub plan: &'a Plan,
}

impl Stage<'_> {
    /// Measures an arm once.
    pub(super) fn measure(&self, round: usize, arm: Arm, pps: Option<u64>) -> Done<Cell> {
        let (lab, plan) = (self.lab, self.plan);
        let guard = self.guard(arm)?;
        let seat = Seat { host: lab.server(), cpu: plan.server_cpu, nice: false };
        let mut server = Part::start("server", &seat, &plan.server(arm, lab, lab.id()))?;
        let pin = server.ready()?["fingerprint"].as_str().unwrap_or_default().to_owned();
        let target = match arm {
            Arm::Elsewhere => lab.client(BYSTANDER),
            _ => lab.server(),
        };
        let attacker = lab.client(ATTACKER);
        let args = plan.flood(attacker, target, pps, round as u64 + 1);
        let seat = Seat { host: attacker, cpu: plan.flood_cpu, nice: false };
        let mut flood = guard::flood(&seat, target, &args)?;

        let arrived = Instant::now();
        while arrived.elapsed() < LEAD {
            server.look(false)?;
            flood.look(false)?;
            std::thread::sleep(LOOK);
        }
        let before = (NetCounters::of(lab.server())?, ProcessCpu::of(server.pid()));
        let seat = Seat { host: lab.client(CLIENT), cpu: plan.server_cpu, nice: false };
        let begun = Instant::now();
        let mut client = Part::start("client", &seat, &plan.client(lab.server(), &pin))?;
        let patience = Duration::from_secs_f64(plan.seconds) + PATIENCE;
        while !client.ended() && begun.elapsed() < patience {
            server.look(false)?;
            flood.look(false)?;
            std::thread::sleep(LOOK);
        }
        let summary: Summary = guard::reported(&client.finish()?, "summary")?;
        let seconds = begun.elapsed().as_secs_f64();
        let cpu = ProcessCpu::of(server.pid()).zip(before.1);
        let net = NetCounters::of(lab.server())?;
        let dropped = guard.dropped()?;

        flood.stop();
        let flood: FloodReport = guard::reported(&flood.finish()?, "report")?;
        server.stop();
        server.finish()?;
        guard.finish()?;
        let cpu = cpu.map_or(0.0, |(after, before)| after.seconds() - before.seconds());
        let grown = |read: fn(&NetCounters) -> u64| read(&net).saturating_sub(read(&before.0));
        Ok(Cell {
            round,
            arm,
            flood_pps: pps,
            sent_pps: flood.pps,
            requests_per_s: summary.rps,
            median_ms: summary.median_ms,
            p99_ms: summary.p99_ms,
            requests: summary.requests,
            failures: summary.failures(),
            server_cpu_percent: 100.0 * cpu / seconds,
            datagrams: grown(|net| net.udp4.in_datagrams),
            socket_full: grown(|net| net.udp4.rcvbuf_errors),
            dropped,
        })
    }

    fn guard(&self, arm: Arm) -> Done<Guard> {
        let (lab, plan) = (self.lab, self.plan);
        match arm {
            Arm::Gateway => Guard::gateway(lab.server(), plan.flood_cpu, &plan.gateway(lab.id())),
            Arm::Nftables => Guard::nftables(lab.server(), &plan.rules()?),
            Arm::Elsewhere | Arm::UserSpace | Arm::Nothing => Ok(Guard::Nobody),
        }
    }
}
