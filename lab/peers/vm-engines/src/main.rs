//! Measures the cost of a bytecode call, and of compilation, in nanoseconds for each engine. One
//! process runs the engines in turn and prints medians with 95 % intervals. The program is
//! `crates/vm/tests/c/on_ack.c`, which clang compiles to eBPF and to WebAssembly.
//!
//! * `empty`: a call of a function that returns 0.
//! * `on_ack`: RTT, Reno and pacing on a context of 128 bytes.
//! * `loop`: a loop of 1,000 iterations.
//! * `helper`: the time that a call of a host helper adds to `empty`.
//! * `compile`: from an object to a callable program, for about 5 KB of instructions.
//! * `cache`: the same if the engine has loaded the object before.

mod engines;
mod measure;
mod objects;

use engines::Subject;
use measure::Measured;
use objects::Object;

const ROUNDS: usize = 101;

fn main() {
    let object = objects::short();
    let long = objects::long();
    let mut engines = engines::all(&object);
    println!(
        "{:<34} {:>20} {:>20} {:>20} {:>20} {:>22} {:>22}",
        "ns, median [95 %]",
        "empty",
        "on_ack",
        "loop of 1000",
        "helper",
        "compile 5 KB, µs",
        "load from cache, µs"
    );
    let subjects = [Subject::Empty, Subject::OnAck, Subject::Loop, Subject::Helper];
    let mut calls: Vec<Vec<Measured>> =
        engines.iter().map(|_| subjects.iter().map(|_| Measured::default()).collect()).collect();
    let mut compiles: Vec<Measured> = engines.iter().map(|_| Measured::default()).collect();
    let mut cached: Vec<Measured> = engines.iter().map(|_| Measured::default()).collect();
    for _ in 0..ROUNDS {
        for (which, engine) in engines.iter_mut().enumerate() {
            for (subject, measured) in subjects.iter().zip(&mut calls[which]) {
                let calls = if *subject == Subject::Loop { 200 } else { 20_000 };
                let took = measure::time(|| engine.call(*subject, calls));
                measured.push(took / f64::from(calls));
            }
            if let Some(took) = engine.compile(&long) {
                compiles[which].push(took / 1000.0);
            }
            if let Some(took) = engine.cached(&long) {
                cached[which].push(took / 1000.0);
            }
        }
    }
    for (which, engine) in engines.iter().enumerate() {
        let [empty, on_ack, looped, helper] = calls[which].as_mut_slice() else { unreachable!() };
        let helper = helper.less(empty);
        let cells = [empty.cell(), on_ack.cell(), looped.cell(), helper.clone().cell()];
        let [empty, on_ack, looped, helper] = cells;
        let (compile, cached) = (compiles[which].cell(), cached[which].cell());
        println!(
            "{:<34} {empty:>20} {on_ack:>20} {looped:>20} {helper:>20} {compile:>22} {cached:>22}",
            engine.name()
        );
    }
    println!(
        "\n{} bytes of instructions are compiled. Each of the {ROUNDS} rounds measures every engine once.",
        long.code
    );
}
