//! Runs the example programs of this crate.

#[path = "../examples/hook.rs"]
#[expect(dead_code, reason = "what prints is not called")]
mod hook;

#[test]
fn example_answers_a_question() {
    hook::in_memory::main().unwrap();
}

#[test]
fn example_hook_has_fewer_packets_acknowledged() {
    let usual = hook::acknowledgements(None).unwrap();
    let seldom = hook::acknowledgements(Some(Box::new(hook::RareAcks))).unwrap();
    assert!(0 < seldom && seldom < usual, "{seldom} of {usual}");
}
