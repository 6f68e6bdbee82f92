//! Validates that a path carries ECN marks unchanged (RFC 9000 s.13.4.2, A.4).

use crate::received::EcnCounts;

/// Number of packets to mark before the result of ECN validation is awaited (RFC 9000 s.13.4.2).
const TESTING_PACKETS: u64 = 10;

/// The state of ECN validation (RFC 9000 A.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "qlog"), expect(unreachable_pub, reason = "logs show it"))]
pub enum EcnState {
    /// Validation has begun: packets are marked with ECT(0).
    Testing,
    /// Enough marked packets were sent. No more packets are marked until the peer reports that one
    /// of them arrived with its mark.
    Unknown,
    /// The path drops marked packets or changes the marks, so no packet is marked.
    Failed,
    /// Marks arrive unchanged, so all packets are marked.
    Capable,
}

/// The ECN validation of one path.
#[derive(Debug, Clone)]
pub(crate) struct EcnValidation {
    state: EcnState,
    /// Number of packets sent with ECT(0), on all paths.
    marked: u64,
    /// Number of marked packets that were sent before validation of this path began. The peer's ECN
    /// counts include packets of all paths.
    before: u64,
    /// Number of marked packets of the test that were lost before any of them arrived with its
    /// mark.
    lost: u64,
    /// Number of marked packets of the test that arrived with ECN-CE before any of them arrived
    /// with its mark.
    ce: u64,
    /// The ECN counts of the last ACK frame that raised the largest acknowledged packet number.
    counts: EcnCounts,
}

impl Default for EcnValidation {
    fn default() -> EcnValidation {
        EcnValidation {
            state: EcnState::Testing,
            marked: 0,
            before: 0,
            lost: 0,
            ce: 0,
            counts: EcnCounts::default(),
        }
    }
}

impl EcnValidation {
    /// Creates a state in which packets are never marked, for sockets that cannot set ECN marks.
    pub(crate) fn disabled() -> EcnValidation {
        EcnValidation { state: EcnState::Failed, ..EcnValidation::default() }
    }

    /// Returns the initial state for another path of the connection. Validation starts again, but
    /// the counts of the connection continue. `marks` is true if the socket supports ECN.
    pub(crate) fn restart(&self, marks: bool) -> EcnValidation {
        let state = if marks { EcnState::Testing } else { EcnState::Failed };
        EcnValidation { state, before: self.marked, lost: 0, ce: 0, ..self.clone() }
    }

    /// Returns the state of validation.
    #[cfg(any(test, feature = "qlog"))]
    pub(crate) fn state(&self) -> EcnState {
        self.state
    }

    /// Returns true if the next packet must be marked ECT(0).
    pub(crate) fn marks(&self) -> bool {
        matches!(self.state, EcnState::Testing | EcnState::Capable)
    }

    /// Records that a marked packet was sent.
    pub(crate) fn on_marked_sent(&mut self) {
        self.marked += 1;
        if self.state == EcnState::Testing && self.marked - self.before >= TESTING_PACKETS {
            self.state = EcnState::Unknown;
        }
    }

    /// Records that a marked packet was lost. If all marked packets of the test are lost, the path
    /// probably drops marked packets.
    pub(crate) fn on_marked_lost(&mut self) {
        self.lost += 1;
        self.judge_test();
    }

    /// Fails validation if no marked packet of the test arrived with its mark, because all were
    /// lost or arrived with ECN-CE (RFC 9000 A.4). If a network sets ECN-CE on every packet, the
    /// mark does not indicate congestion.
    fn judge_test(&mut self) {
        let sent = self.marked - self.before;
        if self.state == EcnState::Unknown && self.lost.saturating_add(self.ce) >= sent {
            self.state = EcnState::Failed;
        }
    }

    /// Processes the ECN `counts` of an ACK frame. The frame newly acknowledges `marked` marked
    /// packets, of which `foreign` were sent on other paths. Returns true if the frame reports new
    /// congestion. Call this only for frames that raise the largest acknowledged packet number.
    // RFC 9000 s.13.4.2.2 #1 #2
    pub(crate) fn on_ack(
        &mut self,
        (marked, foreign): (u64, u64),
        counts: Option<EcnCounts>,
    ) -> bool {
        if self.state == EcnState::Failed {
            return false;
        }
        let Some(counts) = counts else {
            if marked > 0 {
                self.state = EcnState::Failed;
            }
            return false;
        };
        let before = self.counts;
        let fell = counts.ect0 < before.ect0 || counts.ect1 < before.ect1 || counts.ce < before.ce;
        let missing = (counts.ect0.saturating_sub(before.ect0))
            .saturating_add(counts.ce.saturating_sub(before.ce))
            < marked;
        // The peer reports more marks than were sent, or reports ECT(1), which this end never
        // sends.
        let invented = counts.ect0.saturating_add(counts.ce) > self.marked || counts.ect1 > 0;
        if fell || missing || invented {
            self.state = EcnState::Failed;
            return false;
        }
        self.counts = counts;
        // The peer's counts do not say to which path a mark belongs. So assume that as many marks
        // as possible belong to other paths.
        let arrived = (counts.ect0 - before.ect0).saturating_sub(foreign);
        let changed = (counts.ce - before.ce).saturating_sub(foreign);
        if marked > foreign && arrived > 0 {
            self.state = EcnState::Capable;
        } else if self.state != EcnState::Capable {
            self.ce += changed;
            self.judge_test();
        }
        self.state != EcnState::Failed && counts.ce > before.ce
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(packets: u64) -> EcnValidation {
        let mut ecn = EcnValidation::default();
        for _ in 0..packets {
            ecn.on_marked_sent();
        }
        ecn
    }

    fn counts(ect0: u64, ect1: u64, ce: u64) -> Option<EcnCounts> {
        Some(EcnCounts { ect0, ect1, ce })
    }

    #[test]
    fn ecn_path_that_carries_marks() {
        let mut ecn = marked(9);
        assert!(ecn.marks());
        ecn.on_marked_sent();
        assert!(!ecn.marks(), "ten packets are marked before the result");
        assert!(!ecn.on_ack((5, 0), counts(5, 0, 0)));
        assert_eq!(ecn.state(), EcnState::Capable);
        assert!(ecn.on_ack((2, 0), counts(6, 0, 1)), "one new ECN-CE mark");
        assert!(!ecn.on_ack((1, 0), counts(7, 0, 1)), "the mark was reported before");
    }

    // RFC 9000 s.13.4.2.2 #1 #2
    #[test]
    fn ecn_paths_and_peers_that_do_not() {
        let cases = [
            ("no counts", 3, None),
            ("bleached", 3, counts(2, 0, 0)),
            ("remarked to ECT(1)", 3, counts(3, 1, 0)),
            ("more than were sent", 3, counts(11, 0, 0)),
            ("more CE than were sent", 3, counts(3, 0, u64::MAX)),
        ];
        for (what, acked, counts) in cases {
            let mut ecn = marked(10);
            assert!(!ecn.on_ack((acked, 0), counts), "{what}");
            assert_eq!(ecn.state(), EcnState::Failed, "{what}");
            assert!(!ecn.marks(), "{what}");
        }
        let mut ecn = marked(10);
        ecn.on_ack((5, 0), counts(5, 0, 0));
        ecn.on_ack((0, 0), counts(4, 0, 1));
        assert_eq!(ecn.state(), EcnState::Failed, "counts must not decrease");
    }

    #[test]
    fn ecn_fails_where_every_packet_of_the_test_comes_with_ce() {
        // The result must not depend on how many packets each ACK frame acknowledges.
        for each in [1, 2, 5, 10] {
            let mut ecn = marked(10);
            let mut events = 0;
            for acked in (each..=10).step_by(each as usize) {
                assert_ne!(ecn.state(), EcnState::Capable);
                events += u32::from(ecn.on_ack((each, 0), counts(0, 0, acked)));
            }
            assert_eq!(ecn.state(), EcnState::Failed, "{each} packets per ACK frame");
            assert_eq!(
                events,
                10 / each as u32 - 1,
                "before validation fails, each mark counts as congestion"
            );
        }
        // All marked packets of the test were lost or arrived with ECN-CE. None arrived with its
        // original mark.
        let mut ecn = marked(10);
        for _ in 0..6 {
            ecn.on_marked_lost();
        }
        assert!(ecn.on_ack((3, 0), counts(0, 0, 3)) && ecn.state() == EcnState::Unknown);
        ecn.on_ack((1, 0), counts(0, 0, 4));
        assert_eq!(ecn.state(), EcnState::Failed);
        // One of ten marked packets of the test arrives with its original mark, so the ECN-CE marks
        // of the others indicate congestion.
        let mut ecn = marked(10);
        assert!(ecn.on_ack((9, 0), counts(0, 0, 9)) && !ecn.on_ack((1, 0), counts(1, 0, 9)));
        assert_eq!(ecn.state(), EcnState::Capable);
        ecn.on_marked_sent();
        assert!(ecn.on_ack((1, 0), counts(1, 0, 10)), "validation does not fail later");
        assert_eq!(ecn.state(), EcnState::Capable);
    }

    // RFC 9000 s.9.4 #1
    #[test]
    fn ecn_of_a_new_path_is_not_judged_by_packets_of_the_old_one() {
        let mut old = marked(30);
        old.on_ack((10, 0), counts(10, 0, 0));
        // The new path marks packets for its test while 20 packets of the old path are still
        // unacknowledged.
        let mut new = old.restart(true);
        for _ in 0..10 {
            new.on_marked_sent();
        }
        new.on_ack((15, 15), counts(25, 0, 0));
        assert_eq!(
            new.state(),
            EcnState::Unknown,
            "packets of the old path do not validate the new one"
        );
        new.on_ack((10, 5), counts(30, 0, 5));
        assert_eq!(new.state(), EcnState::Unknown);
        new.on_ack((5, 0), counts(30, 0, 10));
        assert_eq!(new.state(), EcnState::Unknown, "five of them may belong to the old path");
        // The old path was congested. The new path is not.
        let mut new = old.restart(true);
        for _ in 0..10 {
            new.on_marked_sent();
        }
        assert!(new.on_ack((20, 20), counts(10, 0, 20)));
        assert_eq!(new.state(), EcnState::Unknown);
        assert!(!new.on_ack((10, 0), counts(20, 0, 20)));
        assert_eq!(new.state(), EcnState::Capable);
    }

    #[test]
    fn ecn_path_that_drops_marked_packets() {
        let mut ecn = marked(10);
        for _ in 0..9 {
            ecn.on_marked_lost();
        }
        assert_eq!(ecn.state(), EcnState::Unknown);
        ecn.on_marked_lost();
        assert_eq!(ecn.state(), EcnState::Failed);
    }
}
