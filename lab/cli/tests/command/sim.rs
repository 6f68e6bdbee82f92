//! Tests that `equic-lab sim` starts the right program. The simulator's own workspace,
//! `lab/sim-cli/`, tests the simulations.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::common::{EQUIC_LAB, equic_lab, finish};

/// Runs another program to write an executable file. A file that this process has open for writing,
/// while another test starts a child, could not be executed (ETXTBSY).
fn write(program: &str, args: &[&str]) {
    let mut command = Command::new(program);
    command.args(args);
    finish(command).ok();
}

/// Creates a fake `equic-sim` that prints its name and its arguments.
fn program(folder: &Path, says: &str) {
    let path = folder.join("equic-sim");
    let text = format!("#!/bin/sh\necho {says} \"$@\"\nexit 7\n");
    let script = "printf %s \"$1\" >\"$0\" && chmod 755 \"$0\"";
    write("sh", &["-c", script, path.to_str().unwrap(), &text]);
}

#[test]
fn sim_starts_the_program_in_its_folder_or_on_the_path() {
    let [own, path] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let command = own.path().join("equic-lab");
    // Copy the command, because it would follow a link to its original directory.
    write("cp", &[EQUIC_LAB.path(), command.to_str().unwrap()]);
    let run = || {
        let mut command = Command::new(&command);
        command.args(["sim", "run", "a scenario", "--seeds", "3"]).env("PATH", path.path());
        finish(command)
    };
    let nobody = run();
    assert_eq!(nobody.code, Some(1), "{nobody:?}");
    assert!(
        nobody.stderr.contains("equic-sim") && nobody.stderr.contains("make build"),
        "{nobody:?}"
    );
    // The exit code must be that of `equic-sim`.
    program(path.path(), "path");
    let found = run();
    assert_eq!((found.code, &*found.stdout), (Some(7), "path run a scenario --seeds 3\n"));
    program(own.path(), "beside");
    assert_eq!(run().stdout, "beside run a scenario --seeds 3\n");
    // If the `equic-sim` in the same directory cannot be started, this must be an error. The one on
    // PATH must not be tried instead.
    std::fs::write(own.path().join("equic-sim"), "").unwrap();
    std::fs::set_permissions(own.path().join("equic-sim"), std::fs::Permissions::from_mode(0o644))
        .unwrap();
    let failed = run();
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(failed.stderr.contains("cannot start"), "{failed:?}");
}

#[test]
fn sim_help_and_usage_errors_need_no_other_program() {
    let help = equic_lab(&["sim", "--help"]).ok();
    assert!(help.contains("\n  run ") && help.contains("\n  list "), "{help}");
    let wrong = equic_lab(&["sim", "run"]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
}
