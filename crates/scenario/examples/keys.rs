//! Prints the list of keys that docs/simulator.md has: `cargo run -p equic-scenario --example keys`.

fn main() {
    print!("{}", equic_scenario::markdown());
}
