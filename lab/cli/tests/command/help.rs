//! Tests of help texts, man pages and completions.

use std::collections::BTreeSet;
use std::process::Command;

use crate::common::{EQUIC_LAB, commands, equic_lab, finish, repeated_verbs};

#[test]
fn help_fits_one_screen() {
    let help = equic_lab(&["--help"]).ok();
    assert!(help.lines().count() <= 24, "{help}");
    for command in ["demo", "bench", "gateway-bench", "net", "sim", "plugin-demo", "reproduce"] {
        assert!(help.contains(&format!("\n  {command} ")), "{help}");
    }
    let bare = equic_lab(&[]);
    assert_eq!(bare.code, Some(2), "{bare:?}");
}

#[test]
fn help_fits_80_columns_everywhere() {
    let commands = commands(EQUIC_LAB);
    assert!(commands.iter().any(|path| path == &["net", "flood", "initial"]), "{commands:?}");
    for path in commands {
        let mut args: Vec<&str> = path.iter().map(String::as_str).collect();
        args.push("--help");
        let help = equic_lab(&args).ok();
        // clap never breaks the line that begins with "Usage:".
        for line in help.lines().filter(|line| !line.starts_with("Usage:")) {
            assert!(line.chars().count() <= 80, "{path:?}: {line}");
        }
    }
}

#[test]
fn version_is_that_of_the_package() {
    let version = concat!("equic-lab ", env!("CARGO_PKG_VERSION"));
    let libraries = equic_quic::AWS_LC_PROVIDER_LIBRARIES;
    assert_eq!(equic_lab(&["--version"]).ok(), format!("{version} ({libraries})\n"));
}

/// If two groups of commands share a verb, it must mean the same in both.
#[test]
fn verb_has_one_meaning() {
    let repeated = repeated_verbs(EQUIC_LAB);
    let verbs: Vec<&str> = repeated.keys().map(String::as_str).collect();
    // `compare` compares two results, `list` lists what is available, and `run` runs what the group
    // is about.
    let known = ["compare", "list", "run"];
    assert!(verbs.iter().all(|verb| known.contains(verb)), "{repeated:?}");
}

#[test]
fn man_page_exists_for_every_command() {
    let folder = tempfile::tempdir().unwrap();
    equic_lab(&["man", "--out", folder.path().to_str().unwrap()]).ok();
    let written: BTreeSet<String> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let page = |path: &Vec<String>| {
        let words = std::iter::once("equic-lab").chain(path.iter().map(String::as_str));
        words.collect::<Vec<_>>().join("-") + ".1"
    };
    assert_eq!(written, commands(EQUIC_LAB).iter().map(page).collect());
    // Each page must refer to the page of its parent command, even if names contain hyphens.
    for (name, parent) in [("bench-run", "equic\\-lab\\-bench"), ("gateway-bench", "equic\\-lab")] {
        let file = folder.path().join(format!("equic-lab-{name}.1"));
        let text = std::fs::read_to_string(file).unwrap();
        let (_, more) = text.split_once(".SH \"SEE ALSO\"\n").unwrap();
        assert!(more.starts_with(&format!("\\fB{parent}\\fR")), "{name}: {more}");
    }
    for name in written {
        let mut groff = Command::new("groff");
        groff.args(["-ww", "-man", "-Tutf8", "-z"]).arg(folder.path().join(name));
        let out = finish(groff);
        assert!(out.code == Some(0) && out.stderr.is_empty(), "{out:?}");
    }
}

#[test]
fn completions_work_in_bash() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("equic-lab");
    std::fs::write(&file, equic_lab(&["completions", "bash"]).ok()).unwrap();
    let mut command = Command::new("bash");
    command.args(["--norc", "-c"]).arg(
        "source \"$0\"; COMP_WORDS=(equic-lab net rel); COMP_CWORD=2
        _equic__lab equic-lab rel net; echo \"${COMPREPLY[@]}\"",
    );
    command.arg(&file);
    assert_eq!(finish(command).ok(), "relay\n");
}
