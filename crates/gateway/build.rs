//! Compiles the gateway's XDP program and generates the Rust side of `bpf/abi.h`.
//!
//! * `gateway.bpf.o`: the program. `src/object.rs` embeds it, and dependents get its path in
//!   `DEP_EQUIC_GATEWAY_OBJECT`;
//! * `abi.rs`: every type and constant of the header, by bindgen, with layout assertions;
//! * `reasons.rs`: the enum `Reason` and its table, from the macro `EQUIC_REASONS`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use equic_bpf_build::Clang;

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
    // `make loom` sets `cfg(equic_loom)`.
    println!("cargo::rustc-check-cfg=cfg(equic_loom)");
    println!("cargo::rerun-if-changed={}", bpf.display());
    for source in sources(&bpf)? {
        println!("cargo::rerun-if-changed={}", source.display());
    }

    let clang = Clang::find()?;
    let object = out.join("gateway.bpf.o");
    clang.compile(&bpf.join("gateway.bpf.c"), &[&bpf], &object)?;
    println!("cargo::metadata=object={}", object.display());

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

fn generate_abi(bpf: &Path, to: &Path) -> Result<(), String> {
    let bindings = bindgen::Builder::default()
        .header(bpf.join("abi.h").to_string_lossy())
        .allowlist_item("(equic|EQUIC)_.*")
        .prepend_enum_name(false)
        .derive_default(true)
        .derive_eq(true)
        .derive_hash(true)
        // This structure holds secret keys, which must not appear in logs. Therefore the file
        // src/abi.rs implements `Debug` for it and leaves out the keys.
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
        // Lints also check the generated file, so each `unsafe impl` in it needs a SAFETY comment.
        let _ = writeln!(
            pods,
            "    // SAFETY: `repr(C)`, only integers inside, every bit pattern is a value.\n    \
             unsafe impl super::Pod for equic_{name} {{}}"
        );
    }
    pods.push_str("}\n");
    write(to, &format!("{text}{pods}"))
}

/// Expands `EQUIC_REASONS` with the C preprocessor, and converts the result to Rust.
fn generate_reasons(clang: &Clang, bpf: &Path, out: &Path) -> Result<(), String> {
    let unit = out.join("reasons.c");
    write(
        &unit,
        "#include \"abi.h\"\n#define REASON(name, text, does, meaning) @REASON name does text @ meaning @END\n\
         EQUIC_REASONS(REASON)\n",
    )?;
    let text = clang.expand(&unit, &[bpf])?;
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

/// Joins adjacent C string literals. The literals in the header contain no escapes.
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
