//! Tests a connection with a peer that has the keys and does what random inputs say, or the inputs
//! in `fuzz/seeds/hostile_peer`. `EQUIC_CASES` is the number of inputs, and `EQUIC_SEED` the seed.
//! `EQUIC_INPUT` replays one input from a file.

mod hostile;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use hostile::generator::Generator;
use hostile::{Outcome, play};

const SEEDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/hostile_peer");

fn variable(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |value| value.parse().expect("the variable is a number"))
}

/// Plays an input. If that fails, stores the input and prints how to replay it.
fn checked(input: &[u8], name: &str) -> Outcome {
    catch_unwind(AssertUnwindSafe(|| play(input))).unwrap_or_else(|_| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.input"));
        std::fs::write(&path, input).expect("the input can be stored");
        panic!(
            "{name}: EQUIC_INPUT={} cargo test -p equic-transport --test hostile_peer one_input",
            path.display()
        )
    })
}

#[test]
fn hostile_peer_with_keys() {
    let (first, cases) = (variable("EQUIC_SEED", 1), variable("EQUIC_CASES", 1_000));
    eprintln!("EQUIC_SEED={first}");
    let (mut connected, mut closed, mut most) = (0, 0, 0);
    for seed in first..first + cases {
        let input = Generator::new(seed).input();
        let outcome = checked(&input, &format!("hostile-{seed}"));
        connected += u64::from(outcome.connected);
        closed += u64::from(outcome.closed);
        most = most.max(outcome.memory);
    }
    eprintln!("{cases} cases, {connected} connected, {closed} closed, {most} bytes at most");
    // In most cases, the handshake must complete.
    assert!(cases < 100 || connected > cases / 2, "{connected} of {cases} connected");
}

#[test]
fn seeds() {
    if std::env::var_os("EQUIC_WRITE_SEEDS").is_some() {
        std::fs::create_dir_all(SEEDS).expect("the folder can be created");
        for seed in 0..24 {
            let path = Path::new(SEEDS).join(format!("by-chance-{seed}"));
            std::fs::write(path, Generator::new(seed).input()).expect("a seed can be written");
        }
    }
    let folder = std::fs::read_dir(SEEDS).expect("fuzz/seeds/hostile_peer is in the tree");
    let mut paths: Vec<PathBuf> = folder.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 20, "{paths:?}");
    for path in paths {
        let input = std::fs::read(&path).expect("the seed can be read");
        checked(&input, &path.file_name().unwrap_or_default().to_string_lossy());
    }
}

/// Plays the input in the file that `EQUIC_INPUT` names. Without that variable, plays the input of
/// seed 1, in which the handshake completes.
#[test]
fn one_input() {
    let given = std::env::var_os("EQUIC_INPUT");
    let input = match &given {
        Some(path) => std::fs::read(path).expect("EQUIC_INPUT is a file"),
        None => Generator::new(1).input(),
    };
    let outcome = play(&input);
    eprintln!("{outcome:?}");
    assert!(given.is_some() || outcome.connected, "{outcome:?}");
}
