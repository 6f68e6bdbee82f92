//! Tests that the committed C header is the one that this crate generates.

#[path = "../examples/equic_vm_header.rs"]
#[allow(dead_code, reason = "its main prints the header")]
mod header;

use std::fs;
use std::path::Path;

#[test]
fn header_is_up_to_date() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut generated = Vec::new();
    header::generate(folder).expect("cbindgen reads this crate").write(&mut generated);
    let committed =
        fs::read(folder.join("include/equic_vm.h")).expect("include/equic_vm.h is committed");
    if generated == committed {
        return;
    }
    let (generated, committed) =
        (String::from_utf8_lossy(&generated), String::from_utf8_lossy(&committed));
    let differs = generated.lines().zip(committed.lines()).position(|(new, old)| new != old);
    let line = differs.unwrap_or(generated.lines().count().min(committed.lines().count()));
    panic!(
        "include/equic_vm.h is not what the crate generates (first in line {}):\n  committed: {:?}\n  generated: {:?}\n\
         `make header` writes it again",
        line + 1,
        committed.lines().nth(line),
        generated.lines().nth(line)
    );
}
