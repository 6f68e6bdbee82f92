//! Reads the host's clocks, whatever the time namespace of this process is.
//!
//! XDP programs read the host's `CLOCK_MONOTONIC`. In a time namespace (time_namespaces(7)), a
//! process reads a different time, and /proc shows different start times of processes. Both differ
//! from the host's values by a constant, which this module subtracts. So heartbeats, leases, tokens
//! and the identities of processes always use the host's time.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::OnceLock;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Clock ticks per second in /proc (USER_HZ). The value is the same on every architecture that has
/// BPF.
const TICKS: i64 = 100;
const SECOND: i64 = 1_000_000_000;

/// Offsets of the time namespace's clocks from the host's clocks, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Offsets {
    monotonic: i64,
    boottime: i64,
}

/// Returns the offsets of this process's time namespace. They are cached, because a process cannot
/// change its time namespace later: only a process with one thread may change it, and execve(2)
/// starts a new program.
fn offsets() -> Offsets {
    static OFFSETS: OnceLock<Offsets> = OnceLock::new();
    *OFFSETS.get_or_init(|| {
        let inode = |name: &str| fs::metadata(format!("/proc/self/ns/{name}")).map(|at| at.ino());
        // The file timens_offsets describes the namespace of new child processes, so it can be used
        // only if that is the process's own.
        match (inode("time"), inode("time_for_children")) {
            (Ok(own), Ok(children)) if own == children => {
                parse(&fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default())
            }
            _ => Offsets::default(),
        }
    })
}

fn parse(text: &str) -> Offsets {
    let mut offsets = Offsets::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(clock), Some(seconds), Some(nanoseconds)) =
            (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let (Ok(seconds), Ok(nanoseconds)) = (seconds.parse::<i64>(), nanoseconds.parse::<i64>())
        else {
            continue;
        };
        let offset = seconds.saturating_mul(SECOND).saturating_add(nanoseconds);
        match clock {
            "monotonic" => offsets.monotonic = offset,
            "boottime" => offsets.boottime = offset,
            _ => {}
        }
    }
    offsets
}

/// Returns the time of the host's `CLOCK_MONOTONIC`. Makes no system call (vDSO), except the first
/// time.
pub fn monotonic() -> Duration {
    // Linux always has this clock.
    let here = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
    let offset = offsets().monotonic;
    let difference = Duration::from_nanos(offset.unsigned_abs());
    if offset > 0 { here.saturating_sub(difference) } else { here + difference }
}

/// Converts a process's start time from its value in this process's /proc (proc_pid_stat(5), field
/// 22) to clock ticks since the host's boot.
pub fn start_ticks(here: u64) -> u64 {
    let offset = offsets().boottime.div_euclid(SECOND / TICKS);
    here.saturating_add_signed(offset.saturating_neg())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_offsets_are_read() {
        let text = "monotonic         10   500000000\nboottime       -3   999999999\n";
        assert_eq!(parse(text), Offsets { monotonic: 10_500_000_000, boottime: -2_000_000_001 });
        let broken = ["", "monotonic", "monotonic x 0", "monotonic 1", "realtime 1 0"];
        assert!(broken.iter().all(|text| parse(text) == Offsets::default()));
    }
}
