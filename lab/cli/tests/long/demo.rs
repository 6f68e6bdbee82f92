//! Runs the whole demo. It must write its files, and leave nothing behind, however it ends.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::common::{EQUIC_LAB, PATIENCE, eventually, finish, finish_within, root, unique};
use crate::marked::{assert_nothing_left, lab_of, marked, number, processes, requests};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

fn demo(mark: &str, out: &Path) -> Command {
    let mut command = marked(mark);
    command.args(["demo", "--quick", "--json", "--out"]).arg(out);
    command
}

fn dropped(arm: &Value, place: &str) -> f64 {
    let drops = arm["drops"].as_array().unwrap();
    drops.iter().filter(|row| row["place"] == place).map(|row| number(&row["count"])).sum()
}

#[test]
fn demo_shows_what_it_should_and_leaves_nothing() {
    if !root("demo_shows_what_it_should_and_leaves_nothing") {
        return;
    }
    let _alone = crate::alone();
    let (mark, out) = (unique("demo-whole"), tempfile::tempdir().unwrap());
    let report = finish_within(demo(&mark, out.path()), 10 * PATIENCE).json();
    assert_eq!(report["schema"], "equic.demo/1");
    let written = std::fs::read_to_string(out.path().join("demo.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), report);
    for plot in ["demo", "newcomers"] {
        let file = |kind: &str| std::fs::read(out.path().join(format!("{plot}.{kind}"))).unwrap();
        assert!(String::from_utf8(file("svg")).unwrap().contains("<svg"));
    }

    let data = &report["data"];
    let arms = data["arms"].as_array().unwrap();
    let names: Vec<&str> = arms.iter().map(|arm| arm["arm"].as_str().unwrap()).collect();
    assert_eq!(names, ["alone", "unprotected", "user_space", "gateway"]);
    let plan = &data["plan"];
    for arm in arms {
        requests(&arm["legitimate"]);
    }
    for arm in [&arms[0], &arms[3]] {
        assert!(number(&arm["legitimate"]["requests_per_s"]) > 0.0, "{arm}");
        assert!(number(&arm["legitimate"]["ok"]) > 0.0, "{arm}");
    }
    assert!(arms[0]["attack"].is_null() && arms[0]["gateway"].is_null());
    for arm in &arms[..3] {
        assert_eq!(dropped(arm, "kernel"), 0.0, "{arm}");
    }
    assert!(dropped(&arms[2], "server") > 0.0, "{}", arms[2]);
    assert!(dropped(&arms[3], "kernel") > 0.0, "{}", arms[3]);
    let attack = &arms[3]["attack"];
    let quota = number(&plan["max_connections"]) * number(&plan["attackers"]);
    let peak = number(&attack["peak_connections"]);
    assert!(peak > 0.0 && peak <= quota, "{peak} connections, quota {quota}");
    let conclusion = data["conclusion"].as_str().unwrap();
    assert!(conclusion.ends_with('.') && conclusion.contains("requests/s"), "{conclusion}");
    forged(data);
    assert_nothing_left(&mark, arms[3]["gateway"]["name"].as_str().unwrap());
}

/// Checks the results of the attack with forged sources. Only checks counts, because these are
/// reliable on a busy machine, too.
fn forged(data: &Value) {
    let (plan, arms) = (&data["plan"], data["forged"]["arms"].as_array().unwrap());
    let names: Vec<&str> = arms.iter().map(|arm| arm["arm"].as_str().unwrap()).collect();
    assert_eq!(names, ["calm", "forged_unprotected", "forged_server_retry", "forged_gateway"]);
    let conclusion = data["forged"]["conclusion"].as_str().unwrap();
    for arm in arms {
        requests(&arm["legitimate"]);
        let newcomers = &arm["newcomers"];
        let of = |name: &str| number(&newcomers[name]);
        // Every planned newcomer must have tried to connect, and have a recorded result.
        assert_eq!(of("tried"), number(&plan["newcomers"]), "{arm}");
        let ends = ["got_in", "refused", "timeouts", "errors"].map(of);
        assert_eq!(ends.iter().sum::<f64>(), of("tried"), "{newcomers}");
        for connect in ["connect_median_ms", "connect_p99_ms"] {
            assert_eq!(newcomers[connect].is_number(), of("got_in") > 0.0, "{newcomers}");
        }
        let forged = &arm["attack"]["flood_sent"];
        assert_eq!(forged.is_null(), names[0] == arm["arm"].as_str().unwrap(), "{arm}");
        assert!(forged.is_null() || number(forged) > 0.0, "{arm}");
        let counted = format!("{} of {}", of("got_in"), of("tried"));
        assert!(forged.is_null() || conclusion.contains(&counted), "{counted}: {conclusion}");
    }
    let retries = |at: usize, by: &str| number(&arms[at]["retries"][by]);
    for (at, arm) in arms.iter().enumerate() {
        assert_eq!(retries(at, "gateway") > 0.0, at == 3, "{arm}");
        assert_eq!(arm["gateway"].is_null(), at != 3, "{arm}");
        assert!(at == 2 || retries(at, "server") == 0.0, "{arm}");
    }
    // The server sends Retry packets while 100 or more handshakes are in progress. So an attempt
    // without a Retry must be one that became a connection, or one of these 100.
    let server = &arms[2]["server"]["stats"];
    let [attempts, opened] = ["attempts", "opened"].map(|name| number(&server[name]));
    assert!(retries(2, "server") > 0.0 || attempts <= opened + 200.0, "{server}");

    // The gateway already required address validation when newcomers connected, so those that got
    // in must have validated their addresses.
    let got_in = |at: usize| number(&arms[at]["newcomers"]["got_in"]);
    assert!(got_in(0) > 0.0 && got_in(3) > 0.0, "{conclusion}");
    assert!(retries(3, "gateway_proved") >= got_in(3), "{}", arms[3]);
    let adaptive = &arms[3]["gateway"]["services"][0]["adaptive"];
    assert!(number(&adaptive["began"]) >= 1.0, "{adaptive}");
}

/// Starts a demo. Returns its process and the ID of its lab.
fn begun(mark: &str, out: &Path) -> (Child, String) {
    let mut command = demo(mark, out);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let lab = lab_of(&child);
    (child, lab)
}

/// Waits until the demo runs a process whose command line contains `words`.
fn part(mark: &str, words: &str) -> Pid {
    let found = eventually(words, || {
        processes(mark).into_iter().find(|(_, line)| line.contains(words)).map(|(pid, _)| pid)
    });
    Pid::from_raw(found)
}

#[test]
fn demo_that_is_interrupted_leaves_nothing() {
    if !root("demo_that_is_interrupted_leaves_nothing") {
        return;
    }
    let _alone = crate::alone();
    // Interrupt the first demo in its first part. Interrupt the second one during the flood with
    // forged sources, after it has passed through the parts before.
    let first = [" net load well "];
    let between = [" net load parallel ", " --user-limit ", " --max-connections ", " --count "];
    let late = [&first[..], &between, &[" --spoof "]].concat();
    for steps in [&first[..], &late] {
        let (mark, out) = (unique("demo-interrupted"), tempfile::tempdir().unwrap());
        let (child, lab) = begun(&mark, out.path());
        for words in steps {
            part(&mark, words);
        }
        kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.signal(), Some(Signal::SIGINT as i32), "{output:?}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.is_empty(), "{stderr}");
        assert_nothing_left(&mark, &lab);
    }
}

#[test]
fn demo_names_a_part_that_dies() {
    if !root("demo_names_a_part_that_dies") {
        return;
    }
    let _alone = crate::alone();
    let (mark, out) = (unique("demo-dead"), tempfile::tempdir().unwrap());
    let (child, lab) = begun(&mark, out.path());
    part(&mark, " net load well ");
    kill(part(&mark, " serve "), Signal::SIGKILL).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    let expected = "equic-lab: the server ended unexpectedly (signal: 9 (SIGKILL)); the process printed no errors";
    assert!(stderr.contains(expected), "{stderr}");
    assert_nothing_left(&mark, &lab);
}

#[test]
fn demo_refuses_wrong_figures_at_once() {
    for args in [&["--flood", "1"][..], &["--seconds", "2"], &["--connections", "0"]] {
        let mut command = Command::new(EQUIC_LAB);
        command.arg("demo").args(args);
        let out = finish(command);
        assert_eq!(out.code, Some(2), "{out:?}");
        assert!(out.stderr.contains(args[0]), "{out:?}");
    }
}
