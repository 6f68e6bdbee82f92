//! Cost of a call of bytecode in nanoseconds, and of compiling it, by engine: one process, engines in turn,
//! medians with 95 % intervals. The program is `crates/vm/tests/c/on_ack.c`, compiled by clang.
//!
//! * `empty`: a call of a function that returns 0.
//! * `on_ack`: RTT, Reno and pacing over a context of 128 bytes.
//! * `loop`: a loop of 1,000 iterations.
//! * `helper`: what a call of a helper of the host adds to `empty`.
//! * `compile`: from an object to something that can be called, for about 5 KB of instructions; `cache`: when the engine
//!   has loaded the same before.

mod engines;
mod measure;

use std::process::Command;

use engines::Subject;
use measure::Measured;

const ROUNDS: usize = 101;

fn main() {
    let object = compile();
    let long = long_object();
    let mut engines = engines::all(&object);
    println!(
        "{:<34} {:>20} {:>20} {:>20} {:>20} {:>22} {:>22}",
        "ns, median [95 %]",
        "empty",
        "on_ack",
        "loop of 1000",
        "helper",
        "compile 5 KB, µs",
        "from cache, µs"
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
    println!("\n{} bytes of instructions are compiled; {ROUNDS} rounds, engines in turn.", long.code);
}

/// An object, and bytes of instructions in it.
pub struct Object {
    pub elf: Vec<u8>,
    pub code: usize,
}

fn clang(source: &str, out: &str) -> Vec<u8> {
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang-19".to_owned());
    let mut command = Command::new(&clang);
    command.args(["-target", "bpf", "-O2", "-mcpu=v3", "-ffunction-sections", "-c", source, "-o", out]);
    let done = command.status().unwrap_or_else(|error| panic!("{clang}: {error}; set CLANG"));
    assert!(done.success(), "{command:?}");
    std::fs::read(out).expect("clang wrote it")
}

fn compile() -> Vec<u8> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/vm/tests/c/on_ack.c");
    let out = std::env::temp_dir().join(format!("equic-bench-vm-{}.o", std::process::id()));
    let elf = clang(source, out.to_str().expect("a path in UTF-8"));
    let _ = std::fs::remove_file(out);
    elf
}

/// One function of about 5 KB of instructions: `on_ack` unrolled.
fn long_object() -> Object {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/vm/tests/c/on_ack.c");
    let text = std::fs::read_to_string(source).expect("on_ack.c is in the tree");
    let body = text.replace("u64 on_ack(struct context *c)", "static inline __attribute__((always_inline)) u64 once(volatile struct context *c)");
    let mut text = body;
    text.push_str("\nu64 many(volatile struct context *c)\n{\n\tu64 sum = 0;\n");
    for _ in 0..14 {
        text.push_str("\tsum += once(c);\n");
    }
    text.push_str("\treturn sum;\n}\n");
    let stem = std::env::temp_dir().join(format!("equic-bench-vm-long-{}", std::process::id()));
    let (source, out) = (stem.with_extension("c"), stem.with_extension("o"));
    std::fs::write(&source, text).expect("a temporary file");
    let elf = clang(source.to_str().expect("UTF-8"), out.to_str().expect("UTF-8"));
    let _ = (std::fs::remove_file(source), std::fs::remove_file(out));
    let code = engines::text(&elf, "many").len();
    Object { elf, code }
}
