//! Compiles BPF programs in C, for build scripts. Finds a suitable clang, or reports what is
//! missing.
//!
//! ```no_run
//! use std::path::Path;
//!
//! # fn main() -> Result<(), String> {
//! let clang = equic_bpf_build::Clang::find()?;
//! clang.compile(Path::new("bpf/count.bpf.c"), &[], Path::new("count.bpf.o"))?;
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

use std::env;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// The oldest clang whose BPF back end compiles the programs (`-mcpu=v3`, BTF declaration tags).
const CLANG_MINIMUM: u32 = 16;
/// Flags that every program is compiled with.
const FLAGS: [&str; 7] = ["-target", "bpf", "-O2", "-g", "-mcpu=v3", "-Wall", "-Werror"];

/// A clang that compiles BPF programs. Errors are messages for the user who builds.
#[derive(Clone, Debug)]
pub struct Clang {
    program: String,
}

impl Clang {
    /// Returns the clang in `$CLANG`, or the first of the usual names that is new enough. Tells
    /// cargo that the build depends on `$CLANG`.
    ///
    /// # Errors
    /// No suitable clang was found. The message has the command that installs it.
    pub fn find() -> Result<Clang, String> {
        println!("cargo::rerun-if-env-changed=CLANG");
        if let Ok(program) = env::var("CLANG") {
            return match version(&program) {
                Some(version) if version >= CLANG_MINIMUM => Ok(Clang { program }),
                Some(version) => Err(format!(
                    "CLANG={program} is clang {version}; the XDP program needs clang {CLANG_MINIMUM} or newer"
                )),
                None => Err(format!("CLANG={program} cannot be run, or is not clang")),
            };
        }
        let names =
            ["clang", "clang-21", "clang-20", "clang-19", "clang-18", "clang-17", "clang-16"];
        let mut old = String::new();
        for name in names {
            match version(name) {
                Some(version) if version >= CLANG_MINIMUM => {
                    return Ok(Clang { program: name.to_owned() });
                }
                Some(version) => {
                    let _ = write!(old, " ({name} is version {version})");
                }
                None => {}
            }
        }
        Err(format!(
            "the XDP program needs clang {CLANG_MINIMUM} or newer, and none was found{old}. \
             On Debian and Ubuntu: apt-get install clang-{CLANG_MINIMUM}. Or set CLANG=/path/to/clang"
        ))
    }

    /// Compiles `source` to the BPF object `object`, with headers from `include` and the system's.
    ///
    /// # Errors
    /// Clang's messages, and the missing package if it is known.
    pub fn compile(&self, source: &Path, include: &[&Path], object: &Path) -> Result<(), String> {
        let mut command = Command::new(&self.program);
        command.args(FLAGS).args(multiarch_include());
        for folder in include {
            command.arg("-I").arg(folder);
        }
        command.arg("-c").arg(source).arg("-o").arg(object);
        let out = command.output().map_err(|e| format!("running {}: {e}", self.program))?;
        if out.status.success() {
            return Ok(());
        }
        let log = String::from_utf8_lossy(&out.stderr);
        let help = if log.contains("bpf/bpf_helpers.h") {
            "\nOn Debian and Ubuntu: apt-get install libbpf-dev"
        } else if log.contains("linux/") || log.contains("asm/") {
            "\nOn Debian and Ubuntu: apt-get install linux-libc-dev"
        } else {
            ""
        };
        Err(format!("compiling {} with {} failed:\n{log}{help}", source.display(), self.program))
    }

    /// Returns the preprocessed text of `source`, without line markers.
    ///
    /// # Errors
    /// Clang's messages.
    pub fn expand(&self, source: &Path, include: &[&Path]) -> Result<String, String> {
        let mut command = Command::new(&self.program);
        command.args(["-E", "-P"]).args(multiarch_include());
        for folder in include {
            command.arg("-I").arg(folder);
        }
        let out =
            command.arg(source).output().map_err(|e| format!("running {}: {e}", self.program))?;
        if !out.status.success() {
            let log = String::from_utf8_lossy(&out.stderr);
            return Err(format!("expanding {}: {log}", source.display()));
        }
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    }
}

/// Returns the major version, from `__clang_major__`. Debian's, Apple's and plain clang all define
/// it in the same way.
fn version(clang: &str) -> Option<u32> {
    let out = Command::new(clang).args(["-dM", "-E", "-x", "c", "/dev/null"]).output().ok()?;
    let text = String::from_utf8_lossy(&out.stdout);
    text.lines().find_map(|line| line.strip_prefix("#define __clang_major__ "))?.trim().parse().ok()
}

/// Returns the include option for the folder of the architecture, which has `<asm/types.h>`. With
/// `-target bpf`, clang does not search this folder.
fn multiarch_include() -> Option<String> {
    let arch = env::var("CARGO_CFG_TARGET_ARCH").ok()?;
    let triple = match arch.as_str() {
        "riscv64" | "riscv64gc" => "riscv64-linux-gnu".to_owned(),
        "powerpc64" => "powerpc64le-linux-gnu".to_owned(),
        "arm" => "arm-linux-gnueabihf".to_owned(),
        other => format!("{other}-linux-gnu"),
    };
    let folder = format!("/usr/include/{triple}");
    Path::new(&folder).is_dir().then(|| format!("-I{folder}"))
}
