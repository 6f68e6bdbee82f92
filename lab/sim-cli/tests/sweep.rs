//! Tests of sweeps as a user runs them: they are interrupted, split into parts, merged and
//! compared.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const EQUIC_SIM: &str = env!("CARGO_BIN_EXE_equic-sim");

const GRID: &str = r#"
seeds = 6
[network]
topology = "simple"
link = { rate = "10 Mb/s", delay = "10 ms", loss = "1 %" }
[[flow]]
size = "60 KB"
[grid]
"network.link.rate" = ["2 Mb/s", "10 Mb/s"]
arm = [
    { name = "quic", "flow.protocol" = "quic" },
    { name = "tcp, old", "flow.protocol" = "tcp", "flow.tcp.mss" = 536 },
]
"#;

/// The files that must be in the directory of a complete sweep.
const FILES: [&str; 6] =
    ["grid.toml", "sweep.json", "runs.jsonl", "rows.csv", "rows.parquet", "summary.csv"];

struct Scene {
    folder: tempfile::TempDir,
    grid: String,
}

impl Scene {
    fn new(grid: &str) -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("grid.toml");
        std::fs::write(&path, grid).unwrap();
        Scene { grid: path.into_os_string().into_string().unwrap(), folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn shown(&self, name: &str) -> String {
        self.path(name).into_os_string().into_string().unwrap()
    }

    fn sweep(&self, out: &str, more: &[&str]) -> Output {
        sim(&[&["sweep", &self.grid, "--out", &self.shown(out)][..], more].concat())
    }

    /// Returns the content of all files of a complete sweep's directory.
    fn files(&self, name: &str) -> Vec<Vec<u8>> {
        let read = |file: &&str| {
            let path = self.path(name).join(file);
            std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        };
        FILES.iter().map(read).collect()
    }
}

fn sim(args: &[&str]) -> Output {
    Command::new(EQUIC_SIM).args(args).output().expect("it starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

fn ok(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn failed(output: Output, code: i32, said: &[&str]) {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    for word in said {
        assert!(text(&output.stderr).contains(word), "{word}: {output:?}");
    }
}

#[test]
fn sweep_has_all_rows_and_repeats_the_same_bytes() {
    let scene = Scene::new(GRID);
    assert_eq!(ok(scene.sweep("none", &["--dry-run"])), "4 cells, 24 runs\n");
    assert!(!scene.path("none").exists());
    ok(scene.sweep("one", &["--threads", "1"]));
    ok(scene.sweep("three", &["--threads", "3"]));
    assert_eq!(scene.files("one"), scene.files("three"));
    let csv = std::fs::read_to_string(scene.path("one").join("rows.csv")).unwrap();
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 25);
    assert!(
        lines[0].starts_with("network.link.rate,arm,cell,seed,flow,copy,protocol,"),
        "{}",
        lines[0]
    );
    assert!(lines[1].starts_with("2 Mb/s,quic,1,1,quic cubic,1,quic,cubic,"), "{}", lines[1]);
    assert!(
        lines[24].starts_with("10 Mb/s,\"tcp, old\",4,6,tcp cubic,1,tcp,cubic,"),
        "{}",
        lines[24]
    );
    let summary = std::fs::read_to_string(scene.path("one").join("summary.csv")).unwrap();
    assert_eq!(summary.lines().count(), 5);
    assert!(summary.contains("\n10 Mb/s,\"tcp, old\",tcp cubic,tcp,cubic,6,6,0,"), "{summary}");
}

#[test]
fn sweep_rows_of_applications_have_more_columns() {
    let grid = GRID
        .replace("size = \"60 KB\"\n", "[flow.requests]\ncount = 4\nresponse = \"5 KB\"\n")
        .replace("arm = [\n", "\"flow.application\" = [\"requests\"]\narm = [\n");
    let scene = Scene::new(&grid);
    ok(scene.sweep("one", &[]));
    let csv = std::fs::read_to_string(scene.path("one").join("rows.csv")).unwrap();
    let header = csv.lines().next().unwrap();
    assert!(header.contains(",window_limited,application,units_wanted,units_done,"), "{header}");
    for line in csv.lines().skip(1) {
        assert!(line.contains(",requests,4,4,"), "{line}");
    }
    let parquet = scene.path("one").join("rows.parquet");
    assert!(std::fs::metadata(parquet).unwrap().len() > 0);
}

#[test]
fn sweep_parquet_has_the_values_of_csv() {
    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    use parquet::record::RowAccessor as _;
    let scene = Scene::new(GRID);
    ok(scene.sweep("one", &[]));
    let file = std::fs::File::open(scene.path("one").join("rows.parquet")).unwrap();
    let reader = SerializedFileReader::new(file).unwrap();
    let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
    let csv = std::fs::read_to_string(scene.path("one").join("rows.csv")).unwrap();
    assert_eq!(rows.len(), csv.lines().count() - 1);
    let first: Vec<&str> = csv.lines().nth(1).unwrap().split(',').collect();
    assert_eq!(rows[0].get_string(0).unwrap(), first[0]);
    assert_eq!(rows[0].get_long(3).unwrap().to_string(), first[3]);
    assert_eq!(rows[0].get_double(8).unwrap().to_string(), first[8]);
    // A field that is empty in CSV must have no value in Parquet.
    assert!(rows[0].get_string(19).is_err(), "{:?}", rows[0]);
}

#[test]
fn merge_of_parts_gives_the_same_bytes() {
    let scene = Scene::new(GRID);
    ok(scene.sweep("whole", &[]));
    for part in ["1/3", "2/3", "3/3"] {
        ok(scene.sweep(&part.replace('/', "-"), &["--shard", part]));
    }
    let [out, one, two, three] = ["merged", "1-3", "2-3", "3-3"].map(|name| scene.shown(name));
    ok(sim(&["merge", &out, &three, &one, &two]));
    assert_eq!(scene.files("merged"), scene.files("whole"));
    failed(
        sim(&["merge", &scene.shown("x"), &one, &two]),
        1,
        &["part 3/3 of the sweep is missing"],
    );
    failed(sim(&["merge", &scene.shown("x"), &one, &two, &one]), 1, &["1/3 was given twice"]);
    // Merging must reject a part of a sweep of another grid, and a part that is incomplete.
    let other = Scene::new(&GRID.replace("60 KB", "61 KB"));
    ok(other.sweep("2-3", &["--shard", "2/3"]));
    let foreign = other.shown("2-3");
    failed(
        sim(&["merge", &scene.shown("x"), &one, &foreign, &three]),
        1,
        &["not parts of the same sweep", &foreign],
    );
    std::fs::write(scene.path("2-3").join("runs.jsonl"), "").unwrap();
    failed(sim(&["merge", &scene.shown("x"), &one, &two, &three]), 1, &["0 of 8 runs"]);
    assert!(!scene.path("x").exists());
    failed(scene.sweep("y", &["--shard", "4/3"]), 2, &["3/8"]);
}

/// The texts of traces are part of the grid: with another trace, it is another grid. The directory
/// of a sweep must contain all files that merging needs.
#[test]
fn sweep_stores_traces_as_part_of_the_grid() {
    let grid = GRID.replace("rate = \"10 Mb/s\", ", "").replace(
        "\"network.link.rate\" = [\"2 Mb/s\", \"10 Mb/s\"]",
        "\"network.link.trace\" = [\"slow\", \"fast\"]",
    );
    let scene = Scene::new(&grid);
    std::fs::write(scene.path("slow"), "7\n").unwrap();
    std::fs::write(scene.path("fast"), "1\n").unwrap();
    ok(scene.sweep("whole", &[]));
    let csv = std::fs::read_to_string(scene.path("whole").join("rows.csv")).unwrap();
    assert!(csv.contains("\nslow,quic,") && csv.contains("\nfast,quic,"), "{csv}");
    for part in ["1/2", "2/2"] {
        ok(scene.sweep(&part.replace('/', "-"), &["--shard", part]));
    }
    // One trace file is removed and the other one is changed. Merging does not need them.
    std::fs::remove_file(scene.path("fast")).unwrap();
    std::fs::write(scene.path("slow"), "9\n").unwrap();
    let [out, one, two] = ["merged", "1-2", "2-2"].map(|name| scene.shown(name));
    ok(sim(&["merge", &out, &one, &two]));
    assert_eq!(scene.files("merged"), scene.files("whole"));
    failed(scene.sweep("whole", &[]), 1, &["grid.toml", "cannot read", "fast"]);
    std::fs::write(scene.path("fast"), "1\n").unwrap();
    failed(scene.sweep("whole", &[]), 1, &["another grid"]);
    ok(scene.sweep("other", &["--shard", "2/2"]));
    failed(
        sim(&["merge", &scene.shown("x"), &one, &scene.shown("other")]),
        1,
        &["not parts of the same"],
    );
}

#[test]
fn sweep_continues_after_a_kill() {
    let scene = Scene::new(GRID);
    ok(scene.sweep("whole", &[]));
    let mut child = Command::new(EQUIC_SIM)
        .args(["sweep", &scene.grid, "--out", &scene.shown("killed"), "--threads", "1"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // Kill the process when it has completed a few runs.
    let runs = scene.path("killed").join("runs.jsonl");
    let lines = |path: &Path| std::fs::read_to_string(path).map_or(0, |text| text.lines().count());
    while lines(&runs) < 3 && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // Add an incomplete line, as if the process had been killed while it wrote the line.
    let whole = std::fs::read(&runs).unwrap();
    let kept = whole.split_inclusive(|byte| *byte == b'\n').take(3).collect::<Vec<_>>().concat();
    std::fs::write(&runs, [&kept[..], b"{\"run\":5,\"rows\":[\"x"].concat()).unwrap();
    let resumed = scene.sweep("killed", &[]);
    assert!(text(&resumed.stderr).contains("3 of 24 runs are already complete"), "{resumed:?}");
    ok(resumed);
    assert_eq!(scene.files("killed"), scene.files("whole"));
    // The command must not continue the sweep in this directory with another grid, or as another
    // part.
    let other = Scene::new(&GRID.replace("60 KB", "61 KB"));
    failed(sim(&["sweep", &other.grid, "--out", &scene.shown("killed")]), 1, &["another grid"]);
    failed(scene.sweep("killed", &["--shard", "1/2"]), 1, &["part 1/1"]);
    std::fs::write(&runs, "nonsense\n").unwrap();
    failed(scene.sweep("killed", &[]), 1, &["runs.jsonl:1"]);
}

#[test]
fn sweep_reports_a_full_disk_and_how_to_continue() {
    let scene = Scene::new(GRID);
    ok(scene.sweep("full", &[]));
    let runs = scene.path("full").join("runs.jsonl");
    std::fs::remove_file(&runs).unwrap();
    // Writing to this file fails, because there is no space left.
    std::os::unix::fs::symlink("/dev/full", &runs).unwrap();
    failed(
        scene.sweep("full", &[]),
        1,
        &["cannot write", "No space left", "repeat the same command to continue"],
    );
}

/// The file system becomes full during a sweep, and has room again later. No run may be lost.
#[test]
fn sweep_continues_when_the_disk_has_room_again() {
    let scene = Scene::new(&GRID.replace("seeds = 6", "seeds = 20"));
    ok(scene.sweep("whole", &[]));
    std::fs::create_dir(scene.path("small")).unwrap();
    // The file system has room for three pages: two for the two files that describe the sweep, and
    // one for the runs.
    let script = r#"
        mount -t tmpfs -o size=12k tmpfs "$2"
        code=0
        "$0" sweep "$1" --out "$2/out" --threads 1 2>"$3" || code=$?
        [ "$code" = 1 ] || exit 9
        wc -c <"$2/out/runs.jsonl" >>"$3"
        mount -o remount,size=16m "$2"
        "$0" sweep "$1" --out "$2/out" 2>>"$3"
        cp -r "$2/out" "$4"
    "#;
    let [small, said, resumed] = ["small", "said", "resumed"].map(|name| scene.shown(name));
    let mut unshare = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    unshare.args(["--mount", "--propagation", "private", "sh", "-eu", "-c", script, EQUIC_SIM]);
    ok(unshare.args([&scene.grid, &small, &said, &resumed]).output().expect("unshare starts"));
    let said = std::fs::read_to_string(said).unwrap();
    for word in [
        "No space left",
        "repeat the same command to continue",
        "\n4096\n",
        "of 80 runs are already complete",
    ] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert_eq!(scene.files("resumed"), scene.files("whole"));
}

#[test]
fn sweep_reports_grid_errors_before_any_run() {
    let scene = Scene::new(&GRID.replace("10 Mb/s\"]", "0 Mb/s\"]"));
    failed(scene.sweep("out", &[]), 1, &["grid.toml:9: network.link.rate", "cell: 0 Mb/s, quic"]);
    assert!(!scene.path("out").exists());
    failed(sim(&["run", &scene.grid]), 1, &["equic-lab sim sweep"]);
}

#[test]
fn compare_pairs_runs_by_seed() {
    let scene = Scene::new(&GRID.replace("seeds = 6", "seeds = 8"));
    ok(scene.sweep("old", &[]));
    let slower = Scene::new(&GRID.replace("seeds = 6", "seeds = 8").replace("10 ms", "40 ms"));
    ok(slower.sweep("new", &[]));
    let (old, new) = (scene.shown("old"), slower.shown("new"));
    assert!(
        ok(sim(&["compare", &old, &old])).contains("0 worse, 0 better, 4 the same, 0 inconclusive")
    );
    failed(sim(&["compare", &old, &new]), 1, &["4 of 4 flows are worse"]);
    assert!(ok(sim(&["compare", &new, &old])).contains("0 worse, 4 better"));
    let json = ok(sim(&["compare", &old, &new, "--json", "--no-fail", "--corrected"]));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["schema"], "equic.sim.compare/1");
    let first = &json["flows"][0];
    assert_eq!((&first["pairs"], &first["verdict"]), (&8.into(), &"worse".into()));
    // All eight runs of a cell are slower, so the p-value is 2 / 2^8. It is multiplied by four, the
    // number of cells.
    let p = first["p"].as_f64().unwrap();
    assert!((0.025..0.04).contains(&p), "{first:#}");
    failed(sim(&["compare", &old, &scene.shown("nothing")]), 1, &["cannot read"]);
}

/// With five seeds, no difference can have p < 0.05, however large it is. The command must report
/// this.
#[test]
fn compare_reports_too_few_seeds() {
    let few = GRID.replace("seeds = 6", "seeds = 5");
    let (scene, slower) = (Scene::new(&few), Scene::new(&few.replace("10 ms", "400 ms")));
    ok(scene.sweep("old", &[]));
    ok(slower.sweep("new", &[]));
    let (old, new) = (scene.shown("old"), slower.shown("new"));
    let output = sim(&["compare", &old, &new]);
    assert!(text(&output.stdout).contains("4 with too few seeds"), "{output:?}");
    failed(output, 3, &["4 of 4 flows have too few seeds", "6 or more seeds"]);
    ok(sim(&["compare", &old, &new, "--no-fail"]));
    let other = sim(&["compare", &old, &new, "--p", "0.1"]);
    assert_eq!(other.status.code(), Some(1), "{other:?}");
    // If both sweeps are the same, the number of seeds does not matter.
    let same = sim(&["compare", &old, &old]);
    assert!(same.status.success() && same.stderr.is_empty(), "{same:?}");
}

/// Results that measure different things must not be compared. The command must list every scenario
/// key that differs.
#[test]
fn compare_lists_differing_keys_and_rejects_other_measures() {
    let grid = GRID.replace("[network]", "limit = \"200 s\"\n[network]");
    let other = |from: &str, to: &str| {
        assert!(grid.contains(from), "{from}");
        let scene = Scene::new(&grid.replace(from, to));
        ok(scene.sweep("out", &[]));
        scene
    };
    let scene = other("", "");
    let run = |new: &Scene, more: &[&str]| {
        sim(&[&["compare", &scene.shown("out"), &new.shown("out")][..], more].concat())
    };
    // All flows completed, so a different `limit` is listed but does not matter.
    let limit = other("200 s", "100 s");
    let shown = ok(run(&limit, &[]));
    let line = shown
        .lines()
        .find(|line| line.trim_start().starts_with("limit"))
        .expect("it is in the table");
    assert_eq!(line.split_whitespace().collect::<Vec<_>>(), ["limit", "200", "s", "100", "s", "4"]);
    assert!(shown.contains("4 the same") && shown.contains("Keys in which the scenarios differ"));
    // With another size, the transfers are different. If a value of the grid's axis `arm` sets a
    // key, a change of that key must be listed only for the cells with that value.
    let size = other("60 KB", "61 KB");
    let output = run(&size, &["--no-fail"]);
    let shown = text(&output.stdout).to_owned();
    assert!(shown.contains("cannot be compared: `size` was 60000 B, is 61000 B"), "{shown}");
    failed(output, 4, &["no flow can be compared"]);
    let mss = other("\"flow.tcp.mss\" = 536", "\"flow.tcp.mss\" = 500");
    let json = sim(&["compare", &scene.shown("out"), &mss.shown("out"), "--json", "--no-fail"]);
    let json: serde_json::Value = serde_json::from_str(&ok(json)).unwrap();
    let expected =
        serde_json::json!([{"key": "flow.1.tcp.mss", "old": ["536"], "new": ["500"], "cells": 2}]);
    assert_eq!(json["differences"], expected);
    // The same scenario, with an additional space in the text.
    let again = other("\"10 ms\"", "\"10 ms\" ");
    let shown = ok(run(&again, &[]));
    assert!(!shown.contains("Keys in which"), "{shown}");
    // The two grids have no cell in common, because the names of their cells differ.
    failed(run(&other("\"2 Mb/s\", \"10 Mb/s\"", "\"3 Mb/s\""), &[]), 4, &["no flow in common"]);
}

/// Goodput until the end of the run depends on the limit. Flows that do not complete can therefore
/// be compared only if both sweeps have the same limit.
#[test]
fn compare_of_incomplete_flows_needs_the_same_limit() {
    let grid =
        GRID.replace("size = \"60 KB\"\n", "").replace("[network]", "limit = \"2 s\"\n[network]");
    let (short, long) = (Scene::new(&grid), Scene::new(&grid.replace("2 s", "3 s")));
    ok(short.sweep("out", &[]));
    ok(long.sweep("out", &[]));
    let output = sim(&["compare", &short.shown("out"), &long.shown("out")]);
    let shown = text(&output.stdout);
    assert!(shown.contains("goodput until `limit`, which was 2.00 s, is 3.00 s"), "{shown}");
    failed(output, 4, &["no flow can be compared"]);
    ok(sim(&["compare", &short.shown("out"), &short.shown("out")]));
}

/// At the end of a complete sweep, the command must print its table and the names of its files. For
/// a part of a sweep, it must not print a table.
#[test]
fn sweep_prints_its_table_and_the_names_of_its_files() {
    let scene = Scene::new(GRID);
    let shown = ok(scene.sweep("out", &[]));
    let line = shown.lines().find(|line| line.contains("tcp, old") && line.contains("10 Mb/s"));
    assert!(line.is_some_and(|line| line.contains("6 of 6") && line.contains(" ms")), "{shown}");
    for file in ["rows.csv", "rows.parquet", "summary.csv"] {
        let path = scene.path("out").join(file).display().to_string();
        assert!(shown.contains(&path), "{path}: {shown}");
    }
    let part = ok(scene.sweep("part", &["--shard", "1/2"]));
    assert!(part.contains("part 1/2") && !part.contains("completion"), "{part}");
    ok(scene.sweep("other", &["--shard", "2/2"]));
    let [out, one, two] = ["merged", "part", "other"].map(|name| scene.shown(name));
    let merged = ok(sim(&["merge", &out, &one, &two]));
    assert!(merged.contains("6 of 6") && merged.contains("summary.csv"), "{merged}");
}

/// Settings that may differ between protocols must be columns of both tables.
#[test]
fn sweep_rows_and_summary_have_the_settings_of_flows() {
    let scene = Scene::new(GRID);
    ok(scene.sweep("out", &[]));
    for file in ["rows.csv", "summary.csv"] {
        let text = std::fs::read_to_string(scene.path("out").join(file)).unwrap();
        let mut lines = text.lines();
        assert!(lines.next().unwrap().contains(",tls,ecn,pacing,acknowledgements,"), "{text}");
        for (arm, settings) in
            [("quic", ",1.3,yes,yes,\"every 2"), ("tcp, old", ",none,yes,no,every 2")]
        {
            let mut own = text.lines().skip(1).filter(|line| line.contains(arm));
            assert!(own.all(|line| line.contains(settings)), "{arm}: {text}");
        }
    }
}

/// If a process writes to the directory of a sweep, a second process must not write to it.
#[test]
fn sweep_refuses_a_directory_that_another_process_writes() {
    let scene = Scene::new(GRID);
    ok(scene.sweep("out", &[]));
    // The test locks the file, as another process would.
    let runs = scene.path("out").join("runs.jsonl");
    let mut holder = Command::new("flock")
        .args(["--exclusive", runs.to_str().unwrap(), "sh", "-c", "echo held; read line"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("flock starts");
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "held\n");
    failed(scene.sweep("out", &[]), 1, &["another process"]);
    drop(holder.stdin.take());
    holder.wait().unwrap();
    ok(scene.sweep("out", &[]));
}
