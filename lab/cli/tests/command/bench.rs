//! Tests of `equic-lab gateway-bench`: every kind of protection must be measured against its own
//! baseline, and nothing may be left behind.

use std::process::Command;

use crate::common::{EQUIC_LAB, finish, root};
use serde_json::Value;

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn gateway_bench_measures_every_arm_under_the_flood() {
    if !root("gateway_bench_measures_every_arm_under_the_flood") {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let mut command = Command::new(EQUIC_LAB);
    command.args(["gateway-bench", "--quick", "--rounds", "1", "--flood", "20000", "--json"]);
    command.arg("--out").arg(out.path());
    let finished = finish(command);
    let runner = finished.pid;
    let report = finished.json();
    assert_eq!(report["schema"], "equic.lab.bench/1");
    let written = std::fs::read_to_string(out.path().join("flood.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), report);

    let cells = report["data"]["cells"].as_array().unwrap();
    let cell = |arm: &str| cells.iter().find(|cell| cell["arm"] == arm).unwrap();
    for arm in ["elsewhere", "gateway", "nftables", "user_space", "nothing"] {
        assert!(number(&cell(arm)["sent_pps"]) > 0.0, "{}", cell(arm));
    }
    assert_eq!(cells.len(), 5);
    // With these kinds of protection, no packet of the flood reaches the server, so every request
    // must succeed.
    for arm in ["elsewhere", "gateway", "nftables"] {
        assert!(number(&cell(arm)["requests_per_s"]) > 0.0, "{}", cell(arm));
        assert_eq!(cell(arm)["failures"], 0, "{}", cell(arm));
    }
    for arm in ["gateway", "nftables"] {
        assert!(number(&cell(arm)["dropped"]) > 0.0, "{}", cell(arm));
    }
    assert!(cell("elsewhere")["dropped"].is_null() && cell("nothing")["dropped"].is_null());

    let rows = report["data"]["rows"].as_array().unwrap();
    let row = |arm: &str| rows.iter().find(|row| row["arm"] == arm).unwrap();
    assert!(row("elsewhere")["throughput"].is_null(), "the baseline is not compared with itself");
    let share =
        number(&cell("gateway")["requests_per_s"]) / number(&cell("elsewhere")["requests_per_s"]);
    let told = number(&row("gateway")["throughput"]["median"]);
    assert!((told - share).abs() < 1e-9, "{told} is not {share}");

    let ours = |lab: &equic_netns::LabRecord| lab.pid == runner;
    assert!(!equic_netns::Lab::list().unwrap().iter().any(ours), "a lab is left behind");
}

#[test]
fn gateway_bench_refuses_wrong_figures_at_once() {
    for args in [&["--flood", "1"][..], &["--rounds", "0"], &["--json", "--markdown"]] {
        let mut command = Command::new(EQUIC_LAB);
        command.args(["gateway-bench"]).args(args);
        let out = finish(command);
        assert_eq!(out.code, Some(2), "{out:?}");
        assert!(out.stderr.contains(args[0]), "{out:?}");
    }
}
