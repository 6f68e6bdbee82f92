//! The programs to compile: the counter of system calls, and the reference programs for
//! `benches/gateway`.

use std::path::{Path, PathBuf};

use equic_bpf_build::Clang;

/// The counter of system calls, and the reference programs for `benches/gateway`.
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
    let clang = Clang::find()?;
    for name in PROGRAMS {
        clang.compile(
            &bpf.join(format!("{name}.bpf.c")),
            &[],
            &out.join(format!("{name}.bpf.o")),
        )?;
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
