//! Prints the list of keys in docs/simulator.md. Run `cargo run -p equic-scenario --example keys`.

fn main() {
    print!("{}", equic_scenario::markdown());
}
