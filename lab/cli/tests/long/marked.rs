//! Marks all processes of a run, so that a test can find them and check that none is left.

use std::path::Path;
use std::process::{Child, Command};

use equic_netns::Lab;
use serde_json::Value;

use crate::common::{EQUIC_LAB, eventually};

/// Environment variable that marks every process of a run. Children inherit it.
pub(crate) const MARK: &str = "EQUIC_TEST_RUN";

/// Returns a command with this mark. Every run must have its own mark.
pub(crate) fn marked(mark: &str) -> Command {
    let mut command = Command::new(EQUIC_LAB);
    command.env(MARK, mark);
    command
}

/// Returns the process ID and command line of all processes with this mark.
pub(crate) fn processes(mark: &str) -> Vec<(i32, String)> {
    let wanted = format!("{MARK}={mark}");
    let all = std::fs::read_dir("/proc").unwrap();
    let pids = all.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| {
        // If the process has ended in the meantime, these files no longer exist.
        let read = |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).ok();
        let environment = read("environ")?;
        let marked = environment.split(|byte| *byte == 0).any(|one| one == wanted.as_bytes());
        let line = String::from_utf8_lossy(&read("cmdline")?).replace('\0', " ");
        marked.then_some((pid, line))
    })
    .collect()
}

/// Waits until a run has created its lab, and returns the lab's ID.
pub(crate) fn lab_of(run: &Child) -> String {
    let own = || Lab::list().unwrap().into_iter().find(|lab| lab.pid == run.id());
    eventually("its lab", || own().map(|lab| lab.id))
}

/// Waits until no process with this mark exists.
pub(crate) fn assert_ended(mark: &str) {
    // A process that was killed may need a moment to end.
    eventually("every process has ended", || processes(mark).is_empty().then_some(()));
}

/// Checks that neither a process with this mark nor a part of its lab exists.
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

/// Returns a value of a report as a number. Panics if it is not a number.
pub(crate) fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Returns the number of requests, and checks that it is the sum of their outcomes.
pub(crate) fn requests(outcomes: &Value) -> f64 {
    let kinds = ["ok", "refused", "timeouts", "errors"];
    let sum: f64 = kinds.iter().map(|kind| number(&outcomes[kind])).sum();
    assert_eq!(sum, number(&outcomes["requests"]), "{outcomes}");
    sum
}
