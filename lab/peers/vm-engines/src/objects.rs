//! Programs for the engines: C code that clang compiles to eBPF and to WebAssembly.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::engines;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../crates/vm/tests/c/on_ack.c");
const FUNCTIONS: [&str; 5] = ["empty", "on_ack", "loop", "helper", "many"];

/// A program in both formats.
pub struct Object {
    pub elf: Vec<u8>,
    pub wasm: Vec<u8>,
    /// Size of the eBPF instructions of the function `many` in bytes, or 0 without this function.
    pub code: usize,
}

/// Returns the program `on_ack.c` without changes.
pub fn short() -> Object {
    let text = std::fs::read_to_string(SOURCE).expect("the source tree contains on_ack.c");
    Object::compile("short", &text)
}

/// Returns the same program with an additional function `many`: `on_ack` unrolled to about 5 KB of
/// instructions.
pub fn long() -> Object {
    let text = std::fs::read_to_string(SOURCE).expect("the source tree contains on_ack.c");
    let inlined =
        "static inline __attribute__((always_inline)) u64 once(volatile struct context *c)";
    let mut text = text.replace("u64 on_ack(struct context *c)", inlined);
    text.push_str("\nu64 many(volatile struct context *c)\n{\n\tu64 sum = 0;\n");
    for _ in 0..14 {
        text.push_str("\tsum += once(c);\n");
    }
    text.push_str("\treturn sum;\n}\n");
    Object::compile("long", &text)
}

impl Object {
    fn compile(name: &str, text: &str) -> Object {
        let folder =
            std::env::temp_dir().join(format!("equic-bench-vm-{}-{name}", std::process::id()));
        std::fs::create_dir(&folder).expect("a temporary folder can be created");
        let source = folder.join("program.c");
        std::fs::write(&source, text).expect("a temporary file can be written");
        let bpf = ["-target", "bpf", "-mcpu=v3", "-ffunction-sections"];
        let elf = clang(&bpf, &source, &folder.join("program.o"));
        let elf = std::fs::read(elf).expect("clang has written the object");
        let object =
            clang(&["-target", "wasm32", "-ffreestanding"], &source, &folder.join("wasm.o"));
        let wasm = link(&object, &folder.join("program.wasm"));
        std::fs::remove_dir_all(folder).expect("the temporary folder can be removed");
        let code = engines::text(&elf, "many").map_or(0, |text| text.len());
        Object { elf, wasm, code }
    }
}

fn run(command: &mut Command) -> String {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).expect("UTF-8")
}

fn clang(target: &[&str], source: &Path, out: &Path) -> PathBuf {
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang-19".to_owned());
    run(Command::new(clang).args(target).args(["-O2", "-c", "-o"]).args([out, source]));
    out.to_owned()
}

/// Links an object with the linker of the Rust toolchain.
fn link(object: &Path, out: &Path) -> Vec<u8> {
    let sysroot = run(Command::new("rustc").args(["--print", "sysroot"]));
    let host = format!("lib/rustlib/{}-unknown-linux-gnu/bin/rust-lld", std::env::consts::ARCH);
    let linker = Path::new(sysroot.trim()).join(host);
    let exports = FUNCTIONS.map(|function| format!("--export-if-defined={function}"));
    let mut command = Command::new(linker);
    command.args(["-flavor", "wasm", "--no-entry"]).args(exports);
    run(command.arg("-o").args([out, object]));
    std::fs::read(out).expect("the linker has written the module")
}
