//! Tests of `equic-lab interop` in a folder that is not a source tree: the built-in list of
//! implementations, and its names in combination with a list in a file.

use std::path::Path;
use std::process::Command;

use crate::common::{EQUIC_LAB, Out, finish};
use serde_json::{Value, json};

fn interop(folder: &Path, args: &[&str]) -> Out {
    let mut command = Command::new(EQUIC_LAB);
    command.args(["interop", "--only", "handshake", "--built"]).arg(folder).args(args);
    command.current_dir(folder);
    finish(command)
}

fn result(folder: &Path) -> Value {
    let text = std::fs::read_to_string(folder.join("out/interop/result.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn interop_list_is_in_the_program_and_what_is_not_built_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let out = interop(folder.path(), &[]);
    let left_out = out.stderr.lines().find(|line| line.contains("are left out"));
    assert!(left_out.is_some_and(|line| line.contains("quinn")), "{out:?}");
    out.ok();
    let result = result(folder.path());
    assert_eq!((&result["clients"], &result["servers"]), (&json!(["equic"]), &json!(["equic"])));
    // If an implementation is named explicitly, it must not be left out.
    let named = interop(folder.path(), &["--impl", "quinn"]);
    assert_eq!(named.code, Some(1), "{named:?}");
}

#[test]
fn interop_takes_names_of_the_program_beside_a_list() {
    let folder = tempfile::tempdir().unwrap();
    let mine = json!({ "mine": {
        "url": "", "roles": ["client"],
        "command": ["/bin/sh", "-c", "echo the certificate has expired >&2; exit 1"],
    } });
    std::fs::write(folder.path().join("mine.json"), mine.to_string()).unwrap();
    let list = ["--implementations-file", "mine.json"];
    let out = interop(folder.path(), &[&list[..], &["--impl", "mine,equic"]].concat());
    assert_eq!(out.code, Some(1), "{out:?}");
    assert!(out.stdout.contains("status 1: the certificate has expired"), "{out:?}");
    let result = result(folder.path());
    assert_eq!(result["clients"], json!(["mine", "equic"]));
    assert_eq!(result["servers"], json!(["equic"]));
    let unknown = interop(folder.path(), &[&list[..], &["--impl", "nobody"]].concat());
    assert!(unknown.stderr.contains("mine, ") && unknown.stderr.contains("equic"), "{unknown:?}");
    // Without names, only the implementations of the list in the file must take part.
    let alone = interop(folder.path(), &list);
    assert!(alone.code == Some(1) && alone.stderr.contains("no client or no server"), "{alone:?}");
}
