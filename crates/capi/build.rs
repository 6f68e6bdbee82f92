//! Leaves the XDP program as `equic_kern.o` beside `libequic.so`, where `equic_read_object` looks.

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if let Err(message) = leave_program() {
        eprintln!("error: {message}");
        std::process::exit(1);
    }
}

fn leave_program() -> Result<(), String> {
    let variable =
        |name: &str| env::var_os(name).ok_or(format!("{name} is not set: run this through cargo"));
    let object = PathBuf::from(variable("DEP_EQUIC_GATEWAY_OBJECT")?);
    let out = PathBuf::from(variable("OUT_DIR")?);
    let Some(folder) = profile_folder(&out) else {
        println!(
            "cargo::warning=no folder `build` above {}: equic_kern.o is not left there",
            out.display()
        );
        return Ok(());
    };
    let copy = folder.join("equic_kern.o");
    println!("cargo::rerun-if-changed={}", object.display());
    println!("cargo::rerun-if-changed={}", copy.display());
    // Written beside and renamed: a program that loads it meanwhile sees the old or the new one.
    let partial = folder.join(format!(".equic_kern.o.{}", std::process::id()));
    copy_with_time(&object, &partial)
        .and_then(|()| fs::rename(&partial, &copy))
        .map_err(|e| format!("copying {} to {}: {e}", object.display(), copy.display()))
}

/// `target/release` of `target/release/build/libequic-0123/out`.
fn profile_folder(out: &Path) -> Option<&Path> {
    out.ancestors().find(|folder| folder.file_name().is_some_and(|name| name == "build"))?.parent()
}

/// With the time of the original: a copy newer than this script's run would make cargo run it again
/// at every build.
fn copy_with_time(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::copy(from, to)?;
    fs::File::options().write(true).open(to)?.set_modified(fs::metadata(from)?.modified()?)
}
