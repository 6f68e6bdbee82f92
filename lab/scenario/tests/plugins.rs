//! Tests of plugins that flows load, in virtual time. Compiles the plugins with clang. Needs the
//! feature `plugins`.

use std::path::Path;

use equic_plugin_kit::compile_text;
use equic_plugin_kit::tree::Source;
use equic_scenario::play::{Part, play};
use equic_scenario::{Grid, Scenario, ScenarioError};

/// A transfer from the client to the server at 20 Mb/s.
const FLOW: &str = r#"
    seeds = 2
    [network]
    topology = "simple"
    link = { rate = "20 Mb/s", delay = "10 ms", loss = "0.1 %" }
    [[flow]]
    size = "4 MB"
    quic = { OPTIONS }
    "#;

/// A plugin that does not terminate.
const ENDLESS: &str = "#include <equic_plugin.h>
static volatile equic_u64 turns;
equic_u64 window(struct equic_congestion_window *call) {
    (void)call;
    for (;;) turns++;
    return EQUIC_DONE;
}";

const ENDLESS_MANIFEST: &str = r#"
    name = "endless"
    version = "1.0.0"
    author = "Nobody"
    abi = 2
    memory = 16384
    steps = 1000
    capabilities = ["observe", "tune"]
    [[operations]]
    operation = "CongestionWindow"
    anchor = "replace"
    function = "window"
    "#;

/// Returns a directory with the compiled plugin `cap`, which limits a sender to 500,000 bytes per
/// second.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let cap = Source::find("cap").expect("the tree has it").bundle(None).unwrap();
    std::fs::write(folder.path().join("cap.qplug"), cap).unwrap();
    folder
}

fn read(folder: &Path, options: &str) -> Result<Scenario, ScenarioError> {
    Scenario::parse_in(&FLOW.replace("OPTIONS", options), folder)
}

fn seconds(folder: &Path, options: &str) -> f64 {
    let scenario = read(folder, options).unwrap_or_else(|error| panic!("{error}"));
    let run = play(&scenario, 1, Part::All).unwrap();
    let again = play(&scenario, 1, Part::All).unwrap();
    assert_eq!(run.events, again.events, "the same run from the same seed");
    assert_eq!(run.flows[0].failure, None);
    let completion = run.flows[0].completion.expect("it completes");
    assert_eq!(Some(completion), again.flows[0].completion);
    completion
}

#[test]
fn plugin_acts_at_the_end_that_has_it() {
    let folder = folder();
    let folder = folder.path();
    let without = seconds(folder, "");
    assert!(without < 4.0, "{without}");
    // 4 MB at 500,000 bytes per second take eight seconds.
    let with = seconds(folder, "client_plugins = [\"cap.qplug\"]");
    assert!((8.0..16.0).contains(&with), "{with}");
    // The server sends no data, so a plugin at the server has nothing to limit.
    let at_the_server = seconds(folder, "server_plugins = [\"cap.qplug\"]");
    assert!(at_the_server < 1.2 * without, "{at_the_server}");
}

#[test]
fn plugin_failure_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let object = compile_text("endless", ENDLESS).unwrap();
    let bundle = equic_plugin::pack(ENDLESS_MANIFEST, &object, None).unwrap();
    std::fs::write(folder.path().join("endless.qplug"), bundle).unwrap();
    let scenario = read(folder.path(), "client_plugins = [\"endless.qplug\"]").unwrap();
    let run = play(&scenario, 1, Part::All).unwrap();
    let flow = &run.flows[0];
    assert!(flow.completion.is_some(), "the connection continues without the plugin");
    let failure = flow.failure.as_deref().expect("the plugin was detached");
    assert!(failure.starts_with("a hook was detached: "), "{failure}");
}

#[test]
fn plugin_file_that_is_missing_or_invalid_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let missing = read(folder.path(), "client_plugins = [\"none.qplug\"]").unwrap_err();
    let missing = missing.to_string();
    assert!(missing.contains("client_plugins") && missing.contains("none.qplug"), "{missing}");
    std::fs::write(folder.path().join("text.qplug"), "no bundle").unwrap();
    let refused = read(folder.path(), "server_plugins = [\"text.qplug\"]").unwrap_err().to_string();
    let told = "line 8: flow[1].quic.server_plugins: text.qplug: ";
    assert!(refused.contains(told), "{refused}");
}

#[test]
fn plugin_files_of_a_grid_are_stored() {
    let folder = folder();
    let text = FLOW.replace("OPTIONS", "client_plugins = [\"cap.qplug\"]");
    let text = format!("{text}\n[grid]\n\"flow.size\" = [\"1 MB\", \"2 MB\"]\n");
    let path = folder.path().join("grid.toml");
    std::fs::write(&path, &text).unwrap();
    let grid = Grid::load(&path).unwrap();
    std::fs::remove_file(folder.path().join("cap.qplug")).unwrap();
    assert!(Grid::load(&path).is_err(), "it is read from beside the grid");
    let kept = Grid::parse_with(&text, grid.traces().clone()).unwrap();
    let flow = |grid: &Grid| grid.scenarios()[0].flows[0].quic.client_plugins.clone();
    assert_eq!(flow(&kept), flow(&grid));
    assert_eq!(flow(&kept)[0].name, "cap.qplug");
}

/// The stored files of a sweep may be published. A description that names an arbitrary file as a
/// plugin must not cause a copy of that file there.
#[test]
fn plugin_files_that_are_invalid_are_not_stored() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("secret"), "a key").unwrap();
    let text = FLOW.replace("OPTIONS", "client_plugins = [\"secret\"]");
    let path = folder.path().join("grid.toml");
    std::fs::write(&path, format!("{text}\n[grid]\n\"flow.size\" = [\"1 MB\", \"2 MB\"]\n"))
        .unwrap();
    let refused = Grid::load(&path).unwrap_err().to_string();
    assert!(refused.contains("secret: ") && !refused.contains("a key"), "{refused}");
}
