//! Prints the list of scenario keys that docs/simulator.md contains. Run `cargo run -p
//! equic-scenario --example keys`.

fn main() {
    print!("{}", equic_scenario::markdown());
}
