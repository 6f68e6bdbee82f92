//! Which room may lead into which: nothing points back.

mod common;

use std::collections::BTreeMap;
use std::process::Command;

use common::ROOT;
use serde_json::Value;

/// The crates of the workspace, and what each may depend on. Dev-dependencies count: a test that
/// needs a room further out belongs there.
const ALLOWED: &[(&str, &[&str])] = &[
    ("equic-wire", &[]),
    ("equic-transport", &["equic-wire", "equic-report"]),
    ("equic-gateway", &["equic-wire"]),
    ("libequic", &["equic-gateway"]),
    ("equic-endpoint", &["equic-wire", "equic-transport"]),
    ("equic-report", &[]),
    ("equic-lab", &["equic-wire", "equic-gateway", "equic-endpoint", "equic-report"]),
    ("equic-interop", &["equic-wire", "equic-lab"]),
    ("equic-bench", &["equic-lab", "equic-report"]),
    (
        "equic-cli",
        &[
            "equic-gateway",
            "equic-endpoint",
            "equic-report",
            "equic-lab",
            "equic-interop",
            "equic-bench",
            "equic-transport",
            "equic-wire",
            "libequic",
        ],
    ),
];

#[test]
fn nothing_points_back() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(ROOT)
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    let packages = metadata["packages"].as_array().expect("there are packages");
    let names: Vec<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED.iter().copied().collect();
    for package in packages {
        let name = package["name"].as_str().expect("a package has a name");
        let Some(may) = allowed.get(name) else {
            panic!("{name} is a new room: say here what it may depend on");
        };
        let needs = package["dependencies"].as_array().expect("a package has dependencies");
        for needed in needs.iter().filter_map(|needed| needed["name"].as_str()) {
            let ours = names.contains(&needed);
            assert!(!ours || needed == name || may.contains(&needed), "{name} points at {needed}");
        }
    }
}
