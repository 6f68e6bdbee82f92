//! Audit log of changes to the settings and lists of a running gateway, by any process.
//!
//! Other processes change a gateway by storing into its maps, and the kernel does not report such
//! stores. So every [`Control`] outside the gateway's own process records its changes in a ring.
//! The ring is in a map that is bound to the XDP program. `equic gateway run` reports new entries.
//!
//! A process that can write to the maps can also omit its changes or record false ones. So the log
//! is useful only among processes that trust each other. Servers at the gateway's socket do not get
//! this map.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::Control;
use crate::abi;
use crate::config::from_c_name;
use crate::sync::atomic::fence;
use crate::sys;
use crate::sys::region::{Shared, atomic};

/// A change that another process made to the gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditEntry {
    /// Number of the change since the gateway was loaded.
    pub number: u64,
    /// Time of the change, in milliseconds of Unix time.
    pub time_ms: u64,
    /// Process that made the change, as a pid in its own pid namespace.
    pub pid: u32,
    /// Name of the process.
    pub process: String,
    /// Effective user ID of the process.
    pub uid: u32,
    /// ID of the user that logged in, before `sudo` and the like (`/proc/self/loginuid`). `None` if
    /// it is unknown.
    pub login: Option<u32>,
    /// Description of the change.
    pub what: String,
}

/// Capacity of the audit log, in entries.
const ENTRIES: u64 = abi::EQUIC_AUDIT_ENTRIES as u64;

impl Control {
    /// Records in the audit log of another process's gateway what this process has done. `what` is
    /// cut if it is too long. The methods of this type record their changes themselves.
    pub fn note(&self, what: &str) {
        let (Some(memory), None) = (&self.maps.audit, self.own.upgrade()) else { return };
        let pointer = memory.pointer();
        let number = atomic!(AtomicU64, pointer, next).fetch_add(1, Relaxed);
        let at = (number % ENTRIES) as usize;
        atomic!(AtomicU64, pointer, entry[at].sequence).store(0, Relaxed);
        fence(Release);
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let (what, process) = (printable(what), printable(&sys::process_name()));
        let length = what.len().min(capacity());
        atomic!(AtomicU64, pointer, entry[at].time_ms).store(time, Relaxed);
        atomic!(AtomicU32, pointer, entry[at].pid).store(std::process::id(), Relaxed);
        atomic!(AtomicU32, pointer, entry[at].uid).store(sys::user_id(), Relaxed);
        let login = sys::login_id().unwrap_or(u32::MAX);
        atomic!(AtomicU32, pointer, entry[at].login).store(login, Relaxed);
        atomic!(AtomicU32, pointer, entry[at].length).store(length as u32, Relaxed);
        let name = process.bytes().chain(std::iter::repeat(0));
        for (index, byte) in name.take(15).enumerate() {
            atomic!(AtomicU8, pointer, entry[at].process[index]).store(byte, Relaxed);
        }
        for (index, byte) in what.bytes().take(length).enumerate() {
            atomic!(AtomicU8, pointer, entry[at].text[index]).store(byte, Relaxed);
        }
        atomic!(AtomicU64, pointer, entry[at].sequence).store(number + 1, Release);
    }

    /// Returns the changes by other processes that are still in the audit log, from number `from`
    /// on. The second value is the number to start from in the next call.
    pub fn audit(&self, from: u64) -> (Vec<AuditEntry>, u64) {
        let Some(memory) = &self.maps.audit else { return (Vec::new(), from) };
        let next = atomic!(AtomicU64, memory.pointer(), next).load(Acquire);
        let mut entries = Vec::new();
        let mut number = from.clamp(next.saturating_sub(ENTRIES), next);
        while number < next {
            match read(memory, number) {
                Some(entry) => entries.push(entry),
                // The entry is still being written. If its writer died, the entry is skipped as
                // soon as enough others follow.
                None if next - number < ENTRIES / 2 => break,
                None => {}
            }
            number += 1;
        }
        (entries, number)
    }
}

fn capacity() -> usize {
    abi::equic_audit_entry::default().text.len()
}

fn printable(text: &str) -> String {
    text.chars().map(|c| if c == ' ' || c.is_ascii_graphic() { c } else { '?' }).collect()
}

/// Returns the entry with this number, or `None` if it is incomplete or was overwritten.
fn read(memory: &Shared<abi::equic_audit>, number: u64) -> Option<AuditEntry> {
    let (pointer, at) = (memory.pointer(), (number % ENTRIES) as usize);
    let sequence = atomic!(AtomicU64, pointer, entry[at].sequence);
    if sequence.load(Acquire) != number + 1 {
        return None;
    }
    let name: Vec<std::ffi::c_char> = (0..15)
        .map(|index| atomic!(AtomicU8, pointer, entry[at].process[index]).load(Relaxed) as _)
        .collect();
    let length = atomic!(AtomicU32, pointer, entry[at].length).load(Relaxed) as usize;
    let text: Vec<u8> = (0..length.min(capacity()))
        .map(|index| atomic!(AtomicU8, pointer, entry[at].text[index]).load(Relaxed))
        .collect();
    let login = atomic!(AtomicU32, pointer, entry[at].login).load(Relaxed);
    let entry = AuditEntry {
        number,
        time_ms: atomic!(AtomicU64, pointer, entry[at].time_ms).load(Relaxed),
        pid: atomic!(AtomicU32, pointer, entry[at].pid).load(Relaxed),
        process: printable(&from_c_name(&name)),
        uid: atomic!(AtomicU32, pointer, entry[at].uid).load(Relaxed),
        login: (login != u32::MAX).then_some(login),
        what: printable(&String::from_utf8_lossy(&text)),
    };
    fence(Acquire);
    (sequence.load(Relaxed) == number + 1).then_some(entry)
}
