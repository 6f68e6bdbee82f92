//! `equic plugin build` and `pack`: compile C to an object, and pack an object with a manifest into
//! a bundle.

use std::path::{Path, PathBuf};

use equic_plugin::{MAX_CODE, MAX_MANIFEST};
use tempfile::TempDir;

use crate::failure::{Failure, Result};
use crate::output;

/// Compiles DIR/NAME.c with clang, packs the object with DIR/plugin.toml into a bundle, and checks
/// that it would run. NAME is the name in the manifest.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder of the plugin
    #[arg(value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// File for the bundle [default: DIR/NAME.qplug]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Include line numbers, which `equic plugin check` prints in its messages; they make the
    /// object several times larger
    #[arg(short = 'g', long)]
    debug: bool,
    /// BPF instruction set for clang: v3 or v4. v4 has instructions for signed division and signed
    /// loads; v3 needs several instructions for each of them
    #[arg(long, value_enum, value_name = "CPU", default_value = "v3")]
    cpu: Cpu,
    /// Define a C macro that the plugin uses as a setting, such as RATE=3000000; may be given
    /// several times
    #[arg(short = 'D', long = "define", value_name = "NAME=VALUE")]
    defines: Vec<String>,
    /// Print the JSON Schema of manifests (`plugin.toml`), for editors, and build nothing
    #[arg(long, exclusive = true)]
    schema: bool,
}

/// Instruction set for clang (`-mcpu`).
#[derive(Clone, Copy, clap::ValueEnum)]
enum Cpu {
    V3,
    V4,
}

/// Packs an object that clang compiled for BPF and a manifest into an unsigned bundle.
#[derive(clap::Args)]
pub(crate) struct PackArgs {
    /// File with the manifest, without the key `code`
    #[arg(value_name = "MANIFEST")]
    manifest: PathBuf,
    /// File with the compiled object
    #[arg(value_name = "OBJECT")]
    object: PathBuf,
    /// File for the bundle
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// Creates a temporary directory for one build or check. Only this user can use it, and it is removed
/// when the returned value is dropped.
pub(super) fn work_folder() -> Result<TempDir> {
    tempfile::Builder::new()
        .prefix("equic-plugin-")
        .tempdir()
        .map_err(|error| Failure::because("cannot create a temporary directory", error))
}

fn options(args: &Args) -> Vec<String> {
    let debug = args.debug.then(|| "-g".to_owned());
    let cpu = match args.cpu {
        Cpu::V3 => "-mcpu=v3",
        Cpu::V4 => "-mcpu=v4",
    };
    let defines = args.defines.iter().map(|define| format!("-D{define}"));
    debug.into_iter().chain([cpu.to_owned()]).chain(defines).collect()
}

fn text(path: &Path) -> Result<String> {
    equic_gateway::read_regular_text(path, MAX_MANIFEST as u64)
        .map_err(|error| Failure::because(format_args!("cannot read {}", path.display()), error))
}

/// Returns the plugin's name in a manifest.
fn name(path: &Path, manifest: &str) -> Result<String> {
    // The parser needs an object. It does not exist yet, so pass a placeholder.
    let bytes = equic_plugin::pack(manifest, b"none", None);
    let bytes = bytes.map_err(|error| Failure::because(path.display(), error))?;
    Ok(super::parse(path, &bytes)?.manifest().name.clone())
}

pub(super) fn run(args: &Args) -> Result {
    if args.schema {
        return super::print_schema(&equic_plugin::manifest_schema());
    }
    let folder = &args.folder;
    let manifest_file = folder.join("plugin.toml");
    let manifest = text(&manifest_file)?;
    let name = name(&manifest_file, &manifest)?;
    let source = folder.join(format!("{name}.c"));
    let work = work_folder()?;
    for header in equic_plugin::headers() {
        super::write(&work.path().join(header.name), header.text.as_bytes())?;
    }
    let object = work.path().join("object.o");
    let warnings = equic_plugin_kit::compile_with(&source, &object, work.path(), &options(args))
        .map_err(|error| Failure::new(error.to_string().trim_end().to_owned()))?;
    if !warnings.is_empty() {
        output::notice(warnings.trim_end());
    }
    let code = std::fs::read(&object)
        .map_err(|error| Failure::because("cannot read what clang wrote", error))?;
    let bundle = args.output.clone().unwrap_or_else(|| folder.join(format!("{name}.qplug")));
    finish(&manifest_file, &manifest, &code, &bundle)
}

pub(super) fn pack(args: &PackArgs) -> Result {
    let manifest = text(&args.manifest)?;
    let code = equic_gateway::read_regular(&args.object, MAX_CODE as u64).map_err(|error| {
        Failure::because(format_args!("cannot read {}", args.object.display()), error)
    })?;
    finish(&args.manifest, &manifest, &code, &args.output)
}

/// Packs a bundle and checks it. Writes the file only if the plugin would run.
fn finish(manifest_file: &Path, manifest: &str, code: &[u8], path: &Path) -> Result {
    let bytes = equic_plugin::pack(manifest, code, None)
        .map_err(|error| Failure::because(manifest_file.display(), error))?;
    let plugin = super::load_checked(path, &bytes)?;
    super::write(path, &bytes)?;
    output::line(format_args!(
        "{}: {} bytes; the object has {} bytes and {} instructions",
        path.display(),
        bytes.len(),
        code.len(),
        plugin.instructions()
    ))
}
