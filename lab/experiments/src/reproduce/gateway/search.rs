//! Searches for the strength of the attack, and for the width of the windows of mean rates, before
//! the runs.
//!
//! The paper's attackers make as many requests as the other clients. Today's servers hardly notice
//! that, and an attack without effect cannot show the benefit of a quota. The search therefore
//! doubles the attack until the arm without a quota loses at least half of its throughput in every
//! trial of a step. The search uses only that arm, so it does not favour any quota.
//!
//! A harmonic mean is 0 if a window has no response. Windows are therefore twice as wide as the
//! longest time without a response to a sequential client in the trials of the selected attack.
//! They are never narrower than the paper's (scaled), and at least [`FEWEST_WINDOWS`] fit into the
//! attack.

use super::data::{RawRecords, Run};
use super::plan::{Arm, ExperimentPlan, Step, Trial};
use super::progress::Progress;
use crate::failure::Result;
use equic_load::Outcome;

/// Minimum number of windows that must fit into the attack.
const FEWEST_WINDOWS: f64 = 4.0;

/// Computes the figures of a trial from its run. If there was no response before the attack,
/// both the rate and the loss are zero.
fn trial_of(run: &Run, take: &RawRecords) -> Trial {
    Trial {
        before_per_s: run.legitimate.before_per_s.unwrap_or(0.0),
        attacked_per_s: run.legitimate.attacked.mean_per_s.unwrap_or(0.0),
        silence_s: silence(take),
    }
}

/// Returns the longest time between two consecutive responses to sequential clients in a run.
fn silence(take: &RawRecords) -> f64 {
    let answered = take.sequential.iter().flatten().filter(|sample| sample.outcome == Outcome::Ok);
    let mut times: Vec<f64> =
        answered.map(|sample| (sample.start_ms + sample.duration_ms) / 1000.0).collect();
    times.sort_unstable_by(f64::total_cmp);
    longest_gap(&times)
}

fn longest_gap(sorted: &[f64]) -> f64 {
    sorted.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max)
}

/// Doubles the attack from 1 to `most` until the loss is large enough. Returns all steps. The last
/// step is the selected attack.
fn double(most: u32, mut trials: impl FnMut(u32) -> Result<Vec<Trial>>) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    let mut attack = 1;
    loop {
        let step = Step { attack, trials: trials(attack)? };
        let enough = step.enough();
        steps.push(step);
        if enough || attack >= most {
            return Ok(steps);
        }
        attack = attack.saturating_mul(2).min(most);
    }
}

/// Returns the width of the windows of mean rates, in seconds.
fn mean_window(plan: &ExperimentPlan, trials: &[Trial]) -> f64 {
    let silence = trials.iter().map(|trial| trial.silence_s).fold(0.0, f64::max);
    // The order of `min` and `max` matters: windows are never narrower than the paper's, even if
    // fewer windows fit then.
    (2.0 * silence).min(plan.attack_s / FEWEST_WINDOWS).max(plan.window_s)
}

/// Runs the search in this lab. Returns the plan with the selected attack and windows.
pub(super) fn search(
    plan: ExperimentPlan,
    most: u32,
    trials: u32,
    play: &mut dyn FnMut(&ExperimentPlan) -> Result<RawRecords>,
    progress: &Progress,
) -> Result<ExperimentPlan> {
    let steps = double(most, |attack| {
        let plan = plan.clone().attacked(attack);
        let trial = |number| {
            progress.trial(attack);
            let take = play(&plan)?;
            Ok(trial_of(&Run::new(Arm::None, number, &plan, &take), &take))
        };
        let trials = (0..trials).map(trial).collect::<Result<Vec<Trial>>>()?;
        progress.tried(&Step { attack, trials: trials.clone() })?;
        Ok(trials)
    })?;
    let last = steps.last();
    let attack = last.map_or(1, |step| step.attack);
    let window = mean_window(&plan, last.map_or(&[], |step| &step.trials));
    Ok(ExperimentPlan { search: steps, mean_window_s: Some(window), ..plan.attacked(attack) })
}

#[cfg(test)]
mod tests {
    use super::super::Args;
    use super::*;

    fn trial(attacked_per_s: f64) -> Trial {
        Trial { before_per_s: 100.0, attacked_per_s, silence_s: 0.1 }
    }

    #[test]
    fn search_doubles_the_attack_until_every_trial_loses_half() {
        // The two trials of each step keep these shares of the throughput: 80 and 60 %, then 40 and
        // 55 %, then 45 and 50 %.
        let left = [(1, [80.0, 60.0]), (2, [40.0, 55.0]), (4, [45.0, 50.0]), (8, [1.0, 1.0])];
        let play = |attack| {
            let (_, left) = left.iter().find(|(of, _)| *of == attack).unwrap();
            Ok(left.map(trial).to_vec())
        };
        let steps = double(32, play).unwrap();
        assert_eq!(steps.iter().map(|step| step.attack).collect::<Vec<_>>(), [1, 2, 4]);
        assert!((steps[2].loss() - 0.5).abs() < 1e-9 && !steps[1].enough());
        // The search ends at the maximum, whether or not it is a power of 2.
        let steps = double(6, |_| Ok(vec![trial(90.0)])).unwrap();
        assert_eq!(steps.iter().map(|step| step.attack).collect::<Vec<_>>(), [1, 2, 4, 6]);
        // If there was no trial, or if the server did not respond before the attack, this does not
        // count as a loss.
        let down = Trial { before_per_s: 0.0, attacked_per_s: 0.0, silence_s: 0.0 };
        assert!(!Step { attack: 1, trials: Vec::new() }.enough());
        assert!(!Step { attack: 1, trials: vec![down] }.enough());
    }

    #[test]
    fn search_window_covers_the_longest_silence_twice() {
        let plan = ExperimentPlan::new(&Args::default(), 1).unwrap().pace(30.0);
        assert!((plan.window_s - 1.0).abs() < 1e-9 && (plan.attack_s - 16.0).abs() < 1e-9);
        let of = |silences: &[f64]| {
            let trials: Vec<Trial> =
                silences.iter().map(|s| Trial { silence_s: *s, ..trial(50.0) }).collect();
            mean_window(&plan, &trials)
        };
        for (silences, expected) in
            [(&[0.2, 0.3][..], 1.0), (&[0.9, 1.2], 2.4), (&[0.1, 9.0], 4.0), (&[], 1.0)]
        {
            assert!((of(silences) - expected).abs() < 1e-9, "{silences:?}: {}", of(silences));
        }
        assert!((longest_gap(&[1.0, 1.5, 3.5, 4.0]) - 2.0).abs() < 1e-9);
        assert!(longest_gap(&[1.0]).abs() < 1e-9);
    }
}
