//! Counts connection attempts that a NEW_TOKEN token validated and that did not complete (RFC 9000
//! s.21.3).
//!
//! An attacker can collect tokens at an address, leave it, and use them later in packets with that
//! forged source address. For each of these packets, the server sends a whole flight to the new
//! owner of the address. So the server permits only a few incomplete attempts for each address
//! prefix. Above that limit, the prefix's tokens validate nothing for some time, and the server
//! treats clients in the prefix like clients without a token. An attacker cannot harm these clients
//! more than that.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// Largest number of attempts from one address prefix that are in progress or have failed.
const ATTEMPTS: u32 = 16;

/// Time after which one failed attempt from an address prefix is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// Largest number of address prefixes that are remembered. While there are that many, tokens of any
/// other prefix validate nothing.
const MAX_SOURCES: usize = 4096;

/// Incomplete attempts by source: an IPv4 address, or the first 64 bits of an IPv6 address.
#[derive(Debug, Default)]
pub(super) struct Unfinished {
    sources: BTreeMap<u128, Attempts>,
    /// Time of the next clean-up, which removes sources that have no remembered attempts.
    next_sweep: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Attempts {
    /// Number of incomplete attempts from this source, 1 to [`ATTEMPTS`].
    count: u32,
    /// Time of the oldest incomplete attempt from this source, which is forgotten after
    /// [`FORGOTTEN`].
    since: Duration,
}

impl Attempts {
    /// Forgets those attempts of this source that are old enough.
    fn forget(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.since).as_secs() / FORGOTTEN.as_secs();
        let passed = u32::try_from(passed).unwrap_or(u32::MAX).min(self.count);
        self.count -= passed;
        self.since += FORGOTTEN * passed;
    }
}

impl Unfinished {
    /// Counts an attempt from `address` that a token validated. If too many attempts from the same
    /// source have not completed, returns `false` and does not count the attempt.
    pub(super) fn begin(&mut self, now: Duration, address: IpAddr) -> bool {
        let source = source(address);
        let mut attempts =
            self.sources.get(&source).copied().unwrap_or(Attempts { count: 0, since: now });
        attempts.forget(now);
        if attempts.count == 0 {
            attempts.since = now;
            if !self.sources.contains_key(&source) && !self.has_room(now) {
                return false;
            }
        }
        let begins = attempts.count < ATTEMPTS;
        attempts.count += u32::from(begins);
        self.sources.insert(source, attempts);
        begins
    }

    /// Removes one attempt from the count of a source, because the attempt completed or nothing was
    /// sent for it.
    pub(super) fn finish(&mut self, address: IpAddr) {
        let source = source(address);
        let Some(attempts) = self.sources.get_mut(&source) else { return };
        attempts.count = attempts.count.saturating_sub(1);
        if attempts.count == 0 {
            self.sources.remove(&source);
        }
    }

    /// Returns true if another source can be remembered.
    fn has_room(&mut self, now: Duration) -> bool {
        if self.sources.len() >= MAX_SOURCES && now >= self.next_sweep {
            self.next_sweep = now.saturating_add(FORGOTTEN);
            self.sources.retain(|_, attempts| {
                attempts.forget(now);
                attempts.count > 0
            });
        }
        self.sources.len() < MAX_SOURCES
    }
}

fn source(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().into(),
        IpAddr::V6(v6) => u128::from(v6) >> 64 << 64,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    const START: Duration = Duration::from_secs(1_800_000_000);

    fn v4(number: u32) -> IpAddr {
        Ipv4Addr::from(number).into()
    }

    /// Begins attempts from `address` until one is rejected. Returns how many were permitted.
    fn begin_all(unfinished: &mut Unfinished, now: Duration, address: IpAddr) -> u32 {
        let begins = |_: &u32| unfinished.begin(now, address);
        (0..10 * ATTEMPTS).take_while(begins).count() as u32
    }

    // RFC 9000 s.21.3 #1
    #[test]
    fn unfinished_attempts_of_a_source_are_bounded_and_forgotten() {
        let mut unfinished = Unfinished::default();
        assert_eq!(begin_all(&mut unfinished, START, v4(1)), ATTEMPTS);
        assert_eq!(
            begin_all(&mut unfinished, START, v4(2)),
            ATTEMPTS,
            "another source is not affected"
        );
        for minutes in 1..5 {
            let now = START + FORGOTTEN * minutes;
            assert_eq!(begin_all(&mut unfinished, now, v4(1)), 1, "{minutes}");
            assert!(!unfinished.begin(now + FORGOTTEN / 2, v4(1)));
        }
        assert_eq!(begin_all(&mut unfinished, START + FORGOTTEN * 1000, v4(1)), ATTEMPTS);
        // All addresses of one IPv6 /64 prefix are one source.
        let v6 = |prefix: u128, host: u128| Ipv6Addr::from(prefix << 64 | host).into();
        assert_eq!(begin_all(&mut unfinished, START, v6(7, 1)), ATTEMPTS);
        assert!(!unfinished.begin(START, v6(7, 2)) && unfinished.begin(START, v6(8, 1)));
    }

    #[test]
    fn unfinished_attempts_that_complete_do_not_count() {
        let mut unfinished = Unfinished::default();
        for _ in 0..100 {
            assert_eq!(begin_all(&mut unfinished, START, v4(1)), ATTEMPTS);
            (0..ATTEMPTS).for_each(|_| unfinished.finish(v4(1)));
        }
        assert!(unfinished.sources.is_empty());
        // When an attempt completes, only that attempt must be removed from the count.
        begin_all(&mut unfinished, START, v4(1));
        unfinished.finish(v4(1));
        assert_eq!(begin_all(&mut unfinished, START, v4(1)), 1);
        // Finishing an attempt from a source that is unknown or forgotten must do nothing.
        unfinished.finish(v4(9));
    }

    #[test]
    fn unfinished_attempts_take_bounded_memory() {
        let mut unfinished = Unfinished::default();
        let all = MAX_SOURCES as u32;
        for number in 0..2 * all {
            assert_eq!(unfinished.begin(START, v4(number)), number < all, "{number}");
        }
        assert_eq!(unfinished.sources.len(), MAX_SOURCES);
        assert!(unfinished.begin(START, v4(0)), "a known source can begin further attempts");
        assert!(!unfinished.begin(START + FORGOTTEN / 2, v4(all)));
        // By this time, all sources except the first are forgotten.
        let later = START + FORGOTTEN + FORGOTTEN / 2;
        assert!(unfinished.begin(later, v4(all)));
        assert_eq!(unfinished.sources.len(), 2);
    }
}
