//! Fuzzed frames on the real program: it never aborts, and never touches what is not its business.
//!
//! The configuration drops everything it can, so whatever the reference model's own parser calls
//! foreign and the program drops nevertheless, is found. Several buffers per frame included.
//! `EQUIC_CASES` is the number of frames, `EQUIC_SEED` the seed.

mod packets;

use equic_gateway::model::{AclAction, FragmentPolicy, Model};
use packets::frame::{DESTINATION_OPTIONS, udp};
use packets::program::Program;
use packets::quic;
use packets::random::{Random, cases, seed};
use packets::script::{START, Script, Step, case, hexdump};
use packets::subject::Subject;

/// Everything to the service is denied, later fragments too.
fn hostile() -> Script {
    case("everything denied")
        .service(|service| service.fragments = FragmentPolicy::Drop)
        .list(AclAction::Deny, "0.0.0.0/0", 0)
        .list(AclAction::Deny, "::/0", 0)
}

#[test]
fn fuzzed_frames_never_abort_and_foreign_ones_pass() {
    let name = "fuzzed_frames_never_abort_and_foreign_ones_pass";
    if !packets::is_root() {
        return packets::skip(name, "loading XDP programs needs root");
    }
    let seed = seed();
    let mut random = Random::new(seed);
    let (mut model, mut program) = (Model::default(), Program::default());
    let (mut foreign, mut dropped) = (0_u64, 0_u64);
    for script in [hostile(), case("nothing denied")] {
        script.play(&mut model, |_, _, _| {});
        script.play(&mut program, |_, _, _| {});
        for index in 0..cases(100_000) {
            let frame = random.garbage();
            // `run` asserts that the action is neither XDP_ABORTED nor an unknown one.
            let seen = program.loaded().run(&frame, START + index);
            let step = Step::Packet(frame.clone());
            let expected = model.step(&step, START + index).expect("a packet has an outcome");
            let is_foreign = expected.verdict.is_none();
            assert!(
                !(is_foreign && seen.dropped),
                "{}, frame {index} of EQUIC_SEED={seed}: a foreign frame was dropped\n{}",
                script.what,
                hexdump(&frame)
            );
            assert_eq!(
                seen,
                expected,
                "{}, frame {index} of EQUIC_SEED={seed} (right: model)\n{}",
                script.what,
                hexdump(&frame)
            );
            foreign += u64::from(is_foreign);
            dropped += u64::from(seen.dropped);
        }
    }
    assert!(foreign > 0 && dropped > 0, "{foreign} foreign, {dropped} dropped: one-sided frames");
}

/// Frames over 4,096 bytes come in several buffers; headers may end up in the second one.
#[test]
fn frames_of_several_buffers() {
    if !packets::is_root() {
        return packets::skip("frames_of_several_buffers", "loading XDP programs needs root");
    }
    let seed = seed();
    let mut random = Random::new(seed);
    let (mut model, mut program) = (Model::default(), Program::default());
    let mut judged = 0;
    for script in [hostile(), case("nothing denied")] {
        script.play(&mut model, |_, _, _| {});
        script.play(&mut program, |_, _, _| {});
        for index in 0..cases(2_000).min(20_000) {
            let headers = index as usize % 17;
            let payload = quic::initial().fill(4_000 + index as usize % 5_000).build();
            let mut frame = udp("[2001:db8::1]:1000", "[fd00::1]:443", payload)
                .extension(DESTINATION_OPTIONS, 255, headers)
                .build();
            for _ in 0..index % 3 {
                random.mutate(&mut frame, 5_000);
            }
            let seen = program.loaded().run(&frame, START + index);
            let step = Step::Packet(frame.clone());
            let expected = model.step(&step, START + index).expect("a packet has an outcome");
            assert_eq!(
                seen,
                expected,
                "{}, frame {index} of EQUIC_SEED={seed} (right: model)\n{}",
                script.what,
                hexdump(&frame)
            );
            judged += u64::from(seen.verdict.is_some());
        }
    }
    assert!(judged > 0, "no frame of several buffers was judged");
}
