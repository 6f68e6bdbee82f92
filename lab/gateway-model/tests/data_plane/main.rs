//! Tests that compare the XDP program with the reference model: [`tables`] (packets with expected
//! verdicts), [`differential`] (random packets), [`fuzzed`] (hostile bytes), [`contended`] (several
//! CPUs), and [`loops`] (answers that come back to the gateway).

mod contended;
mod differential;
mod fuzzed;
mod loops;
#[path = "../packets/mod.rs"]
mod packets;
mod tables;

/// `make test` must compile with debug assertions and overflow checks.
#[test]
fn suite_is_compiled_with_assertions() {
    if option_env!("EQUIC_ASSERTIONS").is_some() {
        let (assertions, most) = (cfg!(debug_assertions), std::hint::black_box(u8::MAX));
        assert!(assertions, "without debug assertions");
        let sum = std::panic::catch_unwind(|| std::hint::black_box(most + 1));
        assert!(sum.is_err(), "without overflow checks");
    }
}
