//! The steps of an arm and their times. On a busy machine, attackers take long to begin. Each step
//! therefore waits until the previous one has happened, because an arm could otherwise end before
//! its attack.

use super::arms::Arm;
use super::plan::DemoPlan;
use crate::failure::{Failure, Result};
use crate::part::PATIENCE;

/// Maximum time in seconds to wait until a gateway under a flood asks for address validation. After
/// that, the arm continues anyway, because the flood may be too weak.
const NOTICE: f64 = 2.0;

/// The next step of an arm.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// Start the attackers' parallel clients.
    Parallel,
    /// Start the floods.
    Flood,
    /// Start the newcomers.
    Newcomers,
    /// End the arm.
    Over,
}

/// State of all processes of one kind, such as the floods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum GroupState {
    /// No process of this kind was started.
    #[default]
    Absent,
    /// Some processes of this kind have not begun their work yet.
    Coming,
    /// All processes of this kind have begun their work.
    There,
    /// All processes of this kind have ended.
    Gone,
}

impl GroupState {
    /// Returns the state of processes of one kind. Each item is true if the process has begun its
    /// work.
    pub(super) fn of(mut at_work: impl ExactSizeIterator<Item = bool>) -> GroupState {
        match at_work.len() {
            0 => GroupState::Absent,
            _ if at_work.all(|work| work) => GroupState::There,
            _ => GroupState::Coming,
        }
    }
}

/// State of all processes at one time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seen {
    pub parallel: GroupState,
    pub floods: GroupState,
    pub newcomers: GroupState,
    /// True if the gateway asks for address validation now. Also true if no gateway can ask for it,
    /// because there is nothing to wait for then.
    pub guarded: bool,
}

/// Times of the next steps of an arm, in seconds since its start. `None` if a time is not known
/// yet, or if the step does not occur.
pub(super) struct Cues {
    parallel: Option<f64>,
    flood_after: f64,
    window: f64,
    /// True if the arm has newcomers.
    forged: bool,
    /// Time by which all processes must have begun their work, and the newcomers must have ended.
    latest: f64,
    flood: Option<f64>,
    /// Time at which all floods had begun.
    flooded: Option<f64>,
    newcomers: Option<f64>,
    /// Time at which the arm ends.
    pub(super) over: Option<f64>,
}

impl Cues {
    pub(super) fn new(arm: Arm, plan: &DemoPlan) -> Cues {
        let mut cues = Cues {
            parallel: None,
            flood_after: plan.flood_after_s,
            window: plan.window(),
            forged: arm.forged(),
            latest: plan.seconds(arm) + PATIENCE.as_secs_f64(),
            flood: None,
            flooded: None,
            newcomers: None,
            over: None,
        };
        match (arm.forged(), arm.attacked()) {
            (false, false) => cues.over = Some(plan.seconds(arm)),
            (false, true) => cues.parallel = Some(plan.lead_s),
            (true, false) => cues.newcomers = Some(plan.newcomers_lead_s),
            (true, true) => cues.flood = Some(plan.newcomers_lead_s),
        }
        cues
    }

    /// Returns the step that is due at `time`, if any.
    ///
    /// # Errors
    /// Fails if the attack has not begun, or the newcomers have not ended, long after their planned
    /// time.
    pub(super) fn next(&mut self, time: f64, seen: Seen) -> Result<Option<NextStep>> {
        if let Some(parallel) = self.parallel
            && seen.parallel == GroupState::There
        {
            self.flood.get_or_insert(time.max(parallel + self.flood_after));
        }
        if seen.floods == GroupState::There {
            let flooded = *self.flooded.get_or_insert(time);
            if !self.forged {
                self.over.get_or_insert(time + self.window);
            } else if seen.guarded || time >= flooded + NOTICE {
                self.newcomers.get_or_insert(time);
            }
        }
        if seen.newcomers == GroupState::Gone {
            self.over.get_or_insert(time);
        }
        let due = |at: Option<f64>| at.is_some_and(|at| time >= at);
        for (crew, at, cue) in [
            (seen.parallel, self.parallel, NextStep::Parallel),
            (seen.floods, self.flood, NextStep::Flood),
            (seen.newcomers, self.newcomers, NextStep::Newcomers),
        ] {
            if crew == GroupState::Absent && due(at) {
                return Ok(Some(cue));
            }
        }
        if self.over.is_none() && time >= self.latest {
            return Err(self.late(seen));
        }
        Ok(due(self.over).then_some(NextStep::Over))
    }

    fn late(&self, seen: Seen) -> Failure {
        let what = match seen.newcomers {
            GroupState::Absent => "the attack has not reached its full strength",
            _ => "newcomers are still connecting",
        };
        let seconds = PATIENCE.as_secs();
        Failure::new(format!("{what} {seconds} s after the planned end of the arm"))
            .help("the machine is probably too busy: wait until it is idle, or increase --seconds")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use GroupState::{Absent, Coming, Gone, There};

    /// Returns the times for an arm with parallel clients and a flood from their addresses.
    fn held() -> Cues {
        Cues {
            parallel: Some(2.0),
            flood_after: 1.0,
            window: 10.0,
            forged: false,
            latest: 43.0,
            flood: None,
            flooded: None,
            newcomers: None,
            over: None,
        }
    }

    /// Returns the times for an arm with a flood from forged sources.
    fn forged() -> Cues {
        Cues { parallel: None, forged: true, flood: Some(2.0), ..held() }
    }

    fn both(parallel: GroupState, floods: GroupState) -> Seen {
        Seen { parallel, floods, ..Seen::default() }
    }

    #[test]
    fn steps_follow_the_plan_if_attackers_start_at_once() {
        let mut cues = held();
        let mut next = |time, parallel, floods| cues.next(time, both(parallel, floods)).unwrap();
        assert_eq!(next(1.9, Absent, Absent), None);
        assert_eq!(next(2.0, Absent, Absent), Some(NextStep::Parallel));
        assert_eq!(next(2.1, There, Absent), None);
        assert_eq!(next(3.0, There, Absent), Some(NextStep::Flood));
        assert_eq!(next(3.1, There, There), None);
        assert_eq!(next(13.0, There, There), None);
        assert_eq!(next(13.2, There, There), Some(NextStep::Over));
    }

    #[test]
    fn steps_wait_for_the_step_before() {
        let mut cues = held();
        let mut next = |time, parallel, floods| cues.next(time, both(parallel, floods)).unwrap();
        assert_eq!(next(2.0, Absent, Absent), Some(NextStep::Parallel));
        assert_eq!(next(8.0, Coming, Absent), None);
        assert_eq!(next(9.0, There, Absent), Some(NextStep::Flood));
        assert_eq!(next(20.0, There, Coming), None);
        assert_eq!(next(25.0, There, There), None);
        assert_eq!(next(34.9, There, There), None);
        assert_eq!(next(35.0, There, There), Some(NextStep::Over));
    }

    #[test]
    fn steps_fail_if_the_attack_never_starts() {
        let mut absent = held();
        assert_eq!(absent.next(42.9, both(Coming, Absent)).unwrap(), None);
        assert!(absent.next(43.0, both(Coming, Absent)).is_err());
        let mut late = held();
        assert_eq!(late.next(40.0, both(There, There)).unwrap(), None);
        assert_eq!(
            late.next(43.0, both(There, There)).unwrap(),
            None,
            "the attack is at full strength"
        );
        let error = forged().next(43.0, both(Absent, Coming)).unwrap_err().to_string();
        assert!(error.contains("the attack has not reached its full strength"), "{error}");
    }

    #[test]
    fn steps_without_an_attack_end_by_the_clock() {
        let mut cues = Cues { parallel: None, over: Some(5.0), ..held() };
        assert_eq!(cues.next(4.9, Seen::default()).unwrap(), None);
        assert_eq!(cues.next(5.0, Seen::default()).unwrap(), Some(NextStep::Over));
    }

    #[test]
    fn steps_start_newcomers_under_the_whole_flood() {
        let mut cues = forged();
        let mut next = |time, floods, newcomers, guarded| {
            cues.next(time, Seen { floods, newcomers, guarded, ..Seen::default() }).unwrap()
        };
        assert_eq!(next(1.9, Absent, Absent, true), None);
        assert_eq!(next(2.0, Absent, Absent, true), Some(NextStep::Flood));
        assert_eq!(next(3.0, Coming, Absent, true), None);
        assert_eq!(next(4.0, There, Absent, true), Some(NextStep::Newcomers));
        assert_eq!(next(4.1, There, There, true), None);
        assert_eq!(next(20.0, There, There, true), None, "however long they take");
        assert_eq!(next(20.1, There, Gone, true), Some(NextStep::Over));
    }

    #[test]
    fn steps_hold_newcomers_a_limited_time_for_the_gateway() {
        for (asks_at, comes) in [(5.0, 5.0), (99.0, 4.0 + NOTICE)] {
            let mut cues = forged();
            let seen = |time| Seen { floods: There, guarded: time >= asks_at, ..Seen::default() };
            assert_eq!(cues.next(4.0, seen(4.0)).unwrap(), None);
            assert_eq!(cues.next(comes - 0.1, seen(comes - 0.1)).unwrap(), None);
            assert_eq!(cues.next(comes, seen(comes)).unwrap(), Some(NextStep::Newcomers));
        }
    }

    #[test]
    fn steps_start_newcomers_by_the_clock_and_fail_if_they_hang() {
        let calm = || Cues { flood: None, newcomers: Some(1.0), ..forged() };
        let of = |newcomers| Seen { newcomers, guarded: true, ..Seen::default() };
        let mut cues = calm();
        assert_eq!(cues.next(0.9, of(Absent)).unwrap(), None);
        assert_eq!(cues.next(1.0, of(Absent)).unwrap(), Some(NextStep::Newcomers));
        assert_eq!(cues.next(42.9, of(There)).unwrap(), None);
        let error = cues.next(43.0, of(There)).unwrap_err().to_string();
        assert!(error.contains("newcomers are still connecting"), "{error}");
        assert_eq!(calm().next(43.0, of(Gone)).unwrap(), Some(NextStep::Over));
    }
}
