//! The steps of a measurement, for all kinds of floods: starting and watching the child processes,
//! and measuring the server's work.

use std::time::{Duration, Instant};

use equic_netns::measure::{NetCounters, ProcessCpu};
use equic_netns::plan::IFNAME;
use equic_netns::{Lab, Namespace};
use serde::{Deserialize, Serialize};

use super::arms::Arms;
use super::plan::{ATTACKER, BYSTANDER};
use crate::failure::{Failure, Result};
use crate::part::{PATIENCE, Part, Placement};

/// Time between two polls of the processes' output.
const LOOK: Duration = Duration::from_millis(20);
/// Time between the start of the flood and that of the client. The initial burst that a rate limit
/// allows is over by then.
const LEAD: Duration = Duration::from_secs(1);
/// The flood has arrived when its target has received this many packets.
const ARRIVED: u64 = 1_000;

/// The lab and the plan, which every measurement needs.
pub(super) struct BenchStage<'a, P> {
    pub lab: &'a Lab,
    pub plan: &'a P,
}

/// Result of one measurement. `C` is the result of the clients.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Cell<A, C> {
    pub round: usize,
    pub arm: A,
    /// Requested rate of the flood in Initial packets per second. Null means as fast as the CPU can
    /// send.
    pub flood_pps: Option<u64>,
    /// Initial packets per second that the flood really sent.
    pub sent_pps: f64,
    #[serde(flatten)]
    pub clients: C,
    #[serde(flatten)]
    pub server: Work,
    /// Packets that the gateway or nftables dropped.
    pub dropped: Option<u64>,
}

/// Work of the server during a measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Work {
    /// CPU time of the server, in percent of one CPU.
    #[serde(rename = "server_cpu_percent")]
    pub cpu_percent: f64,
    /// Datagrams that reached the server's socket.
    pub datagrams: u64,
    /// Datagrams that were dropped because the buffer of the server's socket was full.
    pub socket_full: u64,
}

/// Starts the server and waits until it is ready. Returns it with the fingerprint of its
/// certificate.
pub(super) fn server(lab: &Lab, cpu: usize, args: &[String]) -> Result<(Part, String)> {
    let placement = Placement { host: lab.server(), cpu, nice: false };
    let mut server = Part::start("server", &placement, args)?;
    let pin = server.ready()?["fingerprint"].as_str().unwrap_or_default().to_owned();
    Ok((server, pin))
}

/// Returns the target host of the flood. In the baseline, this is the bystander instead of the
/// server.
pub(super) fn target<A: Arms>(lab: &Lab, arm: A) -> &Namespace {
    if arm == A::BASELINE { lab.client(BYSTANDER) } else { lab.server() }
}

/// Starts a flood, and waits until it arrives at its target.
pub(super) fn flood(lab: &Lab, cpu: usize, target: &Namespace, args: &[String]) -> Result<Part> {
    let placement = Placement { host: lab.client(ATTACKER), cpu, nice: false };
    let mut flood = Part::start("flood", &placement, args)?;
    let before = received(target)?;
    let arrived = || Ok(received(target)?.saturating_sub(before) >= ARRIVED);
    if !watch(&mut [&mut flood], PATIENCE, arrived)? {
        let seconds = PATIENCE.as_secs();
        return Err(Failure::new(format!("no packet of the flood arrived within {seconds} s")));
    }
    Ok(flood)
}

/// Returns the number of packets that arrived at a host's interface, including dropped ones.
fn received(host: &Namespace) -> Result<u64> {
    let net = NetCounters::of(host)?;
    Ok(net.interfaces.get(IFNAME).map_or(0, |interface| interface.rx_packets))
}

/// Waits for [`LEAD`] after the start of the flood. Fails if a child process ends meanwhile.
pub(super) fn lead(parts: &mut [&mut Part]) -> Result {
    watch(parts, LEAD, || Ok(false)).map(drop)
}

/// Reads the output of child processes until `done` returns true. Fails if one of them ends.
/// Returns false if `done` does not return true within `time`.
pub(super) fn watch(
    parts: &mut [&mut Part],
    time: Duration,
    mut done: impl FnMut() -> Result<bool>,
) -> Result<bool> {
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
    /// Reads the counters of the server and its host.
    pub(super) fn read(lab: &Lab, server: &Part) -> Result<Counters> {
        Ok(Counters { net: NetCounters::of(lab.server())?, cpu: ProcessCpu::of(server.pid()) })
    }

    /// Returns the server's work since `before`, in an interval of this many seconds.
    pub(super) fn since(&self, before: &Counters, seconds: f64) -> Work {
        // After the end of a process, its CPU time is no longer available.
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
    fn flood_work_is_the_difference_of_counters() {
        let (before, after) = (counters(Some(1.0), 10, 4), counters(Some(2.5), 110, 5));
        let work = after.since(&before, 3.0);
        assert_eq!((work.cpu_percent, work.datagrams, work.socket_full), (50.0, 100, 1));
        assert_eq!(counters(None, 110, 5).since(&before, 3.0).cpu_percent, 0.0);
    }
}
