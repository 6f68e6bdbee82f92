//! Sets the SONAME of the library, which is the name under which the dynamic loader searches for
//! it.

use std::env;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if let Err(message) = name_library() {
        eprintln!("error: {message}");
        std::process::exit(1);
    }
}

/// Sets the SONAME. Compatible versions have the same one: it contains the major version, and
/// before 1.0 the minor version too.
fn name_library() -> Result<(), String> {
    let number = |name: &str| env::var(name).map_err(|e| format!("{name}: {e}"));
    let (major, minor) = (number("CARGO_PKG_VERSION_MAJOR")?, number("CARGO_PKG_VERSION_MINOR")?);
    let compatible = if major == "0" { format!("0.{minor}") } else { major };
    let name = format!("libequic_vm.so.{compatible}");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{name}");
    // Create a link with the SONAME, because programs also load the library from the build folder.
    let out = env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    let Some(link) = profile_folder(&out).map(|folder| folder.join(&name)) else {
        return Ok(());
    };
    match std::os::unix::fs::symlink("libequic_vm.so", &link) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(format!("linking {}: {error}", link.display()))
        }
        _ => Ok(()),
    }
}

/// Returns `target/release` for `target/release/build/libequic_vm-0123/out`.
fn profile_folder(out: &Path) -> Option<&Path> {
    out.ancestors().find(|folder| folder.file_name().is_some_and(|name| name == "build"))?.parent()
}
