//! Tests of the scripts that run the tests: no suite hides another, and none skips a test where
//! that is not wanted.

use std::ffi::OsStr;
use std::process::Command;

use crate::common::{ROOT, ci, finish};

fn script(path: &str, args: &[&str]) -> Command {
    let mut command = Command::new(format!("{ROOT}/{path}"));
    command.args(args);
    command
}

#[test]
fn every_suite_runs_whatever_became_of_those_before_it() {
    let suites =
        ["one", "echo begun; false; echo never", "two", "echo good", "three", "false | cat"];
    let out = finish(script("scripts/suites.sh", &suites));
    assert_eq!(out.code, Some(1), "{out:?}");
    assert!(out.stdout.contains("\nbegun\n") && out.stdout.contains("\ngood\n"), "{out:?}");
    assert!(!out.stdout.contains("never"), "{out:?}");
    let (_, summary) = out.stdout.split_once("== summary: 3 of 3 suites").expect("a summary");
    let lines: Vec<Vec<&str>> =
        summary.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["FAILED", "0.0", "min", "one", "(status", "1)"]);
    assert_eq!(lines[1], ["ok", "0.0", "min", "two"]);
    assert_eq!(lines[2], ["FAILED", "0.0", "min", "three", "(status", "1)"]);
    assert_eq!(lines[3], ["==", "FAILED:", "one", "three"]);

    let out = finish(script("scripts/suites.sh", &["one", "true", "two", "true"]));
    assert_eq!(out.code, Some(0), "{out:?}");
    assert!(!out.stdout.contains("FAILED"), "{out:?}");
    // One that is not there is no suite that went well.
    assert_eq!(finish(script("scripts/test.sh", &["nonsense"])).code, Some(2));
    assert_eq!(finish(script("scripts/suites.sh", &["one"])).code, Some(2));
}

#[test]
fn nothing_is_skipped_where_ci_is_set() {
    for (value, wanted) in [
        (None, false),
        (Some(""), false),
        (Some("0"), false),
        (Some("false"), false),
        (Some("true"), true),
        (Some("1"), true),
        (Some("yes"), true),
    ] {
        assert_eq!(ci::is_set(value.map(OsStr::new)), wanted, "{value:?}");
        let mut command = script("crates/capi/tests/c/no-tool.sh", &["something"]);
        command.env_remove("CI").envs(value.map(|value| ("CI", value)));
        let out = finish(command);
        assert_eq!(out.code, Some(i32::from(wanted)), "{value:?}: {out:?}");
        assert!(out.stdout.starts_with(if wanted { "FAILED" } else { "SKIPPED" }), "{out:?}");
    }
}
