//! Measures the cost of an experiment: CPU time of processes and of the machine, dropped datagrams,
//! and packets on interfaces.
//!
//! Start at [`Sampler`], which takes a sample at each interval and returns a [`Series`].
//! [`Sample::take`] takes a single [`Sample`]. All values are the kernel's counters.
//! [`Sample::since`] returns the difference of two samples. `proc` reads the files of proc(5).
//!
//! For more detail: [`SyscallCounter`] counts the system calls of a process, [`BpfRuns`] measures a
//! BPF program, [`Memory`] and [`cpu_time`] measure one process.

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

/// All counters at one time, or their increase between two samples.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since the sampler was started. In a difference: seconds between the two samples.
    pub seconds: f64,
    /// CPU time of the watched processes, by the names given to [`Sampler::watch`]. A process that
    /// has ended is missing in later samples.
    pub processes: BTreeMap<String, ProcessCpu>,
    /// Time of each CPU of the machine, by CPU number.
    pub cpus: Vec<CpuTime>,
    /// Network counters by the name of the namespace. A namespace whose lab was removed is missing
    /// in later samples.
    pub namespaces: BTreeMap<String, NetCounters>,
}

/// CPU time of a process with all its threads, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessCpu {
    /// Time in user space, in seconds.
    pub user_seconds: f64,
    /// Time in the kernel on behalf of the process, in seconds.
    pub system_seconds: f64,
}

/// Time of one CPU in seconds, by use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuTime {
    /// Time that is neither idle nor waiting for I/O, in seconds.
    pub busy_seconds: f64,
    /// Time in soft interrupts, mainly for receiving packets, in seconds.
    pub softirq_seconds: f64,
    /// Total time in seconds, including idle time. The kernel corrects idle time afterwards, so
    /// over a fraction of a second the total can grow less than `busy_seconds`.
    pub total_seconds: f64,
}

/// Network counters of a namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetCounters {
    /// UDP over IPv4.
    pub udp4: UdpCounters,
    /// UDP over IPv6.
    pub udp6: UdpCounters,
    /// Counters of each interface, by its name.
    pub interfaces: BTreeMap<String, InterfaceCounters>,
}

/// UDP counters of RFC 4113, with Linux's additions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UdpCounters {
    /// Datagrams delivered to sockets.
    pub in_datagrams: u64,
    /// Datagrams to ports without a listener.
    pub no_ports: u64,
    /// Number of datagrams that could not be delivered. Includes those in `rcvbuf_errors` and
    /// `csum_errors`.
    pub in_errors: u64,
    /// Number of datagrams dropped because the socket's receive buffer was full.
    pub rcvbuf_errors: u64,
    /// Datagrams dropped because of a wrong checksum.
    pub csum_errors: u64,
    /// Datagrams sent.
    pub out_datagrams: u64,
}

/// Counters of one interface. Packets that an XDP program drops count as received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceCounters {
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Number of received packets that were dropped before the network stack.
    pub rx_dropped: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets dropped when sending.
    pub tx_dropped: u64,
}

impl ProcessCpu {
    /// Returns the sum of user and system time, in seconds.
    pub fn seconds(&self) -> f64 {
        self.user_seconds + self.system_seconds
    }

    /// Reads the CPU time of process `pid`. Returns `None` if there is no such process.
    pub fn of(pid: u32) -> Option<Self> {
        proc::process_cpu(pid)
    }
}

impl NetCounters {
    /// Reads the counters of `namespace`.
    ///
    /// # Errors
    /// Fails with [`LabError::System`] if the namespace cannot be entered, or if its counters
    /// cannot be read.
    pub fn of(namespace: &Namespace) -> Result<Self, LabError> {
        namespace.run(proc::net_counters)?
    }
}

impl Sample {
    /// Takes a single sample now. Its `seconds` is 0.
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

    /// Returns how much all counters have increased since `earlier`. A counter that `earlier` does
    /// not contain counts from zero.
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

/// Subtracts all fields of two structures. A difference is never below zero.
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

/// Samples in the order in which they were taken.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Planned time between samples, in seconds. The exact time of a sample is in its `seconds`.
    pub interval_seconds: f64,
    /// The samples. The first is taken at the start, the last when the sampler is stopped.
    pub samples: Vec<Sample>,
}

impl Series {
    /// Returns the increase of all counters between each sample and the next.
    pub fn intervals(&self) -> impl Iterator<Item = Sample> {
        self.samples.windows(2).map(|pair| pair[1].since(&pair[0]))
    }
}

/// Takes samples in a separate thread until it is stopped or dropped.
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
    /// Takes the first sample, and then one every `interval` (at least a millisecond). An interval
    /// of one second is usual, because the kernel counts CPU time in hundredths of a second.
    ///
    /// # Errors
    /// Fails with [`LabError::System`] if the thread cannot be started.
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
                        // The times of samples are fixed multiples of the interval, so a slow
                        // sample does not delay the later ones.
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

    /// Includes process `pid` under `name` from the next sample on. If another process had this
    /// name, it is replaced.
    pub fn watch(&self, name: impl Into<String>, pid: u32) {
        let name = name.into();
        let mut processes = lock(&self.shared.processes);
        processes.retain(|(other, _)| *other != name);
        processes.push((name, pid));
    }

    /// Returns the samples taken so far.
    pub fn samples(&self) -> Vec<Sample> {
        lock(&self.shared.samples).clone()
    }

    /// Returns the time since the sampler was started, as in [`Sample::seconds`].
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Takes the last sample, ends the sampler and returns all samples.
    pub fn stop(mut self) -> Series {
        self.end();
        self.shared.sample(self.begun);
        let samples = std::mem::take(&mut *lock(&self.shared.samples));
        Series { interval_seconds: self.interval.as_secs_f64(), samples }
    }

    fn end(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The thread does not panic. Even if it did, the samples so far would be valid.
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
    fn sampler_measures_cpu_time_and_stops_at_once() {
        let sampler = Sampler::start(Duration::from_millis(5), &[]).unwrap();
        sampler.watch("me", 1);
        sampler.watch("me", std::process::id());
        sampler.watch("nobody", u32::MAX);
        let deadline = Instant::now() + Duration::from_secs(20);
        let before = ProcessCpu::of(std::process::id()).unwrap();
        // Busy loop until the kernel's counter shows the CPU time.
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
