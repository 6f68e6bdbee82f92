//! Reads bytes from a slice, and writes bytes into a slice, with a bounds check on each access.

use crate::varint::{VarInt, VarIntLen};
use core::fmt;

/// Error: the input ends inside the item to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnexpectedEnd;

/// Error: the bytes to be written do not fit into the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferFull;

/// Reads bytes from the front of a slice. A read that fails consumes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Creates a reader that starts at the first byte of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    /// The bytes that have not been read yet.
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Number of bytes that have not been read yet.
    pub const fn len(&self) -> usize {
        self.rest.len()
    }

    /// True if all bytes have been read.
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Reads the next `n` bytes.
    ///
    /// # Errors
    /// Fails if fewer than `n` bytes are left.
    #[inline]
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8], UnexpectedEnd> {
        let (taken, rest) = self.rest.split_at_checked(n).ok_or(UnexpectedEnd)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Reads all bytes that are left.
    pub fn take_rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.rest)
    }

    /// Reads the next `N` bytes.
    ///
    /// # Errors
    /// Fails if fewer than `N` bytes are left.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], UnexpectedEnd> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(UnexpectedEnd)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Reads one byte.
    ///
    /// # Errors
    /// Fails if no byte is left.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, UnexpectedEnd> {
        let (byte, rest) = self.rest.split_first().ok_or(UnexpectedEnd)?;
        self.rest = rest;
        Ok(*byte)
    }

    /// Reads two bytes, in network order.
    ///
    /// # Errors
    /// Fails if fewer than two bytes are left.
    pub fn u16(&mut self) -> Result<u16, UnexpectedEnd> {
        self.array().copied().map(u16::from_be_bytes)
    }

    /// Reads four bytes, in network order.
    ///
    /// # Errors
    /// Fails if fewer than four bytes are left.
    pub fn u32(&mut self) -> Result<u32, UnexpectedEnd> {
        self.array().copied().map(u32::from_be_bytes)
    }

    /// Reads a variable-length integer (RFC 9000 s.16), in its shortest or a longer encoding.
    ///
    /// # Errors
    /// Fails if the bytes end inside the integer.
    #[inline]
    pub fn varint(&mut self) -> Result<VarInt, UnexpectedEnd> {
        self.varint_and_len().map(|(value, _)| value)
    }

    /// Reads a variable-length integer. Returns it with the length of its encoding.
    ///
    /// # Errors
    /// Fails if the bytes end inside the integer.
    #[inline]
    pub fn varint_and_len(&mut self) -> Result<(VarInt, VarIntLen), UnexpectedEnd> {
        let len = VarIntLen::of_first_byte(*self.rest.first().ok_or(UnexpectedEnd)?);
        let value = match len {
            VarIntLen::One => u64::from(self.u8()?),
            VarIntLen::Two => u64::from(self.u16()?),
            VarIntLen::Four => u64::from(self.u32()?),
            VarIntLen::Eight => u64::from_be_bytes(*self.array()?),
        };
        Ok((VarInt::from_encoding(value, len), len))
    }

    /// Reads a variable-length integer `n`, and then returns the next `n` bytes.
    ///
    /// # Errors
    /// Fails if the input ends inside the integer or the bytes.
    #[inline]
    pub fn varint_bytes(&mut self) -> Result<&'a [u8], UnexpectedEnd> {
        let mut ahead = *self;
        let len = ahead.varint()?;
        let bytes = ahead.bytes(len.as_len())?;
        *self = ahead;
        Ok(bytes)
    }
}

/// Destination of an encoder's bytes: either a buffer, or a counter that only adds up their
/// lengths. Because the same encoding function uses both, the computed length of an item always
/// equals the length that is written.
pub(crate) trait Sink {
    fn bytes(&mut self, bytes: &[u8]) -> Result<(), BufferFull>;
    fn zeros(&mut self, n: usize) -> Result<(), BufferFull>;
    fn varint_of_len(&mut self, value: VarInt, len: VarIntLen) -> Result<(), BufferFull>;

    #[inline]
    fn u8(&mut self, value: u8) -> Result<(), BufferFull> {
        self.bytes(&[value])
    }

    #[inline]
    fn varint(&mut self, value: VarInt) -> Result<(), BufferFull> {
        self.varint_of_len(value, value.shortest())
    }

    fn varint_bytes(&mut self, bytes: &[u8]) -> Result<(), BufferFull> {
        self.varint(VarInt::try_from(bytes.len()).map_err(|_| BufferFull)?)?;
        self.bytes(bytes)
    }
}

/// A `Sink` that counts bytes and stores none.
#[derive(Default)]
pub(crate) struct Counter(usize);

impl Counter {
    /// Returns the number of bytes that `encode` writes.
    pub(crate) fn of(encode: impl FnOnce(&mut Counter) -> Result<(), BufferFull>) -> usize {
        let mut counter = Counter::default();
        // A counter is never full, so an error means that a value has no encoding. Such a value
        // gets the largest length, because no buffer can hold it.
        match encode(&mut counter) {
            Ok(()) => counter.0,
            Err(BufferFull) => usize::MAX,
        }
    }
}

impl Sink for Counter {
    fn bytes(&mut self, bytes: &[u8]) -> Result<(), BufferFull> {
        self.0 = self.0.saturating_add(bytes.len());
        Ok(())
    }

    #[inline]
    fn zeros(&mut self, n: usize) -> Result<(), BufferFull> {
        self.0 = self.0.saturating_add(n);
        Ok(())
    }

    #[inline]
    fn varint_of_len(&mut self, value: VarInt, len: VarIntLen) -> Result<(), BufferFull> {
        self.0 = self.0.saturating_add(len.bytes());
        if value <= len.max() { Ok(()) } else { Err(BufferFull) }
    }
}

/// Writes bytes into a slice, front to back. A write that fails writes nothing.
#[derive(Debug)]
pub struct Writer<'b> {
    buffer: &'b mut [u8],
    written: usize,
}

impl<'b> Writer<'b> {
    /// Creates a writer that starts at the first byte of `buffer`.
    pub const fn new(buffer: &'b mut [u8]) -> Self {
        Writer { buffer, written: 0 }
    }

    /// Number of bytes that have been written.
    pub const fn position(&self) -> usize {
        self.written
    }

    /// Number of bytes that still fit into the buffer.
    pub const fn remaining(&self) -> usize {
        self.buffer.len().saturating_sub(self.written)
    }

    /// The bytes that have been written.
    #[inline]
    pub fn written(&self) -> &[u8] {
        self.buffer.get(..self.written).unwrap_or_default()
    }

    /// The bytes that have been written, for changes in place (packet and header protection).
    #[inline]
    pub fn written_mut(&mut self) -> &mut [u8] {
        self.buffer.get_mut(..self.written).unwrap_or_default()
    }

    /// Returns the unused part of the buffer. A caller can write into it directly and then claim
    /// the bytes with [`Writer::reserve`].
    #[inline]
    pub fn unwritten_mut(&mut self) -> &mut [u8] {
        self.buffer.get_mut(self.written..).unwrap_or_default()
    }

    /// Discards everything written from `position` on. Does nothing if `position` is beyond the
    /// last written byte.
    #[inline]
    pub fn truncate(&mut self, position: usize) {
        self.written = self.written.min(position);
    }

    /// Claims the next `n` bytes of the buffer. The caller must fill them. Until then, they keep
    /// the buffer's old content.
    ///
    /// # Errors
    /// Fails if fewer than `n` bytes are free.
    #[inline]
    pub fn reserve(&mut self, n: usize) -> Result<&mut [u8], BufferFull> {
        let end = self.written.checked_add(n).ok_or(BufferFull)?;
        let reserved = self.buffer.get_mut(self.written..end).ok_or(BufferFull)?;
        self.written = end;
        Ok(reserved)
    }

    /// Writes `bytes`.
    ///
    /// # Errors
    /// Fails if the bytes do not fit into the buffer.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), BufferFull> {
        self.reserve(bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    /// Writes `n` zero bytes, which are also `n` PADDING frames.
    ///
    /// # Errors
    /// Fails if they do not fit into the buffer.
    #[inline]
    pub fn zeros(&mut self, n: usize) -> Result<(), BufferFull> {
        self.reserve(n)?.fill(0);
        Ok(())
    }

    /// Writes one byte.
    ///
    /// # Errors
    /// Fails if the buffer is full.
    #[inline]
    pub fn u8(&mut self, value: u8) -> Result<(), BufferFull> {
        self.bytes(&[value])
    }

    /// Writes `value` as a variable-length integer, in the shortest encoding.
    ///
    /// # Errors
    /// Fails if it does not fit into the buffer.
    #[inline]
    pub fn varint(&mut self, value: VarInt) -> Result<(), BufferFull> {
        Sink::varint(self, value)
    }

    /// Writes `value` as a variable-length integer of exactly `len`.
    ///
    /// # Errors
    /// Fails if the integer does not fit into the buffer, or if `value` is too large for this
    /// length.
    #[inline]
    pub fn varint_of_len(&mut self, value: VarInt, len: VarIntLen) -> Result<(), BufferFull> {
        Sink::varint_of_len(self, value, len)
    }

    /// Writes the length of `bytes` as a variable-length integer, then `bytes`.
    ///
    /// # Errors
    /// Fails if they do not fit into the buffer.
    pub fn varint_bytes(&mut self, bytes: &[u8]) -> Result<(), BufferFull> {
        self.atomically(|writer| Sink::varint_bytes(writer, bytes))
    }

    /// Overwrites bytes that were written earlier, from `position` on, with `value` as a
    /// variable-length integer of exactly `len`.
    ///
    /// # Errors
    /// Fails if some of these bytes have not been written yet, or if `value` is too large for this
    /// length.
    pub fn patch_varint(
        &mut self,
        position: usize,
        value: VarInt,
        len: VarIntLen,
    ) -> Result<(), BufferFull> {
        let place = self.written_mut().get_mut(position..).ok_or(BufferFull)?;
        Writer::new(place).varint_of_len(value, len)
    }

    /// Runs `write`. If it fails, everything that it has written is discarded.
    #[inline]
    pub fn atomically<T, E>(
        &mut self,
        write: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        let before = self.written;
        let result = write(self);
        self.kept(before, result)
    }

    /// Returns `result`. If it is an error, first discards everything written after position
    /// `before`. Together with a saved position, this does the same as [`Writer::atomically`]. Code
    /// that runs for every packet uses it, because the compiler may not inline the closure of
    /// `atomically`.
    #[inline(always)]
    pub(crate) fn kept<T, E>(&mut self, before: usize, result: Result<T, E>) -> Result<T, E> {
        if result.is_err() {
            self.truncate(before);
        }
        result
    }
}

impl Sink for Writer<'_> {
    #[inline]
    fn bytes(&mut self, bytes: &[u8]) -> Result<(), BufferFull> {
        Writer::bytes(self, bytes)
    }

    #[inline]
    fn zeros(&mut self, n: usize) -> Result<(), BufferFull> {
        Writer::zeros(self, n)
    }

    #[inline]
    fn varint_of_len(&mut self, value: VarInt, len: VarIntLen) -> Result<(), BufferFull> {
        if value > len.max() {
            return Err(BufferFull);
        }
        let prefix = len.prefix();
        // Arrays of a fixed size compile to one or two store instructions for each length. A slice
        // would compile to a call of `memcpy`.
        match (len, value.get().to_be_bytes()) {
            (VarIntLen::One, [.., a]) => Writer::bytes(self, &[a | prefix]),
            (VarIntLen::Two, [.., a, b]) => Writer::bytes(self, &[a | prefix, b]),
            (VarIntLen::Four, [.., a, b, c, d]) => Writer::bytes(self, &[a | prefix, b, c, d]),
            (VarIntLen::Eight, [a, b, c, d, e, f, g, h]) => {
                Writer::bytes(self, &[a | prefix, b, c, d, e, f, g, h])
            }
        }
    }
}

impl fmt::Display for UnexpectedEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the bytes end too early")
    }
}

impl fmt::Display for BufferFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the buffer has no room for the value")
    }
}

impl core::error::Error for UnexpectedEnd {}
impl core::error::Error for BufferFull {}
