//! Rules for dependencies between the crates: nothing points back. What is shipped is not built
//! with features that are for simulations, and is what the tests test.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use crate::common::ROOT;
use serde_json::Value;

/// The crates of the workspace, and what each may depend on. Dev-dependencies count: a test that
/// needs a crate further out belongs there.
const ALLOWED: &[(&str, &[&str])] = &[
    ("equic-wire", &[]),
    ("equic-net", &[]),
    ("equic-boringssl", &[]),
    ("equic-transport", &["equic-wire", "equic-net", "equic-report"]),
    ("equic-token", &["equic-wire"]),
    ("equic-bpf-build", &[]),
    ("equic-gateway", &["equic-bpf-build", "equic-wire", "equic-token"]),
    ("equic-gateway-model", &["equic-gateway", "equic-token", "equic-wire"]),
    ("libequic", &["equic-gateway", "equic-token"]),
    ("equic-quic", &["equic-boringssl", "equic-wire", "equic-transport", "equic-token"]),
    ("equic-http3", &["equic-wire", "equic-transport", "equic-quic"]),
    ("equic-load", &["equic-http3"]),
    ("equic-report", &[]),
    (
        "equic-lab",
        &[
            "equic-bpf-build",
            "equic-wire",
            "equic-net",
            "equic-sim",
            "equic-gateway",
            "equic-report",
            "equic-token",
        ],
    ),
    ("equic-harness", &["equic-lab"]),
    ("equic-interop", &["equic-wire", "equic-net", "equic-lab", "equic-harness"]),
    ("equic-bench", &["equic-net", "equic-lab", "equic-harness", "equic-report"]),
    ("equic-bench-contract", &[]),
    ("equic-vm", &[]),
    ("libequic_vm", &["equic-vm"]),
    ("equic-plugin", &["equic-wire", "equic-transport", "equic-vm"]),
    (
        "equic-plugin-kit",
        &["equic-wire", "equic-net", "equic-plugin", "equic-report", "equic-transport"],
    ),
    ("equic-tcp", &["equic-transport"]),
    ("equic-sim", &["equic-wire", "equic-transport", "equic-net", "equic-tcp"]),
    (
        "equic-scenario",
        &["equic-plugin", "equic-plugin-kit", "equic-report", "equic-sim", "equic-transport"],
    ),
    ("equic-console", &["equic-quic", "equic-report"]),
    (
        "equic-experiments",
        &[
            "equic-bench",
            "equic-console",
            "equic-gateway",
            "equic-harness",
            "equic-http3",
            "equic-lab",
            "equic-load",
            "equic-plugin",
            "equic-plugin-kit",
            "equic-quic",
            "equic-report",
            "equic-sim",
            "equic-transport",
        ],
    ),
    (
        "equic-cli",
        &[
            "equic-console",
            "equic-experiments",
            "equic-harness",
            "equic-gateway",
            "equic-net",
            "equic-plugin",
            "equic-plugin-kit",
            "equic-quic",
            "equic-http3",
            "equic-load",
            "equic-report",
            "equic-scenario",
            "equic-sim",
            "equic-lab",
            "equic-interop",
            "equic-bench",
            "equic-bench-contract",
            "equic-token",
            "equic-transport",
            "equic-wire",
            "libequic",
        ],
    ),
];

/// The packages of the workspace, as their manifests are; it needs nothing that is not in the tree.
fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(ROOT)
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    metadata["packages"].as_array().expect("there are packages").clone()
}

/// Dependencies between packages of the workspace: who, on whom, and what the manifest says of it.
fn inner_dependencies(packages: &[Value]) -> impl Iterator<Item = (&str, &str, &Value)> {
    let name = |value: &'_ Value| value["name"].as_str().expect("it has a name").to_owned();
    let names: Vec<String> = packages.iter().map(name).collect();
    packages.iter().flat_map(move |package| {
        let needs = package["dependencies"].as_array().expect("a package has dependencies");
        let of = package["name"].as_str().expect("it has a name");
        let ours =
            needs.iter().filter_map(move |needed| Some((of, needed["name"].as_str()?, needed)));
        let names = names.clone();
        ours.filter(move |(_, needed, _)| names.iter().any(|name| name == needed))
    })
}

#[test]
fn nothing_points_back() {
    let packages = packages();
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED.iter().copied().collect();
    for package in &packages {
        let name = package["name"].as_str().expect("a package has a name");
        assert!(allowed.contains_key(name), "{name} is a new room: say here what it may depend on");
    }
    for (name, needed, _) in inner_dependencies(&packages) {
        assert!(needed == name || allowed[name].contains(&needed), "{name} points at {needed}");
    }
}

/// Output of `cargo tree`: each crate that is compiled for this machine, and its features there.
/// Only crates that a build has downloaded are asked for, not those that only other systems need.
fn tree(args: &[&str]) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--prefix", "none", "--no-dedupe", "--format", "{p} [{f}]"])
        .args(args)
        .current_dir(ROOT)
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("cargo writes UTF-8");
    text.lines().map(str::to_owned).collect()
}

/// Packets without protection (docs/transport.md) are for simulations. The command, the C library,
/// QUIC over tokio and HTTP/3 have no code for them, however their own features are set, and on whatever system.
#[test]
fn nothing_that_is_shipped_can_do_without_protection() {
    let shipped = |args: &[&str]| tree(&[args, &["--edges", "no-dev"]].concat());
    let has_it = |tree: &BTreeSet<String>| tree.iter().any(|line| line.contains("null-crypto"));
    for package in ["equic-cli", "libequic", "equic-quic", "equic-http3"] {
        for more in [&[][..], &["--all-features"]] {
            let tree = shipped(&[&["--package", package], more].concat());
            assert!(tree.iter().any(|line| line.starts_with("equic-wire ")), "{tree:#?}");
            assert!(!has_it(&tree), "{package}: {tree:#?}");
        }
    }
    // Where it is wanted it is seen.
    let tree = shipped(&["--package", "equic-transport", "--features", "null-crypto"]);
    let wire = |line: &String| line.starts_with("equic-wire ") && line.contains("null-crypto");
    assert!(tree.iter().any(wire), "{tree:#?}");
    // `make build`, and with it the package, builds the workspace as it is: no member may have it on.
    let tree = shipped(&["--workspace"]);
    assert!(!has_it(&tree), "{tree:#?}");
    // That was this system's graph. Only our own crates can turn the feature on, and what one of them
    // wants of another it wants on every system.
    let packages = packages();
    assert!(inner_dependencies(&packages).count() > 10);
    for (name, needed, how) in inner_dependencies(&packages) {
        assert!(how["target"].is_null(), "{name} needs {needed} only where {}", how["target"]);
    }
}

/// What encrypts nothing has no crypto provider: simulations bring one only for those who ask for TLS in them.
#[test]
fn simulations_without_protection_have_no_crypto_provider() {
    let has_one = |package: &str, features: &str| {
        let tree = tree(&["--package", package, "--features", features, "--edges", "normal,build"]);
        assert!(tree.iter().any(|line| line.starts_with("rustls v")), "{tree:#?}");
        tree.iter().any(|line| line.starts_with("aws-lc-") || line.starts_with("ring v"))
    };
    for (package, without, with) in
        [("equic-sim", "quic,tcp", "tls,tcp"), ("equic-scenario", "play", "tls")]
    {
        assert!(!has_one(package, without), "{package} with {without}");
        assert!(has_one(package, with), "{package} with {with}");
    }
}

/// Cryptography is code that a program should have once: what has several providers picks one at run time or fails.
#[test]
fn a_program_has_one_crypto_provider() {
    let providers = |args: &[&str]| -> Vec<&'static str> {
        let tree = tree(&[args, &["--edges", "no-dev"]].concat());
        let has = |name: &&str| tree.iter().any(|line| line.starts_with(&format!("{name} v")));
        ["aws-lc-rs", "ring"].into_iter().filter(has).collect()
    };
    for package in ["equic-cli", "equic-quic", "equic-transport", "equic-http3"] {
        assert_eq!(providers(&["--package", package]), ["aws-lc-rs"], "{package}");
    }
    // Whoever wants another one, or brings one, gets rid of it.
    for package in ["equic-quic", "equic-transport", "equic-tcp"] {
        let none = providers(&["--package", package, "--no-default-features"]);
        assert_eq!(none, [""; 0], "{package}");
    }
}

/// `equic-sim` is built apart (docs/decisions/0029-equic-sim.md), of the same versions: what both need is compiled
/// once, and both are as well looked after.
#[test]
fn the_simulator_has_the_versions_that_all_have() {
    let packages = |file: &str| -> BTreeSet<(String, String)> {
        let text = std::fs::read_to_string(format!("{ROOT}/{file}")).expect("it is there");
        let value = |line: Option<&str>, key: &str| {
            let value = line?.strip_prefix(key)?.trim_matches('"').to_owned();
            Some(value)
        };
        let package = |text: &str| {
            let mut lines = text.lines();
            Some((value(lines.next(), "name = ")?, value(lines.next(), "version = ")?))
        };
        text.split("[[package]]\n")
            .skip(1)
            .map(|text| package(text).expect("name, version"))
            .collect()
    };
    let (all, own) = (packages("Cargo.lock"), packages("sim/Cargo.lock"));
    assert!(own.len() > 50 && all.len() > own.len());
    // Versions of one series are compatible: 1.x.y, 0.1.x.
    let series = |(name, version): &(String, String)| {
        let mut parts = version.split('.');
        let major = parts.next().unwrap_or_default().to_owned();
        let minor = if major == "0" { parts.next().unwrap_or_default() } else { "" };
        (name.clone(), major, minor.to_owned())
    };
    let known: BTreeSet<_> = all.iter().map(series).collect();
    let other: Vec<_> = own.difference(&all).filter(|one| known.contains(&series(one))).collect();
    assert!(other.is_empty(), "other versions than in Cargo.lock: {other:?}");
}

/// Two crypto providers would be two to compile and to keep safe: what is shipped has AWS-LC
/// (docs/decisions/0018-aws-lc.md), besides which the command has BoringSSL's AES-GCM for packets alone
/// (docs/decisions/0065-boringssl-for-packets.md), libraries have that where they are asked to, and what needs no cryptography has none.
#[test]
fn what_is_shipped_has_one_crypto_provider() {
    let providers = |args: &[&str]| -> Vec<String> {
        let known =
            ["aws-lc-rs", "boring", "boring-sys", "graviola", "openssl", "openssl-sys", "ring"];
        let tree = tree(&[args, &["--edges", "no-dev"]].concat());
        assert!(tree.len() > 20, "{tree:#?}");
        let names: BTreeSet<&str> =
            tree.iter().filter_map(|line| line.split_whitespace().next()).collect();
        known.into_iter().filter(|name| names.contains(name)).map(str::to_owned).collect()
    };
    let packets = cfg!(target_arch = "x86_64").then_some("boring-sys");
    let command: Vec<&str> = ["aws-lc-rs"].into_iter().chain(packets).collect();
    assert_eq!(providers(&["--package", "equic-cli"]), command);
    assert_eq!(providers(&["--package", "equic-cli", "--no-default-features"]), ["aws-lc-rs"]);
    assert_eq!(providers(&["--package", "equic-quic"]), ["aws-lc-rs"]);
    assert_eq!(providers(&["--package", "libequic"]), [""; 0]);
    // `make build` builds all of it at once: a crate that is not shipped would give its features to what is.
    assert_eq!(providers(&["--workspace"]), command);
}

/// Tests compile the crates of the build again if one of their own dependencies asks for more features of
/// what these depend on: minutes, and what is tested is not what is shipped.
#[test]
fn what_is_tested_is_compiled_as_what_is_shipped() {
    let build = tree(&["--workspace", "--edges", "normal,build"]);
    let tests = tree(&["--workspace", "--edges", "normal,build,dev"]);
    let twice: Vec<&String> = build.difference(&tests).collect();
    assert!(
        twice.is_empty(),
        "tests have other features of these: let crates/cli/Cargo.toml ask for them, too: {twice:#?}"
    );
    assert!(build.len() > 100 && tests.len() > build.len());
}
