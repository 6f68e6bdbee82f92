//! Runs every command of the tutorials in order, as printed there, and compares the output.
//!
//! In a block of the language `console`, commands follow `$ `, and the other lines are the output.
//! `...` stands for omitted lines. A command with the comment `# keep it running` runs until the
//! end of the page.

use std::path::Path;
use std::process::Command;

use equic_netns::Namespace;

use crate::common::{EQUIC, ROOT, Running, finish, lab, unique};

/// A command of a tutorial, and the output that the page shows.
#[derive(Debug)]
struct Step {
    command: String,
    shown: Vec<String>,
}

impl Step {
    fn keeps_running(&self) -> bool {
        self.command.contains("# keep it running")
    }
}

/// Returns the commands of a page, and the files that it shows. A file is a TOML or C block after a
/// line that ends with the file's name.
fn steps(page: &str) -> Vec<Step> {
    let text = std::fs::read_to_string(format!("{ROOT}/docs/tutorials/{page}.md")).unwrap();
    let mut steps: Vec<Step> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        match (inside, line) {
            (false, "```console") => inside = true,
            (true, "```") => inside = false,
            (true, _) => match line.strip_prefix("$ ") {
                Some(command) => {
                    let command = command.replace("sudo ", "");
                    steps.push(Step { command, shown: Vec::new() });
                }
                None => steps.last_mut().expect("a command first").shown.push(line.to_owned()),
            },
            (false, _) => {}
        }
    }
    steps
}

/// Removes everything from a line that differs from run to run: numbers, spaces, and words that are
/// as long as a fingerprint.
fn bare(line: &str) -> String {
    let words = line.split_whitespace().map(|word| {
        let mut bare = String::new();
        for c in word.chars() {
            if !c.is_ascii_digit() {
                bare.push(c);
            } else if !bare.ends_with('#') {
                bare.push('#');
            }
        }
        if word.len() >= 64 { "#".to_owned() } else { bare }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Checks that the output contains the lines that the page shows, in the same order.
fn compare(step: &Step, output: &str) {
    let mut lines = output.lines().map(bare);
    for shown in step.shown.iter().filter(|shown| !matches!(shown.trim(), "..." | "")) {
        let wanted = bare(shown);
        assert!(
            lines.any(|line| line == wanted),
            "{}: no line `{wanted}` where it is shown:\n{output}",
            step.command
        );
    }
}

/// Imitates a reader at a machine with the interfaces `lo` and `eth0`.
struct Reader<'a> {
    host: &'a Namespace,
    folder: &'a Path,
    running: Vec<Running>,
}

impl Reader<'_> {
    fn shell(&self, line: &str) -> Command {
        let mut shell = self.host.command("bash");
        shell.current_dir(self.folder).env_remove("EQUIC_LOG").env("NO_COLOR", "1");
        let exec = if line.contains("# keep it running") { "exec " } else { "" };
        shell.arg("-c").arg(format!("equic() {{ {exec}{EQUIC} \"$@\"; }}; {line}"));
        shell
    }

    fn types(&mut self, step: &Step) {
        let shell = self.shell(&step.command);
        if step.keeps_running() {
            let program = Running::start(shell, &[]);
            for shown in &step.shown {
                // Numbers differ from run to run, so wait only for the text before the first one.
                let begins = shown.split(|c: char| c.is_ascii_digit()).next().unwrap();
                program.line(begins);
            }
            self.running.push(program);
        } else {
            let out = finish(shell);
            assert_eq!(out.code, Some(0), "{}: {out:?}", step.command);
            compare(step, &format!("{}{}", out.stdout, out.stderr));
        }
    }
}

/// Runs all commands of a page. Fails if the page has fewer than `least`.
fn play(page: &str, least: usize) {
    let Some(lab) = lab(&unique(page), 1) else { return };
    let host = lab.server();
    let mut up = host.command("ip");
    up.args(["link", "set", "lo", "up"]);
    finish(up).ok();
    let folder = tempfile::tempdir().unwrap();
    let mut reader = Reader { host, folder: folder.path(), running: Vec::new() };
    let steps = steps(page);
    assert!(steps.len() >= least, "{steps:?}");
    for step in &steps {
        reader.types(step);
    }
    while let Some(program) = reader.running.pop() {
        assert!(program.terminate().success());
    }
}

#[test]
fn tutorial_of_the_gateway_matches_its_output() {
    play("protect-a-server", 8);
}

#[test]
fn tutorial_of_plugins_matches_its_output() {
    play("first-plugin", 4);
}

#[test]
fn tutorial_comparison_ignores_what_varies() {
    assert_eq!(bare("  12.5 ms  left 3"), "#.# ms left #");
    assert_eq!(bare(&"ab".repeat(32)), "#");
    let step = |shown: &str| Step { command: String::new(), shown: vec![shown.to_owned()] };
    compare(&step("new 7"), "old 1\nnew  8\n");
    let missing = std::panic::catch_unwind(|| compare(&step("new 7"), "old 1\n"));
    assert!(missing.is_err());
}
