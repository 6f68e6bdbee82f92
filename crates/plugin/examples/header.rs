//! Prints `plugins/sdk/equic_plugin.h`, as `make header` writes it.

fn main() {
    print!("{}", equic_plugin::header());
}
