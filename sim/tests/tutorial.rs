//! Runs every command of `docs/tutorials/first-simulation.md`, and compares the output with that on
//! the page. Figures are not compared, because they change with the transport.

use std::process::Command;

const EQUIC_SIM: &str = env!("CARGO_BIN_EXE_equic-sim");
const PAGE: &str = include_str!("../../docs/tutorials/first-simulation.md");

/// Returns the commands in `console` blocks, which follow `$ `, each with the lines of output that
/// the page shows.
fn steps() -> Vec<(String, Vec<&'static str>)> {
    let mut steps: Vec<(String, Vec<&str>)> = Vec::new();
    let mut inside = false;
    for line in PAGE.lines() {
        match (inside, line) {
            (false, "```console") => inside = true,
            (true, "```") => inside = false,
            (true, _) => match line.strip_prefix("$ ") {
                Some(command) => steps.push((command.to_owned(), Vec::new())),
                None => steps.last_mut().expect("a command first").1.push(line),
            },
            (false, _) => {}
        }
    }
    steps
}

/// Replaces the figures of a line, and removes the padding of its columns.
fn bare(line: &str) -> String {
    let mut bare = String::new();
    for word in line.split_whitespace() {
        bare.push(' ');
        for c in word.chars().filter(|c| *c != '-') {
            if !c.is_ascii_digit() {
                bare.push(c);
            } else if !bare.ends_with('#') {
                bare.push('#');
            }
        }
    }
    bare
}

#[test]
fn the_tutorial_is_as_it_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    // The page asks the reader to write this scenario.
    let (_, scenario) = PAGE.split_once("```toml\n").unwrap();
    let (scenario, _) = scenario.split_once("```").unwrap();
    std::fs::write(folder.path().join("first.toml"), scenario).unwrap();
    let steps = steps();
    assert!(steps.len() >= 5, "{steps:?}");
    for (command, shown) in steps {
        let mut shell = Command::new("bash");
        shell.current_dir(folder.path()).env("NO_COLOR", "1");
        // In the commands, `equic-lab sim` starts this program.
        shell.arg("-c").arg(format!("equic-lab() {{ shift; {EQUIC_SIM} \"$@\"; }}; {command}"));
        let output = shell.output().unwrap();
        assert!(output.status.success(), "{command}: {output:?}");
        let printed = String::from_utf8(output.stdout).unwrap();
        let mut lines = printed.lines().map(bare);
        for line in shown {
            if !matches!(line.trim(), "..." | "") {
                assert!(
                    lines.any(|printed| printed == bare(line)),
                    "{command}: no line `{line}` where it is shown:\n{printed}"
                );
            }
        }
    }
}
