//! Compiles the programs in `bpf/`, with the compiler and the flags of the gateway's, and generates the
//! Rust side of `bpf/syscalls.h`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What counts system calls, and what the gateway's program is compared with in `benches/gateway`.
const PROGRAMS: [&str; 2] = ["syscalls", "reference"];

fn main() {
    if let Err(message) = run() {
        eprintln!("error: {message}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), String> {
    let variable =
        |name: &str| std::env::var(name).map_err(|_| format!("{name} is not set: run cargo"));
    let out = PathBuf::from(variable("OUT_DIR")?);
    let bpf = Path::new(&variable("CARGO_MANIFEST_DIR")?).join("bpf");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", bpf.display());
    let clang = variable("DEP_EQUIC_GATEWAY_CLANG")?;
    for name in PROGRAMS {
        let mut words = clang.split(' ');
        let mut command = Command::new(words.next().unwrap_or("clang"));
        command.args(words).arg("-c").arg(bpf.join(format!("{name}.bpf.c")));
        command.arg("-o").arg(out.join(format!("{name}.bpf.o")));
        let compiled = command.output().map_err(|e| format!("running {clang}: {e}"))?;
        if !compiled.status.success() {
            return Err(String::from_utf8_lossy(&compiled.stderr).into_owned());
        }
    }
    bindgen::Builder::default()
        .header(bpf.join("syscalls.h").to_string_lossy())
        .allowlist_item("(syscalls|SYSCALLS)_.*")
        .derive_default(true)
        .generate_comments(false)
        .generate()
        .map_err(|e| format!("bindgen on syscalls.h: {e}"))?
        .write_to_file(out.join("syscalls.rs"))
        .map_err(|e| format!("writing syscalls.rs: {e}"))
}
