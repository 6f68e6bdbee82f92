//! Runs random configurations and packet sequences on the XDP program and on the reference model.
//! They must agree on every packet, and at the end on counters and source statistics.
//!
//! `EQUIC_CASES` is the number of sequences, and `EQUIC_SEED` is the seed of the first one.

use crate::packets;
use crate::packets::program::Program;
use crate::packets::random::{Random, cases, seed};
use crate::packets::script::{Script, Step, hexdump};
use crate::packets::subject::Subject;
use equic_gateway::reason::Reason;
use equic_gateway_model::Model;
use std::collections::BTreeSet;

const STEPS: usize = 120;
/// If at least this number of cases runs, every verdict reason must occur.
const ENOUGH_CASES: u64 = 500;

/// Runs a script on the model and the program. Returns a description of the first difference, or
/// `None` if they agree.
fn difference(script: &Script, model: &mut Model, program: &mut Program) -> Option<String> {
    let mut verdicts = Vec::new();
    script.play(model, |_, _, seen| verdicts.push(seen));
    let mut found = None;
    let mut index = 0;
    script.play(program, |step, _, seen| {
        if found.is_none()
            && seen != verdicts[index]
            && let Step::Packet(frame) | Step::Arrival(frame, _) = step
        {
            found = Some(format!(
                "step {index}: model {:?}, program {seen:?}\n{}",
                verdicts[index],
                hexdump(frame)
            ));
        }
        index += 1;
    });
    if found.is_some() {
        return found;
    }
    let (model, program) = (model.report(), program.report());
    (model != program).then(|| format!("reports differ\nmodel   {model:#?}\nprogram {program:#?}"))
}

/// Removes as many steps from a script as possible without losing the difference between model and
/// program.
fn shrink(mut script: Script, model: &mut Model, program: &mut Program) -> Script {
    let mut chunk = script.steps.len() / 2;
    while chunk > 0 {
        let mut at = 0;
        while at < script.steps.len() {
            let mut smaller = script.clone();
            smaller.steps.drain(at..(at + chunk).min(script.steps.len()));
            if difference(&smaller, model, program).is_some() {
                script = smaller;
            } else {
                at += chunk;
            }
        }
        chunk /= 2;
    }
    script
}

fn describe(script: &Script) -> String {
    let mut text = format!("{:#?}\n", script.config);
    for (index, (step, _)) in script.steps.iter().enumerate() {
        match step {
            Step::Packet(frame) => {
                text +=
                    &format!("step {index}: packet of {} bytes\n{}", frame.len(), hexdump(frame));
            }
            other => text += &format!("step {index}: {other:?}\n"),
        }
    }
    text
}

#[test]
fn program_and_model_agree() {
    if !packets::is_root() {
        return packets::skip("program_and_model_agree", "loading XDP programs needs root");
    }
    let seed = seed();
    let (mut model, mut program) = (Model::default(), Program::default());
    let mut met = BTreeSet::new();
    let cases = cases(3_000);
    for case in 0..cases {
        let seed = seed.wrapping_add(case);
        let script = Random::new(seed).script(STEPS);
        if difference(&script, &mut model, &mut program).is_some() {
            let small = shrink(script, &mut model, &mut program);
            let how = difference(&small, &mut model, &mut program).unwrap_or_default();
            panic!(
                "program and model disagree; replay with EQUIC_SEED={seed} EQUIC_CASES=1\n{}\n{how}",
                describe(&small)
            );
        }
        met.extend(model.report().counters.keys().map(|(_, reason)| *reason));
    }
    let missing: Vec<Reason> = Reason::all().filter(|reason| !met.contains(reason)).collect();
    assert!(cases < ENOUGH_CASES || missing.is_empty(), "random scripts never led to {missing:?}");
}
