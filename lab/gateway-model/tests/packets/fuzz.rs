//! Fuzzes the real XDP program. An input is a sequence of bytes that encodes frames. The program
//! and the reference model get the same frames. They must agree on every frame, and on the counters
//! at the end.
//!
//! The fuzz target `program` and the tests in `fuzzed.rs` share this module. The first byte of an
//! input selects a configuration, and records follow. A record has one byte for the time that
//! passes, two bytes for the length (little-endian), and a frame. Inputs that found a bug are kept
//! in `fuzz/seeds/program`.

use super::program::Program;
use super::random::Random;
use super::script::{START, Script, Step, case, hexdump};
use super::subject::Subject;
use equic_gateway::reason::Reason;
use equic_gateway_model::{AclAction, FragmentPolicy, Model, QuotaPolicy, Rate};
use std::collections::BTreeSet;

/// Length of the shortest frame in bytes. BPF_PROG_TEST_RUN needs at least an Ethernet header.
const SHORTEST: usize = 14;
/// Length of the longest frame in bytes. It consists of several buffers, and every kernel accepts
/// this length.
const LONGEST: usize = 9_216;
const MILLISECOND: u64 = 1_000_000;

/// Times before a frame, in nanoseconds. The low bits of the first byte of a record select one.
const GAPS: [u64; 8] =
    [0, 0, 0, 1, MILLISECOND, 250 * MILLISECOND, 1_000 * MILLISECOND, 11_000 * MILLISECOND];

/// One frame of an input, and the byte that encodes the time before it.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub gap: u8,
    pub frame: Vec<u8>,
}

/// Encodes an input.
pub(crate) fn encode(config: u8, records: &[Record]) -> Vec<u8> {
    let mut input = vec![config];
    for record in records {
        let length = u16::try_from(record.frame.len()).expect("frames are shorter than 64 KiB");
        input.push(record.gap);
        input.extend(length.to_le_bytes());
        input.extend(&record.frame);
    }
    input
}

/// Decodes an input. Every sequence of bytes is valid.
pub(crate) fn decode(input: &[u8]) -> (u8, Vec<Record>) {
    let Some((config, mut rest)) = input.split_first() else { return (0, Vec::new()) };
    let mut records = Vec::new();
    while let Some(([gap, low, high], tail)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(tail.len());
        let (frame, tail) = tail.split_at(length);
        rest = tail;
        if (SHORTEST..=LONGEST).contains(&length) {
            records.push(Record { gap: *gap, frame: frame.to_vec() });
        }
    }
    (*config, records)
}

/// Number of configurations that are written by hand. All others are random.
const NAMED: u8 = 12;

/// Returns the configuration with this number.
fn script(config: u8) -> Script {
    match config {
        // This configuration finds frames that the program drops although the model does not assign
        // them to a service.
        0 => case("everything denied")
            .service(|service| service.fragments = FragmentPolicy::Drop)
            .list(AclAction::Deny, "0.0.0.0/0", 0)
            .list(AclAction::Deny, "::/0", 0),
        1 => case("nothing denied"),
        2 => case("a source at its quota")
            .service(|service| service.max_connections = 2)
            .connections(0, "192.0.2.1", 2),
        3 => case("a source over its quota, strict")
            .service(|service| {
                (service.max_connections, service.policy) = (2, QuotaPolicy::Strict);
            })
            .connections(0, "192.0.2.1", 3),
        4 => case("a source allowed")
            .service(|service| service.fragments = FragmentPolicy::Follow)
            .allow("192.0.2.1/32")
            .allow("2001:db8::/64"),
        5 => case("handshakes under way take the places").service(|service| {
            (service.max_connections, service.policy) = (1, QuotaPolicy::Underway);
        }),
        6 => case("unknown versions are answered")
            .service(|service| service.version_negotiation = true),
        7 => case("servers that are dead")
            .service(|service| service.stateless_reset = true)
            .all_dead(),
        // Each of these configurations sets only one limit. With several limits, the first ones
        // would drop most frames, so that few frames would reach the others.
        8 => case("few new connections in all").service(|service| {
            service.new_per_service = Rate::per_second(1, 2);
        }),
        9 => case("few new connections from a network").service(|service| {
            service.new_per_prefix.v4_24 = Rate::per_second(1, 2);
            service.new_per_prefix.v6_48 = Rate::per_second(1, 2);
        }),
        10 => case("few packets of unknown senders").service(|service| {
            service.unproven_per_service = Rate::per_second(1, 2);
        }),
        11 => case("few packets in all").service(|service| {
            service.packets_per_service = Rate::per_second(1, 2);
        }),
        seed => Script {
            config: Random::new(seed.into()).config(),
            ..case(&format!("configuration {seed}"))
        },
    }
}

/// Runs inputs on the model and the program. Both stay loaded between inputs.
#[derive(Default)]
pub(crate) struct Checker {
    model: Model,
    program: Program,
    /// Number of frames that were run so far.
    pub frames: u64,
    /// Number of frames that were not for a service.
    pub foreign: u64,
    /// Verdict reasons that occurred so far.
    pub met: BTreeSet<Reason>,
}

impl Checker {
    /// Runs an input. Fails with a description if program and model differ.
    pub(crate) fn check(&mut self, input: &[u8]) -> Result<(), String> {
        let (config, records) = decode(input);
        let script = script(config);
        script.play(&mut self.model, |_, _, _| {});
        script.play(&mut self.program, |_, _, _| {});
        let mut now = START;
        for (index, record) in records.into_iter().enumerate() {
            now += GAPS[usize::from(record.gap) % GAPS.len()];
            // `run` panics if the action is XDP_ABORTED or unknown.
            let seen = self.program.loaded().run(&record.frame, now);
            let step = Step::Packet(record.frame);
            let expected = self.model.step(&step, now).expect("a packet has an outcome");
            self.frames += 1;
            match expected.verdict {
                Some((_, reason)) => drop(self.met.insert(reason)),
                None => self.foreign += 1,
            }
            if seen != expected {
                let Step::Packet(frame) = &step else { unreachable!("made above") };
                return Err(format!(
                    "{}, frame {index}: program {seen:?}, model {expected:?}\n{}",
                    script.what,
                    hexdump(frame)
                ));
            }
        }
        let (program, model) = (self.program.report(), self.model.report());
        if program != model {
            return Err(format!("{}: program {program:#?}, model {model:#?}", script.what));
        }
        Ok(())
    }

    /// Removes as many frames from an input as possible without losing the difference between
    /// program and model.
    pub(crate) fn shrink(&mut self, input: &[u8]) -> Vec<u8> {
        let (config, mut records) = decode(input);
        let mut chunk = records.len() / 2;
        while chunk > 0 {
            let mut at = 0;
            while at < records.len() {
                let mut fewer = records.clone();
                fewer.drain(at..(at + chunk).min(records.len()));
                if self.check(&encode(config, &fewer)).is_err() {
                    records = fewer;
                } else {
                    at += chunk;
                }
            }
            chunk /= 2;
        }
        encode(config, &records)
    }
}

/// Generates inputs from two kinds of frames: those from the grammar in `random`, and mutated
/// frames of the seeds.
pub(crate) struct Generator {
    random: Random,
    seeds: Vec<Record>,
}

impl Generator {
    pub(crate) fn new(seed: u64, seeds: &[Vec<u8>]) -> Generator {
        let seeds = seeds.iter().flat_map(|input| decode(input).1).collect();
        Generator { random: Random::new(seed), seeds }
    }

    /// Returns an input with this number of frames.
    pub(crate) fn input(&mut self, frames: u64) -> Vec<u8> {
        // Half of the inputs use a configuration that is written by hand.
        let config = match self.random.byte() {
            named @ 0..128 => named % NAMED,
            seed => seed,
        };
        let records: Vec<Record> = (0..frames).map(|_| self.record()).collect();
        encode(config, &records)
    }

    fn record(&mut self) -> Record {
        let gap = self.random.byte();
        let mut frame = match (self.random.byte() % 8, self.seeds.len()) {
            (0 | 1, 1..) => {
                let mut frame = self.random.pick(&self.seeds).frame;
                for _ in 0..=self.random.byte() % 4 {
                    self.random.mutate(&mut frame, SHORTEST);
                }
                frame
            }
            (2..6, _) => self.random.frame(),
            _ => self.random.garbage(),
        };
        // In some frames, the headers or the bytes after them are in a second buffer.
        if self.random.byte() < 4 {
            let longer = frame.len() + 4_096 + usize::from(self.random.byte());
            frame.resize(longer.min(LONGEST), self.random.byte());
        }
        frame.truncate(LONGEST);
        Record { gap, frame }
    }
}
