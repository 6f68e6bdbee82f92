//! Tests malicious plugins on connections in memory. Each must be refused when it is loaded, or
//! detached when it breaks a rule. The connection must survive, and the transfer must complete.

mod common;

use common::{at, attach, download, link, network, of_text, seed};
use equic_plugin::Plugin;
use equic_plugin_kit::End;

const TUNE: &str = r#"capabilities = ["observe", "tune"]"#;

fn plugin(name: &str, manifest: &str, text: &str) -> Plugin {
    of_text(name, manifest, text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Runs a plugin that must be detached while data is sent, and returns the reason.
fn detached_with(name: &str, manifest: &str, text: &str) -> String {
    let mut network = network(&link(), seed());
    attach(&mut network, End::Server, &plugin(name, manifest, text));
    download(&mut network, 300_000);
    let failed = network.failures(End::Server);
    assert_eq!(failed.len(), 1, "{name}: {failed:?}");
    failed[0].1.to_string()
}

/// Runs a plugin that obstructs a transfer as much as it can but must not be detached. Returns the
/// duration of the transfer in milliseconds.
fn contained(name: &str, manifest: &str, text: &str) -> u128 {
    let mut network = network(&link(), seed());
    attach(&mut network, End::Server, &plugin(name, manifest, text));
    let took = download(&mut network, 300_000);
    let failed = network.failures(End::Server);
    assert!(failed.is_empty(), "{name}: {failed:?}");
    took.as_millis()
}

fn refused(name: &str, manifest: &str, text: &str) -> String {
    of_text(name, manifest, text).expect_err(name).to_string()
}

#[test]
fn hostile_endless_loop_is_stopped_by_the_step_budget() {
    let text = "equic_u64 run(void) { for (;;) __asm__ volatile(\"\"); }";
    for anchor in ["before", "replace", "after"] {
        let why = detached_with("loop", &at(TUNE, "CongestionWindow", anchor), text);
        assert!(why.contains("the budget is used up"), "{why}");
        assert!(why.contains("CongestionWindow") && why.contains("run"), "{why}");
    }
}

#[test]
fn hostile_pointers_stay_in_the_plugins_memory() {
    let text = "
        equic_u64 run(void)
        {
            for (equic_u64 at = 1; at; at *= 7)
                *(volatile equic_u64 *)(at * 0x9e3779b97f4a7c15) = at;
            *(volatile equic_u8 *)0 = 1;
            return EQUIC_DEFAULT;
        }";
    let manifest = at(&format!("{TUNE}\nmemory = 16384"), "AckPolicy", "replace");
    // Powers of 7 are odd and so never 0. The loop therefore ends only when the budget is used up.
    let why = detached_with("wild", &manifest, text);
    assert!(why.contains("the budget is used up"), "{why}");
}

#[test]
fn hostile_pointers_are_refused_by_helpers() {
    let text = "equic_u64 run(void) { return equic_log((void *)0xffffffffffff, 100, 1); }";
    let why = detached_with("far", &at(TUNE, "PacingRate", "before"), text);
    assert!(why.contains("outside of the sandbox"), "{why}");
    let text = "equic_u64 run(void) { return equic_log((void *)64, ~0ull, 1); }";
    let why = detached_with("long", &at(TUNE, "PacingRate", "before"), text);
    assert!(why.contains("budget"), "{why}");
}

#[test]
fn hostile_use_of_undeclared_helpers_and_fields_is_refused() {
    let run = at(TUNE, "CongestionWindow", "replace");
    let text = |call: &str| format!("equic_u64 run(void) {{ return {call}; }}");
    // The plugin calls helpers that its manifest does not permit, or a helper that does not exist.
    for (name, call) in [
        ("get", "equic_get(EQUIC_MIN_RTT)"),
        ("set", "equic_set(EQUIC_SMOOTHED_RTT, 1)"),
        ("frame", "equic_queue_frame(0x1f00, 1)"),
        ("none", "((equic_u64 (*)(void))(void *)99)()"),
    ] {
        let why = refused(name, &run, &text(call));
        assert!(why.contains("helper") && why.contains("does not exist"), "{name}: {why}");
    }
    // The plugin reads fields that its manifest does not list, or a field that does not exist.
    let reads = at(&format!("{TUNE}\nreads = [\"MinRtt\"]"), "CongestionWindow", "replace");
    let why = detached_with("field", &reads, &text("equic_get(EQUIC_SMOOTHED_RTT)"));
    assert!(why.contains("SmoothedRtt is not in the manifest's `reads`"), "{why}");
    let why = detached_with("nofield", &reads, &text("equic_get(77)"));
    assert!(why.contains("there is no field 77"), "{why}");
    // The manifest names a function that the object does not define.
    let why = refused(
        "static",
        &run,
        "static equic_u64 run(void) { return 0; } equic_u64 x(void) { return run(); }",
    );
    assert!(why.contains("no function `run`"), "{why}");
}

/// Helpers that change the connection, each with the manifest lines that permit its use.
const CHANGES: [(&str, &str, &str); 4] = [
    (
        "equic_set",
        "equic_set(EQUIC_SMOOTHED_RTT, 1)",
        "capabilities = [\"observe\", \"raise\"]\nsets = [\"SmoothedRtt\"]",
    ),
    (
        "equic_queue_frame",
        "equic_queue_frame(0x1f00, 1)",
        "capabilities = [\"observe\", \"frames\"]\nframes = [{ type = 0x1f00, ack-eliciting = true }]",
    ),
    ("equic_set_timer", "equic_set_timer(0)", "capabilities = [\"observe\"]"),
    (
        "equic_process_payload",
        "equic_process_payload(1, (void *)64, 1)",
        "capabilities = [\"observe\", \"payload\"]",
    ),
];

/// Helpers that read something, compute something, or send a message. None of them changes the
/// connection.
const READS: [(&str, &str); 7] = [
    ("equic_get", "equic_get(EQUIC_MIN_RTT)"),
    ("equic_now", "equic_now()"),
    ("equic_log", "equic_log((void *)64, 1, 1)"),
    ("equic_tell", "equic_tell((void *)64, 1)"),
    ("equic_get_of", "equic_get_of(EQUIC_MIN_RTT, 0)"),
    ("equic_call", "equic_call(0, (equic_u64 *)64, 0)"),
    // This helper is refused for another reason: the manifest does not request the default's
    // answer.
    ("equic_call_default", "0"),
];

#[test]
fn hostile_observer_cannot_change_the_connection() {
    for (helper, call, lines) in CHANGES {
        let plain = format!("equic_u64 run(void) {{ return {call}; }}");
        // The forbidden call is in a function that `run` calls, behind a branch that is never
        // taken.
        let hidden = format!(
            "static volatile int never;
             static __attribute__((noinline)) equic_u64 inner(void) {{ return never ? {call} : 0; }}
             equic_u64 run(void) {{ return inner(); }}"
        );
        for (anchor, text) in
            ["before", "after"].into_iter().flat_map(|at| [(at, &plain), (at, &hidden)])
        {
            let why = refused(&format!("looks-{helper}"), &at(lines, "UpdateRtt", anchor), text);
            assert!(why.contains("`run` calls") && why.contains(helper), "{anchor}: {why}");
        }
        let provides = "[[provides]]\nname = \"it\"\nfunction = \"run\"\ninputs = 0\noutputs = 0\n";
        let why = refused(&format!("provides-{helper}"), &format!("{lines}\n{provides}"), &plain);
        assert!(why.contains("`run` calls") && why.contains(helper), "provided: {why}");
    }
    let lines = "capabilities = [\"observe\"]\nreads = [\"MinRtt\"]\n\
                 calls = [{ operation = \"other.it\", inputs = 0, outputs = 0 }]";
    for (helper, call) in READS {
        let text = format!("equic_u64 run(void) {{ return {call}; }}");
        for anchor in ["before", "after"] {
            contained(&format!("reads-{helper}"), &at(lines, "UpdateRtt", anchor), &text);
        }
    }
    let known: Vec<&str> = CHANGES.iter().map(|one| one.0).chain(READS.map(|one| one.0)).collect();
    for helper in equic_plugin::helpers() {
        assert!(known.contains(&helper.name), "{}: does it change the connection?", helper.name);
    }
    // The outputs and the result of a function that only observes must have no effect.
    let text = "equic_u64 run(equic_u64 *words) { words[0] = words[1] = words[2] = 0; return 7; }";
    for anchor in ["before", "after"] {
        let observe = r#"capabilities = ["observe"]"#;
        let took = contained("writer", &at(observe, "CongestionWindow", anchor), text);
        assert!(took < 1_000, "{took}");
    }
}

#[test]
fn hostile_answers_that_are_impossible_detach_the_plugin() {
    let run = |operation| at(TUNE, operation, "replace");
    let why = detached_with("seven", &run("CongestionWindow"), "equic_u64 run(void) { return 7; }");
    assert!(why.contains("CongestionWindow: it returned 0x7"), "{why}");
    // If a plugin answers with a truth value other than 0 and 1, it must be detached.
    let text = "equic_u64 run(struct equic_ack_is_due *c) { c->out.due = 2; return EQUIC_DONE; }";
    let why = detached_with("two", &run("AckIsDue"), text);
    assert!(why.contains("returned impossible outputs"), "{why}");
}

#[test]
fn hostile_answers_are_limited_by_the_class() {
    // The plugin sets an unlimited congestion window and pacing rate, although it may only lower
    // them. The transfer must not become faster.
    let usual = {
        let mut network = network(&link(), seed());
        download(&mut network, 300_000).as_millis()
    };
    let text = "equic_u64 run(equic_u64 *words) { words[1] = 1ull << 40; return EQUIC_DONE; }";
    for operation in ["CongestionWindow", "PacingRate"] {
        let tuned = contained("more", &at(TUNE, operation, "replace"), text);
        assert_eq!(tuned, usual, "{operation}");
    }
    let raise = r#"capabilities = ["observe", "tune", "raise"]"#;
    let raised = contained("raised", &at(raise, "CongestionWindow", "replace"), text);
    assert!(raised < usual, "{raised} of {usual}");
}

#[test]
fn hostile_minimum_answers_do_not_stop_the_transfer() {
    // Each function gives the most obstructive answer of its operation, for example a window of
    // zero. The transport's own limits must keep the transfer going.
    for (operation, text) in [
        ("CongestionWindow", "words[1] = 0;"),
        ("PacingRate", "words[1] = 0;"),
        ("AckPolicy", "words[1] = ~0ull; words[2] = ~0ull; words[3] = 0;"),
        ("AckIsDue", "words[1] = 0;"),
        ("AckDeadline", "words[1] = ~0ull;"),
        ("ProbeTimeout", "words[2] = 0;"),
        ("SetTimer", "words[0] = 0;"),
        ("PtoBackoff", "words[1] = 0;"),
        ("DatagramSize", "words[1] = 0;"),
    ] {
        let text = format!("equic_u64 run(equic_u64 *words) {{ {text} return EQUIC_DONE; }}");
        contained("least", &at(TUNE, operation, "replace"), &text);
    }
}

#[test]
fn hostile_messages_and_timers_are_limited() {
    let text = "
        equic_u64 run(void)
        {
            static char message[1024];
            for (int i = 0; i < 10 && equic_tell(message, sizeof(message)); i++)
                equic_set_timer(0);
            return EQUIC_DEFAULT;
        }";
    let timer =
        "[[operations]]\noperation = \"HookTimer\"\nanchor = \"replace\"\nfunction = \"run\"\n";
    let manifest = [at(TUNE, "CongestionWindow", "replace").as_str(), timer].concat();
    contained("talks", &manifest, text);
    let why = detached_with(
        "shouts",
        &manifest,
        "equic_u64 run(void) { return equic_tell((void *)64, 1025); }",
    );
    assert!(why.contains("a message can have at most 1024 bytes"), "{why}");
}

#[test]
fn hostile_window_is_limited_by_the_class() {
    let text =
        "equic_u64 run(void) { equic_set(EQUIC_CONGESTION_WINDOW, ~0ull); return EQUIC_DEFAULT; }";
    let manifest = |classes: &str| {
        let lines = format!("capabilities = [{classes}]\nsets = [\"CongestionWindow\"]");
        at(&lines, "CongestionWindow", "replace")
    };
    let usual = {
        let mut network = network(&link(), seed());
        download(&mut network, 300_000).as_millis()
    };
    let tuned = contained("setmore", &manifest(r#""observe", "tune""#), text);
    assert!(tuned >= usual, "{tuned} and {usual}");
    let raised = contained("setraised", &manifest(r#""observe", "tune", "raise""#), text);
    assert!(raised < usual, "{raised} and {usual}");
}
