//! The `equic` command.
fn main() {}
