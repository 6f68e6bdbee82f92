//! Runs every command of `docs/tutorials/first-simulation.md`, and compares the output with the
//! output that the page shows. A change of the transport can change its figures. Then copy the new
//! ones, and check what the page says about them.

use std::path::{Path, PathBuf};
use std::process::Command;

const EQUIC_SIM: &str = env!("CARGO_BIN_EXE_equic-sim");
const PAGE: &str = include_str!("../../../docs/tutorials/first-simulation.md");

/// Returns the commands in the page's `console` blocks (lines that begin with `$ `), each with the
/// output lines that follow it.
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

/// Removes the padding of a line's columns.
fn bare(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn tutorial_shows_the_actual_output() {
    let folder = tempfile::tempdir().unwrap();
    // The page asks the reader to save this scenario as a file.
    let (_, scenario) = PAGE.split_once("```toml\n").unwrap();
    let (scenario, _) = scenario.split_once("```").unwrap();
    std::fs::write(folder.path().join("first.toml"), scenario).unwrap();
    let steps = steps();
    assert!(steps.len() >= 5, "{steps:?}");
    for (command, shown) in steps {
        let mut shell = Command::new("bash");
        shell.current_dir(folder.path()).env("NO_COLOR", "1");
        // `equic-lab sim` in the commands is replaced by this program.
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

/// Adds all Markdown files in a directory and its subdirectories to `found`.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "md") {
            found.push(path);
        }
    }
}

#[test]
fn documentation_commands_of_sim_are_accepted() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let mut found = vec![root.join("README.md")];
    pages(&root.join("docs"), &mut found);
    pages(&root.join("lab/results"), &mut found);
    let mut seen = 0;
    for page in &found {
        let text = std::fs::read_to_string(page).unwrap();
        let indented = text.lines().filter_map(|line| line.strip_prefix("    "));
        for line in indented.filter_map(|line| line.trim_start().strip_prefix("equic-lab sim ")) {
            let words =
                line.split_whitespace().take_while(|word| !word.starts_with(['#', '>', '|']));
            let output = Command::new(EQUIC_SIM).args(words).arg("--help").output().unwrap();
            assert!(output.status.success(), "{}: {line}: {output:?}", page.display());
            seen += 1;
        }
    }
    assert!(seen >= 5, "{seen}");
}

/// Compiles the plugin `reno` of this repository as `equic plugin build` does, and returns the
/// bundle.
fn reno() -> Vec<u8> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let object = tempfile::NamedTempFile::new().unwrap();
    let names = ["clang-21", "clang-20", "clang-19", "clang-18", "clang-17", "clang-16", "clang"];
    let runs = |name: &&str| Command::new(name).arg("--version").output().is_ok();
    let mut clang =
        Command::new(names.into_iter().find(runs).expect("`make setup` installs clang"));
    clang.args(["-target", "bpf", "-O2", "-mcpu=v3", "-ffreestanding", "-c"]);
    clang
        .arg("-I")
        .arg(root.join("plugins/sdk"))
        .arg(root.join("plugins/reno/reno.c"))
        .arg("-o")
        .arg(object.path());
    let output = clang.output().expect("clang is installed, as for `make setup`");
    assert!(output.status.success(), "{output:?}");
    let manifest = std::fs::read_to_string(root.join("plugins/reno/plugin.toml")).unwrap();
    equic_plugin::pack(&manifest, &std::fs::read(object.path()).unwrap(), None).unwrap()
}

#[test]
fn guide_to_congestion_controllers_compares_one() {
    const GUIDE: &str = include_str!("../../../docs/how-to/congestion-controller.md");
    let folder = tempfile::tempdir().unwrap();
    let (_, scenario) = GUIDE.split_once("```toml\n").unwrap();
    let (scenario, rest) = scenario.split_once("```").unwrap();
    std::fs::write(folder.path().join("mine.toml"), scenario).unwrap();
    std::fs::write(folder.path().join("mine.qplug"), reno()).unwrap();
    let command =
        rest.lines().find_map(|line| line.strip_prefix("    equic-lab sim ")).expect("the command");
    let output = Command::new(EQUIC_SIM)
        .current_dir(folder.path())
        .args(command.split_whitespace())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains("harm"), "{printed}");
}
