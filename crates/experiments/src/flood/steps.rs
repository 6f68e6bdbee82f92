//! Steps of a measurement, whatever the flood is made of: its parts are started and watched, and
//! the work of the server is counted.

use std::time::{Duration, Instant};

use equic_lab::measure::{NetCounters, ProcessCpu};
use equic_lab::plan::IFNAME;
use equic_lab::{Lab, Namespace};
use serde::{Deserialize, Serialize};

use super::arms::Arms;
use super::plan::{ATTACKER, BYSTANDER};
use crate::failure::{Done, Failure};
use crate::part::{PATIENCE, Part, Placement};

/// Time between two looks at the parts' output.
const LOOK: Duration = Duration::from_millis(20);
/// Time for which the flood is there before the client comes: what a rate lets in at once is through by then.
const LEAD: Duration = Duration::from_secs(1);
/// Packets at the target after which the flood is there.
const ARRIVED: u64 = 1_000;

/// The lab and the plan that every measurement needs.
pub(super) struct BenchStage<'a, P> {
    pub lab: &'a Lab,
    pub plan: &'a P,
}

/// Results of one measurement; `C` is what the clients got.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Cell<A, C> {
    pub round: usize,
    pub arm: A,
    /// Initials a second that were ordered; null is all that the CPU could send.
    pub flood_pps: Option<u64>,
    /// Initials a second that were sent.
    pub sent_pps: f64,
    #[serde(flatten)]
    pub clients: C,
    #[serde(flatten)]
    pub server: Work,
    /// Packets the gateway or nftables dropped.
    pub dropped: Option<u64>,
}

/// Work of the server between two times.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Work {
    /// CPU time of the server, per cent of one CPU.
    #[serde(rename = "server_cpu_percent")]
    pub cpu_percent: f64,
    /// Datagrams that reached the server's socket.
    pub datagrams: u64,
    /// Datagrams that found the buffer of the server's socket full.
    pub socket_full: u64,
}

/// Starts the server and waits until it is ready. Gives the fingerprint of its certificate, too.
pub(super) fn server(lab: &Lab, cpu: usize, args: &[String]) -> Done<(Part, String)> {
    let placement = Placement { host: lab.server(), cpu, nice: false };
    let mut server = Part::start("server", &placement, args)?;
    let pin = server.ready()?["fingerprint"].as_str().unwrap_or_default().to_owned();
    Ok((server, pin))
}

/// Host that the flood is sent to: in the baseline it must not reach the server.
pub(super) fn target<A: Arms>(lab: &Lab, arm: A) -> &Namespace {
    if arm == A::BASELINE { lab.client(BYSTANDER) } else { lab.server() }
}

/// Starts a flood, and waits until it arrives at its target.
pub(super) fn flood(lab: &Lab, cpu: usize, target: &Namespace, args: &[String]) -> Done<Part> {
    let placement = Placement { host: lab.client(ATTACKER), cpu, nice: false };
    let mut flood = Part::start("flood", &placement, args)?;
    let before = received(target)?;
    let arrived = || Ok(received(target)?.saturating_sub(before) >= ARRIVED);
    if !watch(&mut [&mut flood], PATIENCE, arrived)? {
        let seconds = PATIENCE.as_secs();
        return Err(Failure::new(format!("the flood did not arrive within {seconds} s")));
    }
    Ok(flood)
}

/// Packets that came to a host's interface, dropped there or not.
fn received(host: &Namespace) -> Done<u64> {
    let net = NetCounters::of(host)?;
    Ok(net.interfaces.get(IFNAME).map_or(0, |interface| interface.rx_packets))
}

/// Waits for as long as the flood is to be there before the client comes; no part may end meanwhile.
pub(super) fn lead(parts: &mut [&mut Part]) -> Done {
    watch(parts, LEAD, || Ok(false)).map(drop)
}

/// Listens to parts, none of which may end, until something is `done`. False if it was not within `time`.
pub(super) fn watch(
    parts: &mut [&mut Part],
    time: Duration,
    mut done: impl FnMut() -> Done<bool>,
) -> Done<bool> {
    let deadline = Instant::now() + time;
    while !done()? {
        if Instant::now() >= deadline {
            return Ok(false);
        }
        for part in &mut *parts {
            part.look(false)?;
        }
        std::thread::sleep(LOOK);
    }
    Ok(true)
}

/// Counters of the server and its host at one time.
pub(super) struct Counters {
    net: NetCounters,
    cpu: Option<ProcessCpu>,
}

impl Counters {
    /// Counters as they are now.
    pub(super) fn read(lab: &Lab, server: &Part) -> Done<Counters> {
        Ok(Counters { net: NetCounters::of(lab.server())?, cpu: ProcessCpu::of(server.pid()) })
    }

    /// Work since `before`, which was so many seconds ago.
    pub(super) fn since(&self, before: &Counters, seconds: f64) -> Work {
        // A process that has ended has no CPU time any more.
        let cpu = self.cpu.as_ref().zip(before.cpu.as_ref());
        let cpu = cpu.map_or(0.0, |(after, before)| after.seconds() - before.seconds());
        let grown =
            |read: fn(&NetCounters) -> u64| read(&self.net).saturating_sub(read(&before.net));
        Work {
            cpu_percent: 100.0 * cpu / seconds,
            datagrams: grown(|net| net.udp4.in_datagrams),
            socket_full: grown(|net| net.udp4.rcvbuf_errors),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(cpu: Option<f64>, in_datagrams: u64, rcvbuf_errors: u64) -> Counters {
        let mut net = NetCounters::default();
        (net.udp4.in_datagrams, net.udp4.rcvbuf_errors) = (in_datagrams, rcvbuf_errors);
        let cpu = cpu.map(|cpu| ProcessCpu { user_seconds: cpu, system_seconds: 1.0 });
        Counters { net, cpu }
    }

    #[test]
    fn work_is_the_growth_of_the_counters() {
        let (before, after) = (counters(Some(1.0), 10, 4), counters(Some(2.5), 110, 5));
        let work = after.since(&before, 3.0);
        assert_eq!((work.cpu_percent, work.datagrams, work.socket_full), (50.0, 100, 1));
        assert_eq!(counters(None, 110, 5).since(&before, 3.0).cpu_percent, 0.0);
    }
}
