//! Servers on other people's QUIC stacks, with a quota in the kernel: quinn, s2n-quic, quiche, quic-go,
//! aioquic, ngtcp2 and picoquic, each as its example has it, each against the client of another stack.
//!
//! [`scenario`] is what every one of them has to show, [`ids`] what those whose connection IDs prove themselves do,
//! [`example`] how each is started, [`client`] the clients, [`lines`] how much of each is about eQUIC; [`plots`] runs what
//! docs show in Python. `scripts/examples.sh` builds the servers and runs this; plain `cargo test` does not.

mod client;
mod example;
mod ids;
mod lines;
mod plots;
mod scenario;
#[allow(dead_code, reason = "shared with the tests end to end, which use all of it")]
#[path = "../e2e/stage.rs"]
mod stage;

use equic_testing as common;

/// Where `make test` compiles this, it has assertions and overflow checks.
#[test]
fn suite_is_compiled_with_assertions() {
    if option_env!("EQUIC_ASSERTIONS").is_some() {
        let (assertions, most) = (cfg!(debug_assertions), std::hint::black_box(u8::MAX));
        assert!(assertions, "without debug assertions");
        let sum = std::panic::catch_unwind(|| std::hint::black_box(most + 1));
        assert!(sum.is_err(), "without overflow checks");
    }
}
