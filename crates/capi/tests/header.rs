//! Tests that the committed C headers are those that this crate generates.

#[path = "../examples/equic_header.rs"]
#[allow(dead_code, reason = "its main writes the headers")]
mod header;

use std::fs;
use std::path::Path;

#[test]
fn headers_that_are_committed_are_the_generated_ones() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (name, generated) in header::generate(folder).expect("cbindgen reads this crate") {
        let committed = fs::read(folder.join("include").join(name)).expect("it is committed");
        if generated == committed {
            continue;
        }
        let (generated, committed) =
            (String::from_utf8_lossy(&generated), String::from_utf8_lossy(&committed));
        let differs = generated.lines().zip(committed.lines()).position(|(new, old)| new != old);
        let line = differs.unwrap_or(generated.lines().count().min(committed.lines().count()));
        panic!(
            "include/{name} is not what the crate generates (first in line {}):\n  committed: {:?}\n  generated: {:?}\n\
             `make header` writes it again",
            line + 1,
            committed.lines().nth(line),
            generated.lines().nth(line)
        );
    }
}
