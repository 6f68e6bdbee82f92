//! Writes a made-up run and all files that are derived from it into a folder, for inspection by
//! eye.

use equic_test_kit::bench::Fixture;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args_os().nth(1).ok_or("which folder?")?;
    Fixture::new(20, 1).write(dir.as_ref());
    equic_bench::result::write(dir.as_ref())?;
    Ok(())
}
