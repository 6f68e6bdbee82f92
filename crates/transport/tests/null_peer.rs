//! Tests a connection without protection with a peer that does what random inputs say, or the
//! inputs in `fuzz/seeds/connection`. `EQUIC_CASES` is the number of inputs, and `EQUIC_SEED` the
//! first seed. `EQUIC_INPUT` replays one input from a file.

#[allow(dead_code, reason = "another test makes whole inputs with it, this one payloads alone")]
#[path = "hostile/generator.rs"]
mod frames;
#[path = "unprotected/generator.rs"]
mod generator;
mod unprotected;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use unprotected::{Outcome, play};

const SEEDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/connection");

fn variable(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |value| value.parse().expect("the variable is a number"))
}

/// Plays an input. If that fails, stores the input and prints how to replay it.
fn checked(input: &[u8], name: &str) -> Outcome {
    catch_unwind(AssertUnwindSafe(|| play(input))).unwrap_or_else(|_| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.input"));
        std::fs::write(&path, input).expect("the input can be stored");
        panic!(
            "{name}: EQUIC_INPUT={} cargo test -p equic-transport --features null-crypto \
             --test null_peer one_input",
            path.display()
        )
    })
}

#[test]
fn null_peer_says_anything() {
    let (first, cases) = (variable("EQUIC_SEED", 1), variable("EQUIC_CASES", 1_000));
    eprintln!("EQUIC_SEED={first}");
    let (mut connected, mut closed, mut taken, mut placed, mut most) = (0, 0, 0, 0, 0);
    for seed in first..first + cases {
        let outcome = checked(&generator::input(seed), &format!("null-{seed}"));
        connected += u64::from(outcome.connected);
        closed += u64::from(outcome.closed);
        taken += outcome.packets_taken;
        placed += outcome.packets_opened_to_streams;
        most = most.max(outcome.memory);
    }
    eprintln!(
        "{cases} cases, {connected} connected, {closed} closed, {taken} packets, {placed} opened to streams, {most} bytes at most"
    );
    // In most cases, the handshake must complete.
    assert!(cases < 100 || connected > cases / 2, "{connected} of {cases} connected");
    assert!(taken > 5 * cases, "{taken} packets opened in {cases} cases");
    assert!(cases < 100 || placed > cases / 10, "{placed} packets opened to streams");
}

#[test]
fn seeds() {
    if std::env::var_os("EQUIC_WRITE_SEEDS").is_some() {
        std::fs::create_dir_all(SEEDS).expect("the folder can be created");
        for seed in 0..24 {
            let path = Path::new(SEEDS).join(format!("by-chance-{seed}"));
            std::fs::write(path, generator::input(seed)).expect("a seed can be written");
        }
    }
    let folder = std::fs::read_dir(SEEDS).expect("fuzz/seeds/connection is in the tree");
    let mut paths: Vec<PathBuf> = folder.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 20, "{paths:?}");
    for path in paths {
        let input = std::fs::read(&path).expect("the seed can be read");
        checked(&input, &path.file_name().unwrap_or_default().to_string_lossy());
    }
}

/// The handshake with which cases begin must complete on both sides and in all configurations.
#[test]
fn null_peer_can_complete_a_handshake() {
    for configuration in 0..64u8 {
        let outcome = play(&[configuration | 2]);
        assert!(outcome.connected, "configuration {configuration}: {outcome:?}");
    }
}

/// Plays the input in the file that `EQUIC_INPUT` names. Without that variable, plays a handshake.
#[test]
fn one_input() {
    let given = std::env::var_os("EQUIC_INPUT");
    let input = match &given {
        Some(path) => std::fs::read(path).expect("EQUIC_INPUT is a file"),
        None => vec![2],
    };
    let outcome = play(&input);
    eprintln!("{outcome:?}");
    assert!(given.is_some() || outcome.connected, "{outcome:?}");
}
