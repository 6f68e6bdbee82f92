//! Which room may lead into which: nothing points back. And what is shipped is not built with features
//! that are for simulations.

mod common;

use std::collections::BTreeMap;
use std::process::Command;

use common::ROOT;
use serde_json::Value;

/// The crates of the workspace, and what each may depend on. Dev-dependencies count: a test that
/// needs a room further out belongs there.
const ALLOWED: &[(&str, &[&str])] = &[
    ("equic-wire", &[]),
    ("equic-net", &[]),
    ("equic-transport", &["equic-wire", "equic-net", "equic-report"]),
    ("equic-gateway", &["equic-wire"]),
    ("libequic", &["equic-gateway"]),
    ("equic-endpoint", &["equic-wire", "equic-transport"]),
    ("equic-report", &[]),
    ("equic-lab", &["equic-wire", "equic-net", "equic-gateway", "equic-endpoint", "equic-report"]),
    ("equic-interop", &["equic-wire", "equic-net", "equic-lab"]),
    ("equic-bench", &["equic-net", "equic-lab", "equic-report"]),
    ("equic-bench-contract", &[]),
    (
        "equic-cli",
        &[
            "equic-gateway",
            "equic-net",
            "equic-endpoint",
            "equic-report",
            "equic-lab",
            "equic-interop",
            "equic-bench",
            "equic-bench-contract",
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

/// What `cargo tree` says of a package: each crate it is linked from, and the features it has there.
fn features(package: &str, more: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--package", package, "--edges", "no-dev", "--prefix", "none"])
        .args(["--format", "{p} [{f}]", "--target", "all"])
        .args(more)
        .current_dir(ROOT)
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("cargo writes UTF-8")
}

/// Packets without protection (docs/transport.md) are for simulations. The command, the C library and
/// the endpoint have no code for them, however their own features are set.
#[test]
fn nothing_that_is_shipped_can_do_without_protection() {
    for package in ["equic-cli", "libequic", "equic-endpoint"] {
        for more in [&[][..], &["--all-features"]] {
            let tree = features(package, more);
            assert!(tree.contains("equic-wire"), "{tree}");
            assert!(!tree.contains("null-crypto"), "{package}: {tree}");
        }
    }
    // Where it is wanted it is seen.
    let tree = features("equic-transport", &["--features", "null-crypto"]);
    assert!(
        tree.lines().any(|line| line.starts_with("equic-wire") && line.contains("null-crypto"))
    );
    // `make build`, and with it the package, builds the workspace as it is: no member may have it on.
    let tree = features("*", &[]);
    assert!(!tree.contains("null-crypto"), "{tree}");
}
