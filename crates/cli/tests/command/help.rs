//! Tests of the help texts, which are what a user sees first.

use crate::common::{EQUIC, commands, equic, repeated_verbs};

#[test]
fn help_fits_one_screen() {
    let help = equic(&["--help"]).ok();
    assert!(help.lines().count() <= 24, "{help}");
    for command in ["gateway", "serve", "get", "plugin", "man"] {
        assert!(help.contains(&format!("\n  {command} ")), "{help}");
    }
    let bare = equic(&[]);
    assert_eq!(bare.code, Some(2), "{bare:?}");
}

#[test]
fn help_fits_80_columns_everywhere() {
    let commands = commands(EQUIC);
    assert!(commands.iter().any(|path| path == &["gateway", "explain"]), "{commands:?}");
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

/// Returns the numbers of options in the first group of a help text, and in all groups. Also returns
/// whether the text has several groups.
fn options_of(help: &str) -> (usize, usize, bool) {
    let (mut first, mut all, mut groups) = (0, 0, 0);
    let mut heading = false;
    for line in help.lines() {
        heading |= line.ends_with(':') && !line.starts_with(' ');
        let option = line.trim_start();
        let long = option.split_once(", ").map_or(option, |(_, long)| long);
        if line.len() - option.len() <= 6 && option.starts_with('-') && long.starts_with("--") {
            groups += usize::from(heading);
            heading = false;
            all += 1;
            first += usize::from(groups == 1);
        }
    }
    (first, all, groups > 1)
}

/// `--help` counts as an option.
#[test]
fn commands_have_few_options_and_long_lists_have_headings() {
    for path in commands(EQUIC) {
        let mut args: Vec<&str> = path.iter().map(String::as_str).collect();
        args.push("--help");
        let help = equic(&args).ok();
        let (first, all, headings) = options_of(&help);
        let (most, most_first) = match args.as_slice() {
            ["serve", _] => (36, 11),
            ["gateway", "run", _] => (23, 11),
            _ => (31, 16),
        };
        assert!((1..=most).contains(&all), "{path:?} has {all} options: {help}");
        assert!(first <= most_first, "{path:?} has {first} options without a heading: {help}");
        assert!(all <= 20 || headings, "{path:?} has {all} options, but no headings: {help}");
    }
}

/// The number of columns of a terminal on half a screen.
#[test]
fn the_table_of_settings_has_100_columns() {
    let table = equic(&["gateway", "settings"]).ok();
    assert!(table.contains("max_connections") && table.contains("burst of 2 or"), "{table}");
    for line in table.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
}

/// If two groups of commands share a verb, it must mean the same in both.
#[test]
fn verb_has_one_meaning() {
    let repeated = repeated_verbs(EQUIC);
    let verbs: Vec<&str> = repeated.keys().map(String::as_str).collect();
    // `check` checks whether the configuration or the plugin would run. `run` runs the gateway or
    // the plugin.
    assert_eq!(verbs, ["check", "run"], "{repeated:?}");
}

#[test]
fn version_is_that_of_the_package() {
    let version = concat!("equic ", env!("CARGO_PKG_VERSION"));
    let libraries = equic_quic::AWS_LC_PROVIDER_LIBRARIES;
    assert_eq!(equic(&["--version"]).ok(), format!("{version} ({libraries})\n"));
}

#[test]
fn reasons_are_all_listed() {
    let listed = equic(&["gateway", "reasons", "--json"]).json();
    assert_eq!(listed["schema"], "equic.gateway.reasons/1");
    let reasons = listed["reasons"].as_array().unwrap();
    assert_eq!(reasons.len(), equic_gateway::Reason::all().len());
    let table = equic(&["gateway", "reasons"]).ok();
    assert!(table.contains("small_initial") && !table.contains('\u{1b}'), "{table}");
}

#[test]
fn output_to_a_closed_pipe_is_no_error() {
    // The reader closes the pipe before a byte is written.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    for args in [&["gateway", "reasons"][..], &["gateway", "reasons", "--json"], &["--help"]] {
        let writer = writer.try_clone().unwrap();
        let output = std::process::Command::new(EQUIC).args(args).stdout(writer).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{args:?}: {output:?}");
    }
}

#[test]
fn output_to_a_full_disk_is_an_error() {
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
