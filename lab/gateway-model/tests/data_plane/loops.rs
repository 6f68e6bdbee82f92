//! Sends the gateway's own answers back to it, as a second gateway with the same configuration and
//! keys would. The gateway must not answer them. This proves that for each forged packet, two
//! gateways exchange at most one packet, and no endless loop begins.

use crate::packets;
use crate::packets::program::Program;
use crate::packets::random::{Random, seed};
use crate::packets::rows;
use crate::packets::script::{Script, Step, hexdump};
use crate::packets::subject::Subject;
use equic_gateway::reason::Reason;
use equic_gateway_model::Model;
use std::collections::BTreeMap;

const STEPS: usize = 120;
const CASES: u64 = 300;

/// For each kind of answer, counts how often it was sent, and which verdicts the answers got.
#[derive(Debug, Default)]
struct Bounced {
    answers: BTreeMap<Reason, usize>,
    ends: BTreeMap<Reason, usize>,
}

/// Returns the answer with its source address and port also written over the destination. So the
/// answer becomes a packet to the service.
fn to_a_service(answer: &[u8]) -> Vec<u8> {
    let mut frame = answer.to_vec();
    let mut at = 12;
    while matches!(frame[at..at + 2], [0x81, 0x00] | [0x88, 0xa8]) {
        at += 4;
    }
    // Fixed offsets are sufficient here, because answers have neither IP options nor extension
    // headers.
    let (addresses, length) = if frame[at..at + 2] == [0x08, 0x00] { (12, 4) } else { (8, 16) };
    let addresses = at + 2 + addresses;
    let ports = addresses + 2 * length;
    frame.copy_within(addresses..addresses + length, addresses + length);
    frame.copy_within(ports..ports + 2, ports + 2);
    frame
}

/// Runs a script, and sends every answer back to the gateway at once.
fn bounce(name: &str, script: &Script, subject: &mut dyn Subject, bounced: &mut Bounced) {
    subject.reset(&script.config);
    let mut now = packets::script::START;
    for (step, _) in &script.steps {
        if let Step::Wait(ns) = step {
            now += ns;
        }
        let Some(seen) = subject.step(step, now) else { continue };
        // An answer without an Ethernet header cannot be sent back to a gateway that expects this
        // header.
        if matches!(step, Step::Arrival(..)) {
            continue;
        }
        let Some(answer) = seen.answer else { continue };
        let reason = seen.verdict.expect("a reason").1;
        *bounced.answers.entry(reason).or_default() += 1;
        let back = to_a_service(&answer);
        let seen = subject.step(&Step::Packet(back.clone()), now).expect("a packet");
        assert!(
            seen.answer.is_none(),
            "{}: {name} answers a {reason:?}: {seen:?}\n{}",
            script.what,
            hexdump(&back)
        );
        let (_, end) = seen.verdict.expect("it is to a service");
        *bounced.ends.entry(end).or_default() += 1;
    }
}

fn assert_all_met(bounced: &Bounced) {
    let missing: Vec<Reason> = Reason::all()
        .filter(|reason| reason.answers() && !bounced.answers.contains_key(reason))
        .collect();
    assert!(missing.is_empty(), "no {missing:?} in {bounced:?}");
    assert!(!bounced.ends.keys().any(|reason| reason.answers()), "{bounced:?}");
}

#[test]
fn answers_are_not_answered_by_the_model() {
    let mut bounced = Bounced::default();
    for row in rows::all() {
        bounce("the model", &row, &mut Model::default(), &mut bounced);
    }
    assert_all_met(&bounced);
}

#[test]
fn answers_are_not_answered_by_the_program() {
    if !packets::is_root() {
        let why = "loading XDP programs needs root";
        return packets::skip("answers_are_not_answered_by_the_program", why);
    }
    let (mut program, mut bounced) = (Program::default(), Bounced::default());
    for row in rows::all() {
        bounce("the program", &row, &mut program, &mut bounced);
    }
    let seed = seed();
    for case in 0..CASES {
        let script = Random::new(seed.wrapping_add(case)).script(STEPS);
        bounce("the program", &script, &mut program, &mut bounced);
    }
    assert_all_met(&bounced);
    println!("{bounced:?}");
}
