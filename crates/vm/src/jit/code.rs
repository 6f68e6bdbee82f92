//! Memory for compiled code: written while it is not executable, executable once it is not writable.

#![allow(unsafe_code, reason = "mapping memory")]

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use super::x64;
use crate::check::{Checked, Function};
use crate::helper::{Helpers, Host};

/// A program's code, and where in it things are.
#[derive(Debug)]
pub(crate) struct Compiled<H: Host> {
    code: Code,
    /// Those whose places in the table are in the code.
    helpers: Arc<Helpers<H>>,
    glue: usize,
    /// Offset of each instruction's code, in the program's order.
    offsets: Vec<u32>,
    /// Bytes of the sandbox that the code is for.
    pub(super) memory: usize,
}

impl<H: Host> Compiled<H> {
    /// Compiles a program for a sandbox of `memory` bytes.
    pub(crate) fn new(
        checked: &Checked,
        memory: usize,
        helpers: Arc<Helpers<H>>,
    ) -> io::Result<Compiled<H>> {
        let output = x64::compile(checked, memory, |place| helpers.get(place).cost);
        let code = Code::new(&output.bytes)?;
        Ok(Compiled { code, helpers, glue: output.glue, offsets: output.offsets, memory })
    }

    pub(super) fn helpers(&self) -> &Helpers<H> {
        &self.helpers
    }

    /// The addresses of the glue and of a function of the program.
    #[inline]
    pub(super) fn addresses(&self, function: Function) -> (*const u8, *const u8) {
        let offset = self.offsets[function.start as usize] as usize;
        (self.code.at(self.glue), self.code.at(offset))
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
        // SAFETY: the mapping is this value's own; nothing but `mapping` refers to it.
        let changed = unsafe {
            libc::mprotect(mapping.as_ptr().cast(), len, libc::PROT_READ | libc::PROT_EXEC)
        };
        // Dropping `code` unmaps it.
        if changed == 0 { Ok(code) } else { Err(io::Error::last_os_error()) }
    }

    /// The address of the code at `offset`, which is within it.
    #[inline]
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
