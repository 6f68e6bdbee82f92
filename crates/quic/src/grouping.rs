//! Decides whether a connection's messages are sent to the system one by one or in groups.

use std::time::Duration;

/// Number of messages in a group.
pub(crate) const GROUP: usize = 4;

/// Longest time for each datagram of a large message, in nanoseconds, at which the system is
/// assumed to forward the message whole. Measured next to a busy receiver: 100 to 150 for messages
/// that are forwarded whole, 760 to 1,100 for others. Measured in one thread, without another
/// thread to wake: 55 and 350.
const WHOLE: u32 = 200;

/// Time for each datagram of a large message, in nanoseconds, from which on the system is assumed
/// to segment the message itself.
const APART: u32 = 300;

/// Minimum number of datagrams of a message that is timed. With fewer, the fixed cost of the system
/// call dominates.
const LARGE: usize = 24;

/// Number of times in a round. Only the least counts, because other work of the CPU can only add to
/// a time.
const TIMES: u8 = 8;

/// After the first round, one of this many groups of large messages is timed.
const SELDOM: u8 = 16;

/// Number of messages that are sent one by one after data of the peer was received: about a
/// megabyte.
const SINGLE: u8 = 16;

/// Measures how long the system takes for a connection's large messages. Decides from that how many
/// messages to make before sending.
///
/// A message of many datagrams (GSO) takes the system little time if it is forwarded whole: to a
/// socket on the same machine, to a container, or to a network card that segments it. The other end
/// then gets the whole message at once, and several messages in a row cause fewer wake-ups. If the
/// system segments the message itself, each datagram is a separate packet and costs several times
/// as much. In that case it is better to send the first message while the next one is made.
///
/// The capabilities of an interface say nothing about the bridge and the card behind it. The time
/// of the send call does, because segmentation on this machine happens within the call. This time
/// is also what matters.
#[derive(Default)]
pub(crate) struct Grouping {
    /// The least time for a datagram in this round, in nanoseconds.
    least: u32,
    /// Number of times in this round, below [`TIMES`].
    times: u8,
    /// Number of groups to skip before the next one is timed.
    skip: u8,
    /// Number of messages that must still be sent one by one.
    single: u8,
    /// True if the system forwards large messages whole.
    whole: bool,
    /// True if at least one round is complete.
    known: bool,
}

impl Grouping {
    /// Returns the number of messages to make before they are sent.
    pub(crate) fn messages(&mut self) -> usize {
        if self.single > 0 {
            self.single -= 1;
            return 1;
        }
        if self.whole { GROUP } else { 1 }
    }

    /// Notes that an application was notified of data from the peer. The answers to it must not
    /// wait for a group.
    pub(crate) fn on_application_notified(&mut self) {
        self.single = SINGLE;
    }

    /// Returns `true` if an application was notified of data from the peer and less than a megabyte
    /// was sent since then. The next data from the peer must not wait for long either.
    pub(crate) fn was_recently_notified(&self) -> bool {
        self.single > 0
    }

    /// Must be called before a group is sent, with the number of datagrams of its smallest message.
    /// Returns true if the caller must report the group's time to [`Grouping::took`].
    pub(crate) fn is_timed(&mut self, datagrams: usize) -> bool {
        if datagrams < LARGE {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        if self.known {
            self.skip = SELDOM - 1;
        }
        true
    }

    /// Records that sending `datagrams` datagrams took `time`.
    pub(crate) fn took(&mut self, time: Duration, datagrams: usize) {
        let each = time.as_nanos() / datagrams.max(1) as u128;
        let each = u32::try_from(each).unwrap_or(u32::MAX);
        self.least = if self.times == 0 { each } else { self.least.min(each) };
        self.times += 1;
        if self.times < TIMES {
            return;
        }
        self.times = 0;
        self.known = true;
        self.whole = if self.whole { self.least < APART } else { self.least <= WHOLE };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reports a round of messages with 44 datagrams, which take `each` nanoseconds for each
    /// datagram.
    fn round(grouping: &mut Grouping, each: [u64; TIMES as usize]) -> usize {
        for each in each {
            grouping.took(Duration::from_nanos(each * 44), 44);
        }
        grouping.messages()
    }

    #[test]
    fn grouping_is_four_messages_where_offload_works() {
        let mut grouping = Grouping::default();
        assert_eq!(grouping.messages(), 1, "no message was timed yet");
        assert_eq!(round(&mut grouping, [130; 8]), 4);
        let mut grouping = Grouping::default();
        assert_eq!(round(&mut grouping, [800; 8]), 1);
    }

    /// Larger times are caused by other tasks on the CPU, or by waking the receiver.
    #[test]
    fn grouping_uses_the_least_of_eight_times() {
        let mut grouping = Grouping::default();
        let mut times = [100_000; 8];
        times[5] = 140;
        assert_eq!(round(&mut grouping, times), 4);
        assert_eq!(round(&mut grouping, [350; 8]), 1, "only the last eight count");
    }

    #[test]
    fn grouping_does_not_change_between_the_thresholds() {
        let mut grouping = Grouping::default();
        assert_eq!(round(&mut grouping, [250; 8]), 1);
        assert_eq!(round(&mut grouping, [100; 8]), 4);
        assert_eq!(round(&mut grouping, [250; 8]), 4);
        assert_eq!(round(&mut grouping, [350; 8]), 1, "the path has changed");
        assert_eq!(round(&mut grouping, [250; 8]), 1);
        assert_eq!(round(&mut grouping, [100; 8]), 4, "the first path again");
    }

    #[test]
    fn grouping_pauses_after_the_application_was_notified() {
        let mut grouping = Grouping::default();
        assert_eq!(round(&mut grouping, [130; 8]), 4);
        grouping.on_application_notified();
        assert!((0..SINGLE).all(|_| grouping.messages() == 1));
        assert_eq!(grouping.messages(), 4);
    }

    #[test]
    fn grouping_reads_the_clock_seldom() {
        let mut grouping = Grouping::default();
        assert!(!grouping.is_timed(10), "small messages are not timed");
        for _ in 0..TIMES {
            assert!(grouping.is_timed(44));
            grouping.took(Duration::from_micros(3), 44);
        }
        let timed = (0..160).filter(|_| grouping.is_timed(44)).count();
        assert_eq!(timed, 10);
    }
}
