//! Checks that the same run gives the same result in different processes.

use std::process::Command;

use equic_sim::Simulation;

/// Environment variable that tells the child process which run to simulate.
const RUN: &str = "EQUIC_SIM_RUN";
const CAME_TO: &str = "the run came to ";

/// Returns a digest of all packets that arrived in a run. It covers every byte and the arrival
/// times in nanoseconds.
fn sum(run: &Simulation) -> String {
    let digest = run.digest().expect("it was asked for");
    format!("{digest:016x} after {} events until {}", run.events(), run.now())
}

/// Simulates each run of `names` in this process and in a child process, and compares the results.
/// They must not depend on memory addresses, hash seeds, the clock or other sources of randomness.
/// `test` is the name of the calling test. The child process is the same test program: it runs only
/// that test, which simulates one run and prints its result.
pub(crate) fn same_in_another_process(
    test: &str,
    names: &[&str],
    play: impl Fn(&str) -> Simulation,
) {
    if let Ok(name) = std::env::var(RUN) {
        println!("\n{CAME_TO}{}", sum(&play(&name)));
        return;
    }
    for name in names {
        let this = std::env::current_exe().expect("a test has a path");
        let output = Command::new(this)
            .args([test, "--exact", "--nocapture", "--test-threads=1"])
            .env(RUN, name)
            .output()
            .expect("it starts");
        let text = String::from_utf8(output.stdout).expect("text");
        let mut runs = text.lines().filter_map(|line| line.strip_prefix(CAME_TO));
        assert_eq!(runs.next(), Some(sum(&play(name)).as_str()), "{name}: {text}");
    }
}
