//! State that takes little while there is nothing in it: what few connections have, or have for a while only.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};

use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha12Rng;

/// A value as it is made, which may be looked at before it is.
pub(crate) trait Unmade: Default + 'static {
    const UNMADE: &'static Self;
}

impl<T: 'static> Unmade for VecDeque<T> {
    const UNMADE: &'static VecDeque<T> = &VecDeque::new();
}

/// A value that is made, in a box, when it is changed for the first time.
#[derive(Debug)]
pub(crate) struct Seldom<T>(Option<Box<T>>);

impl<T> Seldom<T> {
    /// The value, to be changed, if it was changed before: else there is nothing in it to be taken out.
    pub(crate) fn made(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }
}

impl<T> Default for Seldom<T> {
    fn default() -> Seldom<T> {
        Seldom(None)
    }
}

impl<T: Unmade> Deref for Seldom<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or(T::UNMADE)
    }
}

impl<T: Unmade> DerefMut for Seldom<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }
}

/// A buffer of a stream of bytes, which can be made again from the offset that it has got to.
pub(crate) trait Buffer {
    /// One that is empty; all before this offset is done with.
    fn at(offset: u64) -> Self;
    /// The offset, if it is empty.
    fn empty_at(&self) -> Option<u64>;
}

/// A buffer in a box, of which there is no more than its offset while it rests.
#[derive(Debug)]
pub(crate) struct Rested<T> {
    buffer: Option<Box<T>>,
    offset: u64,
}

impl<T: Buffer> Rested<T> {
    /// The buffer; none: it is empty.
    #[inline]
    pub(crate) fn get(&self) -> Option<&T> {
        self.buffer.as_deref()
    }

    /// The buffer, to be changed.
    pub(crate) fn wake(&mut self) -> &mut T {
        let offset = self.offset;
        self.buffer.get_or_insert_with(|| Box::new(T::at(offset)))
    }

    /// Gives its memory back, if it is empty.
    pub(crate) fn rest(&mut self) {
        if let Some(offset) = self.buffer.as_ref().and_then(|buffer| buffer.empty_at()) {
            (self.buffer, self.offset) = (None, offset);
        }
    }
}

impl<T> Default for Rested<T> {
    fn default() -> Rested<T> {
        Rested { buffer: None, offset: 0 }
    }
}

/// A generator of random numbers that is no more than its seed and the place in what follows from it while it rests. It
/// goes on as if it had not: what a connection does depends on its seed, and not on when it rested.
pub(crate) enum RestingRng {
    Awake(Box<ChaCha12Rng>),
    Resting { seed: [u8; 32], place: u64 },
}

impl RestingRng {
    /// The numbers are those of [`StdRng`](rand::rngs::StdRng) with this seed.
    pub(crate) fn from_seed(seed: [u8; 32]) -> RestingRng {
        RestingRng::Awake(Box::new(ChaCha12Rng::from_seed(seed)))
    }

    #[inline]
    fn wake(&mut self) -> &mut ChaCha12Rng {
        if let RestingRng::Resting { seed, place } = self {
            let mut rng = ChaCha12Rng::from_seed(*seed);
            rng.set_word_pos((*place).into());
            *self = RestingRng::Awake(Box::new(rng));
        }
        match self {
            RestingRng::Awake(rng) => rng,
            RestingRng::Resting { .. } => unreachable!("it was woken above"),
        }
    }

    /// Gives memory back until the next number is drawn.
    pub(crate) fn rest(&mut self) {
        if let RestingRng::Awake(rng) = self
            && let Ok(place) = u64::try_from(rng.get_word_pos())
        {
            *self = RestingRng::Resting { seed: rng.get_seed(), place };
        }
    }
}

impl RngCore for RestingRng {
    #[inline]
    fn next_u32(&mut self) -> u32 {
        self.wake().next_u32()
    }

    #[inline]
    fn next_u64(&mut self) -> u64 {
        self.wake().next_u64()
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        self.wake().fill_bytes(bytes);
    }
}

/// Coins to be tossed, once or more for each packet: each number of a generator is enough for 31 of them.
#[derive(Debug, Default)]
pub(crate) struct Coins {
    /// The tosses to come, and a one in front of them; 0 or 1: there are none.
    ahead: u32,
}

impl Coins {
    /// Tosses a coin.
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

    impl Unmade for Lists {
        const UNMADE: &'static Lists = &Lists(Vec::new(), Vec::new());
    }

    #[test]
    fn what_is_seldom_there_is_made_when_it_changes() {
        let mut lists = Seldom::<Lists>::default();
        assert!(lists.1.is_empty() && lists.made().is_none());
        lists.1.push(7);
        assert_eq!(lists.made(), Some(&mut Lists(vec![], vec![7])));
        assert_eq!(size_of::<Seldom<Lists>>(), size_of::<usize>());
    }

    #[test]
    fn coins_are_the_bits_of_numbers_each_of_which_is_used_once() {
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
    fn a_buffer_goes_on_where_it_was() {
        use crate::stream::{Assembler, Pages, SendBuffer};
        let pages = &mut Pages::default();
        let mut incoming = Rested::<Assembler>::default();
        let mut outgoing = Rested::<SendBuffer>::default();
        for turn in 0..100_u64 {
            let offset = turn * 1000;
            assert_eq!(incoming.wake().insert(pages, offset, &[turn as u8; 1000]), Ok(1000));
            incoming.rest();
            assert!(incoming.get().is_some(), "there is something in it");
            assert_eq!(incoming.wake().read(pages, &mut [0; 2000]), 1000);
            outgoing.wake().write(&[7; 1000]);
            assert_eq!(outgoing.wake().next(2000, u64::MAX), Some(offset..offset + 1000));
            outgoing.rest();
            assert!(outgoing.get().is_some(), "it may be lost yet");
            outgoing.wake().on_acked(offset..offset + 1000);
            incoming.rest();
            outgoing.rest();
            assert!(incoming.get().is_none() && outgoing.get().is_none());
        }
        assert_eq!(incoming.wake().insert(pages, 0, &[1; 1000]), Ok(0), "it was read");
    }

    #[test]
    fn a_generator_goes_on_where_it_was() {
        let seed = [7; 32];
        let (mut usual, mut resting) = (StdRng::from_seed(seed), RestingRng::from_seed(seed));
        for turn in 0..500_usize {
            // All three ways, and places within and at the ends of blocks.
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
                resting.rest();
            }
        }
        assert!(size_of::<RestingRng>() <= 48);
    }
}
