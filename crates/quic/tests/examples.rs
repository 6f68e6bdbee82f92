//! Runs the examples, and compares the README's snippet with one of them.

#![expect(
    clippy::duplicate_mod,
    reason = "the examples share a module, and are programs of their own"
)]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use equic_quic::operation::{AttachPoint, Call, Hook, HookContext, HookError, Operation};

#[path = "../examples/datagrams.rs"]
#[expect(dead_code, reason = "what prints is not called")]
mod datagrams;
#[path = "../examples/echo.rs"]
#[expect(dead_code, reason = "what prints is not called")]
mod echo;
#[path = "../examples/hooked.rs"]
#[expect(dead_code, reason = "what prints is not called")]
mod hooked;
#[path = "../examples/migrate.rs"]
#[expect(dead_code, reason = "what prints is not called")]
mod migrate;

#[tokio::test]
async fn example_echoes_a_text() {
    assert_eq!(echo::echo("Here I am.").await.unwrap(), "Here I am.");
}

#[tokio::test]
async fn example_migrates_a_client() {
    let (before, after) = migrate::migrate().await.unwrap();
    assert_ne!(before.port(), after.port());
}

#[tokio::test]
async fn example_squares_numbers() {
    assert_eq!(datagrams::squares(4).await.unwrap(), [1, 4, 9, 16]);
}

/// Records the outputs of an operation.
#[derive(Clone, Default)]
struct Watch(Arc<Mutex<BTreeSet<Vec<u64>>>>);

impl Hook for Watch {
    fn after(
        &mut self,
        _: &mut HookContext<'_>,
        _: &Call<'_>,
        out: &[u64],
    ) -> Result<(), HookError> {
        self.0.lock().unwrap().insert(out.to_vec());
        Ok(())
    }
}

/// The test checks the hook's outputs. The number of acknowledgements depends on the machine's
/// speed.
#[tokio::test]
async fn example_hook_decides_when_to_acknowledge() {
    let (server, client) = hooked::local::configs(b"hook").unwrap();
    for (config, replaced) in [(server.clone(), false), (hooked::seldom(server), true)] {
        let watch = Watch::default();
        let seen = watch.0.clone();
        let config = config.with_hooks(move |connection| {
            let points = [AttachPoint::observe(Operation::AckPolicy)];
            connection.attach(Box::new(watch.clone()), &points).unwrap();
        });
        assert!(hooked::acknowledgements(config, &client).await.unwrap() > 0);
        let seen = seen.lock().unwrap();
        // The delay is not compared, because it cannot exceed the `max_ack_delay` that the peer was
        // sent.
        let only = seen.iter().all(|policy| policy[0] == 10);
        assert!(!seen.is_empty() && only == replaced, "{seen:?}");
    }
}

/// Removes comments, white space and trailing commas, so that the layout does not matter.
fn bare(text: &str) -> String {
    let code = text.lines().map(|line| line.split_once("//").map_or(line, |(code, _)| code));
    let bare: String = code.flat_map(str::split_whitespace).collect();
    bare.replace(",)", ")")
}

#[test]
fn example_readme_says_what_it_does() {
    let readme = include_str!("../../../README.md");
    let (_, snippet) = readme.split_once("```rust\n// acknowledge every tenth packet").unwrap();
    // Removes the rest of that comment line.
    let (_, snippet) = snippet.split_once('\n').unwrap();
    let (snippet, _) = snippet.split_once("```").unwrap();
    let example = bare(include_str!("../examples/hooked.rs"));
    let mut parts = 0;
    for part in snippet.split("\n\n") {
        let part = bare(part);
        assert!(example.contains(&part), "not in examples/hooked.rs: {part}");
        parts += 1;
    }
    assert_eq!(parts, 2, "{snippet}");
}

/// `make test` compiles this with assertions and overflow checks.
#[test]
fn suite_is_compiled_with_assertions() {
    if option_env!("EQUIC_ASSERTIONS").is_some() {
        let (assertions, most) = (cfg!(debug_assertions), std::hint::black_box(u8::MAX));
        assert!(assertions, "no debug assertions");
        let sum = std::panic::catch_unwind(|| std::hint::black_box(most + 1));
        assert!(sum.is_err(), "no overflow checks");
    }
}
