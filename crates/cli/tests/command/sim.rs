//! Tests of `equic sim`: who it hands over to. The simulations themselves are tested in the workspace `sim/`.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::common::{EQUIC, equic, finish};

/// A program `equic-sim` that says who it is and what it was told.
fn program(folder: &Path, says: &str) {
    let path = folder.join("equic-sim");
    std::fs::write(&path, format!("#!/bin/sh\necho {says} \"$@\"\nexit 7\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn it_hands_over_to_the_program_beside_it_or_on_the_path() {
    let [own, path] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let command = own.path().join("equic");
    // A link to it would be followed: the program that runs is where its file is.
    std::fs::copy(EQUIC, &command).unwrap();
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
    // Its exit code is the command's.
    program(path.path(), "path");
    let found = run();
    assert_eq!((found.code, &*found.stdout), (Some(7), "path run a scenario --seeds 3\n"));
    program(own.path(), "beside");
    assert_eq!(run().stdout, "beside run a scenario --seeds 3\n");
    // One that cannot be started is not passed over.
    std::fs::write(own.path().join("equic-sim"), "").unwrap();
    std::fs::set_permissions(own.path().join("equic-sim"), std::fs::Permissions::from_mode(0o644))
        .unwrap();
    let failed = run();
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(failed.stderr.contains("cannot start"), "{failed:?}");
}

#[test]
fn help_and_wrong_usage_need_no_other_program() {
    let help = equic(&["sim", "--help"]).ok();
    assert!(help.contains("\n  run ") && help.contains("\n  list "), "{help}");
    let wrong = equic(&["sim", "run"]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
}
