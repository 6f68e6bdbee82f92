//! Contents of a flood's datagrams: pools of datagrams that are created in advance, or Initial
//! packets that are created while the flood runs.

use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng as _, RngCore as _, SeedableRng as _};

use super::frame::sum;
use super::{FloodError, InitialFactory};

/// Maximum number of datagrams in a pool.
const MAX_POOL: usize = 1 << 20;
/// Maximum payload of a UDP datagram over IPv4 in bytes (RFC 768).
const MAX_DATAGRAM: usize = 65_507;

/// Content of the datagrams that a flood sends.
#[derive(Debug, Clone)]
pub enum Payload {
    /// The datagrams of a pool. The flood cycles through them.
    Pool(Arc<DatagramPool>),
    /// A new Initial packet each time. No connection ID occurs twice, so servers do not treat
    /// packets as retransmissions. Encrypting a packet costs the sender some microseconds of CPU
    /// time.
    FreshInitials(Arc<InitialFactory>),
}

/// Datagrams that were created in advance.
#[derive(Debug)]
pub struct DatagramPool {
    datagrams: Vec<Vec<u8>>,
    /// For each datagram, its [`sum`] for the UDP checksum.
    sums: Vec<u32>,
}

impl DatagramPool {
    /// Creates `count` Initial packets with different connection IDs. A server treats a second
    /// packet with the same connection ID as a retransmission, so the server opens at most `count`
    /// connections at the same time. A packet takes 1.2 kB of memory and some microseconds of CPU
    /// time.
    ///
    /// # Errors
    /// Fails with [`FloodError::Invalid`] if `count` is 0 or above a million.
    pub fn initials(factory: &InitialFactory, count: usize, seed: u64) -> Result<Self, FloodError> {
        check_count(count)?;
        let mut rng = SmallRng::seed_from_u64(seed);
        let datagrams: Result<_, _> = (0..count)
            .map(|_| {
                let mut datagram = Vec::new();
                factory.write(&mut rng, &mut datagram).map(|()| datagram)
            })
            .collect();
        Self::new(datagrams?)
    }

    /// Creates `count` random datagrams of `size` bytes with a short header (RFC 9000 s.17.3). They
    /// look like packets of unknown connections.
    ///
    /// # Errors
    /// Fails with [`FloodError::Invalid`] if `count` is 0 or above a million, or if `size` is 0 or
    /// above 65507.
    pub fn short_headers(count: usize, size: usize, seed: u64) -> Result<Self, FloodError> {
        check_count(count)?;
        check_size(size)?;
        let mut rng = SmallRng::seed_from_u64(seed);
        let datagram = |_| {
            let mut datagram = vec![0; size];
            rng.fill_bytes(&mut datagram);
            // Set Header Form to 0 and Fixed Bit to 1, as in a short header.
            datagram[0] = datagram[0] & 0x3f | 0x40;
            datagram
        };
        Self::new((0..count).map(datagram).collect())
    }

    /// Creates a pool of the caller's datagrams.
    ///
    /// # Errors
    /// Fails with [`FloodError::Invalid`] if `datagrams` is empty or has more than a million, or if
    /// one datagram is empty or too large.
    pub fn new(datagrams: Vec<Vec<u8>>) -> Result<Self, FloodError> {
        check_count(datagrams.len())?;
        datagrams.iter().try_for_each(|datagram| check_size(datagram.len()))?;
        let sums = datagrams.iter().map(|datagram| sum(datagram)).collect();
        Ok(Self { datagrams, sums })
    }

    /// The datagrams.
    pub fn datagrams(&self) -> &[Vec<u8>] {
        &self.datagrams
    }
}

fn check_count(count: usize) -> Result<(), FloodError> {
    if (1..=MAX_POOL).contains(&count) {
        return Ok(());
    }
    Err(FloodError::Invalid(format!("a pool of {count} datagrams; it can have 1 to {MAX_POOL}")))
}

fn check_size(size: usize) -> Result<(), FloodError> {
    if (1..=MAX_DATAGRAM).contains(&size) {
        return Ok(());
    }
    Err(FloodError::Invalid(format!("a datagram of {size} bytes; it can have 1 to {MAX_DATAGRAM}")))
}

/// A datagram and its [`sum`].
pub(super) type Datagram<'a> = (&'a [u8], u32);

/// An endless sequence of a payload's datagrams, in batches.
pub(super) struct Source<'a> {
    payload: &'a Payload,
    rng: SmallRng,
    next: usize,
    fresh: Vec<Vec<u8>>,
}

impl<'a> Source<'a> {
    pub(super) fn new(payload: &'a Payload, mut rng: SmallRng) -> Self {
        let next = match payload {
            Payload::Pool(pool) => rng.random_range(0..pool.datagrams.len()),
            Payload::FreshInitials(_) => 0,
        };
        Self { payload, rng, next, fresh: Vec::new() }
    }

    /// Returns the next `count` datagrams.
    pub(super) fn take(&mut self, count: usize) -> Result<Vec<Datagram<'_>>, FloodError> {
        match self.payload {
            Payload::Pool(pool) => {
                let size = pool.datagrams.len();
                let first = self.next;
                self.next = (first + count) % size;
                let indices = (first..first + count).map(|index| index % size);
                Ok(indices.map(|i| (pool.datagrams[i].as_slice(), pool.sums[i])).collect())
            }
            Payload::FreshInitials(factory) => {
                self.fresh.resize_with(count.max(self.fresh.len()), Vec::new);
                for datagram in &mut self.fresh[..count] {
                    factory.write(&mut self.rng, datagram)?;
                }
                Ok(self.fresh[..count].iter().map(|d| (d.as_slice(), sum(d))).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_repeats_its_datagrams_and_checks_sizes() {
        let pool = DatagramPool::short_headers(3, 40, 7).unwrap();
        assert!(pool.datagrams().iter().all(|d| d.len() == 40 && d[0] & 0xc0 == 0x40));
        let payload = Payload::Pool(Arc::new(pool));
        let mut source = Source::new(&payload, SmallRng::seed_from_u64(1));
        let first: Vec<Vec<u8>> =
            source.take(7).unwrap().iter().map(|(bytes, _)| bytes.to_vec()).collect();
        assert_eq!((&first[0], &first[1]), (&first[3], &first[4]));
        assert_ne!(first[0], first[1]);
        assert_eq!(source.take(1).unwrap()[0].0, first[1]);
        for (count, size) in [(0, 40), (MAX_POOL + 1, 40), (1, 0), (1, MAX_DATAGRAM + 1)] {
            assert!(DatagramPool::short_headers(count, size, 0).is_err(), "{count} of {size}");
        }
        assert!(DatagramPool::new(Vec::new()).is_err());
        assert!(DatagramPool::new(vec![Vec::new()]).is_err());
    }
}
