//! Validation of a path for ECN marks (RFC 9000 s.13.4.2, A.4).

use crate::received::EcnCounts;

/// Packets to mark before waiting for the outcome (RFC 9000 s.13.4.2).
const TESTING_PACKETS: u64 = 10;

/// State of ECN validation (RFC 9000 A.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "qlog"), expect(unreachable_pub, reason = "logs show it"))]
pub enum EcnState {
    /// The first packets are marked.
    Testing,
    /// Enough were marked; none more until some are acknowledged.
    Unknown,
    /// Marks get lost or changed: none are set.
    Failed,
    /// Marks arrive.
    Capable,
}

/// ECN validation of one path.
#[derive(Debug, Clone)]
pub(crate) struct EcnValidation {
    state: EcnState,
    /// Packets sent marked ECT(0).
    marked: u64,
    /// Of those, sent before this path was tested: the peer's counts are of all paths.
    before: u64,
    /// Of those, lost while nothing had been acknowledged.
    lost: u64,
    /// The counts of the last ACK frame that moved the largest acknowledged on.
    counts: EcnCounts,
}

impl Default for EcnValidation {
    fn default() -> EcnValidation {
        EcnValidation {
            state: EcnState::Testing,
            marked: 0,
            before: 0,
            lost: 0,
            counts: EcnCounts::default(),
        }
    }
}

impl EcnValidation {
    /// Without marks, for sockets that cannot set them.
    pub(crate) fn disabled() -> EcnValidation {
        EcnValidation { state: EcnState::Failed, ..EcnValidation::default() }
    }

    /// For another path of the connection, to test it anew, with counts that go on; `marks`: the
    /// socket can.
    pub(crate) fn restart(&self, marks: bool) -> EcnValidation {
        let state = if marks { EcnState::Testing } else { EcnState::Failed };
        EcnValidation { state, before: self.marked, lost: 0, ..self.clone() }
    }

    /// The state of validation.
    #[cfg(any(test, feature = "qlog"))]
    pub(crate) fn state(&self) -> EcnState {
        self.state
    }

    /// True if the next packet is to be marked ECT(0).
    pub(crate) fn marks(&self) -> bool {
        matches!(self.state, EcnState::Testing | EcnState::Capable)
    }

    /// A marked packet was sent.
    pub(crate) fn on_marked_sent(&mut self) {
        self.marked += 1;
        if self.state == EcnState::Testing && self.marked - self.before >= TESTING_PACKETS {
            self.state = EcnState::Unknown;
        }
    }

    /// A marked packet was lost. If all that were sent for the test are, marks seem to be what gets
    /// them dropped.
    pub(crate) fn on_marked_lost(&mut self) {
        self.lost += 1;
        if self.state == EcnState::Unknown && self.lost >= self.marked - self.before {
            self.state = EcnState::Failed;
        }
    }

    /// An ACK frame that raises the largest acknowledged newly acknowledges `marked` marked packets and
    /// reports `counts`: true if it tells of new congestion. Frames that do not raise it must not
    /// come here.
    pub(crate) fn on_ack(&mut self, marked: u64, counts: Option<EcnCounts>) -> bool {
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
        // More than were sent, or ECT(1), which never was.
        let invented = counts.ect0.saturating_add(counts.ce) > self.marked || counts.ect1 > 0;
        if fell || missing || invented {
            self.state = EcnState::Failed;
            return false;
        }
        self.counts = counts;
        if marked > 0 {
            self.state = EcnState::Capable;
        }
        counts.ce > before.ce
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
    fn a_path_that_carries_marks() {
        let mut ecn = marked(9);
        assert!(ecn.marks());
        ecn.on_marked_sent();
        assert!(!ecn.marks(), "ten, then wait");
        assert!(!ecn.on_ack(5, counts(5, 0, 0)));
        assert_eq!(ecn.state(), EcnState::Capable);
        assert!(ecn.on_ack(2, counts(6, 0, 1)), "one mark of congestion");
        assert!(!ecn.on_ack(1, counts(7, 0, 1)), "told once");
    }

    #[test]
    fn paths_and_peers_that_do_not() {
        let cases = [
            ("no counts", 3, None),
            ("bleached", 3, counts(2, 0, 0)),
            ("remarked to ECT(1)", 3, counts(3, 1, 0)),
            ("more than were sent", 3, counts(11, 0, 0)),
            ("more CE than were sent", 3, counts(3, 0, u64::MAX)),
        ];
        for (what, acked, counts) in cases {
            let mut ecn = marked(10);
            assert!(!ecn.on_ack(acked, counts), "{what}");
            assert_eq!(ecn.state(), EcnState::Failed, "{what}");
            assert!(!ecn.marks(), "{what}");
        }
        let mut ecn = marked(10);
        ecn.on_ack(5, counts(5, 0, 0));
        ecn.on_ack(0, counts(4, 0, 1));
        assert_eq!(ecn.state(), EcnState::Failed, "counts that fall");
    }

    #[test]
    fn a_path_that_drops_marked_packets() {
        let mut ecn = marked(10);
        for _ in 0..9 {
            ecn.on_marked_lost();
        }
        assert_eq!(ecn.state(), EcnState::Unknown);
        ecn.on_marked_lost();
        assert_eq!(ecn.state(), EcnState::Failed);
    }
}
