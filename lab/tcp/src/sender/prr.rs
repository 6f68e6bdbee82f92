//! Proportional Rate Reduction (RFC 6937): determines how much is sent while the window is being
//! reduced.

/// The state of one reduction of the congestion window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Prr {
    /// Target of the reduction in bytes: the slow start threshold (ssthresh).
    threshold: u64,
    /// Number of bytes that were outstanding at the start of the reduction (RecoverFS).
    flight: u64,
    /// Number of bytes that were delivered since the start of the reduction (prr_delivered).
    delivered: u64,
    /// Number of bytes that were sent since the start of the reduction (prr_out).
    out: u64,
}

impl Prr {
    pub(crate) fn new(threshold: u64, flight: u64) -> Prr {
        Prr { threshold, flight: flight.max(1), delivered: 0, out: 0 }
    }

    /// Returns the number of bytes that may be sent after an acknowledgement of `delivered` bytes,
    /// with `pipe` bytes in flight. `good` is true if the acknowledgement advanced SND.UNA and
    /// showed no further loss. The sender may then send more, as in slow start, up to the threshold
    /// (PRR-SSRB). Otherwise it may send only as much as was delivered (PRR-CRB).
    pub(crate) fn on_ack(&mut self, delivered: u64, pipe: u64, mss: u64, good: bool) -> u64 {
        self.delivered += delivered;
        let allowed = if pipe > self.threshold {
            // RFC 6937 s.3.1: CEIL(prr_delivered * ssthresh / RecoverFS) - prr_out.
            let share = u128::from(self.delivered) * u128::from(self.threshold);
            let share = share.div_ceil(u128::from(self.flight));
            u64::try_from(share).unwrap_or(u64::MAX).saturating_sub(self.out)
        } else {
            let balance = self.delivered.saturating_sub(self.out).max(delivered);
            let limit = if good { balance + mss } else { balance };
            limit.min(self.threshold - pipe)
        };
        // The first retransmission is always permitted, because it is a fast retransmit (RFC 5681
        // s.3.2).
        if self.out == 0 { allowed.max(mss) } else { allowed }
    }

    pub(crate) fn on_sent(&mut self, bytes: u64) {
        self.out += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1_000;

    /// The first of 20 outstanding segments is lost, and the threshold is 10. One segment must be
    /// sent for every second one that is delivered, and the window must end at 10 (the first
    /// example of RFC 6937 s.3.1).
    #[test]
    fn prr_spreads_one_loss_over_a_round_trip() {
        let mut prr = Prr::new(10 * MSS, 20 * MSS);
        // Segment 0 is lost. Segments 1 to 3 are delivered first, and 19 in total.
        let (mut pipe, mut sent) = (19 * MSS, Vec::new());
        for delivered in 1..=19 {
            pipe -= MSS;
            let mut allowed = prr.on_ack(MSS, pipe, MSS, false);
            let mut count = 0;
            while allowed >= MSS {
                (allowed, pipe, count) = (allowed - MSS, pipe + MSS, count + 1);
                prr.on_sent(MSS);
            }
            sent.push(count);
            assert!(count <= 1, "{delivered}: {sent:?}");
        }
        assert_eq!(sent.iter().sum::<u64>(), 10, "{sent:?}");
        assert_eq!(pipe, 10 * MSS);
    }

    /// 15 of 20 segments are lost at once. The sender must send as much as is delivered (PRR-CRB).
    /// After each acknowledgement without further loss, it may send one segment more (PRR-SSRB), up
    /// to the threshold.
    #[test]
    fn prr_recovers_slowly_from_a_burst_of_losses() {
        let mut prr = Prr::new(10 * MSS, 20 * MSS);
        assert_eq!(prr.on_ack(MSS, 4 * MSS, MSS, false), MSS);
        prr.on_sent(MSS);
        assert_eq!(prr.on_ack(MSS, 4 * MSS, MSS, true), 2 * MSS);
        prr.on_sent(2 * MSS);
        assert_eq!(prr.on_ack(MSS, 9 * MSS, MSS, true), MSS, "the threshold ends it");
    }
}
