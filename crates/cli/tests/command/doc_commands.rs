//! Tests that the commands in the documentation exist, with all the options used.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use super::doc_toml::pages;
use crate::common::{EQUIC, EQUIC_LAB, ROOT, finish};

/// Returns the commands of a page, each with its line number: the lines of indented blocks, and the
/// lines after `$ ` in fenced blocks.
fn commands(page: &Path) -> Vec<(usize, String)> {
    let text = std::fs::read_to_string(page).unwrap();
    let mut commands: Vec<(usize, String)> = Vec::new();
    let (mut fenced, mut goes_on) = (false, false);
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            continue;
        }
        let command = if fenced { line.strip_prefix("$ ") } else { line.strip_prefix("    ") };
        let Some(command) = command.map(str::trim_start) else {
            goes_on = false;
            continue;
        };
        match commands.last_mut().filter(|_| goes_on) {
            Some((_, last)) => last.push_str(command),
            None => commands.push((at + 1, command.to_owned())),
        }
        let (_, last) = commands.last_mut().expect("one was added");
        goes_on = last.ends_with('\\');
        if goes_on {
            last.pop();
        }
    }
    commands
}

/// Returns the words of a command without quotation marks. Stops at a comment, pipe or redirection.
fn words(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for c in command.chars() {
        match (quote, c) {
            (Some(mark), _) if c == mark => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '#' | '|' | '>' | ';' | '&') if words.last().is_some_and(String::is_empty) => {
                break;
            }
            (None, ' ') => words.push(String::new()),
            _ => words.last_mut().expect("it is never empty").push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Runs a program with these words and `--help`, and fails if it reports an unknown command or
/// option.
fn accepted(program: impl AsRef<std::ffi::OsStr>, words: &[String]) -> Result<(), String> {
    let mut command = Command::new(program);
    // Replace the placeholders that a reader fills in.
    let zeros = "0".repeat(64);
    let filled = words.iter().map(|word| match word.as_str() {
        "ed25519:..." => format!("ed25519:{zeros}"),
        "FINGERPRINT" => zeros.clone(),
        "ADDRESS" => "127.0.0.1".to_owned(),
        _ => word.clone(),
    });
    command.args(filled).arg("--help");
    let out = finish(command);
    if out.code == Some(0) { Ok(()) } else { Err(out.stderr) }
}

#[test]
fn commands_of_the_documentation_are_accepted() {
    let makefile = ["Makefile", "packaging/install.mk"]
        .map(|file| std::fs::read_to_string(Path::new(ROOT).join(file)).unwrap())
        .concat();
    let targets: BTreeSet<&str> = makefile
        .lines()
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| !name.contains(['\t', '#', '=']))
        .flat_map(|(names, _)| names.split(' '))
        .collect();
    let (mut seen, mut wrong) = (BTreeSet::new(), Vec::new());
    for page in pages() {
        for (line, command) in commands(&page) {
            // This is a synopsis with options in brackets, which a reader does not type.
            if command.contains(" [--") {
                continue;
            }
            let mut words = words(&command);
            while words.first().is_some_and(|word| word == "sudo") {
                words.remove(0);
            }
            let Some(program) = words.first().cloned() else { continue };
            let known = match program.rsplit('/').next().unwrap_or_default() {
                "equic" => accepted(EQUIC, &words[1..]),
                "equic-lab" => accepted(EQUIC_LAB, &words[1..]),
                "make" => words[1..]
                    .iter()
                    .take_while(|word| !word.starts_with('-'))
                    .filter(|word| !word.contains('='))
                    .find(|word| !targets.contains(word.as_str()))
                    .map_or(Ok(()), |target| Err(format!("no target {target}"))),
                _ => continue,
            };
            seen.insert(program);
            if let Err(error) = known {
                let page = page.strip_prefix(ROOT).unwrap_or(&page).display();
                wrong.push(format!("{page}:{line}: {command}\n  {error}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(
        ["equic", "equic-lab", "make"].iter().all(|program| seen.contains(*program)),
        "{seen:?}"
    );
}

#[test]
fn commands_with_a_mistake_are_rejected() {
    let of = |line: &str| words(line)[1..].to_vec();
    assert_eq!(of("equic gateway set a=1 \"b=2 3\"   # why"), ["gateway", "set", "a=1", "b=2 3"]);
    assert_eq!(of("equic get URL > file"), ["get", "URL"]);
    accepted(EQUIC, &of("equic gateway status --json")).unwrap();
    accepted(EQUIC, &of("equic gateway stauts")).unwrap_err();
    accepted(EQUIC, &of("equic gateway status --jsno")).unwrap_err();
    accepted(EQUIC_LAB, &of("equic-lab bench run --rnus 3")).unwrap_err();
}
