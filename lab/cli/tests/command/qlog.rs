//! Tests of the qlog files that the interop endpoint writes into QLOGDIR.

use std::path::Path;
use std::process::Command;

use crate::common::{EQUIC_LAB, ROOT, equic_lab, finish};
use serde_json::Value;

/// Returns the records of a JSON text sequence (RFC 7464).
fn records(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut records = text.split('\u{1e}');
    assert_eq!(records.next(), Some(""));
    records.map(|record| serde_json::from_str(record).unwrap()).collect()
}

/// The QUIC Interop Runner may name a folder that does not exist. The endpoint must create it.
#[test]
fn qlog_files_are_written_into_the_folder_of_the_runner() {
    let out = tempfile::tempdir().unwrap();
    let to = out.path().to_str().unwrap();
    let list = format!("{ROOT}/lab/peers/interop.json");
    let run = ["interop", "--impl", "equic", "--only", "handshake", "--out", to];
    equic_lab(&[&run[..], &["--implementations-file", &list]].concat()).ok();
    let mut found = Vec::new();
    let mut folders = vec![out.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "sqlog") {
                let kind = |record: &Value| record["trace"]["vantage_point"]["type"].clone();
                assert!(path.parent().unwrap().ends_with("qlog"), "{}", path.display());
                found.push(kind(&records(&path)[0]).as_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    assert_eq!(found, ["client", "server"]);
}

/// If the folder cannot be used, the error must be reported in one line, before anything starts.
#[test]
fn qlog_folder_that_cannot_be_written_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    // A missing folder is created if possible.
    for wrong in ["/proc/qlog", "/proc", file.to_str().unwrap()] {
        let mut endpoint = Command::new(EQUIC_LAB);
        endpoint.arg("interop-endpoint").envs([
            ("ROLE", "server"),
            ("TESTCASE", "handshake"),
            ("QLOGDIR", wrong),
        ]);
        let out = finish(endpoint);
        assert!(out.code == Some(1) && out.stdout.is_empty(), "{out:?}");
        assert!(out.stderr.contains(wrong) && out.stderr.lines().count() == 1, "{out:?}");
        assert!(out.stderr.contains("folder"), "{out:?}");
    }
}
