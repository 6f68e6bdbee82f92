//! Tests of logs of connections: qlog files (`--qlog-dir`, QLOGDIR) and the packet trace
//! (`--trace`).

use std::path::Path;
use std::process::Command;

use crate::common::{EQUIC, Running, equic};
use serde_json::Value;

/// Returns the records of a JSON text sequence (RFC 7464).
fn records(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut records = text.split('\u{1e}');
    assert_eq!(records.next(), Some(""));
    records.map(|record| serde_json::from_str(record).unwrap()).collect()
}

fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn qlog_files_of_both_ends_and_the_trace_are_readable() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let server = Running::start(
        Command::new(EQUIC),
        &["serve", "--json", "--listen", "127.0.0.1:0", "--qlog-dir", path],
    );
    let ready = server.event("ready");
    let url = format!("https://{}/bytes/100000", ready["address"].as_str().unwrap());
    let pin = ready["fingerprint"].as_str().unwrap();
    let got = equic(&["get", "--pin", pin, "--qlog-dir", path, "--trace", "--json", &url]);
    let trace = got.stderr.clone();
    assert_eq!(got.json()["bytes"], 100_000);
    assert!(server.terminate().success());

    let names = files(folder.path());
    let [client, served] = &names[..] else { panic!("{names:?}") };
    let odcid = client.strip_suffix("_client.sqlog").unwrap();
    assert_eq!(served, &format!("{odcid}_server.sqlog"));
    for name in &names {
        let records = records(&folder.path().join(name));
        let last = records.iter().rposition(|record| record["name"] == "quic:connection_closed");
        assert!(last.is_some(), "{name} lacks its end");
    }
    assert!(trace.starts_with(&format!("connection {odcid} with 127.0.0.1:")), "{trace}");
    for frame in ["CRYPTO(", "HANDSHAKE_DONE", "STREAM(0 "] {
        assert!(trace.contains(frame), "{frame} in {trace}");
    }
    assert!(trace.contains("CLOSE(application 256"), "its end is there, too: {trace}");
}

/// A qlog file must end at the size limit, and its last record must say why.
#[test]
fn qlog_file_ends_at_its_size_limit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let server = Running::start(
        Command::new(EQUIC),
        &["serve", "--json", "--listen", "127.0.0.1:0", "--qlog-dir", path, "--qlog-max", "50kB"],
    );
    let ready = server.event("ready");
    let url = format!("https://{}/bytes/3000000", ready["address"].as_str().unwrap());
    let got = equic(&["get", "--pin", ready["fingerprint"].as_str().unwrap(), "--json", &url]);
    assert_eq!(got.json()["bytes"], 3_000_000);
    assert!(server.terminate().success());
    let names = files(folder.path());
    let [name] = &names[..] else { panic!("{names:?}") };
    let path = folder.path().join(name);
    let length = path.metadata().unwrap().len();
    assert!((45_000..51_000).contains(&length), "{length}");
    let records = records(&path);
    assert_eq!(records.last().unwrap()["name"], "loglevel:warning");
    assert_eq!(records.iter().filter(|one| one["name"] == "loglevel:warning").count(), 1);
}

/// If the log cannot be written, the error must be reported in one line, before anything starts.
#[test]
fn qlog_folder_that_cannot_be_written_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    for wrong in ["/nonexistent/qlog", "/proc", file.to_str().unwrap()] {
        let serve = ["serve", "--listen", "127.0.0.1:0", "--qlog-dir", wrong];
        let get = ["get", "--qlog-dir", wrong, "https://127.0.0.1:1/"];
        for out in [equic(&serve), equic(&get)] {
            assert!(out.code == Some(1) && out.stdout.is_empty(), "{out:?}");
            assert!(out.stderr.contains(wrong) && out.stderr.lines().count() == 1, "{out:?}");
            assert!(out.stderr.contains("folder"), "{out:?}");
        }
    }
}
