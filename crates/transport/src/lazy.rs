//! Values that are allocated only when they are needed, and released when they are empty. Most
//! connections never need such a value, or need it only for a while.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};

use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha12Rng;

/// A type whose default value exists as a `'static` reference. So the value can be read before
/// memory is allocated for it.
pub(crate) trait StaticDefault: Default + 'static {
    const STATIC_DEFAULT: &'static Self;
}

impl<T: 'static> StaticDefault for VecDeque<T> {
    const STATIC_DEFAULT: &'static VecDeque<T> = &VecDeque::new();
}

/// A value that is allocated on the first mutable access.
#[derive(Debug)]
pub(crate) struct LazyBox<T>(Option<Box<T>>);

impl<T> LazyBox<T> {
    /// Returns the value for mutable access, or `None` if it is not allocated, so that it has its
    /// default value.
    pub(crate) fn get_mut_if_allocated(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }
}

impl<T> Default for LazyBox<T> {
    fn default() -> LazyBox<T> {
        LazyBox(None)
    }
}

impl<T: StaticDefault> Deref for LazyBox<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or(T::STATIC_DEFAULT)
    }
}

impl<T: StaticDefault> DerefMut for LazyBox<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }
}

/// A buffer for a part of a byte stream. If it is empty, it can be released, and created again from
/// its offset in the stream.
pub(crate) trait Buffer {
    /// Creates an empty buffer at this offset of the stream.
    fn at(offset: u64) -> Self;
    /// Returns the buffer's offset in the stream if the buffer is empty, otherwise `None`.
    fn empty_at(&self) -> Option<u64>;
}

/// A buffer on the heap. While the buffer is empty, it is not allocated, and only its offset is
/// kept.
#[derive(Debug)]
pub(crate) struct LazyBuf<T> {
    buffer: Option<Box<T>>,
    offset: u64,
}

impl<T: Buffer> LazyBuf<T> {
    /// Returns the buffer, or `None` if it is empty and therefore not allocated.
    #[inline]
    pub(crate) fn get(&self) -> Option<&T> {
        self.buffer.as_deref()
    }

    /// Returns the buffer for mutable access, and allocates it if necessary.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        let offset = self.offset;
        self.buffer.get_or_insert_with(|| Box::new(T::at(offset)))
    }

    /// Releases the buffer if it is empty.
    pub(crate) fn shrink(&mut self) {
        if let Some(offset) = self.buffer.as_ref().and_then(|buffer| buffer.empty_at()) {
            (self.buffer, self.offset) = (None, offset);
        }
    }
}

impl<T> Default for LazyBuf<T> {
    fn default() -> LazyBuf<T> {
        LazyBuf { buffer: None, offset: 0 }
    }
}

/// A random number generator whose memory can be released: only its seed and its position are kept
/// then. This does not change the numbers, so a connection's behaviour depends only on its seed.
pub(crate) enum LazyRng {
    Allocated(Box<ChaCha12Rng>),
    Reduced { seed: [u8; 32], place: u64 },
}

impl LazyRng {
    /// Creates a generator that returns the same numbers as [`StdRng`](rand::rngs::StdRng) with
    /// this seed.
    pub(crate) fn from_seed(seed: [u8; 32]) -> LazyRng {
        LazyRng::Allocated(Box::new(ChaCha12Rng::from_seed(seed)))
    }

    #[inline]
    fn get_mut(&mut self) -> &mut ChaCha12Rng {
        if let LazyRng::Reduced { seed, place } = self {
            let mut rng = ChaCha12Rng::from_seed(*seed);
            rng.set_word_pos((*place).into());
            *self = LazyRng::Allocated(Box::new(rng));
        }
        match self {
            LazyRng::Allocated(rng) => rng,
            LazyRng::Reduced { .. } => unreachable!("the generator was allocated above"),
        }
    }

    /// Releases the generator's memory. It is allocated again when the next number is drawn.
    pub(crate) fn shrink(&mut self) {
        if let LazyRng::Allocated(rng) = self
            && let Ok(place) = u64::try_from(rng.get_word_pos())
        {
            *self = LazyRng::Reduced { seed: rng.get_seed(), place };
        }
    }
}

impl RngCore for LazyRng {
    #[inline]
    fn next_u32(&mut self) -> u32 {
        self.get_mut().next_u32()
    }

    #[inline]
    fn next_u64(&mut self) -> u64 {
        self.get_mut().next_u64()
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        self.get_mut().fill_bytes(bytes);
    }
}

/// A supply of random bits, for packets, each of which needs one or more. One number of the
/// generator yields 31 bits.
#[derive(Debug, Default)]
pub(crate) struct Coins {
    /// The bits that are still unused, below a leading one bit. If the value is 0 or 1, no bits are
    /// left.
    ahead: u32,
}

impl Coins {
    /// Returns the next random bit.
    #[inline(always)]
    pub(crate) fn toss(&mut self, rng: &mut impl RngCore) -> bool {
        if self.ahead <= 1 {
            self.ahead = rng.next_u32() | 1 << 31;
        }
        let toss = self.ahead & 1 == 1;
        self.ahead >>= 1;
        toss
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;

    use super::*;

    #[derive(Debug, Default, PartialEq)]
    struct Lists(Vec<u8>, Vec<u8>);

    impl StaticDefault for Lists {
        const STATIC_DEFAULT: &'static Lists = &Lists(Vec::new(), Vec::new());
    }

    #[test]
    fn lazy_box_is_allocated_when_it_changes() {
        let mut lists = LazyBox::<Lists>::default();
        assert!(lists.1.is_empty() && lists.get_mut_if_allocated().is_none());
        lists.1.push(7);
        assert_eq!(lists.get_mut_if_allocated(), Some(&mut Lists(vec![], vec![7])));
        assert_eq!(size_of::<LazyBox<Lists>>(), size_of::<usize>());
    }

    #[test]
    fn lazy_coins_are_the_bits_of_numbers_used_once() {
        let (mut rng, mut same) = (StdRng::seed_from_u64(7), StdRng::seed_from_u64(7));
        let mut coins = Coins::default();
        for _ in 0..100 {
            let number = same.next_u32();
            for bit in 0..31 {
                assert_eq!(coins.toss(&mut rng), number >> bit & 1 == 1);
            }
        }
    }

    #[test]
    fn lazy_buffer_continues_after_a_shrink() {
        use crate::stream::{Assembler, Pages, SendBuffer};
        let pages = &mut Pages::default();
        let mut incoming = LazyBuf::<Assembler>::default();
        let mut outgoing = LazyBuf::<SendBuffer>::default();
        for turn in 0..100_u64 {
            let offset = turn * 1000;
            assert_eq!(incoming.get_mut().insert(pages, offset, &[turn as u8; 1000]), Ok(1000));
            incoming.shrink();
            assert!(incoming.get().is_some(), "the buffer is not empty");
            assert_eq!(incoming.get_mut().read(pages, &mut [0; 2000]), 1000);
            outgoing.get_mut().write(&[7; 1000]);
            assert_eq!(outgoing.get_mut().next(2000, u64::MAX), Some(offset..offset + 1000));
            outgoing.shrink();
            assert!(outgoing.get().is_some(), "the data may still be lost");
            outgoing.get_mut().on_acked(offset..offset + 1000);
            incoming.shrink();
            outgoing.shrink();
            assert!(incoming.get().is_none() && outgoing.get().is_none());
        }
        assert_eq!(
            incoming.get_mut().insert(pages, 0, &[1; 1000]),
            Ok(0),
            "the data was read before"
        );
    }

    #[test]
    fn lazy_generator_continues_after_a_shrink() {
        let seed = [7; 32];
        let (mut usual, mut resting) = (StdRng::from_seed(seed), LazyRng::from_seed(seed));
        for turn in 0..500_usize {
            // Draw numbers in all three ways, from positions within the generator's blocks and at
            // their ends.
            match turn % 3 {
                0 => assert_eq!(usual.next_u32(), resting.next_u32(), "{turn}"),
                1 => assert_eq!(usual.next_u64(), resting.next_u64(), "{turn}"),
                _ => {
                    let mut bytes = [vec![0; turn % 41], vec![0; turn % 41]];
                    usual.fill_bytes(&mut bytes[0]);
                    resting.fill_bytes(&mut bytes[1]);
                    assert_eq!(bytes[0], bytes[1], "{turn}");
                }
            }
            if turn % 2 == 0 {
                resting.shrink();
            }
        }
        assert!(size_of::<LazyRng>() <= 48);
    }
}
