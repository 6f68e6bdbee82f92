//! Compiles C to BPF objects with clang.
#![allow(dead_code, reason = "each test program takes what it needs")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Returns the name of the newest installed clang, version 16 or later. The environment variable
/// `CLANG` overrides it.
fn clang() -> &'static str {
    static CLANG: OnceLock<String> = OnceLock::new();
    CLANG.get_or_init(|| {
        if let Ok(clang) = std::env::var("CLANG") {
            return clang;
        }
        let names =
            ["clang-21", "clang-20", "clang-19", "clang-18", "clang-17", "clang-16", "clang"];
        let runs = |name: &&str| Command::new(name).arg("--version").output().is_ok();
        let found = names.into_iter().find(runs);
        found.expect("a clang: apt-get install clang-19, or set CLANG").to_owned()
    })
}

/// Compiles `tests/c/NAME.c` with these additional flags.
pub(crate) fn object(name: &str, flags: &[&str]) -> Vec<u8> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/c/{name}.c"));
    compile(&source, &format!("{name}{}", flags.concat()), flags)
}

/// Compiles a C program, given its source text.
pub(crate) fn object_of(text: &str, name: &str) -> Vec<u8> {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.c"));
    std::fs::write(&source, text).unwrap();
    compile(&source, name, &["-mcpu=v3"])
}

/// Compiles a C program, given its source text, with these additional flags.
pub(crate) fn object_with(text: &str, name: &str, flags: &[&str]) -> Vec<u8> {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.c"));
    std::fs::write(&source, text).unwrap();
    compile(&source, name, flags)
}

fn compile(source: &Path, name: &str, flags: &[&str]) -> Vec<u8> {
    let object: PathBuf = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.o"));
    let mut command = Command::new(clang());
    command
        .args(["-target", "bpf", "-O2", "-Wall", "-c", "-o"])
        .arg(&object)
        .arg(source)
        .args(flags);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
    std::fs::read(&object).unwrap()
}
