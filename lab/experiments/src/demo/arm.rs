//! Runs one arm of the demo: starts the processes of the arm at their times, and reads counters
//! meanwhile.

use std::time::Duration;

use equic_gateway::{Control, SortBy};
use equic_netns::measure::{self, NetCounters, ProcessCpu};
use equic_netns::{Lab, Namespace};
use serde_json::Value;

use super::arms::Arm;
use super::plan::{ATTACKERS, CLIENTS, DemoPlan};
use super::processes::{Attacker, Guard, Processes};
use super::progress::Progress;
use super::raw_records::{RawRecords, Tick};
use super::steps::{Cues, NextStep};
use crate::failure::Result;
use crate::part::{Part, Placement, now};

/// Time between two polls of the processes' output.
const LOOK: Duration = Duration::from_millis(50);
/// Interval in seconds at which the counters of the server and the gateway are read.
const TICK: f64 = 0.5;
/// Extra time in seconds for which clients and attackers are started. They are stopped explicitly
/// before.
const SPARE: f64 = 60.0;
/// The number of the attackers' connections is read twice, this time apart, and the smaller number
/// counts. With a single read, a connection that the server refuses after its handshake would
/// count.
const MOMENT: Duration = Duration::from_millis(5);

/// The lab, the plan and the progress bar, which the runs of all arms share.
pub(super) struct DemoStage<'a> {
    pub lab: &'a Lab,
    pub plan: &'a DemoPlan,
    pub progress: &'a mut Progress,
}

impl DemoStage<'_> {
    /// Runs an arm from the start of its server to its end.
    pub(super) fn play(&mut self, arm: Arm) -> Result<RawRecords> {
        self.progress.begin(arm);
        let mut cast = self.prepare(arm)?;
        let mut take = self.act(arm, &mut cast)?;
        cast.finish(&mut take)?;
        Ok(take)
    }

    fn placement<'b>(&self, host: &'b Namespace) -> Placement<'b> {
        Placement { host, cpu: self.plan.other_cpu, nice: false }
    }

    /// Starts the gateway and the server of an arm, and waits until they are ready.
    fn prepare(&self, arm: Arm) -> Result<Processes> {
        let host = self.lab.server();
        let mut gateway = None;
        if arm.guarded() {
            let args = self.plan.gateway(arm, self.lab.id());
            let mut part = Part::start("gateway", &self.placement(host), &args)?;
            let ready = part.ready()?;
            let native = ready["interfaces"][0]["native"].as_bool().unwrap_or(false);
            let control = Control::open(Some(&ready["program_id"].to_string()))?;
            gateway = Some(Guard { part, control, native });
        }
        let placement = Placement { host, cpu: self.plan.server_cpu, nice: false };
        let args = self.plan.server(arm, self.lab, self.lab.id());
        let mut server = Part::start("server", &placement, &args)?;
        let ready = server.ready()?;
        let pin = ready["fingerprint"].as_str().unwrap_or_default().to_owned();
        Ok(Processes::new(gateway, server, pin))
    }

    /// Runs an arm from the start of the first legitimate client to the end of the attack.
    fn act(&mut self, arm: Arm, cast: &mut Processes) -> Result<RawRecords> {
        let (plan, lab) = (self.plan, self.lab);
        for (number, host) in lab.clients().iter().take(CLIENTS).enumerate() {
            // This is enough for the longest arm, whose attack begins as late as permitted and then
            // has its planned length.
            let seconds = 2.0 * plan.seconds(arm) + SPARE;
            let args = plan.client(lab.server(), &cast.pin, seconds);
            let name = format!("legitimate client {number}");
            cast.clients.push(Part::start(name, &self.placement(host), &args)?);
        }
        let begun = now()?;
        let mut take = RawRecords {
            begun,
            attacked: None,
            flooded: None,
            over: begun,
            samples: Vec::new(),
            parallel: Vec::new(),
            newcomers: Vec::new(),
            floods: Vec::new(),
            ticks: vec![self.tick(cast, begun)],
            server: Value::Null,
            gateway: None,
        };
        let mut cues = Cues::new(arm, plan);
        loop {
            let time = now()? - begun;
            cast.listen(&mut take)?;
            match cues.next(time, cast.seen())? {
                Some(NextStep::Parallel) => {
                    take.attacked = Some(now()?);
                    self.attack(cast)?;
                }
                Some(NextStep::Flood) => {
                    take.flooded = Some(now()?);
                    self.flood(arm, cast)?;
                }
                Some(NextStep::Newcomers) => self.welcome(cast)?,
                Some(NextStep::Over) => break,
                None => {}
            }
            self.progress.show(&take, now()?, time);
            let left = cues.over.map_or(f64::INFINITY, |over| (over - time).max(0.0));
            let ticks = take.ticks.len() as f64 * TICK;
            if time >= ticks && left > TICK / 2.0 {
                take.ticks.push(self.tick(cast, now()?));
            }
            std::thread::sleep(Duration::from_secs_f64(left.min(LOOK.as_secs_f64())));
        }
        take.over = now()?;
        take.ticks.push(self.tick(cast, take.over));
        Ok(take)
    }

    fn attackers(&self) -> impl Iterator<Item = &Namespace> {
        self.lab.clients().iter().skip(CLIENTS).take(ATTACKERS)
    }

    /// Starts the attackers that hold many connections open, as in the paper.
    fn attack(&self, cast: &mut Processes) -> Result {
        for (number, host) in self.attackers().enumerate() {
            let seconds = self.plan.attacked_s + SPARE;
            let args = self.plan.parallel(self.lab.server(), &cast.pin, seconds);
            let name = format!("parallel clients of attacker {number}");
            cast.parallel.push(Attacker::start(name, &self.placement(host), &args)?);
        }
        Ok(())
    }

    fn flood(&self, arm: Arm, cast: &mut Processes) -> Result {
        for (number, host) in self.attackers().enumerate() {
            let seconds = self.plan.seconds(arm) + SPARE;
            let args = self.plan.flood(arm, self.lab.server(), number, seconds);
            let name = format!("flood of attacker {number}");
            cast.floods.push(Attacker::start(name, &self.placement(host), &args)?);
        }
        Ok(())
    }

    /// Starts the newcomers on their own host. The server has never received packets from their
    /// addresses.
    fn welcome(&self, cast: &mut Processes) -> Result {
        let host = self.lab.client(CLIENTS + ATTACKERS);
        let args = self.plan.newcomers(host, self.lab.server(), &cast.pin);
        cast.newcomers = Some(Part::start("newcomers", &self.placement(host), &args)?);
        Ok(())
    }

    fn tick(&self, cast: &Processes, at: f64) -> Tick {
        // A counter that cannot be read stays at zero, which is visible in the result.
        let sample = measure::Sample::take(&[], &[]);
        let cpu = sample.cpus.get(self.plan.server_cpu).copied().unwrap_or_default();
        let net = NetCounters::of(self.lab.server()).unwrap_or_default();
        let (mut dropped, mut answered, mut attackers) = (0, 0, None);
        if let Some(Guard { control, .. }) = &cast.gateway {
            let rows = control.counters().unwrap_or_default();
            // The gateway also counts packets that it answers as dropped, because they do not reach
            // the server.
            let (answers, rest): (Vec<_>, Vec<_>) =
                rows.iter().partition(|row| row.reason.answers());
            answered = answers.iter().map(|row| row.dropped).sum();
            dropped = rest.iter().map(|row| row.dropped).sum();
            let first = self.connections(control);
            std::thread::sleep(MOMENT);
            attackers = Some(first.min(self.connections(control)));
        }
        let server = ProcessCpu::of(cast.server.pid()).unwrap_or_default();
        Tick { at, server, cpu, udp: net.udp4, dropped, answered, attackers }
    }

    /// Returns the number of the attackers' connections, as counted by the gateway.
    fn connections(&self, control: &Control) -> u64 {
        let rows = control.sources(usize::MAX, SortBy::Connections).unwrap_or_default();
        let of = |host: &Namespace| {
            let address = host.ipv4.to_string();
            rows.iter().find(|row| row.source == address).map_or(0, |row| row.connections)
        };
        self.attackers().map(|host| u64::from(of(host))).sum()
    }
}
