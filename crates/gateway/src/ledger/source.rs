//! Computes the source to which an address belongs, and the position of a source in a ledger's
//! table.

use std::net::IpAddr;

use crate::abi;
use crate::config::address_bytes;
use crate::prefix::{Span, ip_of};

/// A source: an address cut to its prefix, and a quota group. The words are the address bytes in
/// memory order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Source {
    pub(crate) words: [u64; 2],
    pub(crate) group: u32,
}

/// The masks that cut addresses to prefixes, and the seed of the hash. The XDP program was loaded
/// with the same values.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keying {
    seed: u64,
    v4_mask: u32,
    v6_mask: [u64; 2],
    bucket_mask: u32,
}

/// Position of a source in the table: the two buckets that can have its slot, and the tag of that
/// slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) tag: u32,
    pub(crate) first: u32,
    pub(crate) second: u32,
    /// Index of the lock that guards this source.
    pub(crate) stripe: u16,
}

/// Number of locks. It is large enough that threads rarely wait for each other.
pub(crate) const STRIPES: u16 = if cfg!(equic_loom) { 2 } else { 256 };

impl Place {
    /// Returns the index of the counter, in the source's first bucket, that counts the connections
    /// it opened.
    pub(crate) fn cell(&self) -> usize {
        (self.tag >> 1 & (abi::EQUIC_SLOTS - 1)) as usize
    }
}

impl Source {
    /// Returns the bytes of the address: `::ffff:a.b.c.d` for IPv4, or an IPv6 address.
    pub(crate) fn addr(&self) -> [u8; 16] {
        let mut addr = [0; 16];
        addr[..8].copy_from_slice(&self.words[0].to_ne_bytes());
        addr[8..].copy_from_slice(&self.words[1].to_ne_bytes());
        addr
    }

    pub(crate) fn of_bytes(addr: [u8; 16], group: u32) -> Source {
        let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| addr[at + i]));
        Source { words: [word(0), word(8)], group }
    }
}

impl Keying {
    pub(crate) fn new(load: &abi::equic_load) -> Keying {
        Keying {
            seed: load.seed,
            v4_mask: load.v4_mask,
            v6_mask: load.v6_mask,
            bucket_mask: load.ledger_mask,
        }
    }

    pub(crate) fn buckets(&self) -> u32 {
        self.bucket_mask + 1
    }

    /// Returns the source of an address. An IPv4-mapped IPv6 address is treated as the IPv4
    /// address.
    pub(crate) fn source(&self, ip: IpAddr, group: u32) -> Source {
        let mut addr = address_bytes(ip);
        let mask = Span::of(addr).mask(self.v4_mask, self.v6_mask);
        addr.iter_mut().zip(mask).for_each(|(byte, mask)| *byte &= mask);
        Source::of_bytes(addr, group)
    }

    /// Returns true if every source that `other` distinguishes lies inside one source that `self`
    /// distinguishes.
    pub(crate) fn covers(&self, other: &Keying) -> bool {
        self.v4_mask & other.v4_mask == self.v4_mask
            && self.v6_mask[0] & other.v6_mask[0] == self.v6_mask[0]
            && self.v6_mask[1] & other.v6_mask[1] == self.v6_mask[1]
    }

    /// Cuts a source to the prefix length of this keying. The source was made with another keying.
    pub(crate) fn cut(&self, source: Source) -> Source {
        self.source(ip_of(source.addr()), source.group)
    }

    /// Returns the position of a source, as docs/policy.md, "The ledger", defines it.
    pub(crate) fn place(&self, source: &Source) -> Place {
        let [lo, hi] = source.words.map(u64::from_le);
        let mut h = self.seed ^ u64::from(source.group).wrapping_mul(GROUP_FACTOR);
        if lo != 0 {
            h = mix(h ^ lo);
        }
        let h = mix(h ^ hi);
        let tag = (h >> 32) as u32 | 1;
        let first = h as u32 & self.bucket_mask;
        let mut second = (first ^ mix(tag.into()) as u32) & self.bucket_mask;
        if second == first {
            second = first ^ 1;
        }
        Place { tag, first, second, stripe: (h >> 40) as u16 % STRIPES }
    }
}

/// Factor that separates the quota groups in the hash: 2^64 divided by the golden ratio.
const GROUP_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(mut x: u64) -> u64 {
    x ^= x >> 33;
    x = x.wrapping_mul(0xff51_afd7_ed55_8ccd);
    x ^= x >> 33;
    x = x.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ x >> 33
}
