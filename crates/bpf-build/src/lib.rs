//! Compiles BPF programs from C in build scripts. The crate finds a suitable clang, or reports what
//! is missing.
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

/// Oldest supported major version of clang. Older BPF back ends lack `-mcpu=v3` or BTF declaration
/// tags.
const CLANG_MINIMUM: u32 = 16;
/// Flags with which every program is compiled.
const FLAGS: [&str; 7] = ["-target", "bpf", "-O2", "-g", "-mcpu=v3", "-Wall", "-Werror"];

/// A clang that can compile BPF programs. Errors are messages for the user who runs the build.
#[derive(Clone, Debug)]
pub struct Clang {
    program: String,
}

impl Clang {
    /// Finds a clang: the one in `$CLANG` if it is set, otherwise the first of the usual commands
    /// that is new enough. Tells cargo that the build depends on `$CLANG`.
    ///
    /// # Errors
    /// No suitable clang was found. The message has the command that installs one.
    pub fn find() -> Result<Clang, String> {
        println!("cargo::rerun-if-env-changed=CLANG");
        if let Ok(program) = env::var("CLANG") {
            return match version(&program) {
                Some(version) if version >= CLANG_MINIMUM => Ok(Clang { program }),
                Some(version) => Err(format!(
                    "CLANG={program} is clang {version}; the XDP program needs clang {CLANG_MINIMUM} or newer"
                )),
                None => Err(format!(
                    "CLANG={program} is not a clang that can be run: set CLANG to the path of clang"
                )),
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

    /// Compiles the C file `source` to the BPF object file `object`. Headers come from the folders
    /// in `include` and from the system.
    ///
    /// # Errors
    /// Clang's messages, and the name of the missing package if it is known.
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

    /// Preprocesses the C file `source`. Returns the resulting text without line markers.
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

/// Returns the major version of a clang command, or `None` if the command does not work. The
/// version is read from `__clang_major__`, because Debian's, Apple's and plain clang all define
/// this macro in the same way.
fn version(clang: &str) -> Option<u32> {
    let out = Command::new(clang).args(["-dM", "-E", "-x", "c", "/dev/null"]).output().ok()?;
    let text = String::from_utf8_lossy(&out.stdout);
    text.lines().find_map(|line| line.strip_prefix("#define __clang_major__ "))?.trim().parse().ok()
}

/// Returns the include option for the architecture's header folder, which has `<asm/types.h>`.
/// Clang does not search this folder with `-target bpf`.
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
