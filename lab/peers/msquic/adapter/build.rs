//! The program looks for the library that the msquic crate builds in its own folder.
//! scripts/bench.sh puts the library there.

fn main() {
    println!("cargo:rustc-link-arg-bins=-Wl,-rpath,$ORIGIN");
    println!("cargo:rerun-if-changed=build.rs");
}
