//! Types and constants that the XDP program and user space share. bindgen generates them from
//! `bpf/abi.h` and asserts their layouts.
//!
//! The header is the only definition, and its comments are the documentation. Addresses and ports
//! are in network byte order, everything else in host order. Times are nanoseconds of
//! `CLOCK_MONOTONIC`.
#![allow(
    missing_docs,
    non_camel_case_types,
    non_upper_case_globals,
    unused_qualifications,
    reason = "generated"
)]
#![allow(clippy::all, clippy::undocumented_unsafe_blocks, reason = "generated")]

/// A value that the kernel and this process exchange as bytes.
///
/// # Safety
/// The type is `repr(C)`, every bit pattern of its size is a valid value, and it has no padding
/// that a hash of its bytes would see.
pub unsafe trait Pod: Copy + 'static {
    /// Returns the value with all bytes zero.
    fn zeroed() -> Self {
        // SAFETY: every bit pattern is a valid value, all zeros included.
        unsafe { std::mem::zeroed() }
    }
}

// SAFETY: an integer has no padding, and every bit pattern is valid.
unsafe impl Pod for u32 {}
// SAFETY: an integer has no padding, and every bit pattern is valid.
unsafe impl Pod for u64 {}
// SAFETY: an array consists of its elements, without padding between them.
unsafe impl<T: Pod, const N: usize> Pod for [T; N] {}

include!(concat!(env!("OUT_DIR"), "/abi.rs"));

impl std::fmt::Debug for equic_ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("equic_ring").finish_non_exhaustive()
    }
}

impl equic_seen {
    /// Returns the number of counted packets.
    #[must_use]
    pub fn packets(self) -> u64 {
        let half = u64::from(EQUIC_SEEN_HALF);
        let recent = self.recent & (2 * half - 1);
        let mut halves = self.halves;
        if halves % 2 != recent / half {
            // `recent` and `halves` may have been read a few packets apart. Then `halves` can be
            // one too low (a half was just filled) or one too high (a half is about to be filled).
            // In the first half, it cannot be too high.
            let behind = halves == 0 || recent % half < half / 2;
            halves = if behind { halves.wrapping_add(1) } else { halves.wrapping_sub(1) };
        }
        halves.wrapping_mul(half).wrapping_add(recent % half)
    }

    /// Returns the number of UDP payload bytes in the counted packets. The number wraps at 2^50.
    #[must_use]
    pub fn bytes(self) -> u64 {
        let run_over = self.packets() >> EQUIC_SEEN_BITS;
        (self.recent >> EQUIC_SEEN_BITS).wrapping_sub(run_over) & (u64::MAX >> EQUIC_SEEN_BITS)
    }
}

impl equic_cid {
    /// Returns the connection ID as hexadecimal digits.
    #[must_use]
    pub fn hex(&self) -> String {
        let len = usize::from(self.len).min(self.bytes.len());
        self.bytes[..len].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl equic_source_state {
    /// Returns the number of packets from the source, whatever their verdict.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.passed.packets().saturating_add(self.dropped.packets())
    }

    /// Returns the number of UDP payload bytes in all packets from the source.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.passed.bytes() + self.dropped.bytes()
    }

    /// Returns the number of packets whose reason is a drop, including those of a dry run.
    #[must_use]
    pub fn drops(&self) -> u64 {
        self.dropped.packets()
    }
}

#[cfg(test)]
mod tests {
    use super::{EQUIC_SEEN_BITS, EQUIC_SEEN_HALF, equic_seen, equic_source_state};

    /// Does the same as `see` in stats.h. The second element is the state between the two writes of
    /// `see`, when `recent` is written and `halves` is not.
    fn count_packets(seen: equic_seen, bytes: u64) -> [equic_seen; 2] {
        let half = u64::from(EQUIC_SEEN_HALF);
        let fills = seen.recent % half == half - 1;
        let recent = seen.recent.wrapping_add(bytes << EQUIC_SEEN_BITS | 1);
        let halves = seen.halves + u64::from(fills);
        [equic_seen { recent, halves }, equic_seen { recent, ..seen }]
    }

    #[test]
    fn seen_counter_keeps_packets_and_bytes_apart() {
        let (mut seen, mut packets, mut bytes) = (equic_seen::default(), 0, 0_u64);
        while packets < 5 * u64::from(EQUIC_SEEN_HALF) {
            let len = [0, 1, 1_200, 65_535][packets as usize % 4];
            let before = seen;
            let late;
            [seen, late] = count_packets(before, len);
            (packets, bytes) = (packets + 1, bytes + len);
            assert_eq!((seen.packets(), seen.bytes()), (packets, bytes));
            assert_eq!((late.packets(), late.bytes()), (packets, bytes), "halves is behind");
            let torn = equic_seen { halves: seen.halves, ..before };
            assert_eq!((torn.packets(), torn.bytes()), (packets - 1, bytes - len), "ahead");
        }
    }

    #[test]
    fn seen_counter_is_exact_before_a_half_is_counted() {
        let half = u64::from(EQUIC_SEEN_HALF);
        let passed = equic_seen { recent: 2 * half - 1, halves: 0 };
        assert_eq!(passed.packets(), 2 * half - 1);
        let state = equic_source_state { passed, dropped: passed, ..Default::default() };
        assert_eq!((state.packets(), state.drops()), (2 * (2 * half - 1), 2 * half - 1));
    }

    #[test]
    fn seen_counter_bytes_wrap_without_changing_packets() {
        let seen = equic_seen { recent: u64::MAX << EQUIC_SEEN_BITS | 5, halves: 0 };
        let [seen, _] = count_packets(seen, 11);
        assert_eq!((seen.packets(), seen.bytes()), (6, 10));
    }

    #[test]
    fn ring_debug_output_has_no_keys() {
        let ring = super::equic_ring { words: [0x0123_4567_89ab_cdef; 16] };
        assert_eq!(format!("{ring:?}"), "equic_ring { .. }");
    }
}
