//! What comes next in an arm, and when. On a busy machine attackers take long to begin: each step waits
//! for the one before, or an arm would be over before its attack.

use super::plan::{Arm, Plan};
use crate::failure::{Done, Failure};
use crate::part::PATIENCE;

/// Next thing to do in an arm.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Cue {
    /// The attackers' parallel clients are to begin.
    Parallel,
    /// The floods are to begin.
    Flood,
    /// The arm is over.
    Over,
}

/// Attackers of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Crew {
    /// None was started.
    Absent,
    /// Some have not begun.
    Coming,
    /// All are at work.
    There,
}

impl Crew {
    /// By who of those that were started is at work.
    pub(super) fn of(mut at_work: impl ExactSizeIterator<Item = bool>) -> Crew {
        match at_work.len() {
            0 => Crew::Absent,
            _ if at_work.all(|work| work) => Crew::There,
            _ => Crew::Coming,
        }
    }
}

/// Times of what comes next, in seconds since the arm began.
pub(super) struct Cues {
    parallel: f64,
    flood_after: f64,
    window: f64,
    /// Time by which the attack has to be there.
    latest: f64,
    /// None until the parallel clients are at work.
    flood: Option<f64>,
    /// End of the arm; none until the floods are at work.
    pub(super) over: Option<f64>,
}

impl Cues {
    pub(super) fn new(arm: Arm, plan: &Plan) -> Cues {
        let attacked = arm.attacked();
        Cues {
            parallel: if attacked { plan.lead_s } else { f64::INFINITY },
            flood_after: plan.flood_after_s,
            window: plan.window(),
            latest: plan.seconds(arm) + PATIENCE.as_secs_f64(),
            flood: None,
            over: (!attacked).then(|| plan.seconds(arm)),
        }
    }

    /// What is to be done at this time, if anything is.
    ///
    /// # Errors
    /// The attack is not there long after it should be.
    pub(super) fn next(&mut self, time: f64, parallel: Crew, floods: Crew) -> Done<Option<Cue>> {
        if self.flood.is_none() && parallel == Crew::There {
            self.flood = Some(time.max(self.parallel + self.flood_after));
        }
        if self.over.is_none() && floods == Crew::There {
            self.over = Some(time + self.window);
        }
        let due = |at: Option<f64>| at.is_some_and(|at| time >= at);
        if parallel == Crew::Absent && time >= self.parallel {
            return Ok(Some(Cue::Parallel));
        }
        if floods == Crew::Absent && due(self.flood) {
            return Ok(Some(Cue::Flood));
        }
        if self.over.is_none() && time >= self.latest {
            let seconds = PATIENCE.as_secs();
            let text = format!("the attack is not there {seconds} s after the arm should be over");
            return Err(
                Failure::new(text).mend("the machine is busy: wait, or give more --seconds")
            );
        }
        Ok(due(self.over).then_some(Cue::Over))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cues() -> Cues {
        let (flood, over) = (None, None);
        Cues { parallel: 2.0, flood_after: 1.0, window: 10.0, latest: 43.0, flood, over }
    }

    #[test]
    fn attackers_that_begin_at_once_come_when_they_are_planned() {
        use Crew::{Absent, There};
        let mut cues = cues();
        let mut next = |time, parallel, floods| cues.next(time, parallel, floods).unwrap();
        assert_eq!(next(1.9, Absent, Absent), None);
        assert_eq!(next(2.0, Absent, Absent), Some(Cue::Parallel));
        assert_eq!(next(2.1, There, Absent), None);
        assert_eq!(next(3.0, There, Absent), Some(Cue::Flood));
        assert_eq!(next(3.1, There, There), None);
        assert_eq!(next(13.0, There, There), None);
        assert_eq!(next(13.2, There, There), Some(Cue::Over));
    }

    #[test]
    fn each_step_waits_for_the_one_before() {
        use Crew::{Absent, Coming, There};
        let mut cues = cues();
        let mut next = |time, parallel, floods| cues.next(time, parallel, floods).unwrap();
        assert_eq!(next(2.0, Absent, Absent), Some(Cue::Parallel));
        assert_eq!(next(8.0, Coming, Absent), None);
        assert_eq!(next(9.0, There, Absent), Some(Cue::Flood));
        assert_eq!(next(20.0, There, Coming), None);
        assert_eq!(next(25.0, There, There), None);
        assert_eq!(next(34.9, There, There), None);
        assert_eq!(next(35.0, There, There), Some(Cue::Over));
    }

    #[test]
    fn an_attack_that_never_comes_is_an_error() {
        let mut absent = cues();
        assert_eq!(absent.next(42.9, Crew::Coming, Crew::Absent).unwrap(), None);
        assert!(absent.next(43.0, Crew::Coming, Crew::Absent).is_err());
        let mut late = cues();
        assert_eq!(late.next(40.0, Crew::There, Crew::There).unwrap(), None);
        assert_eq!(late.next(43.0, Crew::There, Crew::There).unwrap(), None, "it is there");
    }

    #[test]
    fn an_arm_without_an_attack_is_over_by_the_clock() {
        let mut cues = Cues { parallel: f64::INFINITY, over: Some(5.0), ..cues() };
        assert_eq!(cues.next(4.9, Crew::Absent, Crew::Absent).unwrap(), None);
        assert_eq!(cues.next(5.0, Crew::Absent, Crew::Absent).unwrap(), Some(Cue::Over));
    }
}
