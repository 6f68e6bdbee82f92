//! Tests that man pages, completions, and the guide's list of reasons match the command.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{ROOT, equic, finish};

/// Adds the names of the man pages of all commands that the help lists.
fn listed(path: &[&str], names: &mut BTreeSet<String>) {
    names.insert([&["equic"], path].concat().join("-"));
    let help = equic(&[path, &["--help"]].concat()).ok();
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    for line in lines.take_while(|line| !line.is_empty()) {
        let name = line.strip_prefix("  ").and_then(|line| line.split(' ').next());
        if let Some(name) = name.filter(|name| !name.is_empty() && *name != "help") {
            listed(&[path, &[name]].concat(), names);
        }
    }
}

/// Runs another program on a file. Returns the program's output if it reports a problem.
fn complaint(program: &str, args: &[&str], file: &Path) -> Option<String> {
    let mut command = Command::new(program);
    command.args(args).arg(file).stdin(Stdio::null());
    let out = finish(command);
    (out.code != Some(0) || !out.stderr.is_empty()).then(|| format!("{program} {args:?}: {out:?}"))
}

#[test]
fn man_page_of_every_command_is_valid_for_groff() {
    let folder = tempfile::tempdir().unwrap();
    equic(&["man", "--out", folder.path().to_str().unwrap()]).ok();
    let mut wanted = BTreeSet::new();
    listed(&[], &mut wanted);
    assert!(wanted.contains("equic-gateway-run"), "{wanted:?}");
    let written: BTreeSet<String> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(written, wanted.iter().map(|name| format!("{name}.1")).collect());
    for name in written {
        let fault = complaint("groff", &["-ww", "-man", "-Tutf8", "-z"], &folder.path().join(name));
        assert_eq!(fault, None);
    }
}

#[test]
fn man_page_has_the_options_of_the_help() {
    let page = equic(&["man", "gateway", "run"]).ok();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("page.1");
    std::fs::write(&file, &page).unwrap();
    // The option `-c` disables escape sequences.
    let mut command = Command::new("groff");
    command.args(["-man", "-Tascii", "-P-c", "-P-b", "-P-u", "-rLL=2000n"]).arg(&file);
    let text = finish(command).ok();
    let help = equic(&["gateway", "run", "--help"]).ok();
    let options = help.split_whitespace().filter(|word| word.starts_with("--") && word.len() > 2);
    for option in options.map(|word| word.trim_matches(|c: char| !c.is_alphanumeric() && c != '-'))
    {
        assert!(text.contains(option), "{option} is not in the page:\n{text}");
    }
    // The lines of an example must not be joined.
    let example = help.lines().find(|line| line.starts_with("  equic gateway run --c")).unwrap();
    assert!(text.lines().any(|line| line.trim() == example.trim()), "{example}:\n{text}");
    assert!(text.contains("equic-gateway(1)"), "{text}");
}

#[test]
fn man_page_synopsis_names_the_values_of_options() {
    let synopsis = |command: &[&str]| {
        let page = equic(&[&["man"], command].concat()).ok();
        let lines = page.lines().skip_while(|line| *line != ".SH SYNOPSIS").skip(1);
        let lines = lines.take_while(|line| !line.starts_with(".SH"));
        // Remove the formatter's requests, fonts and escapes.
        let text: String = lines.filter(|line| !line.starts_with('.')).collect();
        ["\\fB", "\\fI", "\\fR"]
            .iter()
            .fold(text, |text, font| text.replace(font, ""))
            .replace('\\', "")
    };
    let run = synopsis(&["gateway", "run"]);
    for part in ["[-i|--interface IF]...", "[--max-connections N]", "[--config FILE]", "[--json]"] {
        assert!(run.contains(part), "{part}: {run}");
    }
    let deny = synopsis(&["gateway", "deny"]);
    assert!(deny.contains("[--for DURATION]") && deny.contains("PREFIX"), "{deny}");
    assert!(synopsis(&["gateway"]).ends_with("command"));
    let detach = synopsis(&["gateway", "detach"]);
    assert!(detach.contains("[--gateway SELECTOR]"), "{detach}");
    assert_eq!(detach.matches("SELECTOR").count(), 1, "one way to say which: {detach}");
}

#[test]
fn man_page_errors_name_the_command_or_folder() {
    let unknown = equic(&["man", "gateway", "nope"]);
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    assert!(unknown.stderr.contains("equic gateway nope"), "{unknown:?}");
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let failed = equic(&["man", "--out", missing.to_str().unwrap()]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(failed.stderr.contains("mkdir -p"), "{failed:?}");
}

#[test]
fn completions_are_valid_in_every_shell() {
    let folder = tempfile::tempdir().unwrap();
    for (shell, args) in [("bash", "-n"), ("zsh", "-n"), ("fish", "-n")] {
        let file = folder.path().join(shell);
        let script = equic(&["completions", shell]).ok();
        assert!(script.contains("max-connections"), "{shell}: {script}");
        std::fs::write(&file, script).unwrap();
        assert_eq!(complaint(shell, &[args], &file), None);
    }
}

#[test]
fn completions_work_in_bash() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("equic");
    std::fs::write(&file, equic(&["completions", "bash"]).ok()).unwrap();
    let mut command = Command::new("bash");
    command.args(["--norc", "-c"]).arg(
        "source \"$0\"; COMP_WORDS=(equic gateway sta); COMP_CWORD=2
        _equic equic sta gateway; echo \"${COMPREPLY[@]}\"",
    );
    command.arg(&file);
    assert_eq!(finish(command).ok(), "status\n");
}

#[test]
fn reasons_of_the_documentation_match_the_command() {
    let table = std::fs::read_to_string(format!("{ROOT}/docs/reference/reasons.md")).unwrap();
    let rows: Vec<Vec<&str>> = table
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    let told = equic(&["gateway", "reasons", "--json"]).json();
    let told = told["reasons"].as_array().unwrap();
    assert_eq!(rows.len(), told.len());
    for (row, reason) in rows.iter().zip(told) {
        let verdict = reason["verdict"].as_str().unwrap();
        assert_eq!(reason["drops"], verdict == "drop");
        let name = format!("`{}`", reason["reason"].as_str().unwrap());
        assert_eq!(row[..3], [&name, verdict, reason["meaning"].as_str().unwrap()]);
        assert!(row[3].len() > 6, "{name}: what to do?");
    }
}

#[test]
fn packaged_config_lacks_only_an_interface() {
    let packaged = std::fs::read_to_string(format!("{ROOT}/packaging/equic.toml")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("equic.toml");
    std::fs::write(&file, packaged.replace("# interfaces", "interfaces")).unwrap();
    equic(&["gateway", "check", file.to_str().unwrap()]).ok();
}
