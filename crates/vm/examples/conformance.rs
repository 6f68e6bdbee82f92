//! Runs test vectors in the format of
//! [bpf_conformance](https://github.com/Alan-Jowett/bpf_conformance) on both engines of equic-vm,
//! the interpreter and the compiler:
//!
//!     cargo run -p equic-vm --example conformance -- FOLDER
//!
//! The last line of the output counts the passed, refused and failed vectors. The exit status is 0
//! if at least one vector passed and none failed. A program is refused if it uses features that
//! `docs/vm.md` lists as unsupported: calls through registers, and helpers, because this example
//! registers none.

#[allow(dead_code, reason = "of the assembler that the tests have, this takes `assemble`")]
#[path = "../tests/common/asm.rs"]
mod asm;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use equic_vm::{CheckError, Config, Engine, Helpers, LoadError, Program, Region, Wrong};

/// A test vector: a program, the initial memory, and the expected result.
#[derive(Default)]
struct Vector {
    asm: String,
    memory: Vec<u8>,
    result: String,
}

/// Result of running a test vector.
enum Fate {
    Passed,
    Refused(CheckError),
}

fn main() -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: conformance FOLDER, which holds vectors: files that end in .data");
        return ExitCode::from(2);
    };
    let paths = match vectors_in(&folder) {
        Ok(paths) => paths,
        Err(error) => {
            eprintln!("conformance: cannot list {}: {error}", folder.display());
            return ExitCode::from(2);
        }
    };
    let (mut passed, mut refused, mut failed) = (0, 0, 0);
    for path in &paths {
        match read(path).and_then(|vector| judge(&vector)) {
            Ok(Fate::Passed) => passed += 1,
            Ok(Fate::Refused(why)) => {
                refused += 1;
                println!("refused: {}: {why}", path.display());
            }
            Err(why) => {
                failed += 1;
                println!("FAILED: {}: {why}", path.display());
            }
        }
    }
    println!("{} vectors: {passed} passed, {refused} refused, {failed} failed", paths.len());
    if passed > 0 && failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn vectors_in(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "data") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn read(path: &Path) -> Result<Vector, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let (mut vector, mut section) = (Vector::default(), "");
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("--") {
            section = name.trim();
            continue;
        }
        match section {
            "asm" => vector.asm.extend([line, "\n"]),
            "mem" => {
                for byte in line.split('#').next().unwrap_or_default().split_whitespace() {
                    let byte = u8::from_str_radix(byte, 16).map_err(|_| format!("byte {byte}"))?;
                    vector.memory.push(byte);
                }
            }
            "result" if !line.trim().is_empty() => vector.result = line.trim().to_owned(),
            _ => {}
        }
    }
    Ok(vector)
}

/// Checks that both engines return the expected result, or that both refuse to load the program.
fn judge(vector: &Vector) -> Result<Fate, String> {
    let expected = match vector.result.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => vector.result.parse(),
    };
    let expected = expected.map_err(|_| format!("no result to expect in `{}`", vector.result))?;
    for engine in [Engine::Interpreter, Engine::Auto] {
        match play(vector, engine).map_err(|error| format!("{engine:?}: {error}"))? {
            Ok(found) if found == expected => {}
            Ok(found) => return Err(format!("{engine:?}: {found:#x} instead of {expected:#x}")),
            Err(why) => return Ok(Fate::Refused(why)),
        }
    }
    Ok(Fate::Passed)
}

/// Runs the program on one engine. Returns the program's result, or the reason why the structural
/// check rejects it.
fn play(vector: &Vector, engine: Engine) -> Result<Result<u64, CheckError>, String> {
    let code = asm::assemble(&vector.asm)?;
    let mut config = Config::default();
    config.engine = engine;
    let program = match Program::from_code(&code, Arc::new(Helpers::<()>::new()), &config) {
        Ok(program) => program,
        Err(LoadError::Check { error, .. })
            if matches!(error.wrong, Wrong::IndirectCall | Wrong::UnknownHelper(_)) =>
        {
            return Ok(Err(error));
        }
        Err(error) => return Err(error.to_string()),
    };
    let mut instance = program.instantiate().map_err(|error| error.to_string())?;
    let region = Region::new(program.free().offset, vector.memory.len() as u64);
    let mut memory = instance.memory();
    let bytes = memory.write(region).map_err(|error| format!("memory: {error}"))?;
    bytes.copy_from_slice(&vector.memory);
    let arguments = if region.len == 0 { [0; 5] } else { [region.offset, region.len, 0, 0, 0] };
    let main = program.entry("main").ok_or("no main")?;
    let result = instance.call(main, arguments, &mut 1_000_000, &mut ());
    result.map(Ok).map_err(|trap| trap.to_string())
}
