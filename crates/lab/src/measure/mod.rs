//! Cost of an experiment: CPU of processes and of the machine, datagrams dropped, packets on the interfaces.
//!
//! Start at [`Sampler`], which looks once a second and gives a [`Series`]; a [`Sample`] can also be
//! taken by hand ([`Sample::take`]). All values are counters as the kernel keeps them; the
//! difference of two samples is [`Sample::since`]. The files are read in `proc`.
//!
//! Closer looks, each for itself: [`SyscallCounter`] at the system calls of a process, [`BpfRuns`] at
//! the time of a BPF program, [`Memory`] and [`cpu_time`] at one process.

mod bpf;
mod proc;
mod process;
mod syscalls;

use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::{LabError, Namespace};
pub use bpf::{BpfRuns, BpfStatistics};
pub use process::{Memory, cpu_time, family_cpu_seconds};
pub use syscalls::{Calls, SyscallCounter, all_calls};

/// All counters at one time, or how much they grew between two.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Since the sampler began, in seconds; in a difference, the time between the two.
    pub seconds: f64,
    /// By the name given; a process that has ended is not in later samples.
    pub processes: BTreeMap<String, ProcessCpu>,
    /// The machine's CPUs, by number.
    pub cpus: Vec<CpuTime>,
    /// By the namespace's name; one whose lab is gone is not in later samples.
    pub namespaces: BTreeMap<String, NetCounters>,
}

/// CPU time of a process with all its threads, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessCpu {
    /// In user space.
    pub user_seconds: f64,
    /// In the kernel on its behalf.
    pub system_seconds: f64,
}

/// Time of one CPU, by use, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuTime {
    /// Not idle and not waiting for I/O.
    pub busy_seconds: f64,
    /// Handling soft interrupts: receiving packets, for the most part.
    pub softirq_seconds: f64,
    /// Altogether, idle time included. The kernel corrects idle time afterwards: over a fraction
    /// of a second the total can grow less than `busy_seconds` does.
    pub total_seconds: f64,
}

/// Network counters of a namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetCounters {
    /// UDP over IPv4.
    pub udp4: UdpCounters,
    /// UDP over IPv6.
    pub udp6: UdpCounters,
    /// By interface name.
    pub interfaces: BTreeMap<String, InterfaceCounters>,
}

/// UDP as in RFC 4113, with Linux's additions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UdpCounters {
    /// Datagrams delivered to sockets.
    pub in_datagrams: u64,
    /// Datagrams for ports nobody listens on.
    pub no_ports: u64,
    /// Datagrams that could not be delivered, for reasons that include the next two.
    pub in_errors: u64,
    /// Dropped, since the socket's receive buffer was full.
    pub rcvbuf_errors: u64,
    /// Dropped, since the checksum was wrong.
    pub csum_errors: u64,
    /// Datagrams sent.
    pub out_datagrams: u64,
}

/// One interface; packets an XDP program drops count as received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceCounters {
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Received packets dropped before the network stack.
    pub rx_dropped: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets dropped when sending.
    pub tx_dropped: u64,
}

impl ProcessCpu {
    /// User and system time together, in seconds.
    pub fn seconds(&self) -> f64 {
        self.user_seconds + self.system_seconds
    }

    /// CPU time of process `pid` so far; `None` if there is none.
    pub fn of(pid: u32) -> Option<Self> {
        proc::process_cpu(pid)
    }
}

impl NetCounters {
    /// The counters of `namespace` now.
    ///
    /// # Errors
    /// [`LabError::System`] if it cannot be entered, or the counters cannot be read.
    pub fn of(namespace: &Namespace) -> Result<Self, LabError> {
        namespace.run(proc::net_counters)?
    }
}

impl Sample {
    /// Takes a sample now; `seconds` is 0.
    pub fn take(processes: &[(String, u32)], namespaces: &[Namespace]) -> Self {
        let processes =
            processes.iter().filter_map(|(name, pid)| Some((name.clone(), ProcessCpu::of(*pid)?)));
        let counters = |namespace: &Namespace| {
            Some((namespace.name.clone(), NetCounters::of(namespace).ok()?))
        };
        Self {
            seconds: 0.0,
            processes: processes.collect(),
            cpus: proc::cpus(),
            namespaces: namespaces.iter().filter_map(counters).collect(),
        }
    }

    /// Growth of all counters since `earlier`. A counter that was not there earlier counts from zero.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let processes = self.processes.iter().map(|(name, now)| {
            let then = earlier.processes.get(name).copied().unwrap_or_default();
            (name.clone(), now.since(then))
        });
        let cpus =
            self.cpus.iter().enumerate().map(|(index, now)| {
                now.since(earlier.cpus.get(index).copied().unwrap_or_default())
            });
        let namespaces = self.namespaces.iter().map(|(name, now)| {
            let growth = match earlier.namespaces.get(name) {
                Some(then) => now.since(then),
                None => now.clone(),
            };
            (name.clone(), growth)
        });
        Self {
            seconds: self.seconds - earlier.seconds,
            processes: processes.collect(),
            cpus: cpus.collect(),
            namespaces: namespaces.collect(),
        }
    }
}

impl NetCounters {
    fn since(&self, earlier: &Self) -> Self {
        let interfaces = self.interfaces.iter().map(|(name, now)| {
            let then = earlier.interfaces.get(name).copied().unwrap_or_default();
            (name.clone(), now.since(then))
        });
        Self {
            udp4: self.udp4.since(earlier.udp4),
            udp6: self.udp6.since(earlier.udp6),
            interfaces: interfaces.collect(),
        }
    }
}

/// Differences, field by field; never below zero.
macro_rules! growth {
    ($type:ty, $minus:expr, $($field:ident),+) => {
        impl $type {
            fn since(&self, earlier: Self) -> Self {
                Self { $($field: $minus(self.$field, earlier.$field)),+ }
            }
        }
    };
}

fn less(now: f64, then: f64) -> f64 {
    (now - then).max(0.0)
}

growth!(ProcessCpu, less, user_seconds, system_seconds);
growth!(CpuTime, less, busy_seconds, softirq_seconds, total_seconds);
growth!(
    UdpCounters,
    u64::saturating_sub,
    in_datagrams,
    no_ports,
    in_errors,
    rcvbuf_errors,
    csum_errors,
    out_datagrams
);
growth!(
    InterfaceCounters,
    u64::saturating_sub,
    rx_packets,
    rx_bytes,
    rx_dropped,
    tx_packets,
    tx_bytes,
    tx_dropped
);

/// Samples in the order they were taken.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Time between samples as ordered, in seconds; a sample's own `seconds` is exact.
    pub interval_seconds: f64,
    /// The first is taken at the start, the last when the sampler is stopped.
    pub samples: Vec<Sample>,
}

impl Series {
    /// Growth of all counters between each sample and the next.
    pub fn intervals(&self) -> impl Iterator<Item = Sample> {
        self.samples.windows(2).map(|pair| pair[1].since(&pair[0]))
    }
}

/// Takes samples in a thread of its own until stopped or dropped.
#[derive(Debug)]
pub struct Sampler {
    shared: Arc<Shared>,
    begun: Instant,
    interval: Duration,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    processes: Mutex<Vec<(String, u32)>>,
    namespaces: Vec<Namespace>,
    samples: Mutex<Vec<Sample>>,
}

impl Shared {
    fn sample(&self, begun: Instant) {
        let processes = lock(&self.processes).clone();
        let seconds = begun.elapsed().as_secs_f64();
        let sample = Sample { seconds, ..Sample::take(&processes, &self.namespaces) };
        lock(&self.samples).push(sample);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sampler {
    /// Takes the first sample, then one every `interval` (at least a millisecond), as a rule a
    /// second: the kernel counts CPU time in hundredths.
    ///
    /// # Errors
    /// [`LabError::System`] if the thread cannot be started.
    pub fn start(interval: Duration, namespaces: &[Namespace]) -> Result<Self, LabError> {
        let interval = interval.max(Duration::from_millis(1));
        let shared = Arc::new(Shared {
            processes: Mutex::default(),
            namespaces: namespaces.to_vec(),
            samples: Mutex::default(),
        });
        let begun = Instant::now();
        shared.sample(begun);
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new()
            .name("lab-sampler".into())
            .spawn({
                let shared = Arc::clone(&shared);
                move || {
                    let mut next = begun;
                    loop {
                        // On a grid, so that a slow sample does not shift the later ones.
                        next = (next + interval).max(Instant::now());
                        let wait = next.saturating_duration_since(Instant::now());
                        if stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                            return;
                        }
                        shared.sample(begun);
                    }
                }
            })
            .map_err(|e| LabError::system("start a thread", e))?;
        Ok(Self { shared, begun, interval, stop: Some(stop), thread: Some(thread) })
    }

    /// From the next sample on, watches process `pid` as `name`; one that had this name before is
    /// no longer watched.
    pub fn watch(&self, name: impl Into<String>, pid: u32) {
        let name = name.into();
        let mut processes = lock(&self.shared.processes);
        processes.retain(|(other, _)| *other != name);
        processes.push((name, pid));
    }

    /// The samples so far.
    pub fn samples(&self) -> Vec<Sample> {
        lock(&self.shared.samples).clone()
    }

    /// Since the start: the clock of [`Sample::seconds`].
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Takes the last sample and ends.
    pub fn stop(mut self) -> Series {
        self.end();
        self.shared.sample(self.begun);
        let samples = std::mem::take(&mut *lock(&self.shared.samples));
        Series { interval_seconds: self.interval.as_secs_f64(), samples }
    }

    fn end(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It does not panic; if it did, the samples so far are still good.
            let _ = thread.join();
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampler_sees_work_and_stops_at_once() {
        let sampler = Sampler::start(Duration::from_millis(5), &[]).unwrap();
        sampler.watch("me", 1);
        sampler.watch("me", std::process::id());
        sampler.watch("nobody", u32::MAX);
        let deadline = Instant::now() + Duration::from_secs(20);
        let before = ProcessCpu::of(std::process::id()).unwrap();
        // Work until the kernel has counted it.
        while ProcessCpu::of(std::process::id()).unwrap().since(before).seconds() < 0.05 {
            assert!(Instant::now() < deadline, "no CPU time is counted");
        }
        while sampler.samples().len() < 3 {
            assert!(Instant::now() < deadline, "no samples are taken");
            std::thread::yield_now();
        }
        let series = sampler.stop();
        let last = series.samples.last().unwrap();
        assert!(last.processes["me"].seconds() >= 0.05);
        assert!(!last.processes.contains_key("nobody"));
        assert!(series.samples.windows(2).all(|pair| pair[0].seconds <= pair[1].seconds));
        let growth = last.since(&series.samples[0]);
        assert_eq!(growth.cpus.len(), last.cpus.len());
        assert!(growth.cpus.iter().map(|cpu| cpu.busy_seconds).sum::<f64>() > 0.0);
        assert_eq!(series.intervals().count(), series.samples.len() - 1);
        let json = serde_json::to_string(&series).unwrap();
        let back: Series = serde_json::from_str(&json).unwrap();
        assert_eq!(back.samples.len(), series.samples.len());
    }
}
