//! Runs `equic-lab reproduce highway` with the smallest possible size. Checks its files, that it
//! can be resumed, and that nothing is left behind.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{EQUIC_LAB, PATIENCE, ROOT, eventually, finish, finish_within, root, unique};
use crate::marked;
use equic_report::plot::PNG;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

const PARTS: [&str; 4] = ["buffers", "offload", "gso", "aes"];

/// Returns the command `equic-lab reproduce highway` with these arguments.
fn highway(out: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(EQUIC_LAB);
    command.args(["reproduce", "highway", "--out"]).arg(out).args(args).current_dir(ROOT);
    command
}

const SMALL: [&str; 6] = ["--impl", "equic", "--bytes", "200k", "--runs", "2"];
const CALM: [&str; 5] = ["--", "--max-foreign", "100", "--max-steal", "100"];

#[test]
fn highway_measures_draws_and_reports_all_parts() {
    if !root("highway_measures_draws_and_reports_all_parts") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let readme = folder.path().join("README.md");
    std::fs::write(&readme, "kept\n<!-- results: begin -->\n<!-- results: end -->\n").unwrap();
    let into = ["--json", "--readme", readme.to_str().unwrap()];
    let command = highway(&out, &[&SMALL[..], &into, &CALM].concat());
    let report = finish_within(command, 10 * PATIENCE).json();
    assert_eq!(report["schema"], "equic.reproduce.highway/1");
    let parts = report["data"]["parts"].as_array().unwrap();
    let names: Vec<&str> = parts.iter().map(|part| part["part"].as_str().unwrap()).collect();
    assert_eq!(names, PARTS);
    for (part, cells) in parts.iter().zip([7, 2, 2, 2]) {
        let rows = part["rows"].as_array().unwrap();
        assert_eq!(rows.len(), cells, "{part:#}");
        for row in rows {
            assert_eq!(row["points"].as_array().unwrap().len(), 2, "{row:#}");
            assert!(row["value"]["median"].as_f64().unwrap() > 0.0);
        }
    }
    // The programs must inherit the environment of the experiment.
    let manifest = std::fs::read_to_string(out.join("runs/aes/manifest.json")).unwrap();
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    assert_eq!(manifest["crypto"], equic_quic::AWS_LC_PROVIDER_LIBRARIES);
    assert_eq!(manifest["glibc_tunables"], report["data"]["settings"]["tunables"]);
    let text = std::fs::read_to_string(&readme).unwrap();
    for words in ["kept\n", "sixteen times the buffer", "lsquic (paper)", "--sweep aes=on,off"] {
        assert!(text.contains(words), "{words} is missing in {text}");
    }

    // Evaluating the stored result must give the same output.
    let again = folder.path().join("again");
    let stored = out.join("result.json");
    let markdown =
        finish(highway(&again, &["--markdown", "--plot-only", stored.to_str().unwrap()])).ok();
    assert!(text.contains(markdown.trim_end()), "{text}\n{markdown}");
    for plot in PARTS.iter().chain(&["spread"]) {
        let read = |folder: &Path, kind: &str| std::fs::read(folder.join(format!("{plot}.{kind}")));
        let png = read(&out, "png");
        assert_eq!(png.is_ok_and(|png| png.starts_with(b"\x89PNG")), PNG, "{plot}");
        assert_eq!(read(&out, "svg").unwrap(), read(&again, "svg").unwrap(), "{plot}");
    }
    // A second experiment in the same directory would mix its files with those of the first one, so
    // it must be refused.
    let second = finish_within(highway(&out, &SMALL), 10 * PATIENCE);
    assert_eq!(second.code, Some(1));
    assert!(second.stderr.contains("--resume"), "{}", second.stderr);
}

#[test]
fn highway_resumes_an_interrupted_run() {
    if !root("highway_resumes_an_interrupted_run") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let mut command = highway(&out, &[&SMALL[..], &CALM].concat());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mark = unique("highway-interrupted");
    command.env(marked::MARK, &mark);
    let child = command.spawn().unwrap();
    let samples = out.join("runs/buffers/samples.jsonl");
    let lines = || std::fs::read_to_string(&samples).unwrap_or_default().lines().count();
    eventually("samples", || (lines() >= 3).then_some(()));
    let ours = || {
        let pids: Vec<i32> = marked::processes(&mark).into_iter().map(|(pid, _)| pid).collect();
        let labs = equic_netns::Lab::list().unwrap().into_iter();
        labs.filter(move |lab| pids.contains(&lab.pid.cast_signed())).map(|lab| lab.id)
    };
    let before: Vec<String> = ours().collect();
    // Signal only this process, as kill(1) does. Ctrl-C would also signal the child process that it
    // waits for.
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!ended.status.success() && said.contains("--resume"), "{said}");
    assert!(!out.join("result.json").exists());
    marked::assert_ended(&mark);
    let labs = equic_netns::Lab::list().unwrap();
    assert!(!labs.iter().any(|lab| before.contains(&lab.id)), "{before:?} of {labs:?}");

    let before = std::fs::read_to_string(&samples).unwrap();
    let report = finish_within(highway(&out, &["--resume", "--json"]), 10 * PATIENCE).json();
    let parts = report["data"]["parts"].as_array().unwrap();
    assert_eq!(parts.len(), PARTS.len());
    assert_eq!(parts[0]["rows"][0]["points"].as_array().unwrap().len(), 2);
    assert!(std::fs::read_to_string(&samples).unwrap().starts_with(&before));
}

#[test]
fn highway_refuses_wrong_arguments_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path();
    let code = |args: &[&str]| finish(highway(out, args)).code;
    assert_eq!(code(&["--plot-only", "x.json", "--runs", "3"]), Some(2));
    assert_eq!(code(&["--runs", "1"]), Some(2));
    assert_eq!(code(&["--bytes", "much"]), Some(2));
    let missing = finish(highway(out, &["--plot-only", "no.json"]));
    assert!(missing.code == Some(1) && missing.stderr.contains("no.json"), "{missing:?}");
    if root("highway_refuses_wrong_arguments_at_once") {
        let nobody = finish(highway(out, &["--impl", "nobody"]));
        assert!(nobody.code == Some(1) && nobody.stderr.contains("quinn-aws-lc"), "{nobody:?}");
        let nothing = finish(highway(out, &["--resume"]));
        assert!(nothing.code == Some(1) && nothing.stderr.contains("omit --resume"));
    }
}
