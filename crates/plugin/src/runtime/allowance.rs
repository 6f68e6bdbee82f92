//! Limits the steps and frame bytes that all plugins of the peer may use on one connection. A
//! plugin's manifest limits only the steps of a single call, and a peer can cause any number of
//! calls by sending packets.
//!
//! A step takes half a nanosecond of a core for most plugins, and less than two nanoseconds for
//! every known plugin (`docs/vm.md`). If there is a clock, the time of some calls is measured. The
//! peer is charged for the time of a call that took longer than its steps.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::account::{Account, rate};
use super::bucket::Bucket;
use crate::policy::Limits;

/// Steps charged for each call, in addition to those of the function. They cover finding the
/// plugin, copying words in and out, and entering and leaving compiled code.
pub(super) const CALL: u64 = 100;

/// Number of bytes whose copying costs one step.
const COPIED: usize = 16;

/// Additional steps charged for a timer call, because the timer wakes up the connection and its
/// thread.
pub(super) const WAKE: u64 = 5_000;

/// Steps charged for each written frame, because the frame may need a packet of its own.
const FRAME: u64 = 3_000;

/// Number of bytes that are reserved for a queued frame until it is written.
const RESERVED: u64 = 1_200;

/// Minimum number of bytes that are charged for a written frame, because the frame may need a
/// packet of its own.
const LEAST_FRAME: u64 = 64;

/// On average, the time of one in this many calls is measured.
const TIMED: u64 = 16;

/// Maximum charge for the time of a call, as a multiple of its steps. If a call took longer, its
/// thread was probably preempted.
const SLOWEST: u64 = 32;

/// A function that returns a monotonic time in nanoseconds.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Steps and frame bytes that the plugins of the peer may still use on one connection. Only this
/// connection spends them, one call at a time.
pub struct Allowance {
    /// Steps that have already been taken from `refill` and the account, and that can be spent.
    left: AtomicU64,
    refill: Mutex<Refill>,
    per_packet: u64,
    account: Option<Arc<Account>>,
    clock: Option<Clock>,
    /// State of the random generator that selects the calls to measure. Plugins cannot predict its
    /// choice.
    chance: AtomicU64,
}

#[derive(Debug)]
struct Refill {
    steps: Bucket,
    /// Number of the connection's packets for which steps were already added.
    packets: u64,
    frames: Bucket,
}

impl fmt::Debug for Allowance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allowance").field("left", &self.left).finish_non_exhaustive()
    }
}

impl Allowance {
    /// Creates the allowance of a connection, with the policy's limits. The allowance takes its
    /// steps from `account`. If there is a clock, calls are also charged for the time that they
    /// take.
    pub fn new(limits: &Limits, account: Option<Arc<Account>>, clock: Option<Clock>) -> Allowance {
        let refill = Refill {
            steps: rate(limits.steps_per_second),
            packets: 0,
            frames: Bucket::new(limits.frame_bytes_per_second, limits.frame_bytes_per_second),
        };
        // The random generator must not start at zero, because it would stay there.
        let chance = clock.as_ref().map_or(1, |_| RandomState::new().hash_one(0) | 1);
        Allowance {
            left: AtomicU64::new(0),
            refill: Mutex::new(refill),
            per_packet: limits.steps_per_packet,
            account,
            clock,
            chance: AtomicU64::new(chance),
        }
    }

    fn refill(&self) -> MutexGuard<'_, Refill> {
        self.refill.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of steps left for a call that needs up to `want`. The result may be more
    /// or less than `want`. `now` is in nanoseconds on the connection's clock. `packets` returns
    /// the number of packets that the connection has sent and received.
    pub(super) fn left(&self, want: u64, now: u64, packets: impl FnOnce() -> u64) -> u64 {
        let left = self.left.load(Ordering::Relaxed);
        if left >= want { left } else { self.more(left, want, now, packets()) }
    }

    #[cold]
    fn more(&self, left: u64, want: u64, now: u64, packets: u64) -> u64 {
        let mut refill = self.refill();
        refill.steps.refill(now);
        let new = packets.saturating_sub(refill.packets);
        refill.packets = packets;
        refill.steps.add(new.saturating_mul(self.per_packet));
        // Take half as many steps again, so that the next calls do not need to lock the account.
        let need = want - left;
        let most = need.saturating_add(want / 2).min(refill.steps.left());
        let need = need.min(most);
        let given = self.account.as_ref().map_or(most, |account| account.take(need, most, now));
        refill.steps.spend(given);
        self.left.store(left + given, Ordering::Relaxed);
        left + given
    }

    /// Spends the steps that a call used. They must not exceed what [`Allowance::left`] returned.
    pub(super) fn spend(&self, steps: u64) {
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(steps), Ordering::Relaxed);
    }

    /// Returns the current time if the time of the call that begins now must be measured, otherwise
    /// `None`.
    pub(super) fn begin(&self) -> Option<u64> {
        let clock = self.clock.as_ref()?;
        // Xorshift.
        let mut chance = self.chance.load(Ordering::Relaxed);
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        self.chance.store(chance, Ordering::Relaxed);
        chance.is_multiple_of(TIMED).then(|| clock())
    }

    /// Ends a measured call that used `steps`. If the call took longer than these steps pay for,
    /// charges the difference. The charge is multiplied by [`TIMED`], because only one in that many
    /// calls is measured.
    pub(super) fn end(&self, began: u64, steps: u64) {
        let Some(clock) = &self.clock else { return };
        let took = clock().saturating_sub(began).min(steps.saturating_mul(SLOWEST));
        let owed = took.saturating_sub(steps).saturating_mul(TIMED);
        if owed > 0 {
            self.refill().steps.spend(owed);
            if let Some(account) = &self.account {
                account.owe(owed);
            }
        }
    }

    /// Reserves bytes for a frame that a plugin queues. Returns `false` if the plugins have too few
    /// frame bytes left.
    pub(super) fn queue_frame(&self, now: u64) -> bool {
        let mut refill = self.refill();
        refill.frames.refill(now);
        if refill.frames.left() == 0 {
            return false;
        }
        refill.frames.spend(RESERVED);
        true
    }

    /// Charges a frame of this many bytes that was written. The bytes that are reserved for a
    /// queued frame stay reserved until that frame is written.
    pub(super) fn on_frame(&self, bytes: u64) {
        if bytes > 0 {
            let mut refill = self.refill();
            refill.frames.add(RESERVED);
            refill.steps.spend(FRAME);
            if let Some(account) = &self.account {
                account.owe(FRAME);
            }
            refill.frames.spend(bytes.max(LEAST_FRAME));
        }
    }
}

/// Returns the steps charged for a call that copies this many bytes.
pub(super) fn call_cost(bytes: usize) -> u64 {
    CALL + (bytes / COPIED) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn limits(steps_per_second: u64) -> Limits {
        Limits { steps_per_second, frame_bytes_per_second: 2_400, ..Limits::default() }
    }

    fn allowance(per_second: u64) -> Allowance {
        Allowance::new(&limits(per_second), None, None)
    }

    #[test]
    fn allowance_refills_at_its_rate_and_saves_a_quarter_second() {
        let allowance = allowance(4_000);
        assert_eq!(allowance.left(5_000, 0, || 0), 1_000);
        allowance.spend(600);
        assert_eq!(allowance.left(5_000, 0, || 0), 400);
        assert_eq!(allowance.left(5_000, SECOND / 10, || 0), 800);
        allowance.spend(800);
        assert_eq!(allowance.left(5_000, SECOND / 10 + SECOND / 1_000, || 0), 4);
        // After an hour, no more than the steps of a quarter of a second must have been saved up.
        allowance.spend(4);
        assert_eq!(allowance.left(5_000, 3_600 * SECOND, || 0), 1_000);
    }

    #[test]
    fn allowance_grows_with_the_packets() {
        let allowance = allowance(40_000);
        assert_eq!(allowance.left(100_000, 0, || 0), 10_000);
        allowance.spend(10_000);
        assert_eq!(allowance.left(100_000, 0, || 3), 3 * Limits::default().steps_per_packet);
        assert_eq!(allowance.left(100_000, 0, || 3), 3 * Limits::default().steps_per_packet);
    }

    #[test]
    fn allowance_takes_its_steps_from_the_account() {
        let accounts = super::super::Accounts::default();
        let limits = Limits { address_steps_per_second: 400, ..limits(4_000) };
        let make = || {
            let account = accounts.of(Some([192, 0, 2, 1].into()), &limits, 0);
            Allowance::new(&limits, Some(account), None)
        };
        let (first, second) = (make(), make());
        assert_eq!(first.left(40, 0, || 0), 60);
        assert_eq!(second.left(60, 0, || 0), 40);
        assert_eq!(second.left(60, SECOND / 100, || 0), 44);
    }

    #[test]
    fn allowance_is_charged_for_the_time_that_calls_take() {
        let time = Arc::new(AtomicU64::new(0));
        let read = Arc::clone(&time);
        let clock: Clock = Arc::new(move || read.fetch_add(1_000, Ordering::Relaxed));
        let allowance = Allowance::new(&limits(4_000_000), None, Some(clock));
        let timed = (0..1_600).filter_map(|_| allowance.begin()).map(|began| {
            allowance.end(began, 900);
        });
        let timed = timed.count() as u64;
        assert!((50..200).contains(&timed), "{timed} of 1,600");
        let owed = timed * TIMED * 100;
        assert_eq!(allowance.left(u64::MAX, 0, || 0), 1_000_000 - owed);
    }

    #[test]
    fn allowance_without_a_clock_times_nothing() {
        let allowance = allowance(4_000);
        assert!((0..1_000).all(|_| allowance.begin().is_none()));
    }

    #[test]
    fn allowance_bounds_frames_by_their_bytes() {
        let allowance = allowance(4_000);
        assert!(allowance.queue_frame(0) && allowance.queue_frame(0));
        assert!(!allowance.queue_frame(0));
        // One of the queued frames was written with 200 bytes.
        allowance.on_frame(200);
        assert!(allowance.queue_frame(0));
        assert!(!allowance.queue_frame(0));
        assert!(allowance.queue_frame(SECOND));
    }

    #[test]
    fn allowance_bounds_frames_by_their_number() {
        let allowance = allowance(4_000);
        let mut frames = 0;
        while allowance.queue_frame(0) {
            allowance.on_frame(2);
            frames += 1;
        }
        assert_eq!(frames, 2_400_u64.div_ceil(LEAST_FRAME));
    }
}
