//! The memory of a sandbox as the host sees it: bytes at offsets, with a check on each access.

use crate::op::Size;
use crate::trap::HelperError;

/// Size of a function's stack frame in bytes. It is the limit of clang's BPF back end.
pub const STACK_FRAME: usize = 512;
/// Size in bytes of the stack, which is at the end of the sandbox. It has one frame for each
/// function on the call stack.
pub const STACK: usize = STACK_FRAME * crate::check::MAX_CALL_DEPTH;
/// Offset of the program's first variable in the sandbox. The bytes before it stay unused, so that
/// no variable has the address 0.
pub const DATA_START: usize = 64;
/// Number of additional bytes after the sandbox. An access of eight bytes that begins at the
/// sandbox's last byte extends into them.
pub(crate) const SLACK: usize = 8;

/// A range of bytes in the sandbox. A program passes it to a helper as two arguments, or the host
/// chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Offset of the first byte in the sandbox.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

impl Region {
    /// Creates a region of `len` bytes at `offset`. Each use of the region checks whether it is
    /// inside the sandbox.
    pub fn new(offset: u64, len: u64) -> Region {
        Region { offset, len }
    }
}

/// Access to the memory of a sandbox.
#[derive(Debug)]
pub struct Memory<'m> {
    /// The bytes of the sandbox, followed by its slack.
    bytes: &'m mut [u8],
    /// The sandbox's size minus one.
    mask: usize,
}

impl<'m> Memory<'m> {
    /// Creates a view. The length of `bytes` must be a power of two plus `SLACK`.
    pub(crate) fn new(bytes: &'m mut [u8]) -> Memory<'m> {
        let mask = bytes.len() - SLACK - 1;
        debug_assert!((mask + 1).is_power_of_two());
        Memory { bytes, mask }
    }

    /// Size of the sandbox in bytes.
    pub fn size(&self) -> usize {
        self.mask + 1
    }

    /// Returns the bytes of a region.
    ///
    /// # Errors
    /// Fails if the region is not inside the sandbox.
    pub fn read(&self, region: Region) -> Result<&[u8], HelperError> {
        let (from, to) = self.range(region)?;
        Ok(&self.bytes[from..to])
    }

    /// Returns the bytes of a region, for writing.
    ///
    /// # Errors
    /// Fails if the region is not inside the sandbox.
    pub fn write(&mut self, region: Region) -> Result<&mut [u8], HelperError> {
        let (from, to) = self.range(region)?;
        Ok(&mut self.bytes[from..to])
    }

    /// Reads eight bytes at `offset`, in the byte order of the program's loads.
    pub fn read_u64(&self, offset: u64) -> Result<u64, HelperError> {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(self.read(Region::new(offset, 8))?);
        Ok(u64::from_le_bytes(bytes))
    }

    /// Writes eight bytes at `offset`, in the byte order of the program's stores.
    pub fn write_u64(&mut self, offset: u64, value: u64) -> Result<(), HelperError> {
        self.write(Region::new(offset, 8))?.copy_from_slice(&value.to_le_bytes());
        Ok(())
    }

    fn range(&self, region: Region) -> Result<(usize, usize), HelperError> {
        let size = self.size() as u64;
        match region.offset.checked_add(region.len) {
            Some(end) if end <= size => {
                // An offset that passed the check is not changed by the mask. The mask keeps
                // speculative execution inside the sandbox, too.
                let from = region.offset as usize & self.mask;
                Ok((from, from + region.len as usize))
            }
            _ => Err(HelperError::Memory { offset: region.offset, len: region.len }),
        }
    }

    /// Loads from an address as the program does: the address is masked instead of checked.
    pub(crate) fn load(&self, address: u64, size: Size) -> u64 {
        let at = address as usize & self.mask;
        let mut bytes = [0; 8];
        bytes[..size.bytes()].copy_from_slice(&self.bytes[at..at + size.bytes()]);
        u64::from_le_bytes(bytes)
    }

    /// Stores to an address as the program does: the address is masked instead of checked.
    pub(crate) fn store(&mut self, address: u64, size: Size, value: u64) {
        let at = address as usize & self.mask;
        self.bytes[at..at + size.bytes()].copy_from_slice(&value.to_le_bytes()[..size.bytes()]);
    }
}
