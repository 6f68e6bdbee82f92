//! Detailed measurements of one process: CPU time in nanoseconds, and memory in use.

use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// Memory of a process, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Resident set: the process's pages that are in memory.
    pub rss_bytes: u64,
    /// Proportional set: like the resident set, but each shared page is divided by the number of
    /// processes that share it.
    pub pss_bytes: u64,
}

impl Memory {
    /// Reads the memory use of process `pid` from `/proc/PID/smaps_rollup`. Returns `None` if the
    /// process has ended.
    pub fn of(pid: u32) -> Option<Self> {
        parse(&std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?)
    }
}

fn parse(rollup: &str) -> Option<Memory> {
    let bytes = |name: &str| {
        let rest = rollup.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    Some(Memory { rss_bytes: bytes("Rss")?, pss_bytes: bytes("Pss")? })
}

/// Returns the exact CPU time of process `pid` with all its threads, or `None` if it has ended. In
/// contrast to [`ProcessCpu`](super::ProcessCpu), it does not separate user space and kernel.
pub fn cpu_time(pid: u32) -> Option<Duration> {
    let clock = clock_getcpuclockid(Pid::from_raw(i32::try_from(pid).ok()?)).ok()?;
    Some(clock_gettime(clock).ok()?.into())
}

/// Returns the CPU time in seconds of this process and of those children that have ended and were
/// waited for.
pub fn family_cpu_seconds() -> f64 {
    let seconds = |who| {
        // getrusage(2) fails only for invalid arguments.
        getrusage(who).map_or(0.0, |usage| {
            let times = [usage.user_time(), usage.system_time()];
            times.iter().map(|t| t.tv_sec() as f64 + t.tv_usec() as f64 / 1e6).sum()
        })
    };
    seconds(UsageWho::RUSAGE_SELF) + seconds(UsageWho::RUSAGE_CHILDREN)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn process_memory_is_read_from_its_rollup() {
        let text = "55-7f ---p 00000000 00:00 0   [rollup]\nRss:  1160 kB\nPss:   233 kB\nPss_Dirty: 92 kB\n";
        let memory = Memory { rss_bytes: 1160 * 1024, pss_bytes: 233 * 1024 };
        assert_eq!(parse(text), Some(memory));
        assert_eq!(parse("Rss: many kB\nPss: 1 kB\n"), None);
        assert_eq!(Memory::of(u32::MAX), None);
    }

    #[test]
    fn process_memory_and_cpu_time_are_measured() {
        let me = std::process::id();
        // Write to the memory, so that its pages are allocated.
        let block = vec![1_u8; 32 << 20];
        let with = Memory::of(me).unwrap();
        assert_eq!(block.iter().map(|byte| u64::from(*byte)).sum::<u64>(), 32 << 20);
        drop(block);
        assert!(with.rss_bytes >= 32 << 20 && with.pss_bytes <= with.rss_bytes, "{with:?}");
        let (before, family) = (cpu_time(me).unwrap(), family_cpu_seconds());
        let deadline = Instant::now() + Duration::from_secs(20);
        while cpu_time(me).unwrap() < before + Duration::from_millis(30) {
            assert!(Instant::now() < deadline, "no CPU time is counted");
        }
        assert!(family_cpu_seconds() > family);
        assert_eq!(cpu_time(u32::MAX), None);
    }
}
