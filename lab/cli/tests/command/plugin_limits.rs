//! Tests the goals and counts that `equic-lab plugin-bench --limits` prints, but not the times,
//! which depend on the machine.

use serde_json::Value;

use crate::common::equic_lab;

const GOALS: [(&str, &str, f64, &str); 5] = [
    ("bundle", "CPU time to load a bundle", 20.0, "ms"),
    ("memory", "memory of a connection's plugins", 2.0, "MB"),
    ("idle", "CPU time of an idle connection", 5.0, "%"),
    ("address", "CPU time of an address's idle connections", 25.0, "%"),
    ("packet", "CPU time added to a packet", 3.0, "µs"),
];

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("{key} of {value}"))
}

/// Returns the maximum number of steps in a quick measurement if the account gets `per_second`
/// steps per second. The account starts with the steps of a quarter of a second, and the
/// measurement takes 200 ms.
fn most(per_second: u64) -> f64 {
    (per_second / 4 + per_second / 5) as f64
}

#[test]
fn plugin_limits_are_measured_for_each_goal() {
    let text = equic_lab(&["plugin-bench", "--limits", "--quick", "--json"]).ok();
    let data: Value = serde_json::from_str(&text).unwrap();
    let data = data.get("data").unwrap_or(&data);
    let limits = equic_plugin::Limits::default();
    let goals = data["goals"].as_array().unwrap();
    assert_eq!(goals.len(), GOALS.len());
    assert_eq!(data["quick"], true);
    for (goal, (name, what, most, unit)) in goals.iter().zip(GOALS) {
        assert_eq!(
            (&goal["name"], &goal["what"], &goal["unit"]),
            (&name.into(), &what.into(), &unit.into())
        );
        assert_eq!(number(goal, "goal"), most);
        let (measured, inputs) = (number(goal, "measured"), goal["inputs"].as_array().unwrap());
        let worst = inputs.iter().map(|input| number(input, "measured")).fold(f64::MIN, f64::max);
        assert_eq!(measured, worst, "{name}");
        assert_eq!(goal["met"], measured <= most, "{name}");
    }
    let of = |at: usize| goals[at]["inputs"].as_array().unwrap();
    for input in of(1) {
        let bytes = number(input, "bytes");
        assert!(bytes > 0.0 && bytes <= 2.0 * limits.total_memory as f64, "{input}");
    }
    for (at, rate) in [(2, limits.steps_per_second), (3, limits.address_steps_per_second)] {
        // Packets add steps to the account, but these connections have few packets.
        let most = most(rate) + (1_000 * limits.steps_per_packet) as f64;
        for input in of(at) {
            let steps = number(input, "steps");
            assert!(steps > 0.0 && steps <= most, "{input}: more than {most}");
        }
    }
    let off = of(3).iter().filter(|input| number(input, "refused") > 0.0);
    assert!(off.count() > 0, "no plugin was refused steps");
}

#[test]
fn plugin_limits_are_shown_as_a_table() {
    let table = equic_lab(&["plugin-bench", "--limits", "--quick"]).ok();
    for (_, what, goal, unit) in GOALS {
        let row = table.lines().find(|line| line.contains(what));
        let row = row.unwrap_or_else(|| panic!("{what}: {table}"));
        assert!(row.contains(&format!("{goal:.2} {unit}")), "{row}");
        assert!(row.contains(" yes ") || row.contains(" NO "), "{row}");
    }
}
