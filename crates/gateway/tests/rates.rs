//! Tests the XDP program's token buckets when exchanges of a word fail because of other CPUs. Real
//! hardware cannot be made to do this reliably, so `rates.h` is compiled for the host
//! (host/rates.c).

use std::path::Path;
use std::process::Command;

#[test]
fn rate_bucket_retries_lost_exchanges_and_then_refuses() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rates");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let compiled = Command::new(&compiler)
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-I"])
        .arg(here.join("bpf"))
        .arg(here.join("tests/host/rates.c"))
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap_or_else(|error| panic!("{compiler}: {error}"));
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let run = Command::new(&program).output().expect("the compiled program");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
}
