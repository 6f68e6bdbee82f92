//! Measures how long BPF programs run. The kernel counts this only while its statistics are
//! enabled.

use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use serde::{Deserialize, Serialize};

use crate::LabError;

/// Keeps the kernel's statistics of BPF programs enabled. While the value exists, the kernel
/// measures every BPF program of the machine. This costs two reads of the clock per run.
#[derive(Debug)]
pub struct BpfStatistics {
    _on: OwnedFd,
}

/// Runs of one BPF program since it was loaded. The kernel counts runs only while its BPF
/// statistics are enabled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BpfRuns {
    /// Number of runs.
    pub count: u64,
    /// Total time of all runs, in nanoseconds.
    pub nanoseconds: u64,
}

fn descriptor(returned: i32, what: &str) -> Result<OwnedFd, LabError> {
    if returned < 0 {
        return Err(LabError::system(what, std::io::Error::from_raw_os_error(-returned)));
    }
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(returned) })
}

impl BpfStatistics {
    /// Enables the kernel's statistics of BPF programs.
    ///
    /// # Errors
    /// Fails with [`LabError::System`] without CAP_SYS_ADMIN, or before Linux 5.8.
    pub fn enable() -> Result<Self, LabError> {
        // SAFETY: bpf_enable_stats takes a number and returns a new descriptor.
        let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
        Ok(Self { _on: descriptor(fd, "turn on the statistics of BPF programs")? })
    }
}

impl BpfRuns {
    /// Reads the counters of the program with this ID.
    ///
    /// # Errors
    /// Fails with [`LabError::System`] if there is no such program.
    pub fn of(program: u32) -> Result<Self, LabError> {
        let what = || format!("look at BPF program {program}");
        // SAFETY: bpf_prog_get_fd_by_id takes a number and returns a new descriptor.
        let fd = descriptor(unsafe { libbpf_sys::bpf_prog_get_fd_by_id(program) }, &what())?;
        let mut info = libbpf_sys::bpf_prog_info::default();
        let mut length = size_of_val(&info) as u32;
        // SAFETY: the structure has the given length and lives during the call.
        let returned = unsafe {
            libbpf_sys::bpf_prog_get_info_by_fd(fd.as_raw_fd(), &raw mut info, &raw mut length)
        };
        if returned < 0 {
            return Err(LabError::system(what(), std::io::Error::from_raw_os_error(-returned)));
        }
        Ok(Self { count: info.run_cnt, nanoseconds: info.run_time_ns })
    }

    /// Returns the runs since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            count: self.count.saturating_sub(earlier.count),
            nanoseconds: self.nanoseconds.saturating_sub(earlier.nanoseconds),
        }
    }

    /// Returns the average time of a run in nanoseconds, or `None` if there were no runs.
    pub fn mean_ns(self) -> Option<f64> {
        (self.count > 0).then(|| self.nanoseconds as f64 / self.count as f64)
    }
}
