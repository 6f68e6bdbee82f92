//! Counts the system calls of a process, with three tracepoints in the kernel.
//!
//! strace(1) counts the same calls, but stops the process twice per call. This counter hardly
//! changes the timing of the process. `bpf/syscalls.bpf.c` counts; this file loads it and reads the
//! counts.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;

use libbpf_rs::{Link, MapCore as _, MapFlags, Object, ObjectBuilder};
use serde::{Deserialize, Serialize};

use crate::LabError;

#[allow(
    missing_docs,
    non_camel_case_types,
    dead_code,
    unreachable_pub,
    unused_qualifications,
    reason = "generated from bpf/syscalls.h"
)]
mod abi {
    include!(concat!(env!("OUT_DIR"), "/syscalls.rs"));
}

/// Aligns the bytes of the BPF program to 8, as the ELF parser needs.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

static OBJECT: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/syscalls.bpf.o")));

/// Tracepoint to which each program is attached.
const PROGRAMS: [(&str, &str); 3] =
    [("entered", "sys_enter"), ("returned", "sys_exit"), ("switched", "sched_switch")];

/// System calls that have returned, of one kind or in total.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Calls {
    /// Number of calls.
    pub calls: u64,
    /// Number of calls that returned an error, such as EAGAIN.
    pub errors: u64,
    /// Time inside the calls on a CPU in seconds. It includes soft interrupts that the CPU handled
    /// in that time.
    pub cpu_seconds: f64,
    /// Time inside the calls off the CPU in seconds, because the thread waited or was preempted.
    pub waiting_seconds: f64,
}

impl std::ops::AddAssign for Calls {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.errors += other.errors;
        self.cpu_seconds += other.cpu_seconds;
        self.waiting_seconds += other.waiting_seconds;
    }
}

/// Counts the system calls of a process until the value is dropped.
#[derive(Debug)]
pub struct SyscallCounter {
    object: Object,
    // The BPF programs stay attached while these links exist.
    _links: Vec<Link>,
}

impl SyscallCounter {
    /// Starts to count the system calls of process `pid` with all its threads.
    ///
    /// # Errors
    /// Fails with [`LabError::System`] without CAP_BPF and CAP_PERFMON, or if the kernel has no
    /// system call tracepoints (CONFIG_FTRACE_SYSCALLS).
    pub fn start(pid: u32) -> Result<Self, LabError> {
        let failed = |error: libbpf_rs::Error| {
            LabError::system("count system calls", std::io::Error::other(error))
        };
        let space = std::fs::metadata("/proc/self/ns/pid")
            .map_err(|e| LabError::system("look at /proc/self/ns/pid", e))?;
        let mut open = ObjectBuilder::default();
        let object =
            open.open_memory(&OBJECT.0).and_then(|object| object.load()).map_err(failed)?;
        let watched = abi::syscalls_watched {
            device: space.dev(),
            inode: space.ino(),
            process: pid,
            padding: 0,
        };
        let map = object.maps().find(|map| map.name() == "watched");
        let map = map.ok_or_else(|| missing("map `watched`"))?;
        let value = [
            watched.device.to_ne_bytes().as_slice(),
            &watched.inode.to_ne_bytes(),
            &watched.process.to_ne_bytes(),
            &watched.padding.to_ne_bytes(),
        ]
        .concat();
        map.update(&0_u32.to_ne_bytes(), &value, MapFlags::ANY).map_err(failed)?;
        let mut links = Vec::new();
        for program in object.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            let point = PROGRAMS.iter().find(|(known, _)| *known == name);
            let (_, point) = point.ok_or_else(|| missing(&name))?;
            links.push(program.attach_raw_tracepoint(point).map_err(failed)?);
        }
        Ok(Self { object, _links: links })
    }

    /// Returns the system calls that have returned so far, by name. Calls in progress are not
    /// counted.
    ///
    /// # Errors
    /// Fails with [`LabError::System`] if the counts cannot be read.
    pub fn read(&self) -> Result<BTreeMap<String, Calls>, LabError> {
        let map = self.object.maps().find(|map| map.name() == "counts");
        let map = map.ok_or_else(|| missing("map `counts`"))?;
        let mut table = BTreeMap::new();
        for number in 0..=abi::SYSCALLS_MAX {
            let value = map
                .lookup(&number.to_ne_bytes(), MapFlags::ANY)
                .map_err(|e| LabError::system("read counts", std::io::Error::other(e)))?;
            let words: Vec<u64> = value
                .iter()
                .flat_map(|bytes| bytes.chunks_exact(8))
                .map(|word| word.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
                .collect();
            let [calls, errors, cpu_ns, off_ns] = words[..] else {
                return Err(missing("the map with counts of four words each"));
            };
            if calls > 0 {
                let seconds = |ns: u64| ns as f64 / 1e9;
                let (cpu_seconds, waiting_seconds) = (seconds(cpu_ns), seconds(off_ns));
                let row = Calls { calls, errors, cpu_seconds, waiting_seconds };
                table.insert(name(number), row);
            }
        }
        Ok(table)
    }
}

/// Returns the sum over all kinds of system calls.
pub fn all_calls(table: &BTreeMap<String, Calls>) -> Calls {
    table.values().fold(Calls::default(), |mut sum, calls| {
        sum += *calls;
        sum
    })
}

fn missing(what: &str) -> LabError {
    LabError::system(format!("find {what}"), std::io::ErrorKind::NotFound)
}

fn name(number: u32) -> String {
    let known = syscalls::Sysno::new(number as usize);
    known.map_or_else(|| format!("number {number}"), |known| known.name().to_owned())
}
