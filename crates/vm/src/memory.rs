//! The sandbox as the host sees it: bytes that are addressed by offset, every access checked.

use crate::op::Size;
use crate::trap::HelperError;

/// Bytes of a function's stack frame: what clang's BPF back end lets a function use.
pub const STACK_FRAME: usize = 512;
/// Bytes at the sandbox's end that are stack: a frame for each function that may be active.
pub const STACK: usize = STACK_FRAME * crate::check::MAX_CALL_DEPTH;
/// Offset of the program's first variable. Below it is nothing, so that no variable's address is null.
pub const DATA_START: usize = 64;
/// Bytes after the sandbox's end that an access at its last byte may reach, and nothing else does.
pub(crate) const SLACK: usize = 8;

/// A range of the sandbox, given by the program to a helper as two arguments, or chosen by the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

impl Region {
    /// `len` bytes at `offset`. Whether they are in the sandbox is checked where they are used.
    pub fn new(offset: u64, len: u64) -> Region {
        Region { offset, len }
    }
}

/// A sandbox's bytes.
#[derive(Debug)]
pub struct Memory<'m> {
    /// The sandbox and its slack.
    bytes: &'m mut [u8],
    /// The sandbox's size less one.
    mask: usize,
}

impl<'m> Memory<'m> {
    /// `bytes` has `SLACK` more than a power of two.
    pub(crate) fn new(bytes: &'m mut [u8]) -> Memory<'m> {
        let mask = bytes.len() - SLACK - 1;
        debug_assert!((mask + 1).is_power_of_two());
        Memory { bytes, mask }
    }

    /// Bytes of the sandbox.
    pub fn size(&self) -> usize {
        self.mask + 1
    }

    /// The bytes of a region.
    pub fn read(&self, region: Region) -> Result<&[u8], HelperError> {
        let (from, to) = self.range(region)?;
        Ok(&self.bytes[from..to])
    }

    /// The bytes of a region, to be written.
    pub fn write(&mut self, region: Region) -> Result<&mut [u8], HelperError> {
        let (from, to) = self.range(region)?;
        Ok(&mut self.bytes[from..to])
    }

    /// The eight bytes at `offset`, as the program would load them.
    pub fn read_u64(&self, offset: u64) -> Result<u64, HelperError> {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(self.read(Region::new(offset, 8))?);
        Ok(u64::from_le_bytes(bytes))
    }

    /// Writes eight bytes at `offset`, as the program would store them.
    pub fn write_u64(&mut self, offset: u64, value: u64) -> Result<(), HelperError> {
        self.write(Region::new(offset, 8))?.copy_from_slice(&value.to_le_bytes());
        Ok(())
    }

    fn range(&self, region: Region) -> Result<(usize, usize), HelperError> {
        let size = self.size() as u64;
        match region.offset.checked_add(region.len) {
            Some(end) if end <= size => {
                // The mask changes nothing that passed; a CPU that guesses past the check stays inside too.
                let from = region.offset as usize & self.mask;
                Ok((from, from + region.len as usize))
            }
            _ => Err(HelperError::Memory { offset: region.offset, len: region.len }),
        }
    }

    /// Loads from an address as the program does: the address is masked, as every one of the program's.
    pub(crate) fn load(&self, address: u64, size: Size) -> u64 {
        let at = address as usize & self.mask;
        let mut bytes = [0; 8];
        bytes[..size.bytes()].copy_from_slice(&self.bytes[at..at + size.bytes()]);
        u64::from_le_bytes(bytes)
    }

    /// Stores to an address as the program does.
    pub(crate) fn store(&mut self, address: u64, size: Size, value: u64) {
        let at = address as usize & self.mask;
        self.bytes[at..at + size.bytes()].copy_from_slice(&value.to_le_bytes()[..size.bytes()]);
    }
}
