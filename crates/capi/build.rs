//! Copies the gateway's XDP program as `equic_kern.o` next to `libequic.so`, where
//! `equic_read_object` searches for it. Also sets the library's SONAME.

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if let Err(message) = leave_program().and_then(|()| name_library()) {
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
            "cargo::warning=no folder `build` above {}: equic_kern.o is not copied",
            out.display()
        );
        return Ok(());
    };
    let copy = folder.join("equic_kern.o");
    println!("cargo::rerun-if-changed={}", object.display());
    println!("cargo::rerun-if-changed={}", copy.display());
    // The file is written under another name and then renamed. A program that loads it at the same
    // time therefore sees either the complete old file or the complete new file.
    let partial = folder.join(format!(".equic_kern.o.{}", std::process::id()));
    copy_with_time(&object, &partial)
        .and_then(|()| fs::rename(&partial, &copy))
        .map_err(|e| format!("copying {} to {}: {e}", object.display(), copy.display()))
}

/// Sets the SONAME of the library. Compatible versions have the same SONAME: it contains the major
/// version, and before 1.0 the minor version too.
fn name_library() -> Result<(), String> {
    let number = |name: &str| env::var(name).map_err(|e| format!("{name}: {e}"));
    let (major, minor) = (number("CARGO_PKG_VERSION_MAJOR")?, number("CARGO_PKG_VERSION_MINOR")?);
    let compatible = if major == "0" { format!("0.{minor}") } else { major };
    let name = format!("libequic.so.{compatible}");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{name}");
    // Create a link with the SONAME, because programs also load the library from the build folder.
    let out = env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    let Some(link) = profile_folder(&out).map(|folder| folder.join(&name)) else {
        return Ok(());
    };
    match std::os::unix::fs::symlink("libequic.so", &link) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(format!("linking {}: {error}", link.display()))
        }
        _ => Ok(()),
    }
}

/// Returns `target/release` for `target/release/build/libequic-0123/out`.
fn profile_folder(out: &Path) -> Option<&Path> {
    out.ancestors().find(|folder| folder.file_name().is_some_and(|name| name == "build"))?.parent()
}

/// Copies a file, including its modification time. If the copy were newer than the last run of this
/// script, cargo would run the script again at every build.
fn copy_with_time(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::copy(from, to)?;
    fs::File::options().write(true).open(to)?.set_modified(fs::metadata(from)?.modified()?)
}
