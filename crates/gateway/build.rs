//! Compiles the XDP program and generates the Rust side of `bpf/abi.h`.
//!
//! * `gateway.bpf.o`: the program, embedded by `src/object.rs`, its path given to dependents as
//!   `DEP_EQUIC_GATEWAY_OBJECT`, and what compiled it as `DEP_EQUIC_GATEWAY_CLANG` (compiler and
//!   flags, separated by spaces);
//! * `abi.rs`: every type and constant of the header, by bindgen, with layout assertions;
//! * `reasons.rs`: the enum `Reason` and its table, from the macro `EQUIC_REASONS`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The oldest clang whose BPF back end compiles the program (`-mcpu=v3`, BTF declaration tags).
const CLANG_MINIMUM: u32 = 16;
const FLAGS: [&str; 7] = ["-target", "bpf", "-O2", "-g", "-mcpu=v3", "-Wall", "-Werror"];

fn main() {
    if let Err(message) = run() {
        eprintln!("error: {message}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), String> {
    let out = PathBuf::from(variable("OUT_DIR")?);
    let bpf = PathBuf::from(variable("CARGO_MANIFEST_DIR")?).join("bpf");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", bpf.display());
    for source in sources(&bpf)? {
        println!("cargo::rerun-if-changed={}", source.display());
    }
    println!("cargo::rerun-if-env-changed=CLANG");

    let clang = find_clang()?;
    let object = out.join("gateway.bpf.o");
    compile(&clang, &bpf, &object)?;
    println!("cargo::metadata=object={}", object.display());
    let flags = FLAGS.map(str::to_owned).into_iter().chain(multiarch_include());
    println!("cargo::metadata=clang={clang} {}", flags.collect::<Vec<_>>().join(" "));

    generate_abi(&bpf, &out.join("abi.rs"))?;
    generate_reasons(&clang, &bpf, &out)
}

fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|_| format!("{name} is not set: run this through cargo"))
}

fn sources(bpf: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(bpf).map_err(|e| format!("{}: {e}", bpf.display()))?;
    Ok(entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|x| x == "h" || x == "c"))
        .collect())
}

/// `$CLANG`, or the first of the usual names that is new enough.
fn find_clang() -> Result<String, String> {
    if let Ok(clang) = env::var("CLANG") {
        return match clang_version(&clang) {
            Some(version) if version >= CLANG_MINIMUM => Ok(clang),
            Some(version) => Err(format!(
                "CLANG={clang} is clang {version}; the XDP program needs clang {CLANG_MINIMUM} or newer"
            )),
            None => Err(format!("CLANG={clang} does not run, or is not clang")),
        };
    }
    let names = ["clang", "clang-21", "clang-20", "clang-19", "clang-18", "clang-17", "clang-16"];
    let mut old = String::new();
    for name in names {
        match clang_version(name) {
            Some(version) if version >= CLANG_MINIMUM => return Ok(name.to_owned()),
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

/// The major version: `__clang_major__` is what Debian's, Apple's and plain clang agree on.
fn clang_version(clang: &str) -> Option<u32> {
    let out = Command::new(clang).args(["-dM", "-E", "-x", "c", "/dev/null"]).output().ok()?;
    let text = String::from_utf8_lossy(&out.stdout);
    text.lines().find_map(|line| line.strip_prefix("#define __clang_major__ "))?.trim().parse().ok()
}

fn compile(clang: &str, bpf: &Path, object: &Path) -> Result<(), String> {
    let source = bpf.join("gateway.bpf.c");
    let mut command = Command::new(clang);
    command.args(FLAGS).args(multiarch_include()).arg("-I").arg(bpf);
    command.arg("-c").arg(&source).arg("-o").arg(object);
    let out = command.output().map_err(|e| format!("running {clang}: {e}"))?;
    if out.status.success() {
        return Ok(());
    }
    let log = String::from_utf8_lossy(&out.stderr);
    let mend = if log.contains("bpf/bpf_helpers.h") {
        "\nOn Debian and Ubuntu: apt-get install libbpf-dev"
    } else if log.contains("linux/") || log.contains("asm/") {
        "\nOn Debian and Ubuntu: apt-get install linux-libc-dev"
    } else {
        ""
    };
    Err(format!("compiling {} with {clang} failed:\n{log}{mend}", source.display()))
}

/// `<asm/types.h>` is in a folder named after the architecture, which `-target bpf` does not look in.
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

fn generate_abi(bpf: &Path, to: &Path) -> Result<(), String> {
    let bindings = bindgen::Builder::default()
        .header(bpf.join("abi.h").to_string_lossy())
        .allowlist_item("(equic|EQUIC)_.*")
        .prepend_enum_name(false)
        .derive_default(true)
        .derive_eq(true)
        .derive_hash(true)
        // Its keys are not for logs: src/abi.rs says what is shown.
        .no_debug("equic_ring")
        .layout_tests(true)
        .generate_comments(false)
        .generate()
        .map_err(|e| format!("bindgen on abi.h: {e}"))?;
    let text = bindings.to_string();
    let mut types: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("pub struct equic_")?.split([' ', '{']).next())
        .collect();
    types.sort_unstable();
    let mut pods = String::from(
        "\n// SAFETY: plain integers and arrays of them; abi.h names its padding.\nmod pods {\n    use super::*;\n",
    );
    for name in types {
        // SAFETY comment in the generated text, for its reader.
        let _ = writeln!(
            pods,
            "    // SAFETY: `repr(C)`, only integers inside, every bit pattern is a value.\n    \
             unsafe impl super::Pod for equic_{name} {{}}"
        );
    }
    pods.push_str("}\n");
    write(to, &format!("{text}{pods}"))
}

/// Lets the preprocessor expand `EQUIC_REASONS`, and writes what it says as Rust.
fn generate_reasons(clang: &str, bpf: &Path, out: &Path) -> Result<(), String> {
    let unit = out.join("reasons.c");
    write(
        &unit,
        "#include \"abi.h\"\n#define REASON(name, text, does, meaning) @REASON name does text @ meaning @END\n\
         EQUIC_REASONS(REASON)\n",
    )?;
    let mut command = Command::new(clang);
    command.args(["-E", "-P"]).args(multiarch_include()).arg("-I").arg(bpf).arg(&unit);
    let expanded = command.output().map_err(|e| format!("running {clang}: {e}"))?;
    if !expanded.status.success() {
        return Err(format!("expanding abi.h: {}", String::from_utf8_lossy(&expanded.stderr)));
    }
    let text = String::from_utf8_lossy(&expanded.stdout).into_owned();
    let (mut variants, mut table) = (String::new(), String::new());
    for (index, part) in text.split("@REASON").skip(1).enumerate() {
        let bad = || format!("abi.h: cannot read reason {index}: {part}");
        let (fields, _) = part.split_once("@END").ok_or_else(bad)?;
        let (left, meaning) = fields.split_once('@').ok_or_else(bad)?;
        let mut words = left.split_whitespace();
        let name = camel_case(words.next().ok_or_else(bad)?);
        let does = match words.next().ok_or_else(bad)? {
            "0" => "Pass",
            "1" => "Drop",
            "2" => "Answer",
            _ => return Err(bad()),
        };
        let label = literals(&words.collect::<Vec<_>>().join(" "));
        let meaning = literals(meaning);
        let _ = writeln!(variants, "    /// `{label}`: {meaning}.\n    {name} = {index},");
        let _ = writeln!(
            table,
            "    Row {{ reason: Reason::{name}, name: {label:?}, does: Does::{does}, meaning: {meaning:?} }},"
        );
    }
    let text = format!(
        "/// Why a packet passed or was dropped. Generated from `EQUIC_REASONS` in `bpf/abi.h`.\n\
         #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]\n#[repr(u8)]\n\
         pub enum Reason {{\n{variants}}}\n\n\
         const TABLE: [Row; crate::abi::EQUIC_REASON_COUNT as usize] = [\n{table}];\n"
    );
    write(&out.join("reasons.rs"), &text)
}

/// Joins adjacent C string literals. The header's contain no escapes.
fn literals(text: &str) -> String {
    text.split('"').skip(1).step_by(2).collect()
}

fn camel_case(name: &str) -> String {
    let word = |w: &str| w[..1].to_owned() + &w[1..].to_lowercase();
    name.split('_').filter(|w| !w.is_empty()).map(word).collect()
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}
