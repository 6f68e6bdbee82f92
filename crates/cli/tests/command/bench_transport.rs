//! `equic bench transport`: ours against itself, a liar beside it, and nothing left behind.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{EQUIC, Out, ROOT, eventually, finish, finish_within, root};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// The command in a folder, with the list of implementations that is given.
fn bench(folder: &Path, implementations: &Value) -> Command {
    let file = folder.join("implementations.json");
    std::fs::write(&file, implementations.to_string()).unwrap();
    let mut command = Command::new(EQUIC);
    command.args(["bench", "transport", "--runs", "1", "--seconds", "1", "--bytes", "3000001"]);
    command.args(["--connections", "200", "--grace", "20"]);
    command.arg("--implementations-file").arg(file).arg("--out").arg(folder.join("out"));
    command
}

fn ours() -> Value {
    json!({ "equic": { "url": "here", "command": ["{equic}", "bench", "endpoint"] } })
}

fn liar(how: &str) -> Value {
    let script = format!("{ROOT}/crates/bench/tests/liar.sh");
    json!({ "url": "nowhere", "command": ["/bin/bash", script, how] })
}

#[test]
fn ours_does_all_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = bench(folder.path(), &ours());
    command.args(["--path", "loopback", "--json"]);
    let report = finish_within(command, Duration::from_secs(300)).json();
    assert_eq!(report["schema"], "equic.bench.transport/1");
    let written = std::fs::read_to_string(folder.path().join("out/result.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), report);
    let rows = report["data"]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 7, "{rows:#?}");
    for row in rows {
        assert_eq!((&row["measured"], &row["rounds"]), (&json!(1), &json!(1)), "{row:#?}");
        assert!(row["value"]["median"].as_f64().unwrap() > 0.0, "{row:#?}");
        assert!(row["server_cpu"]["median"].as_f64().unwrap() > 0.0, "{row:#?}");
        assert!(row["client_cpu"]["median"].as_f64().unwrap() > 0.0, "{row:#?}");
        assert!(row["value_ratio"].is_null() && row["failures"] == json!({}), "{row:#?}");
    }
    let effective = &report["data"]["effective"]["equic"];
    assert_eq!(effective["cipher"], "TLS_AES_128_GCM_SHA256");
    let runs = report["data"]["runs"].as_array().unwrap();
    let run = |workload: &str| runs.iter().find(|run| run["workload"] == workload).unwrap();
    // What does not divide by 100 is fetched, too.
    assert_eq!(run("streams")["answer"]["bytes"], 3_000_001);
    assert_eq!(run("handshakes")["answer"]["resumed"], 0);
    assert_eq!(run("resumed")["answer"]["resumed"], run("resumed")["answer"]["count"]);
}

#[test]
fn namespaces_are_a_path_and_go_away() {
    if !root("namespaces_are_a_path_and_go_away") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = bench(folder.path(), &ours());
    command.args(["--path", "veth", "--only", "download", "--json"]);
    let report = finish(command).json();
    let row = &report["data"]["rows"][0];
    assert_eq!((&row["route"], &row["measured"]), (&json!("veth"), &json!(1)), "{row:#?}");
    nothing_is_left("benchtp");
}

#[test]
fn a_liar_is_a_row_beside_ours() {
    let folder = tempfile::tempdir().unwrap();
    let mut all = ours();
    all["truncates"] = liar("truncates");
    all["unsupported"] = liar("unsupported");
    let mut command = bench(folder.path(), &all);
    command.args(["--path", "loopback", "--only", "download"]);
    let out = finish(command);
    let text = out.ok();
    assert!(text.contains("3000000 bytes in 1 completions, instead of 3000001"), "{text}");
    assert!(text.contains("does not") && text.contains("0 of 1"), "{text}");
    let written = std::fs::read_to_string(folder.path().join("out/result.json")).unwrap();
    let report: Value = serde_json::from_str(&written).unwrap();
    for row in report["data"]["rows"].as_array().unwrap() {
        let ours = row["implementation"] == "equic";
        assert_eq!(row["value"].is_null(), !ours, "{row:#?}");
    }
}

/// A signal in the middle of a cell ends everything that was started, and removes the namespaces.
#[test]
fn ctrl_c_leaves_nothing() {
    let veth = root("ctrl_c_leaves_nothing, with namespaces");
    let folder = tempfile::tempdir().unwrap();
    let mut command = bench(folder.path(), &json!({ "hangs": liar("hangs") }));
    command.args(["--path", if veth { "veth" } else { "loopback" }, "--only", "download"]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    let certificates = folder.path().join("out/certificates/usual");
    let pids = ["server", "client", "child"].map(|role| {
        eventually(role, || {
            let text = std::fs::read_to_string(certificates.join(format!("{role}.pid"))).ok()?;
            text.trim().parse::<u32>().ok()
        })
    });
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    assert!(!child.wait().unwrap().success());
    // The liar's own child is told by nobody outside a namespace.
    let told = if veth { &pids[..] } else { &pids[..2] };
    for pid in told {
        eventually("its end", || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            (stat.is_empty() || stat.contains(") Z ")).then_some(())
        });
    }
    if !veth {
        let _ = kill(Pid::from_raw(pids[2].cast_signed()), Signal::SIGKILL);
    }
    nothing_is_left("benchtp");
}

/// No lab of a benchmark whose process is gone.
fn nothing_is_left(name: &str) {
    let orphan = |lab: &equic_lab::LabRecord| {
        lab.id.starts_with(name) && !Path::new(&format!("/proc/{}", lab.pid)).exists()
    };
    assert!(!equic_lab::Lab::list().unwrap().iter().any(orphan), "a lab is left behind");
}

#[test]
fn what_cannot_be_is_said_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let with = |implementations: Value, args: &[&str]| -> Out {
        let mut command = bench(folder.path(), &implementations);
        command.args(args);
        finish(command)
    };
    let unknown = with(ours(), &["--impl", "equic,nobody"]);
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    assert!(
        unknown.stderr.contains(r#"no implementation "nobody": there are equic"#),
        "{unknown:?}"
    );
    let missing = json!({ "gone": { "url": "", "command": ["{built}/nothing/here"] } });
    let missing = with(missing, &[]);
    assert!(missing.stderr.contains("make bench-deps"), "{missing:?}");
    for args in [&["--only", "everything"][..], &["--path", "moon"], &["--runs", "0"]] {
        let out = with(ours(), args);
        assert_eq!(out.code, Some(2), "{out:?}");
        assert!(out.stderr.contains(args[0]), "{out:?}");
    }
    let work = Command::new(EQUIC)
        .args([
            "bench",
            "endpoint",
            "client",
            "--connect",
            "127.0.0.1:1",
            "--name",
            "a",
            "--ca",
            "b",
        ])
        .output()
        .unwrap();
    assert_eq!(work.status.code(), Some(2), "{work:?}");
}
