//! Tests of the scripts that run the tests. A suite that fails must not hide another one, no suite
//! may skip a test unless this is permitted, and all must be built with the Rust version that the
//! manifests name.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::common::{ROOT, ci, finish, root};

fn script(path: &str, args: &[&str]) -> Command {
    let mut command = Command::new(format!("{ROOT}/{path}"));
    command.args(args);
    command
}

#[test]
fn suites_run_even_if_earlier_ones_fail() {
    let suites =
        ["one", "echo begun; false; echo never", "two", "echo good", "three", "false | cat"];
    let out = finish(script("scripts/suites.sh", &suites));
    assert_eq!(out.code, Some(1), "{out:?}");
    assert!(out.stdout.contains("\nbegun\n") && out.stdout.contains("\ngood\n"), "{out:?}");
    assert!(!out.stdout.contains("never"), "{out:?}");
    let (_, summary) = out.stdout.split_once("== summary: 3 of 3 suites").expect("a summary");
    // Each line has the result, the elapsed minutes, the CPU minutes, and the name of a suite.
    let lines: Vec<(&str, &str)> = summary
        .lines()
        .skip(1)
        .map(|line| line.trim_start().split_once(' ').expect("two words"))
        .map(|(how, rest)| (how, rest.rsplit_once(" min  ").map_or(rest, |(_, name)| name)))
        .collect();
    let wanted = [("FAILED", "one (status 1)"), ("ok", "two"), ("FAILED", "three (status 1)")];
    assert_eq!(lines[..3], wanted, "{summary}");
    assert_eq!(lines[3], ("==", "FAILED: one three"));

    let out = finish(script("scripts/suites.sh", &["one", "true", "two", "true"]));
    assert_eq!(out.code, Some(0), "{out:?}");
    assert!(!out.stdout.contains("FAILED"), "{out:?}");
    // An unknown suite must be an error.
    assert_eq!(finish(script("scripts/test.sh", &["nonsense"])).code, Some(2));
    assert_eq!(finish(script("scripts/suites.sh", &["one"])).code, Some(2));
}

#[test]
fn suites_of_two_lanes_run_in_parallel_and_meet_at_the_ends() {
    let folder = tempfile::tempdir().unwrap();
    // Each suite ends only when the suite of the other lane has started. If the lanes did not run
    // in parallel, they would wait forever.
    let meet = |mine: &str, other: &str| {
        format!(
            "[ -e built ]; mkfifo {mine} 2>/dev/null || :; mkfifo {other} 2>/dev/null || :; \
             if [ {mine} = left ]; then echo met >left; read -r _ <right; \
             else read -r _ <left; echo met >right; fi; echo {mine} is over; touch {mine}-over"
        )
    };
    let (left, right) = (meet("left", "right"), meet("right", "left"));
    let suites = [
        "after:last",
        "[ -e left-over ] && [ -e right-over ] && echo at last",
        "left",
        &left,
        "beside:right",
        &right,
        "beside:wrong",
        "false",
        "first:build",
        "touch built; echo is built",
    ];
    let mut command = script("scripts/suites.sh", &suites);
    command.current_dir(&folder);
    let out = finish(command);
    assert_eq!(out.code, Some(1), "{out:?}");
    assert!(out.stdout.contains("== summary: 5 of 5 suites"), "{out:?}");
    assert!(out.stdout.ends_with("== FAILED: wrong\n"), "{out:?}");
    // The output of each suite must be in one piece, and the suites in the given order.
    let at = |line: &str| {
        out.stdout.find(&format!("\n{line}\n")).unwrap_or_else(|| panic!("{line}: {out:?}"))
    };
    let order = [
        "== build",
        "is built",
        "left is over",
        "== right",
        "right is over",
        "== wrong",
        "at last",
    ]
    .map(at);
    assert!(order.is_sorted(), "{order:?}: {out:?}");
}

#[test]
fn suites_do_not_wait_for_a_process_with_a_reused_pid() {
    if !root("suites_do_not_wait_for_a_process_with_a_reused_pid") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // Run in a new PID namespace, where the test can make a process ID occur again.
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
    command.arg(format!("{ROOT}/scripts/suites.sh"));
    command.args(["beside:early", "echo $PPID >number"]);
    let reuse = "until [ -s number ] && ! kill -0 $(cat number) 2>/dev/null; do sleep 0.01; done
        taken=
        until [ \"$taken\" = $(cat number) ]; do
            [ -z \"$taken\" ] || kill $taken
            echo $(($(cat number) - 1)) >/proc/sys/kernel/ns_last_pid
            sleep 3600 >/dev/null 2>&1 &
            taken=$!
        done";
    command.args(["late", reuse]).current_dir(&folder);
    let out = finish(command);
    assert_eq!(out.code, Some(0), "{out:?}");
    assert!(out.stdout.contains("== summary: 2 of 2 suites"), "{out:?}");
}

#[test]
fn tests_are_not_skipped_if_ci_is_set() {
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

/// In every crate, a test that prints that it is skipped must first check whether it may be
/// skipped.
#[test]
fn tests_are_skipped_only_after_a_check_of_ci() {
    let mut folders = ["crates", "lab"].map(|name| Path::new(ROOT).join(name)).to_vec();
    let (mut asked, mut wrong) = (0, Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            // Leave out this file, which contains the searched words itself.
            if path.extension() != Some(OsStr::new("rs")) || path.ends_with("command/scripts.rs") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let lines: Vec<&str> = text.lines().collect();
            for (at, line) in lines.iter().enumerate() {
                let says = line.contains('"') && line.contains("SKIPPED");
                let around = &lines[at.saturating_sub(3)..lines.len().min(at + 3)];
                if says && around.iter().any(|line| line.contains("in_ci()")) {
                    asked += 1;
                } else if says {
                    wrong.push(format!("{}:{}", path.display(), at + 1));
                }
            }
        }
    }
    assert!(asked >= 7 && wrong.is_empty(), "{asked} ask, these do not: {wrong:#?}");
}

/// Creates a directory with programs `rustc`, `cargo` and `rustup`, which pretend that these
/// toolchains are installed. The first toolchain is the default, which runs without `+NAME`.
fn machine(toolchains: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let usual = toolchains[0].1;
    let versions: String = toolchains
        .iter()
        .map(|(name, version)| format!("+{name}) version={version} ;;\n"))
        .collect();
    let names: Vec<&str> = toolchains.iter().map(|(name, _)| *name).collect();
    let answer = format!(
        "case $1 in\n{versions}+*) exit 1 ;;\n*) version={usual} ;;\nesac\n\
         echo \"rustc $version (0123456789 2026-01-01)\"\n"
    );
    for (program, text) in [
        ("rustc", &*answer),
        ("cargo", &*answer),
        (
            "rustup",
            &format!("[ \"$1 $2\" = 'toolchain list' ] && printf '%s\\n' {}", names.join(" ")),
        ),
    ] {
        let path = folder.path().join(program);
        std::fs::write(&path, format!("#!/bin/sh\n{text}")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    folder
}

#[test]
fn tests_are_built_by_the_version_that_the_manifests_name() {
    let wanted = env!("CARGO_PKG_RUST_VERSION");
    let (exact, patched) = (format!("{wanted}.0"), format!("{wanted}.7"));
    let on = |toolchains: &[(&str, &str)]| {
        let machine = machine(toolchains);
        let path = format!("{}:/usr/bin:/bin", machine.path().display());
        let mut command = script("scripts/toolchain.sh", &[]);
        command.env("PATH", path).env_remove("RUSTUP_TOOLCHAIN");
        finish(command)
    };
    // If the default toolchain has the required version, it must be used.
    let out = on(&[("stable", &exact), ("nightly", "9.99.0-nightly")]);
    assert_eq!((out.code, &*out.stdout), (Some(0), "\n"), "{out:?}");
    // Otherwise, another toolchain with this version must be used, whatever its name.
    for version in [&exact, &patched] {
        let out = on(&[("stable", "9.98.0"), ("nightly", "9.99.0-nightly"), ("kept", version)]);
        assert_eq!((out.code, &*out.stdout), (Some(0), "kept\n"), "{out:?}");
    }
    // If no toolchain has the version (only older, newer, or longer ones), the error must say what
    // to install.
    let longer = format!("{wanted}1.0");
    for version in ["1.60.0", "9.98.0", &longer] {
        let out = on(&[("stable", version), ("nightly", "9.99.0-nightly")]);
        assert_eq!((out.code, &*out.stdout), (Some(1), ""), "{out:?}");
        let command = format!("rustup toolchain install {wanted} ");
        assert!(out.stderr.contains(&command) && out.stderr.contains(version), "{out:?}");
    }
}

#[test]
fn bench_guard_names_an_unknown_commit() {
    let out = finish(script("scripts/bench-guard.sh", &["no-such-commit"]));
    assert_eq!(out.code, Some(2), "{out:?}");
    assert!(out.stderr.contains("there is no commit no-such-commit"), "{out:?}");
}

/// `make` without a target must show the targets that a visitor needs, and `make help-lab` the
/// others.
#[test]
fn make_help_fits_one_screen() {
    let make = |target: &str| {
        let mut command = Command::new("make");
        command.args(["--no-print-directory", "-C", ROOT, target]);
        finish(command).ok()
    };
    let (first, lab) = (make("help"), make("help-lab"));
    assert!(first.lines().count() <= 30, "{first}");
    for target in ["demo", "test", "build", "help-lab", "deb"] {
        assert!(first.contains(&format!("  make {target} ")), "{first}");
    }
    for target in ["bench-transport", "reproduce-gateway", "bench-guard"] {
        assert!(lab.contains(&format!("  make {target} ")), "{lab}");
        assert!(!first.contains(&format!("  make {target} ")), "{first}");
    }
}

/// Every suite of `make test` must be compiled with assertions and overflow checks, and no profile
/// may disable them. The tests named `suite_is_compiled_with_assertions` check the compiled
/// programs.
#[test]
fn suites_run_with_assertions() {
    let folder = tempfile::tempdir().unwrap();
    let scripts = folder.path().join("scripts");
    std::fs::create_dir(&scripts).unwrap();
    std::fs::copy(format!("{ROOT}/scripts/test.sh"), scripts.join("test.sh")).unwrap();
    std::fs::create_dir(folder.path().join(".ci")).unwrap();
    std::fs::copy(format!("{ROOT}/.ci/cargo.toml"), folder.path().join(".ci/cargo.toml")).unwrap();
    for (name, text) in [("toolchain.sh", "exit 0"), ("suites.sh", "env; printf '%s\\n' \"$@\"")] {
        let path = scripts.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new("bash");
    command.arg(scripts.join("test.sh")).env_clear().envs([("PATH", "/usr/bin:/bin")]);
    command.env("HOME", folder.path());
    let out = finish(command);
    assert_eq!(out.code, Some(0), "{out:?}");
    let lines: Vec<&str> = out.stdout.lines().collect();
    for profile in ["RELEASE", "DEV"] {
        for setting in ["DEBUG_ASSERTIONS", "OVERFLOW_CHECKS"] {
            let wanted = format!("CARGO_PROFILE_{profile}_{setting}=true");
            assert!(lines.contains(&&*wanted), "no {wanted}: {out:?}");
        }
    }
    assert!(lines.contains(&"EQUIC_ASSERTIONS=1"), "{out:?}");
    assert!(lines.contains(&"beside:cargo-run") && lines.contains(&"rust"), "{out:?}");

    // A profile in a manifest overrides the environment. External crates may be excepted, because
    // their builds are shared with the shipped programs.
    let others =
        "[profile.release.package.\"*\"]\ndebug-assertions = false\noverflow-checks = false\n";
    for file in ["", "lab/sim-cli/", "prove/", "examples/", "lab/peers/"] {
        let manifest = std::fs::read_to_string(format!("{ROOT}/{file}Cargo.toml")).unwrap();
        let manifest = if file.is_empty() { manifest.replace(others, "") } else { manifest };
        for setting in ["debug-assertions", "overflow-checks"] {
            assert!(!manifest.contains(setting), "{file}Cargo.toml sets {setting}");
        }
    }
}

/// The script must distinguish programs with overflow checks from programs without.
#[test]
fn suites_refuse_programs_without_assertions() {
    let folder = tempfile::tempdir().unwrap();
    let (checked, bare) = (folder.path().join("checked"), folder.path().join("bare"));
    std::fs::write(&checked, b"\x7fELF\0attempt to add with overflow\0").unwrap();
    std::fs::write(&bare, b"\x7fELF\0").unwrap();
    let [checked, bare] = [checked, bare].map(|path| path.display().to_string());
    let out = finish(script("scripts/assertions.sh", &[&checked]));
    assert_eq!(out.code, Some(0), "{out:?}");
    let out = finish(script("scripts/assertions.sh", &[&checked, &bare]));
    assert_eq!(out.code, Some(1), "{out:?}");
    assert!(out.stderr.contains(&format!("{bare} was compiled without")), "{out:?}");
}

/// If `make test` compiled this test, it must have assertions and overflow checks.
#[test]
fn suite_is_compiled_with_assertions() {
    if option_env!("EQUIC_ASSERTIONS").is_some() {
        let (assertions, most) = (cfg!(debug_assertions), std::hint::black_box(u8::MAX));
        assert!(assertions, "without debug assertions");
        let sum = std::panic::catch_unwind(|| std::hint::black_box(most + 1));
        assert!(sum.is_err(), "without overflow checks");
    }
}
