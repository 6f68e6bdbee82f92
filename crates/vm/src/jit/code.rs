//! Memory for compiled code. It is writable first and executable later, but never both at the same
//! time.

#![allow(unsafe_code, reason = "mapping memory")]

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use super::Machine;
use super::compile::{Helper, compile};
use super::enter::Glue;
use crate::check::{Checked, Function};
use crate::helper::{HelperHost, Helpers};

/// Page size in bytes, which is the smallest size of a mapping.
const PAGE: usize = 4096;

/// A function of the program that the host can call in compiled code.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) glue: Glue,
    /// Charge for entering the function: the sum over all its instructions.
    pub(super) cost: u32,
    /// Index of the function's first instruction.
    pub(super) at: u32,
}

/// The compiled code of a program, with the positions of its functions.
#[derive(Debug)]
pub(crate) struct Compiled<H: HelperHost> {
    pub(super) entries: Arc<[Entry]>,
    /// The table of helpers. It must stay, because the code contains the helpers' indices, costs
    /// and shims.
    helpers: Arc<Helpers<H>>,
    /// Size of the sandbox for which the code was compiled, in bytes.
    pub(super) memory: usize,
    /// The machine code, to which the entries point.
    code: Code,
}

impl<H: HelperHost> Compiled<H> {
    /// Compiles a program for a sandbox of `memory` bytes. `entries` are the functions that the
    /// host can call. Returns `None` if there is no compiler for this machine.
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
            // SAFETY: `compile` wrote a function of this type at this offset. The caller of the
            // function must uphold the requirements of `Glue`.
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

    /// Memory of the code in bytes, which includes whole pages and the list of entries.
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

// SAFETY: this value owns the mapping, which is not tied to the thread that created it.
unsafe impl Send for Code {}
// SAFETY: the code is never written after this value was created.
unsafe impl Sync for Code {}

impl Code {
    /// Creates an executable mapping with a copy of `bytes`.
    fn new(bytes: &[u8]) -> io::Result<Code> {
        let len = bytes.len();
        // SAFETY: the kernel chooses the address of the new mapping, so it overlaps no memory in
        // use.
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
        // SAFETY: the new mapping has `len` writable bytes, and does not overlap `bytes`.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), mapping.as_ptr(), len) };
        #[cfg(target_arch = "aarch64")]
        code.publish();
        // SAFETY: this value owns the mapping, and `mapping` is the only pointer to it.
        let changed = unsafe {
            libc::mprotect(mapping.as_ptr().cast(), len, libc::PROT_READ | libc::PROT_EXEC)
        };
        // If the call failed, `code` is dropped here, which unmaps it.
        if changed == 0 { Ok(code) } else { Err(io::Error::last_os_error()) }
    }

    /// Makes newly written code visible to the CPU's instruction fetch, because AArch64 has
    /// separate caches for data and instructions.
    #[cfg(target_arch = "aarch64")]
    fn publish(&self) {
        use std::arch::asm;

        let from = self.mapping.as_ptr() as usize;
        let to = from + self.len;
        let sizes: u64;
        // SAFETY: this only reads a register, and Linux allows user space to read it.
        unsafe { asm!("mrs {}, ctr_el0", out(reg) sizes, options(nomem, nostack)) };
        // Each field of the register is the base-2 logarithm of a cache line's size in words of
        // four bytes.
        let line = |field: u64| 4_usize << (field & 0xf);
        let (data, instructions) = (line(sizes >> 16), line(sizes));
        for at in (from & !(data - 1)..to).step_by(data) {
            // SAFETY: cleaning a cache line of the mapping only writes back its content.
            unsafe { asm!("dc cvau, {}", in(reg) at, options(nostack, preserves_flags)) };
        }
        // SAFETY: this is only a memory barrier.
        unsafe { asm!("dsb ish", options(nostack, preserves_flags)) };
        for at in (from & !(instructions - 1)..to).step_by(instructions) {
            // SAFETY: invalidating an instruction cache line only makes the CPU fetch it again.
            unsafe { asm!("ic ivau, {}", in(reg) at, options(nostack, preserves_flags)) };
        }
        // SAFETY: barriers.
        unsafe { asm!("dsb ish", "isb", options(nostack, preserves_flags)) };
    }

    /// Returns the address of the code at `offset`, which must be within it.
    fn at(&self, offset: usize) -> *const u8 {
        assert!(offset < self.len, "the offset must be within the code");
        self.mapping.as_ptr().wrapping_add(offset)
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, which has this length. Every call into the code
        // borrows the program, so no call is running.
        unsafe { libc::munmap(self.mapping.as_ptr().cast(), self.len) };
    }
}
