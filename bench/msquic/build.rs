//! The library that msquic's crate builds is looked for beside the program: scripts/bench.sh puts it there.

fn main() {
    println!("cargo:rustc-link-arg-bins=-Wl,-rpath,$ORIGIN");
    println!("cargo:rerun-if-changed=build.rs");
}
