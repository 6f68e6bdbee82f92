//! Runs one arm of the experiment: starts the child processes at their times, reads counters
//! meanwhile, and ends the processes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use equic_gateway::Control;
use equic_netns::measure::{self, BpfRuns, Memory, SyscallCounter};
use equic_netns::{Lab, Namespace};
use serde_json::Value;

use super::block;
use super::data::{Gateway, Look, RawRecords};
use super::plan::{Arm, ExperimentPlan, PARALLEL, SEQUENTIAL};
use super::progress::Progress;
use crate::failure::{Failure, Result};
use crate::part::{Part, Placement, now};

/// Time between two polls of the processes' output.
const LOOK: Duration = Duration::from_millis(20);
/// Interval in seconds at which the server's counters are read.
const TICK: f64 = 0.1;
/// A run counts as hung if it takes this many times its expected time, plus [`SPARE`].
const FACTOR: f64 = 20.0;
/// Part of the timeout of a run that does not depend on its expected time, in seconds.
const SPARE: f64 = 120.0;
/// The server counts as idle when it uses less than this share of its CPU.
const QUIET: f64 = 0.02;

/// The lab, the plan and the progress bar, which all runs share.
pub(super) struct ArmContext<'a> {
    pub lab: &'a Lab,
    pub plan: &'a ExperimentPlan,
    pub progress: &'a Progress,
}

/// The running child processes of an arm.
pub(super) struct Processes {
    pub gateway: Option<(Part, Control, bool)>,
    pub server: Part,
    /// Fingerprint of the server's certificate.
    pub pin: String,
    sequential: Vec<Part>,
    parallel: Vec<Part>,
}

impl ArmContext<'_> {
    /// Runs an arm from the start of its server to its end.
    pub(super) fn play(&self, arm: Arm) -> Result<RawRecords> {
        let before = Machine::look()?;
        let mut cast = self.prepare(arm)?;
        let counter = SyscallCounter::start(cast.server.pid())?;
        let mut take = self.act(&mut cast)?;
        take.syscalls = counter.read()?;
        drop(counter);
        take.gateway = cast.gateway.as_ref().map(gateway).transpose()?;
        self.quiet(&cast);
        if arm != Arm::None {
            // On a busy machine, the client that holds connections up to the quota may miss its
            // timeout. The run is valid anyway.
            match block::measure(self, arm, &cast) {
                Ok(block) => take.block = Some(block),
                Err(failure) => take.block_missing = Some(failure.to_string()),
            }
        }
        self.finish(cast, &mut take)?;
        take.foreign_percent = Machine::look()?.foreign_percent_since(&before);
        Ok(take)
    }

    /// Returns the time that sequential clients need for their requests without an attack, in
    /// seconds.
    pub(super) fn calm(&self) -> Result<f64> {
        let mut cast = self.prepare(Arm::None)?;
        let requests = self.plan.probe_requests();
        let begun = now()?;
        self.start_sequential(&mut cast, requests)?;
        self.listen_until(&mut cast, begun, |cast, _| Ok(cast.sequential.iter().all(Part::ended)))?;
        let mut samples = Vec::new();
        for part in cast.sequential {
            samples.extend(part.finish()?.samples);
        }
        cast.server.stop();
        cast.server.finish()?;
        let first = samples.iter().map(|s| s.start_ms).fold(f64::INFINITY, f64::min);
        let last = samples.iter().map(|s| s.start_ms + s.duration_ms).fold(0.0, f64::max);
        let seconds = (last - first) / 1000.0;
        if !(seconds.is_finite() && seconds > 0.0) {
            return Err(Failure::new("no client got an answer, although there was no attack"));
        }
        Ok(seconds * f64::from(self.plan.requests_per_client) / f64::from(requests))
    }

    pub(super) fn placement<'b>(&self, host: &'b Namespace) -> Placement<'b> {
        Placement { host, cpu: self.plan.other_cpu, nice: false }
    }

    /// Starts the gateway and the server, and waits until they are ready.
    fn prepare(&self, arm: Arm) -> Result<Processes> {
        let host = self.lab.server();
        let mut gateway = None;
        if let Some(policy) = arm.policy() {
            let args = self.plan.gateway(policy, self.lab);
            let mut part = Part::start("gateway", &self.placement(host), &args)?;
            let ready = part.ready()?;
            let native = ready["interfaces"][0]["native"].as_bool().unwrap_or(false);
            let control = Control::open(Some(&ready["program_id"].to_string()))?;
            gateway = Some((part, control, native));
        }
        let placement = Placement { cpu: self.plan.server_cpu, ..self.placement(host) };
        let mut server = Part::start("server", &placement, &self.plan.server(arm, self.lab))?;
        let ready = server.ready()?;
        let pin = ready["fingerprint"].as_str().unwrap_or_default().to_owned();
        let (sequential, parallel) = Default::default();
        Ok(Processes { gateway, server, pin, sequential, parallel })
    }

    fn start_sequential(&self, cast: &mut Processes, requests: u32) -> Result {
        for (number, host) in self.lab.clients().iter().take(SEQUENTIAL).enumerate() {
            let args = self.plan.sequential(self.lab.server(), &cast.pin, requests);
            let name = format!("sequential client {number}");
            cast.sequential.push(Part::start(name, &self.placement(host), &args)?);
        }
        Ok(())
    }

    /// Starts the attackers that the paper describes. They yield the CPU to the sequential clients.
    /// These then suffer only from the server's behaviour, and not from the CPU that all clients
    /// share here.
    fn attack(&self, cast: &mut Processes) -> Result {
        let hosts = self.lab.clients().iter().skip(SEQUENTIAL).take(PARALLEL);
        for (number, host) in hosts.enumerate() {
            let args = self.plan.parallel(self.lab.server(), &cast.pin);
            let placement = Placement { nice: true, ..self.placement(host) };
            cast.parallel.push(Part::start(
                format!("parallel client {number}"),
                &placement,
                &args,
            )?);
        }
        Ok(())
    }

    /// Runs the clients: from the start of the first sequential client until all clients have
    /// finished.
    fn act(&self, cast: &mut Processes) -> Result<RawRecords> {
        let plan = self.plan;
        let begun = now()?;
        self.start_sequential(cast, plan.requests_per_client)?;
        let (mut looks, mut attacked) = (vec![look(cast, begun)], None);
        self.listen_until(cast, begun, |cast, time| {
            if attacked.is_none() && time >= plan.start_s {
                attacked = Some(now()?);
                self.attack(cast)?;
            }
            if time >= looks.len() as f64 * TICK {
                looks.push(look(cast, now()?));
            }
            let mut all = cast.sequential.iter().chain(&cast.parallel);
            Ok(attacked.is_some() && all.all(Part::ended))
        })?;
        let over = now()?;
        looks.push(look(cast, over));
        let mut take = RawRecords {
            begun,
            attacked: attacked.unwrap_or(over),
            over,
            sequential: Vec::new(),
            parallel: Vec::new(),
            looks,
            syscalls: BTreeMap::new(),
            server: Value::Null,
            gateway: None,
            block: None,
            block_missing: None,
            foreign_percent: 0.0,
        };
        for part in cast.sequential.drain(..) {
            take.sequential.push(part.finish()?.samples);
        }
        for part in cast.parallel.drain(..) {
            take.parallel.extend(part.finish()?.samples);
        }
        Ok(take)
    }

    /// Reads the output of all processes until `done` returns true. `done` gets the time since
    /// `begun`.
    fn listen_until(
        &self,
        cast: &mut Processes,
        begun: f64,
        mut done: impl FnMut(&mut Processes, f64) -> Result<bool>,
    ) -> Result {
        let limit = self.plan.run_s() * FACTOR + SPARE;
        loop {
            let time = now()? - begun;
            if done(cast, time)? {
                return Ok(());
            }
            cast.listen()?;
            self.progress.within_run(time);
            if time > limit {
                return Err(Failure::new(format!(
                    "the clients did not finish their requests within {limit:.0} s"
                )));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Waits until the server is idle, but at most for the lifetime of its connections.
    fn quiet(&self, cast: &Processes) {
        let patience = Duration::from_millis(self.plan.idle_timeout_ms) + Duration::from_secs(1);
        let (deadline, step) = (Instant::now() + patience, Duration::from_millis(100));
        let pid = cast.server.pid();
        let mut before = measure::cpu_time(pid);
        while Instant::now() < deadline {
            std::thread::sleep(step);
            let after = measure::cpu_time(pid);
            let (Some(old), Some(new)) = (before, after) else { return };
            if new.saturating_sub(old) < step.mul_f64(QUIET) {
                return;
            }
            before = after;
        }
    }

    fn finish(&self, cast: Processes, take: &mut RawRecords) -> Result {
        cast.server.stop();
        let ended = cast.server.finish()?;
        let stopped = ended.event("stopped").ok_or_else(|| {
            Failure::new(format!(
                "the server ended without printing its counters ({})",
                ended.status
            ))
        })?;
        take.server = stopped.1["stats"].clone();
        if let Some((part, _, _)) = cast.gateway {
            part.stop();
            part.finish()?;
        }
        Ok(())
    }
}

impl Processes {
    /// Reads the output of all processes. Fails if the server or the gateway has ended, or a client
    /// has failed.
    fn listen(&mut self) -> Result {
        self.server.look(false)?;
        if let Some((part, _, _)) = &mut self.gateway {
            part.look(false)?;
        }
        self.sequential.iter_mut().chain(&mut self.parallel).try_for_each(|part| part.look(true))
    }
}

fn look(cast: &Processes, at: f64) -> Look {
    let pid = cast.server.pid();
    let cpu_s = measure::cpu_time(pid).unwrap_or_default().as_secs_f64();
    Look { at, cpu_s, memory: Memory::of(pid).unwrap_or_default() }
}

fn gateway((_, control, native): &(Part, Control, bool)) -> Result<Gateway> {
    let runs = BpfRuns::of(control.program_id())?;
    let mut dropped = BTreeMap::new();
    for row in control.counters()?.iter().filter(|row| row.dropped > 0) {
        *dropped.entry(row.reason.name().to_owned()).or_default() += row.dropped;
    }
    Ok(Gateway { native: *native, packets: runs.count, mean_ns: runs.mean_ns(), dropped })
}

/// CPU time of the whole machine, and of this process with its children.
struct Machine {
    at: f64,
    busy_s: f64,
    family_s: f64,
    cpus: usize,
}

impl Machine {
    fn look() -> Result<Machine> {
        let cpus = measure::Sample::take(&[], &[]).cpus;
        Ok(Machine {
            at: now()?,
            // Soft interrupts are subtracted, because they mainly handle the experiment's packets.
            busy_s: cpus.iter().map(|cpu| cpu.busy_seconds - cpu.softirq_seconds).sum(),
            family_s: measure::family_cpu_seconds(),
            cpus: cpus.len(),
        })
    }

    /// Returns the CPU time of other processes since `before`, in percent of the machine. All
    /// children must have been waited for. Otherwise, the time of a running child would count as
    /// that of other processes.
    fn foreign_percent_since(&self, before: &Machine) -> f64 {
        let foreign = (self.busy_s - before.busy_s) - (self.family_s - before.family_s);
        let all = (self.at - before.at) * self.cpus.max(1) as f64;
        (foreign / all.max(1e-3) * 100.0).max(0.0)
    }
}
