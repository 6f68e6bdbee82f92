//! Determines which CPUs an experiment can use, and how much CPU time some work takes.

use std::io;
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

/// Returns the CPUs that this process may use, by their numbers in `/proc/cpuinfo`. In a container,
/// these may be any of the machine's CPUs.
///
/// # Errors
/// Fails with the system's error if the CPUs cannot be determined.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0)).map_err(|error| {
        let error = io::Error::from(error);
        io::Error::new(error.kind(), format!("cannot tell which CPUs there are: {error}"))
    })?;
    Ok((0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).collect())
}

/// Runs `work`. Returns the CPU time that this thread spent in it, in seconds.
///
/// # Errors
/// Returns the error of `work`, or the system's error if the time cannot be read.
pub fn cpu_seconds<E: From<io::Error>>(work: impl FnOnce() -> Result<(), E>) -> Result<f64, E> {
    let time = || clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from);
    let begun = time().map_err(io::Error::from)?;
    work()?;
    let ended = time().map_err(io::Error::from)?;
    Ok((ended - begun).as_secs_f64())
}
