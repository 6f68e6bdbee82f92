//! Runs fuzzed frames on the real XDP program. It must never abort, and must never drop a frame
//! that is not for a service.
//!
//! One configuration drops every packet to the service. With it, the tests find each frame that the
//! program drops although the reference model does not assign it to a service. The frames include
//! some that consist of several buffers.
//!
//! Other tests run mutated inputs with many configurations, and check the results of the seeds in
//! `fuzz/seeds/program`. `EQUIC_CASES` is the number of frames, and `EQUIC_SEED` is the seed.
//! `EQUIC_INPUT` names a file with an input to run.

use crate::packets;
use crate::packets::frame::{DESTINATION_OPTIONS, udp};
use crate::packets::fuzz::{Checker, Generator, Record, encode};
use crate::packets::program::Program;
use crate::packets::quic;
use crate::packets::random::{Random, cases, seed};
use crate::packets::script::{START, Script, Step, case, hexdump};
use crate::packets::subject::Subject;
use equic_gateway::reason::Reason;
use equic_gateway_model::{AclAction, FragmentPolicy, Model};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

const SEEDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/program");
/// Number of frames in one input. After these frames, the tables and reports of the program and the
/// model are compared.
const FRAMES: u64 = 500;
/// Number of inputs after which a long run prints its progress again.
const SAY_EVERY: u64 = 500_000;

/// Returns a configuration that drops every packet to the service, including later fragments.
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
        // With `drop_deep_headers`, the program would drop all packets with too many headers. This
        // test does not examine these.
        let script = script.config(|config| config.drop_deep_headers = false);
        script.play(&mut model, |_, _, _| {});
        script.play(&mut program, |_, _, _| {});
        for index in 0..cases(100_000) {
            let frame = random.garbage();
            // `run` panics if the action is XDP_ABORTED or unknown.
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

/// A frame of more than 4,096 bytes consists of several buffers, so its headers may be in the
/// second buffer.
#[test]
fn frames_of_several_buffers_lead_to_the_same_verdicts() {
    if !packets::is_root() {
        return packets::skip(
            "frames_of_several_buffers_lead_to_the_same_verdicts",
            "loading XDP programs needs root",
        );
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

fn seeds() -> Vec<(PathBuf, Vec<u8>)> {
    // In a virtual machine, this folder is missing, because only the tests and not the source tree
    // are there.
    let Ok(folder) = std::fs::read_dir(SEEDS) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = folder.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

/// Returns all verdict reasons that a single frame can have. The reasons for batches are left out,
/// because a batch is not a single frame.
fn frames_lead_to() -> impl Iterator<Item = Reason> {
    Reason::all().filter(|reason| *reason != Reason::Batch)
}

/// Writes an input on which program and model differ to a file. Panics with the command that runs
/// this input again.
fn keep(input: &[u8], how: &str) -> ! {
    // The file is written to the build folder or, in a virtual machine, to the folder for temporary
    // files.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let folder = if folder.is_dir() { folder.to_owned() } else { std::env::temp_dir() };
    let path = folder.join(format!("fuzzed-{}.input", std::process::id()));
    std::fs::write(&path, input).expect("the input can be kept");
    panic!(
        "program and model disagree: {how}\nplay it again: EQUIC_INPUT={} cargo test -p equic-gateway-model --test data_plane input_of_a_file",
        path.display()
    );
}

#[test]
fn mutated_inputs_lead_to_the_same_verdicts() {
    let name = "mutated_inputs_lead_to_the_same_verdicts";
    if !packets::is_root() {
        return packets::skip(name, "loading XDP programs needs root");
    }
    let (seed, cases) = (seed(), cases(100_000));
    let seeds: Vec<Vec<u8>> = seeds().into_iter().map(|(_, input)| input).collect();
    let mut generator = Generator::new(seed, &seeds);
    let (mut checker, begun) = (Checker::default(), Instant::now());
    let mut said = 0;
    // Some runs do not reach every reason. They continue with more frames, up to ten times as many.
    let wanted = |checker: &Checker| {
        let all = || frames_lead_to().all(|one| checker.met.contains(&one));
        let enough = if cases < 100_000 || all() { cases } else { 10 * cases };
        enough.saturating_sub(checker.frames)
    };
    while wanted(&checker) > 0 {
        let input = generator.input(FRAMES.min(wanted(&checker)));
        if checker.check(&input).is_err() {
            let small = checker.shrink(&input);
            let how = checker.check(&small).err().unwrap_or_default();
            keep(&small, &format!("EQUIC_SEED={seed}, {how}"));
        }
        if checker.frames / SAY_EVERY > said {
            said = checker.frames / SAY_EVERY;
            eprintln!("{} of {cases} frames in {:.0?}", checker.frames, begun.elapsed());
        }
    }
    eprintln!("{} frames, {} foreign, in {:.1?}", checker.frames, checker.foreign, begun.elapsed());
    assert!(checker.foreign > 0, "only frames to services");
    let missing: Vec<Reason> = frames_lead_to().filter(|one| !checker.met.contains(one)).collect();
    assert!(cases < 100_000 || missing.is_empty(), "never led to {missing:?}");
}

/// The seeds must reach every verdict reason when each runs with several configurations. With
/// `EQUIC_WRITE_SEEDS=1`, the test first creates the seeds from the packet tables.
#[test]
fn seeds_lead_to_the_same_verdicts() {
    if !packets::is_root() {
        return packets::skip("seeds_lead_to_the_same_verdicts", "loading XDP programs needs root");
    }
    if std::env::var_os("EQUIC_WRITE_SEEDS").is_some() {
        write_seeds();
    }
    let seeds = seeds();
    if seeds.is_empty() {
        assert!(!Path::new(env!("CARGO_MANIFEST_DIR")).is_dir(), "no seeds in {SEEDS}");
        return;
    }
    let mut checker = Checker::default();
    for (path, mut input) in seeds {
        for config in 0..32 {
            if let Err(how) = checker.check(&input) {
                panic!("{} with configuration {}: {how}", path.display(), input[0]);
            }
            input[0] = config;
        }
    }
    let missing: Vec<Reason> = frames_lead_to().filter(|one| !checker.met.contains(one)).collect();
    assert!(missing.is_empty(), "the seeds never lead to {missing:?}");
}

/// Writes one seed for each packet table that has packets that no earlier table has.
fn write_seeds() {
    std::fs::create_dir_all(SEEDS).expect("the folder can be made");
    for (name, records) in by_subject() {
        let path = Path::new(SEEDS).join(name);
        std::fs::write(path, encode(1, &records)).expect("a seed can be written");
    }
}

/// Returns the packets of the tables, grouped by table. A packet that occurs in several tables is
/// only in the first of these groups.
fn by_subject() -> impl Iterator<Item = (&'static str, Vec<Record>)> {
    let mut known = BTreeSet::new();
    let subjects = packets::rows::by_subject().into_iter().map(move |(name, rows)| {
        let mut records: Vec<Record> = Vec::new();
        for (step, _) in rows.into_iter().flat_map(|row| row.steps) {
            let Step::Packet(frame) = step else { continue };
            // The bytes after the headers are the same in all frames, so only the first 120 bytes
            // are compared.
            if frame.len() < 4_000 && known.insert(frame[..frame.len().min(120)].to_vec()) {
                records.push(Record { gap: 4, frame });
            }
        }
        (name, records)
    });
    subjects.filter(|(_, records)| !records.is_empty())
}

/// Runs the input in the file that `EQUIC_INPUT` names. Without it, runs the packets of the first
/// table.
#[test]
fn input_of_a_file_leads_to_the_same_verdicts() {
    if !packets::is_root() {
        return packets::skip(
            "input_of_a_file_leads_to_the_same_verdicts",
            "loading XDP programs needs root",
        );
    }
    let input = match std::env::var_os("EQUIC_INPUT") {
        Some(path) => std::fs::read(&path).expect("EQUIC_INPUT is a file"),
        None => encode(1, &by_subject().next().expect("there are tables").1),
    };
    let mut checker = Checker::default();
    if let Err(how) = checker.check(&input) {
        panic!("{how}");
    }
    assert!(checker.frames > 0 && !checker.met.is_empty(), "the input has no frames");
}
