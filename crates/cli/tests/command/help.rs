//! Tests of what a person sees first: the help texts.

use crate::common::{EQUIC, equic};

/// Every command there is, found by walking the help.
fn commands() -> Vec<Vec<String>> {
    let mut found = vec![Vec::new()];
    let mut next = 0;
    while next < found.len() {
        let path: Vec<String> = found[next].clone();
        let mut args: Vec<&str> = path.iter().map(String::as_str).collect();
        args.push("--help");
        let help = equic(&args).ok();
        let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        for line in listed.take_while(|line| !line.is_empty()) {
            let name = line.strip_prefix("  ").and_then(|line| line.split(' ').next());
            if let Some(name) = name.filter(|name| !name.is_empty() && *name != "help") {
                found.push([path.clone(), vec![name.to_owned()]].concat());
            }
        }
        next += 1;
    }
    found
}

#[test]
fn the_first_screen_is_one_screen() {
    let help = equic(&["--help"]).ok();
    assert!(help.lines().count() <= 24, "{help}");
    for command in ["gateway", "serve", "get", "lab", "sim"] {
        assert!(help.contains(&format!("\n  {command} ")), "{help}");
    }
    let bare = equic(&[]);
    assert_eq!(bare.code, Some(2), "{bare:?}");
}

#[test]
fn help_fits_80_columns_everywhere() {
    let commands = commands();
    assert!(commands.iter().any(|path| path == &["gateway", "explain"]), "{commands:?}");
    assert!(commands.iter().any(|path| path == &["lab", "flood", "initial"]), "{commands:?}");
    for path in commands {
        let mut args: Vec<&str> = path.iter().map(String::as_str).collect();
        args.push("--help");
        let help = equic(&args).ok();
        // clap never breaks the line that begins with "Usage:".
        for line in help.lines().filter(|line| !line.starts_with("Usage:")) {
            assert!(line.chars().count() <= 80, "{path:?}: {line}");
        }
    }
}

#[test]
fn the_version_is_the_package_s() {
    assert_eq!(equic(&["--version"]).ok(), format!("equic {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn every_reason_is_listed() {
    let listed = equic(&["gateway", "reasons", "--json"]).json();
    assert_eq!(listed["schema"], "equic.gateway.reasons/1");
    let reasons = listed["reasons"].as_array().unwrap();
    assert_eq!(reasons.len(), equic_gateway::Reason::all().len());
    let table = equic(&["gateway", "reasons"]).ok();
    assert!(table.contains("small_initial") && !table.contains('\u{1b}'), "{table}");
}

#[test]
fn nobody_reading_is_no_error() {
    // The reader has gone before a byte is written.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    for args in [&["gateway", "reasons"][..], &["gateway", "reasons", "--json"], &["--help"]] {
        let writer = writer.try_clone().unwrap();
        let output = std::process::Command::new(EQUIC).args(args).stdout(writer).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{args:?}: {output:?}");
    }
}

#[test]
fn a_full_disk_is_an_error() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = std::process::Command::new(EQUIC)
        .args(["gateway", "reasons"])
        .stdout(full)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot write to standard output"), "{said}");
}
