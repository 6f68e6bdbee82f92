//! Prints the list of keys for docs/simulator.md: `cargo run -p equic-scenario --example keys`.

fn main() {
    print!("{}", equic_scenario::markdown());
}
