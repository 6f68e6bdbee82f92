//! Tests of commands that now belong to `equic-lab`: the old name prints an error with the new one.

use std::process::Command;

use crate::common::{EQUIC, EQUIC_LAB, commands, equic, finish};

/// Old commands, and their new names.
const MOVED: [(&[&str], &str); 15] = [
    (&["demo"], "demo"),
    (&["bench"], "bench"),
    (&["bench", "run", "--impl", "all"], "bench"),
    (&["interop", "--help"], "interop"),
    (&["interop-endpoint"], "interop-endpoint"),
    (&["reproduce", "gateway"], "reproduce"),
    (&["sim", "run", "lossy"], "sim"),
    (&["lab"], "net"),
    (&["lab", "up", "x"], "net"),
    (&["lab", "run", "lossy"], "net"),
    (&["lab", "sweep"], "net clean"),
    (&["lab", "soak", "--duration", "30s"], "soak"),
    (&["lab", "bench", "--forged"], "gateway-bench"),
    (&["plugin", "demo"], "plugin-demo"),
    (&["plugin", "bench"], "plugin-bench"),
];

#[test]
fn old_name_prints_the_new_one() {
    let known: Vec<String> = commands(EQUIC_LAB).iter().map(|path| path.join(" ")).collect();
    for (old, new) in MOVED {
        let out = equic(old);
        let said = format!("equic: this command is now `equic-lab {new}`\n");
        assert_eq!((out.code, &*out.stdout, &*out.stderr), (Some(2), "", &*said), "{old:?}");
        assert!(new == "interop-endpoint" || known.iter().any(|known| known == new), "{new}");
    }
}

#[test]
fn old_name_prints_the_package_if_equic_lab_is_missing() {
    let [own, path] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let alone = own.path().join("equic");
    // Copy the program, because a link would be followed. Let another process copy it: while this
    // process has a file open for writing, a child that another test starts inherits it, and then
    // the file cannot be executed (ETXTBSY).
    let copy = |from: &str, to: &std::path::Path| {
        let mut command = Command::new("cp");
        command.arg(from).arg(to);
        finish(command).ok();
    };
    copy(EQUIC.path(), &alone);
    let said = || {
        let mut command = Command::new(&alone);
        command.arg("demo").env("PATH", path.path());
        let out = finish(command);
        assert_eq!(out.code, Some(2), "{out:?}");
        out.stderr
    };
    let package = "equic: this command is now `equic-lab demo`, in the Debian package equic-lab\n";
    assert_eq!(said(), package);
    copy("/bin/true", &path.path().join("equic-lab"));
    assert_eq!(said(), "equic: this command is now `equic-lab demo`\n");
}

/// Other usage errors must be reported as usual.
#[test]
fn old_name_is_not_found_in_other_usage_errors() {
    for args in [&["benchmark"][..], &["plugin", "bench-it"], &["gateway", "demo"]] {
        let out = equic(args);
        assert_eq!(out.code, Some(2), "{out:?}");
        assert!(out.stderr.contains("unrecognized subcommand"), "{out:?}");
    }
}
