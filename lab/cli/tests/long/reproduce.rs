//! Runs the whole experiment of the eQUIC paper with the smallest possible size. It must write its
//! files, and leave nothing behind, however it ends.

use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{EQUIC_LAB, PATIENCE, eventually, finish, finish_within, root, unique};
use crate::marked::{
    assert_ended, assert_nothing_left, lab_of, marked, number, processes, requests,
};
use equic_report::plot::PNG;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

const ARMS: [&str; 5] = ["none", "user_late", "user_early", "kernel_strict", "kernel_new"];
const PLOTS: [&str; 6] = [
    "figure3-throughput",
    "figure4-throughput",
    "figure4-decision",
    "figure5-duration",
    "figure6-cpu",
    "figure6-memory",
];

fn reproduce(mark: &str, out: &Path, more: &[&str]) -> Command {
    let mut command = marked(mark);
    command.args(["reproduce", "gateway", "--json", "--out"]).arg(out).args(more);
    command
}

/// Checks the results of a run. `each` is the number of requests of a sequential client. An
/// attacker makes `attack` times as many.
fn check_run(run: &Value, each: f64, attack: f64) {
    let arm = run["arm"].as_str().unwrap();
    let [legitimate, attackers] = [&run["legitimate"]["outcomes"], &run["attackers"]];
    assert_eq!(requests(legitimate), 4.0 * each, "{run}");
    assert_eq!(requests(attackers), 4.0 * each * attack, "{run}");
    assert!(number(&legitimate["ok"]) > 0.0, "{run}");
    let calls: f64 =
        run["syscalls"].as_object().unwrap().values().map(|row| number(&row["calls"])).sum();
    // Every answer takes several packets, so there must be more system calls than answers.
    assert!(calls > number(&legitimate["ok"]), "{arm}: {calls} system calls");
    assert!(run["syscalls"]["sendmsg"]["calls"].is_u64(), "{}", run["syscalls"]);
    let memory: Vec<f64> = run["server"]["pss_mb"].as_array().unwrap().iter().map(number).collect();
    assert!(memory.iter().all(|mb| *mb > 1.0), "{memory:?}");
    assert!(number(&run["server"]["cpu_s"]) > 0.0);
    let stats = &run["server"]["stats"];
    assert_eq!(run["gateway"].is_object(), arm.starts_with("kernel"), "{run}");
    match arm {
        "user_late" => assert!(number(&stats["refused_late"]) > 0.0, "{stats}"),
        "user_early" => assert!(number(&stats["ignored"]) > 0.0, "{stats}"),
        _ => {}
    }
    if let Some(block) = run["block"].as_object() {
        assert!(arm != "none" && number(&block["attempts"]) > 0.0, "{run}");
        assert_eq!(block["kernel_ns"].is_number(), arm.starts_with("kernel"), "{run}");
    }
}

#[test]
fn experiment_measures_every_arm_and_leaves_nothing() {
    if !root("experiment_measures_every_arm_and_leaves_nothing") {
        return;
    }
    let _alone = crate::alone();
    let (mark, out) = (unique("experiment-whole"), tempfile::tempdir().unwrap());
    let readme = out.path().join("README.md");
    std::fs::write(&readme, "kept\n<!-- results: begin -->\n<!-- results: end -->\n").unwrap();
    let mut command = reproduce(
        &mark,
        out.path(),
        &["--runs", "1", "--requests", "40", "--most-attack", "2", "--seed", "7", "--readme"],
    );
    command.arg(&readme);
    // A run takes some seconds, but far longer on a busy machine.
    let report = finish_within(command, 10 * PATIENCE).json();
    assert_eq!(report["schema"], "equic.reproduce.gateway/1");
    let stored = out.path().join("result.json");
    let written = std::fs::read_to_string(&stored).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), report);

    let data = &report["data"];
    assert_eq!((&data["plan"]["seed"], &data["plan"]["runs_per_arm"]), (&7.into(), &1.into()));
    let attack = check_search(&data["plan"]);
    let runs = data["runs"].as_array().unwrap();
    let mut arms: Vec<&str> = runs.iter().map(|run| run["arm"].as_str().unwrap()).collect();
    for run in runs {
        check_run(run, 40.0, attack);
    }
    assert!(runs.iter().any(|run| run["block"].is_object()), "no block was measured");
    arms.sort_unstable();
    let mut expected = ARMS;
    expected.sort_unstable();
    assert_eq!(arms, expected);
    let decided: Vec<&Value> =
        data["decisions"].as_array().unwrap().iter().map(|decision| &decision["arm"]).collect();
    assert_eq!(decided, ARMS[1..].iter().collect::<Vec<_>>());
    check_files(out.path(), &readme, attack as usize);

    // Evaluating the stored result must give the same output.
    let again = tempfile::tempdir().unwrap();
    let mut command = Command::new(EQUIC_LAB);
    command.args(["reproduce", "gateway", "--markdown", "--plot-only"]).arg(&stored);
    command.arg("--out").arg(again.path());
    let markdown = finish(command).stdout;
    let text = std::fs::read_to_string(&readme).unwrap();
    assert!(text.starts_with("kept\n") && text.contains(markdown.trim_end()), "{text}\n{markdown}");
    for plot in PLOTS {
        let svg = |folder: &Path| std::fs::read(folder.join(format!("{plot}.svg"))).unwrap();
        assert!(svg(out.path()) == svg(again.path()), "{plot} is drawn differently");
    }
    assert_ended(&mark);
}

/// Checks the search for the strength of the attack, and returns the chosen one: the first that
/// halves the throughput, or else the strongest.
fn check_search(plan: &Value) -> f64 {
    let steps = plan["search"].as_array().unwrap();
    let lost = |step: &Value| {
        let trials = step["trials"].as_array().unwrap();
        assert_eq!(trials.len(), 1, "{step}");
        let [before, attacked] =
            ["before_per_s", "attacked_per_s"].map(|name| number(&trials[0][name]));
        before > 0.0 && attacked <= before / 2.0
    };
    let attacks: Vec<f64> = steps.iter().map(|step| number(&step["attack"])).collect();
    assert_eq!(attacks, if lost(&steps[0]) { vec![1.0] } else { vec![1.0, 2.0] });
    assert_eq!(number(&plan["attack"]), attacks[attacks.len() - 1]);
    assert!(number(&plan["mean_window_s"]) >= number(&plan["window_s"]), "{plan}");
    attacks[attacks.len() - 1]
}

fn check_files(out: &Path, readme: &Path, attack: usize) {
    for plot in PLOTS {
        let file = |kind: &str| std::fs::read(out.join(format!("{plot}.{kind}")));
        assert!(file("svg").unwrap().starts_with(b"<svg"), "{plot}");
        assert_eq!(file("png").is_ok_and(|png| png.starts_with(b"\x89PNG")), PNG, "{plot}");
    }
    let text = std::fs::read_to_string(readme).unwrap();
    for claim in ["+30.9 %", "-65 %", "-26.4 %", "77,551", "562 to 26", "2.94 s"] {
        assert!(text.contains(claim), "{claim} is missing in {text}");
    }
    assert!(
        text.contains(&format!("The attack is {attack} times as strong as the paper's")),
        "{text}"
    );
    // One file for each run. In each run, four clients make 40 requests each, and four others make
    // `attack` times as many.
    let files: Vec<_> = std::fs::read_dir(out.join("raw")).unwrap().collect();
    assert_eq!(files.len(), ARMS.len());
    for file in files {
        let file = std::fs::File::open(file.unwrap().path()).unwrap();
        let mut text = String::new();
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
        assert_eq!(text.lines().count(), 4 * 40 * (1 + attack));
        for line in text.lines() {
            let sample: Value = serde_json::from_str(line).unwrap();
            assert!(sample["outcome"].is_string() && sample["duration_ms"].is_number(), "{line}");
        }
    }
}

#[test]
fn experiment_that_is_interrupted_leaves_nothing() {
    if !root("experiment_that_is_interrupted_leaves_nothing") {
        return;
    }
    let _alone = crate::alone();
    let (mark, out) = (unique("experiment-interrupted"), tempfile::tempdir().unwrap());
    let mut command = reproduce(&mark, out.path(), &["--quick"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let lab = lab_of(&child);
    // Wait for three processes: the experiment, the server and at least one client.
    eventually("its parts", || (processes(&mark).len() >= 3).then_some(()));
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    assert!(!out.path().join("result.json").exists());
    assert_nothing_left(&mark, &lab);
}

#[test]
fn experiment_refuses_wrong_arguments_at_once() {
    let mut both = Command::new(EQUIC_LAB);
    both.args(["reproduce", "gateway", "--plot-only", "x.json", "--runs", "3"]);
    assert_eq!(finish(both).code, Some(2));
    let folder = tempfile::tempdir().unwrap();
    let stored = folder.path().join("other.json");
    std::fs::write(&stored, r#"{"schema":"equic.demo/1"}"#).unwrap();
    for (file, word) in
        [(stored.clone(), "equic.demo/1"), (folder.path().join("no.json"), "no.json")]
    {
        let mut command = Command::new(EQUIC_LAB);
        command
            .args(["reproduce", "gateway", "--out"])
            .arg(folder.path())
            .arg("--plot-only")
            .arg(file);
        let out = finish(command);
        assert_eq!(out.code, Some(1), "{out:?}");
        assert!(out.stderr.contains(word), "{out:?}");
    }
}
