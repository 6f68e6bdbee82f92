//! Runs of a command that are marked, so that all their processes can be found: nothing of one may stay.

use std::path::Path;
use std::process::{Child, Command};

use equic_lab::Lab;
use serde_json::Value;

use crate::common::{EQUIC_LAB, eventually};

/// Marks every process of one run: parts inherit it.
pub(crate) const MARK: &str = "EQUIC_TEST_RUN";

/// An `equic` with this mark. No other run may have it.
pub(crate) fn marked(mark: &str) -> Command {
    let mut command = Command::new(EQUIC_LAB);
    command.env(MARK, mark);
    command
}

/// Processes with this mark: id and command line.
pub(crate) fn processes(mark: &str) -> Vec<(i32, String)> {
    let wanted = format!("{MARK}={mark}");
    let all = std::fs::read_dir("/proc").unwrap();
    let pids = all.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| {
        // Whoever has ended meanwhile has no files.
        let read = |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).ok();
        let environment = read("environ")?;
        let marked = environment.split(|byte| *byte == 0).any(|one| one == wanted.as_bytes());
        let line = String::from_utf8_lossy(&read("cmdline")?).replace('\0', " ");
        marked.then_some((pid, line))
    })
    .collect()
}

/// Waits for the lab of a run, and says its id.
pub(crate) fn lab_of(run: &Child) -> String {
    let own = || Lab::list().unwrap().into_iter().find(|lab| lab.pid == run.id());
    eventually("its lab", || own().map(|lab| lab.id))
}

/// Waits until no process with this mark is there.
pub(crate) fn assert_ended(mark: &str) {
    // A part that was killed may still be on its way out.
    eventually("every process has ended", || processes(mark).is_empty().then_some(()));
}

/// The same, and neither is anything of its lab.
pub(crate) fn assert_nothing_left(mark: &str, lab: &str) {
    assert_ended(mark);
    let prefix = format!("eqlab-{lab}-");
    let names = std::fs::read_dir("/run/netns").map_or_else(
        |_| Vec::new(),
        |all| all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect(),
    );
    assert!(!names.iter().any(|name| name.starts_with(&prefix)), "{names:?}");
    assert!(!Path::new(&format!("/run/equic-lab/{lab}.json")).exists());
    let gateways = equic_gateway::Control::survey().unwrap().gateways;
    assert!(!gateways.iter().any(|gateway| gateway.name == lab), "{gateways:?}");
}

/// A figure of a report.
pub(crate) fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// The number of requests, which has to be that of their outcomes.
pub(crate) fn requests(outcomes: &Value) -> f64 {
    let kinds = ["ok", "refused", "timeouts", "errors"];
    let sum: f64 = kinds.iter().map(|kind| number(&outcomes[kind])).sum();
    assert_eq!(sum, number(&outcomes["requests"]), "{outcomes}");
    sum
}
