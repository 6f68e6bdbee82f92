//! Tests of servers on other QUIC stacks with a quota in the kernel: quinn, s2n-quic, quiche,
//! quic-go, aioquic, ngtcp2 and picoquic. Each server is one of the examples, and is tested with
//! the client of another stack.
//!
//! [`scenario`] has the tests for all servers, and [`ids`] those for servers with verifiable
//! connection IDs. [`example`] starts the servers, and [`client`] has the clients. [`lines`] counts
//! the lines of each example that deal with eQUIC. [`plots`] runs the Python code in the
//! documentation. `scripts/examples.sh` builds the servers and runs these tests; plain `cargo test`
//! does not.

mod client;
mod example;
mod ids;
mod lines;
mod plots;
mod scenario;
#[allow(dead_code, reason = "shared with the tests end to end, which use all of it")]
#[path = "../e2e/stage.rs"]
mod stage;

use equic_test_kit::commands as common;

/// If `make test` compiled this test, it must have assertions and overflow checks.
#[test]
fn suite_is_compiled_with_assertions() {
    if option_env!("EQUIC_ASSERTIONS").is_some() {
        let (assertions, most) = (cfg!(debug_assertions), std::hint::black_box(u8::MAX));
        assert!(assertions, "without debug assertions");
        let sum = std::panic::catch_unwind(|| std::hint::black_box(most + 1));
        assert!(sum.is_err(), "without overflow checks");
    }
}
