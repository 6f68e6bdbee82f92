//! The CPUs that an experiment can choose from.

use std::io;

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

/// The CPUs this process may use, by their numbers in `/proc/cpuinfo`: a container may have any of the machine's.
///
/// # Errors
/// If the system does not tell.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0)).map_err(|error| {
        let error = io::Error::from(error);
        io::Error::new(error.kind(), format!("cannot tell which CPUs there are: {error}"))
    })?;
    Ok((0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).collect())
}
