//! The header of a ledger, which contains the ledger's owner and its totals.

use super::table::Memory;
use crate::abi;
use crate::config::c_name;
use crate::sys;
use crate::sys::region::atomic;

/// Fills in the header of a new ledger. The magic is written last, because it makes the ledger
/// valid.
pub(crate) fn write_header(memory: &Memory, name: &str, buckets: u32, member: &abi::equic_member) {
    let header = abi::equic_ledger_header {
        magic: 0,
        version: abi::EQUIC_ABI_VERSION,
        pid: member.pid,
        buckets,
        heartbeat_ns: sys::monotonic_ns(),
        start_ticks: member.start_ticks,
        name: c_name(name),
        ..abi::equic_ledger_header::default()
    };
    // SAFETY: `Memory` of this process has a valid, aligned, writable header, and no other code
    // reads it yet.
    unsafe { memory.header().write_volatile(header) };
    atomic!(AtomicU32, memory.header(), magic)
        .store(abi::EQUIC_ABI_MAGIC, std::sync::atomic::Ordering::Release);
}

/// Returns the number of connections that were open at the time when the header was read.
pub(crate) fn open_connections(header: &abi::equic_ledger_header) -> u64 {
    header.opened.saturating_sub(header.closed)
}
