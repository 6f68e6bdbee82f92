//! Memory for compiled code: written while it is not executable, executable once it is not writable.

#![allow(unsafe_code, reason = "mapping memory")]

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use super::Machine;
use super::compile::{Helper, compile};
use super::enter::Glue;
use crate::check::{Checked, Function};
use crate::helper::{HelperHost, Helpers};

/// Bytes of a page, which a mapping takes at least.
const PAGE: usize = 4096;

/// Entry of a function of the program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) glue: Glue,
    /// Charge on the budget for entering: that for the function's instructions.
    pub(super) cost: u32,
    /// Its first instruction.
    pub(super) at: u32,
}

/// A program's code, and where in it things are.
#[derive(Debug)]
pub(crate) struct Compiled<H: HelperHost> {
    pub(super) entries: Arc<[Entry]>,
    /// Those whose places in the table, costs and shims are in the code.
    helpers: Arc<Helpers<H>>,
    /// Bytes of the sandbox that the code is for.
    pub(super) memory: usize,
    /// The entries point into it.
    code: Code,
}

impl<H: HelperHost> Compiled<H> {
    /// Compiles a program, whose `entries` are the functions that are called from outside, for a sandbox of
    /// `memory` bytes. Nothing where there is no compiler for the machine.
    pub(crate) fn new(
        checked: &Checked,
        entries: &[Function],
        memory: usize,
        helpers: Arc<Helpers<H>>,
    ) -> io::Result<Option<Compiled<H>>> {
        let output = compile::<Machine>(checked, entries, memory, |place| Helper {
            cost: helpers.get(place).cost,
            shim: helpers.shims.address(place),
        });
        let code = Code::new(&output.bytes)?;
        let entry = |(function, offset): (&Function, usize)| Entry {
            // SAFETY: at this offset `compile` wrote a function of this type. Whoever calls it sees to the rest.
            glue: unsafe { std::mem::transmute::<*const u8, Glue>(code.at(offset)) },
            cost: checked.cost(*function),
            at: function.start,
        };
        let entries = entries.iter().zip(output.entries).map(entry).collect();
        Ok(Some(Compiled { entries, helpers, memory, code }))
    }

    pub(super) fn helpers(&self) -> &Helpers<H> {
        &self.helpers
    }

    /// Bytes that it takes: whole pages of code, and the entries.
    pub(crate) fn size(&self) -> usize {
        self.code.len.next_multiple_of(PAGE) + size_of_val(&*self.entries)
    }
}

/// Executable code.
#[derive(Debug)]
struct Code {
    mapping: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone and is not tied to the thread that made it.
unsafe impl Send for Code {}
// SAFETY: nobody writes to it any more.
unsafe impl Sync for Code {}

impl Code {
    /// Maps `bytes` as code.
    fn new(bytes: &[u8]) -> io::Result<Code> {
        let len = bytes.len();
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that is in use.
        let mapping = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if mapping == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapping = NonNull::new(mapping.cast::<u8>()).ok_or_else(io::Error::last_os_error)?;
        let code = Code { mapping, len };
        // SAFETY: the new mapping has `len` bytes, writable, and is not `bytes`.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), mapping.as_ptr(), len) };
        #[cfg(target_arch = "aarch64")]
        code.publish();
        // SAFETY: the mapping is this value's own; nothing but `mapping` refers to it.
        let changed = unsafe {
            libc::mprotect(mapping.as_ptr().cast(), len, libc::PROT_READ | libc::PROT_EXEC)
        };
        // Dropping `code` unmaps it.
        if changed == 0 { Ok(code) } else { Err(io::Error::last_os_error()) }
    }

    /// Has instructions fetched from what was written: AArch64 keeps its two caches apart.
    #[cfg(target_arch = "aarch64")]
    fn publish(&self) {
        use std::arch::asm;

        let from = self.mapping.as_ptr() as usize;
        let to = from + self.len;
        let sizes: u64;
        // SAFETY: it reads a register that Linux lets everybody read.
        unsafe { asm!("mrs {}, ctr_el0", out(reg) sizes, options(nomem, nostack)) };
        // Each field is the size of a line: the logarithm of words of four bytes.
        let line = |field: u64| 4_usize << (field & 0xf);
        let (data, instructions) = (line(sizes >> 16), line(sizes));
        for at in (from & !(data - 1)..to).step_by(data) {
            // SAFETY: cleaning a line of the mapping writes to memory what was written to it anyway.
            unsafe { asm!("dc cvau, {}", in(reg) at, options(nostack, preserves_flags)) };
        }
        // SAFETY: a barrier.
        unsafe { asm!("dsb ish", options(nostack, preserves_flags)) };
        for at in (from & !(instructions - 1)..to).step_by(instructions) {
            // SAFETY: a line that is not in the cache is fetched again.
            unsafe { asm!("ic ivau, {}", in(reg) at, options(nostack, preserves_flags)) };
        }
        // SAFETY: barriers.
        unsafe { asm!("dsb ish", "isb", options(nostack, preserves_flags)) };
    }

    /// The address of the code at `offset`, which is within it.
    fn at(&self, offset: usize) -> *const u8 {
        assert!(offset < self.len, "an offset within the code");
        self.mapping.as_ptr().wrapping_add(offset)
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, of this length. Calls into it borrow the program.
        unsafe { libc::munmap(self.mapping.as_ptr().cast(), self.len) };
    }
}
