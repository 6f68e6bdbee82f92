//! Watches for activity of other programs and of the hypervisor during an attempt.

use std::fs;
use std::io::Read as _;
use std::sync::OnceLock;

use equic_netns::measure::{ProcessCpu, family_cpu_seconds};
use serde::{Deserialize, Serialize};

use crate::Noise;
use crate::counters::{Cpus, ticks_per_second};

/// Limits of other activity. Above them, an attempt counts as disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    /// Maximum share of all CPU time that the hypervisor may take, from 0 to 1.
    pub steal: f64,
    /// Maximum share of all CPU time that other programs may use, from 0 to 1.
    pub foreign: f64,
}

/// CPU time that the machine and this process have used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// CPU time of the machine. `None` if it cannot be read.
    cpus: Option<Cpus>,
    /// CPU time of this process and of those children that it has waited for, in seconds.
    ours: f64,
    /// CPU time of the kernel's threads for soft interrupts, in seconds.
    helpers: f64,
}

impl Reading {
    /// Reads the current times.
    pub fn now() -> Reading {
        Reading { cpus: Cpus::read().ok(), ours: family_cpu_seconds(), helpers: softirq_threads() }
    }

    /// Returns the activity of other programs and of the hypervisor since `earlier`. All programs
    /// that this process has started since then must have ended and been waited for.
    ///
    /// The kernel samples the machine's CPU time at each clock tick, but measures that of processes
    /// exactly. A difference of a few ticks therefore does not count as noise, however short the
    /// attempt was.
    #[must_use]
    pub fn since(self, earlier: Reading, bounds: Bounds) -> Noise {
        let (Some(before), Some(after)) = (earlier.cpus, self.cpus) else {
            return Noise::default();
        };
        let total = after.total - before.total;
        let ours = self.ours - earlier.ours;
        let helpers = self.helpers - earlier.helpers;
        let steal = after.steal - before.steal;
        let processes = after.processes - before.processes;
        let interrupts = after.interrupts - before.interrupts;
        // If the kernel does not account for interrupts exactly, the CPU time of a process includes
        // soft interrupts that occurred while it ran. The machine's time for processes does not
        // include them.
        let foreign = match interrupts_are_apart() {
            Some(false) => processes + interrupts - helpers - ours,
            Some(true) | None => processes - ours,
        };
        judge(total, steal, foreign, bounds)
    }
}

/// Returns the activity on the busier of two machines.
#[must_use]
pub fn worse(one: Noise, other: Noise) -> Noise {
    Noise {
        steal: one.steal.max(other.steal),
        foreign: one.foreign.max(other.foreign),
        too_much: one.too_much || other.too_much,
    }
}

fn judge(total: f64, steal: f64, foreign: f64, bounds: Bounds) -> Noise {
    if total <= 0.0 {
        return Noise::default();
    }
    let slack = 4.0 / ticks_per_second();
    let part = |seconds: f64| (seconds / total).clamp(0.0, 1.0);
    let too_much = |seconds: f64, bound: f64| seconds > slack && part(seconds) > bound;
    Noise {
        steal: part(steal),
        foreign: part(foreign),
        too_much: too_much(steal, bounds.steal) || too_much(foreign, bounds.foreign),
    }
}

/// Returns true if the kernel accounts for interrupts separately (CONFIG_IRQ_TIME_ACCOUNTING).
/// `None` if its configuration cannot be read.
fn interrupts_are_apart() -> Option<bool> {
    static ANSWER: OnceLock<Option<bool>> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
        let config = match fs::read_to_string(format!("/boot/config-{}", release.trim())) {
            Ok(config) => config,
            Err(_) => {
                let mut config = String::new();
                let packed = fs::File::open("/proc/config.gz").ok()?;
                flate2::read::GzDecoder::new(packed).read_to_string(&mut config).ok()?;
                config
            }
        };
        Some(config.lines().any(|line| line == "CONFIG_IRQ_TIME_ACCOUNTING=y"))
    })
}

/// Returns the CPU time so far of the kernel's threads for soft interrupts, in seconds. They work
/// for the measured traffic.
fn softirq_threads() -> f64 {
    static THREADS: OnceLock<Vec<u32>> = OnceLock::new();
    let threads = THREADS.get_or_init(|| {
        let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
        let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        pids.filter(|pid: &u32| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm"));
            name.is_ok_and(|name| name.starts_with("ksoftirqd/"))
        })
        .collect()
    });
    threads.iter().filter_map(|pid| Some(ProcessCpu::of(*pid)?.seconds())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { steal: 0.02, foreign: 0.05 };

    #[test]
    fn watch_judges_shares_as_noise_but_not_a_few_clock_ticks() {
        let noise = judge(10.0, 0.1, 0.4, BOUNDS);
        assert_eq!((noise.steal, noise.foreign, noise.too_much), (0.01, 0.04, false));
        assert!(judge(10.0, 0.3, 0.0, BOUNDS).too_much);
        assert!(judge(10.0, 0.0, 0.6, BOUNDS).too_much);
        // A difference of three clock ticks in a fifth of a second does not count as noise.
        assert!(!judge(0.2, 0.0, 3.0 / ticks_per_second(), BOUNDS).too_much);
        // Because of rounding, our own CPU time may be larger than the machine's total. The result
        // is then 0.
        assert_eq!(judge(10.0, 0.0, -1.0, BOUNDS).foreign, 0.0);
        assert_eq!(judge(0.0, 0.0, 0.0, BOUNDS), Noise::default());
    }

    #[test]
    fn watch_sees_cpu_time_of_foreign_processes() {
        // The CPU time of this child counts as foreign, because the child is waited for only after
        // the second reading.
        let mut command = std::process::Command::new("/bin/sh");
        command.args(["-c", "while :; do :; done"]);
        let before = Reading::now();
        let mut child = equic_netns::spawn(command).unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while ProcessCpu::of(child.id()).unwrap().seconds() < 0.5 {
            assert!(std::time::Instant::now() < deadline, "it does not run");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let noise = Reading::now().since(before, Bounds { steal: 1.0, foreign: 0.01 });
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(noise.too_much && noise.foreign > 0.01, "{noise:?}");
    }
}
