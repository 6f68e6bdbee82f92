//! Tests of `equic-lab plugin-demo` and `plugin-bench`: benefits and costs of the source tree's
//! plugins, and hostile plugins.

use std::process::Command;
use std::time::Duration;

use crate::common::{EQUIC_LAB, equic_lab, finish_within};
use serde_json::Value;

/// Runs the whole demo in its short form. Every plugin must help, every attack must fail, and all
/// data must be intact.
#[test]
fn plugin_demo_shows_that_plugins_help_and_attacks_fail() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("demo");
    let run = ["plugin-demo", "--quick", "--json", "--out", out.to_str().unwrap()];
    let mut command = Command::new(EQUIC_LAB);
    command.args(run);
    // The demo takes seconds, but far longer on a busy machine.
    let shown = finish_within(command, Duration::from_secs(900)).json();
    assert_eq!(shown["schema"], "equic.plugin.demo/1");
    let data = &shown["data"];
    assert_eq!(data["passed"], true, "{data}");
    for name in ["tail-loss-probe", "ack-delay", "cubic", "ecn", "rate", "ack-frequency"] {
        let trials = data["trials"].as_array().unwrap();
        let trial = trials.iter().find(|one| one["plugin"] == name).expect(name);
        assert_eq!(trial["intact"], true, "{name}");
        assert!(trial["with"].as_f64() < trial["without"].as_f64(), "{name}");
    }
    for fate in ["refused", "taken off", "contained"] {
        let attacks = data["attacks"].as_array().unwrap();
        assert!(attacks.iter().any(|one| one["fate"] == fate), "{fate}");
    }
    let stored = std::fs::read_to_string(out.join("plugins.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&stored).unwrap()["data"], *data);
    for plot in ["plugins.svg", "tail-loss-probe.svg"] {
        assert!(std::fs::read_to_string(out.join(plot)).unwrap().contains("</svg>"), "{plot}");
    }
}

/// Goodput and CPU time with and without a plugin must be reported as ratios with intervals.
#[test]
fn plugin_bench_reports_the_cost_of_a_plugin() {
    let cost = ["plugin-bench", "--rounds", "6", "--bytes", "500000", "--only", "fec-xor"];
    let shown = equic_lab(&[&cost[..], &["--json"]].concat()).json();
    let rows = shown["plugins"].as_array().unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0]["name"], "fec-xor");
    for measure in ["goodput", "cpu"] {
        let ratio = &rows[0][measure];
        let number =
            |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{measure}: {rows:?}"));
        let (low, high) = (number(&ratio["interval"]["low"]), number(&ratio["interval"]["high"]));
        let value = number(&ratio["value"]);
        assert!(0.0 < low && low <= value && value <= high, "{measure}: {ratio}");
    }
    // Repair frames take a part of the bottleneck's rate. In virtual time, this part is the same on
    // every machine.
    let goodput = rows[0]["goodput"]["value"].as_f64().unwrap();
    assert!((0.75..0.99).contains(&goodput), "{goodput}");
    let table = equic_lab(&cost).ok();
    assert!(table.contains("goodput") && table.contains("CPU time"), "{table}");
    let unknown = equic_lab(&["plugin-bench", "--only", "nothing"]);
    assert!(unknown.code == Some(2) && unknown.stderr.contains("fec-rlc"), "{unknown:?}");
}
