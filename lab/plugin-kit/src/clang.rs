//! Compiles plugins from C to object files with clang.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use thiserror::Error;

/// Commands that run clang, the newest version first. Clang 15 and older do not support `-mcpu=v4`.
const NAMES: [&str; 7] =
    ["clang-21", "clang-20", "clang-19", "clang-18", "clang-17", "clang-16", "clang"];

/// Why a plugin could not be compiled.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// No clang is installed.
    #[error(
        "clang was not found: install clang 16 or newer, or set the environment variable CLANG to its path"
    )]
    NoClang,
    /// The compiler cannot be started.
    #[error("{clang} cannot be started: {error}")]
    Start {
        /// Command of the compiler.
        clang: String,
        /// Error that the system reports.
        error: std::io::Error,
    },
    /// The compiler rejects the plugin's source code.
    #[error("{clang} does not compile {file}:\n{messages}")]
    Source {
        /// Command of the compiler.
        clang: String,
        /// The source.
        file: String,
        /// Output of the compiler.
        messages: String,
    },
}

/// Returns the arguments with which clang compiles plugins, without the source, the object and the
/// include folder.
pub fn flags() -> &'static [&'static str] {
    &["-target", "bpf", "-O2", "-mcpu=v3", "-Wall", "-Wextra", "-ffreestanding", "-c"]
}

fn clang() -> Result<String, BuildError> {
    if let Ok(clang) = std::env::var("CLANG") {
        return Ok(clang);
    }
    let runs = |name: &&str| Command::new(name).arg("--version").output().is_ok();
    NAMES.into_iter().find(runs).map(str::to_owned).ok_or(BuildError::NoClang)
}

/// Compiles the plugin in the file `source` to the file `object`. `include` is the folder with the
/// plugin headers ([`equic_plugin::headers`]). Returns the compiler's warnings.
///
/// # Errors
/// [`BuildError`].
pub fn compile(source: &Path, object: &Path, include: &Path) -> Result<String, BuildError> {
    compile_with(source, object, include, &[])
}

/// Compiles like [`compile`], with additional clang options such as `-mcpu=v4` or `-DNAME=VALUE`.
/// With `-g`, the object contains the source's line numbers, but not the name of the source's
/// folder.
///
/// # Errors
/// [`BuildError`].
pub fn compile_with(
    source: &Path,
    object: &Path,
    include: &Path,
    options: &[String],
) -> Result<String, BuildError> {
    let clang = clang()?;
    let mut command = Command::new(&clang);
    command.args(flags()).arg("-I").arg(include).arg("-o").arg(object).arg(source);
    command.args(options);
    if options.iter().any(|option| option == "-g") {
        command.args(["-fdebug-compilation-dir=."]);
        for folder in [source.parent(), Some(include)].into_iter().flatten() {
            if !folder.as_os_str().is_empty() {
                command.arg(format!("-fdebug-prefix-map={}=.", folder.display()));
            }
        }
    }
    let output =
        command.output().map_err(|error| BuildError::Start { clang: clang.clone(), error })?;
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() {
        return Ok(messages);
    }
    Err(BuildError::Source { clang, file: source.display().to_string(), messages })
}

/// Compiles a plugin from C code in memory. The compiler's messages use `name` as the file name.
/// Returns the object.
///
/// # Errors
/// [`BuildError`]. A warning counts as an error.
pub fn compile_text(name: &str, text: &str) -> Result<Vec<u8>, BuildError> {
    compile_text_with(name, text, &[])
}

/// Compiles like [`compile_text`], with values for macros that the code uses as settings.
///
/// # Errors
/// Those of [`compile_text`].
pub fn compile_text_with(
    name: &str,
    text: &str,
    defines: &[(&str, &str)],
) -> Result<Vec<u8>, BuildError> {
    let clang = clang()?;
    let failed = |error| BuildError::Start { clang: clang.clone(), error };
    let mut command = Command::new(&clang);
    command.args(flags()).args(["-Werror", "-x", "c", "-", "-o", "-"]);
    command.args(defines.iter().map(|(name, value)| format!("-D{name}={value}")));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let text = text.replace("#include <equic_plugin.h>", "");
    let source = format!("{}\n# 1 \"{name}.c\"\n{text}", equic_plugin::included_headers());
    // Clang reads its whole input before it writes anything, so this cannot block both processes.
    // If clang stops early, its messages contain the reason, so the error here is ignored.
    let _ = child.stdin.take().map(|mut stdin| stdin.write_all(source.as_bytes()));
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(BuildError::Source { clang, file: format!("{name}.c"), messages })
}
