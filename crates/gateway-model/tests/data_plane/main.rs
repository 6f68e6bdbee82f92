//! Compares the XDP program with the reference model: [`tables`] of packets and verdicts,
//! [`differential`] (random), [`fuzzed`] (hostile bytes), [`contended`] (several CPUs), [`loops`]
//! (answers that come back).

mod contended;
mod differential;
mod fuzzed;
mod loops;
#[path = "../packets/mod.rs"]
mod packets;
mod tables;

/// `make test` compiles with assertions and overflow checks.
#[test]
fn suite_is_compiled_with_assertions() {
    if option_env!("EQUIC_ASSERTIONS").is_some() {
        let (assertions, most) = (cfg!(debug_assertions), std::hint::black_box(u8::MAX));
        assert!(assertions, "without debug assertions");
        let sum = std::panic::catch_unwind(|| std::hint::black_box(most + 1));
        assert!(sum.is_err(), "without overflow checks");
    }
}
