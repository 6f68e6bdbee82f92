//! Tests of `equic-lab bench report` and `compare` as a user sees them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use equic_test_kit::bench::Fixture;
use serde_json::{Value, json};

fn equic_lab(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_equic-lab"));
    command.arg("bench").args(arguments).env("NO_COLOR", "1").output().expect("equic starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

fn word(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn run(dir: &Path, seed: u64, quinn: f64) {
    let factors = BTreeMap::from([("quinn".to_owned(), quinn)]);
    let start = 1_795_250_000.0 + 1e6 * seed as f64;
    Fixture { factors, small: true, start, ..Fixture::new(12, seed) }.write(dir);
}

#[test]
fn report_is_made_from_samples() {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path(), 1, 1.0);
    let output = equic_lab(&["report", word(dir.path())]);
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for expected in ["client \\ server", "95 % interval", "crashed", "to tcp", "report.html"] {
        assert!(printed.contains(expected), "{expected} is not in\n{printed}");
    }
    // Escape sequences in the error messages of programs must not reach the terminal.
    assert!(!printed.contains('\u{1b}'));
    for name in ["result.json", "samples.csv", "summary.csv", "report.html"] {
        assert!(dir.path().join(name).is_file(), "{name}");
    }
    let output = equic_lab(&["report", word(dir.path()), "--json"]);
    let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(summary["schema"], "equic.bench.summary/1");
    let markdown = text(&equic_lab(&["report", word(dir.path()), "--markdown"]).stdout);
    assert!(markdown.contains("| --- |"), "{markdown:.300}");
}

#[test]
fn compare_exits_with_3_where_rounds_are_too_few_for_a_verdict() {
    let dir = tempfile::tempdir().expect("a folder");
    let lines = |name: &str, rounds: u32, value: f64| -> PathBuf {
        let folder = dir.path().join(name);
        fs::create_dir_all(&folder).expect("a folder");
        let line = |round: u32| {
            let value = value + f64::from(round);
            format!(
                r#"{{"workload":"download","protocol":"perf","path":"veth","client":"a","server":"a",
                "round":{round},"sequence":{round},"attempt":1,"started":{round}.0,"wall_seconds":0.5,
                "outcome":"measured","value":{value:?},"unit":"bit/s","bytes":1000,"count":1,"seconds":1.0,
                "process_seconds":1.0,"server_cpu_seconds":1.0,"client_cpu_seconds":1.0,"server_peak_rss":1,
                "client_peak_rss":1,"noise":{{"steal":0.0,"foreign":0.0,"too_much":false}}}}"#
            )
            .replace('\n', "")
                + "\n"
        };
        let text: String = (0..rounds).map(line).collect();
        fs::write(folder.join("samples.jsonl"), text).expect("a file");
        folder
    };
    let (old, new) = (lines("old", 3, 1000.0), lines("new", 3, 100.0));
    let few = equic_lab(&["compare", word(&old), word(&new)]);
    assert_eq!(few.status.code(), Some(3), "{few:?}");
    let said = [few.stdout, few.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(said[0].contains("too few rounds: a verdict needs 4 each"), "{said:?}");
    assert!(said[1].contains("--runs 4"), "{said:?}");
    let status = |args: &[&str]| equic_lab(&[&["compare"][..], args].concat()).status.code();
    assert_eq!(status(&[word(&old), word(&new), "--no-fail"]), Some(0));
    // With 4 rounds of each result, a verdict is possible. The exit status must be 1 in one
    // direction and 0 in the other.
    let (old, new) = (lines("old4", 4, 1000.0), lines("new4", 4, 100.0));
    assert_eq!(status(&[word(&old), word(&new)]), Some(1));
    assert_eq!(status(&[word(&new), word(&old)]), Some(0));
    assert_eq!(status(&[word(&old), word(&old), "--same", "x"]), Some(2));
    // `--corrected` adjusts for the number of cells. With only one cell, it must change nothing.
    assert_eq!(status(&[word(&old), word(&new), "--corrected"]), Some(1));
    assert_eq!(status(&[word(&old), word(&new), "--p", "0.01"]), Some(3));
}

/// Returns a line of `samples.jsonl`. If `value` is `None`, the attempt failed.
fn sample(client: &str, round: u32, value: Option<f64>) -> String {
    let mut line = json!({
        "workload": "download", "protocol": "perf", "path": "veth", "client": client, "server": client,
        "round": round, "sequence": round, "attempt": 1, "started": round, "wall_seconds": 0.5,
        "noise": {"steal": 0.0, "foreign": 0.0, "too_much": false},
    });
    let more = match value {
        Some(value) => json!({
            "outcome": "measured", "value": value, "unit": "bit/s", "bytes": 1000, "count": 1, "seconds": 1.0,
            "process_seconds": 1.0, "server_cpu_seconds": 1.0, "client_cpu_seconds": 1.0, "server_peak_rss": 1,
            "client_peak_rss": 1,
        }),
        None => json!({"outcome": "failed", "failure": "stalled", "why": "stalled"}),
    };
    line.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    line.to_string() + "\n"
}

#[test]
fn compare_exits_with_4_where_nothing_can_be_compared() {
    let dir = tempfile::tempdir().expect("a folder");
    let run = |name: &str, client: &str, value: Option<f64>| -> PathBuf {
        let folder = dir.path().join(name);
        fs::create_dir_all(&folder).expect("a folder");
        let text: String = (0..6).map(|round| sample(client, round, value)).collect();
        fs::write(folder.join("samples.jsonl"), text).expect("a file");
        folder
    };
    let (old, other) = (run("old", "a", Some(1e9)), run("other", "b", Some(1e9)));
    for more in [&[][..], &["--no-fail"], &["--strict"]] {
        let output = equic_lab(&[&["compare", word(&old), word(&other)][..], more].concat());
        assert_eq!(output.status.code(), Some(4), "{output:?}");
        assert!(text(&output.stderr).contains("none of 2 cells can be compared"), "{output:?}");
    }
    let renamed = equic_lab(&["compare", word(&old), word(&other), "--rename", "x=y"]);
    assert_eq!(renamed.status.code(), Some(4), "{renamed:?}");
    assert!(text(&renamed.stderr).contains("no cell in common"), "{renamed:?}");
    // A cell that fails in every round of the new result is worse. If it also failed in the old
    // result, it cannot be compared.
    let failed = run("failed", "a", None);
    let status =
        |old: &Path, new: &Path| equic_lab(&["compare", word(old), word(new)]).status.code();
    assert_eq!((status(&old, &failed), status(&failed, &failed)), (Some(1), Some(4)));
    assert_eq!(status(&old, &old), Some(0));
}

#[test]
fn report_without_figures_has_no_plots() {
    let dir = tempfile::tempdir().expect("a folder");
    fs::write(dir.path().join("samples.jsonl"), sample("a", 0, None)).expect("a file");
    let shown = text(&equic_lab(&["report", word(dir.path())]).stdout);
    assert!(
        shown.contains("No plots were created") && !dir.path().join("plots").exists(),
        "{shown}"
    );
    fs::write(dir.path().join("samples.jsonl"), sample("a", 0, Some(1e9))).expect("a file");
    let shown = text(&equic_lab(&["report", word(dir.path())]).stdout);
    assert!(shown.contains("plots (SVG, PNG)") && dir.path().join("plots").exists(), "{shown}");
}

#[test]
fn compare_exits_with_a_status_for_each_result() {
    let dir = tempfile::tempdir().unwrap();
    let (old, slow, fast) =
        (dir.path().join("old"), dir.path().join("slow"), dir.path().join("fast"));
    run(&old, 1, 1.0);
    run(&slow, 2, 0.9);
    run(&fast, 3, 1.12);
    assert!(equic_lab(&["report", word(&old)]).status.success());
    let result = old.join("result.json");
    let worse = equic_lab(&["compare", word(&result), word(&slow)]);
    assert_eq!(worse.status.code(), Some(1));
    assert!(text(&worse.stdout).contains("worse"), "{}", text(&worse.stdout));
    assert!(text(&worse.stderr).contains("cells are worse"), "{}", text(&worse.stderr));
    assert_eq!(
        equic_lab(&["compare", word(&old), word(&slow), "--no-fail"]).status.code(),
        Some(0)
    );
    // No cell is worse by 50 %. One pair of implementations crashes in most rounds, so it has too
    // few rounds for a verdict.
    let little = equic_lab(&["compare", word(&old), word(&slow), "--effect", "50"]);
    assert_eq!(little.status.code(), Some(3), "{}", text(&little.stderr));
    assert!(text(&little.stderr).contains("cells have too few rounds"), "{}", text(&little.stderr));
    // With Holm's correction, random differences must not count as worse.
    let better = equic_lab(&["compare", word(&old), word(&fast), "--corrected", "--json"]);
    assert_eq!(better.status.code(), Some(3), "{}", text(&better.stderr));
    let compared: Value = serde_json::from_slice(&better.stdout).expect("JSON");
    assert_eq!(compared["schema"], "equic.bench.compare/1");
    let quinn = compared["cells"]
        .as_array()
        .unwrap()
        .iter()
        .find(|cell| cell["client"] == "quinn" && cell["server"] == "quinn");
    assert_eq!(quinn.unwrap()["verdict"], "better");
    // Compare two implementations of the same run, in pairs of rounds.
    let same = [word(&old), word(&old), "--rename", "quinn=s2n-quic"];
    let output = equic_lab(&[&["compare"][..], &same].concat());
    assert!(
        text(&output.stdout).contains("Wilcoxon's test of paired rounds"),
        "{}",
        text(&output.stdout)
    );
}

#[test]
fn report_and_compare_explain_wrong_usage() {
    let dir = tempfile::tempdir().unwrap();
    let absent = dir.path().join("absent");
    let output = equic_lab(&["report", word(&absent)]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("absent"));
    let old = word(dir.path());
    for wrong in [["--p", "2"], ["--effect", "-1"], ["--rename", "a"]] {
        let output = equic_lab(&[&["compare", old, old][..], &wrong].concat());
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
    assert_eq!(equic_lab(&["compare", old]).status.code(), Some(2));
    assert_eq!(equic_lab(&["compare", old, old]).status.code(), Some(1));
}
