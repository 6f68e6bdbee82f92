//! Tests the rules for dependencies between crates. Crates are in layers, and none depends on a
//! crate of an outer layer. Shipped programs are not built with features for simulations, and the
//! tests run against the same build.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use crate::common::ROOT;
use serde_json::Value;

/// The crates of the workspace in layers, the innermost first, and the crates that each may depend
/// on. Dev-dependencies count: a test that needs a crate of an outer layer must be moved to that
/// layer. Two crates of helpers are exceptions: tests of every crate may use them.
const ALLOWED: &[(&str, &[&str])] = &[
    ("equic-testing", &[]),
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
        "equic-netns",
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
    ("equic-harness", &["equic-netns"]),
    ("equic-interop", &["equic-wire", "equic-net", "equic-netns", "equic-harness"]),
    ("equic-bench", &["equic-net", "equic-netns", "equic-harness", "equic-report"]),
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
        &[
            "equic-plugin",
            "equic-plugin-kit",
            "equic-report",
            "equic-sim",
            "equic-tcp",
            "equic-transport",
        ],
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
            "equic-netns",
            "equic-load",
            "equic-plugin",
            "equic-plugin-kit",
            "equic-quic",
            "equic-report",
            "equic-sim",
            "equic-transport",
        ],
    ),
    ("equic-test-kit", &["equic-bench", "equic-http3", "equic-netns", "equic-token"]),
    (
        "equic-command",
        &[
            "equic-console",
            "equic-gateway",
            "equic-http3",
            "equic-net",
            "equic-plugin",
            "equic-plugin-kit",
            "equic-quic",
            "equic-transport",
        ],
    ),
    (
        "equic-cli",
        &[
            "equic-command",
            "equic-console",
            "equic-gateway",
            "equic-http3",
            "equic-net",
            "equic-plugin",
            "equic-plugin-kit",
            "equic-quic",
            "equic-report",
            "equic-token",
            "equic-transport",
            "equic-wire",
            // Only for tests. `dependencies_of_the_product_exclude_the_laboratory` checks that.
            "equic-bench",
            "equic-netns",
            "equic-load",
            "equic-scenario",
            "equic-test-kit",
        ],
    ),
    (
        "equic-lab-cli",
        &[
            "equic-bench",
            "equic-bench-contract",
            "equic-command",
            "equic-console",
            "equic-experiments",
            "equic-gateway",
            "equic-harness",
            "equic-http3",
            "equic-interop",
            "equic-netns",
            "equic-load",
            "equic-net",
            "equic-plugin",
            "equic-plugin-kit",
            "equic-quic",
            "equic-report",
            "equic-scenario",
            "equic-sim",
            "equic-test-kit",
            "equic-wire",
        ],
    ),
];

/// Features that are enabled in builds for packages and benchmarks.
const SHIPPED: &str = "boringssl,png";

/// Returns the packages of the workspace with their manifests. They are read from the source tree
/// only.
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

/// Returns the dependencies between packages of the workspace: the depending package, the package
/// that it depends on, and the entry in the manifest.
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
fn dependencies_never_point_to_an_outer_layer() {
    let packages = packages();
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED.iter().copied().collect();
    for package in &packages {
        let name = package["name"].as_str().expect("a package has a name");
        assert!(allowed.contains_key(name), "{name} is a new room: say here what it may depend on");
    }
    for (name, needed, how) in inner_dependencies(&packages) {
        let helps = ["equic-testing", "equic-test-kit"].contains(&needed);
        let allowed = needed == name
            || allowed[name].contains(&needed)
            || helps && (how["kind"] == "dev" || name == "equic-test-kit");
        assert!(allowed, "{name} points at {needed}");
    }
}

/// Crates that must not be part of `equic`: the crates for experiments, and external crates that
/// only they need.
const LABORATORY: &[&str] = &[
    "equic-bench",
    "equic-bench-contract",
    "equic-experiments",
    "equic-gateway-model",
    "equic-harness",
    "equic-interop",
    "equic-netns",
    "equic-lab-cli",
    "equic-load",
    "equic-scenario",
    "equic-sim",
    "equic-tcp",
    "equic-testing",
    "equic-test-kit",
    // Other QUIC stacks, and plots.
    "h3-quinn",
    "quinn",
    "quinn-proto",
    "resvg",
    "svg",
];

/// The program that operators run contains no floods, no other QUIC stacks, no plots and no
/// experiments.
#[test]
fn dependencies_of_the_product_exclude_the_laboratory() {
    // First, check the manifests: from which crates of the workspace `equic` and its libraries are
    // built.
    let packages = packages();
    let mut needed = BTreeSet::from(["equic-cli"]);
    loop {
        let before = needed.len();
        for (name, other, how) in inner_dependencies(&packages) {
            if how["kind"] != "dev" && needed.contains(name) {
                needed.insert(other);
            }
        }
        if needed.len() == before {
            break;
        }
    }
    assert!(needed.contains("equic-gateway") && needed.len() > 10, "{needed:?}");
    let wrong: Vec<_> = LABORATORY.iter().filter(|name| needed.contains(*name)).collect();
    assert!(wrong.is_empty(), "equic-cli needs {wrong:?}");
    // Of the crates in `lab/`, `equic` is built of these two: it compiles plugins and plays them in
    // memory.
    let place = |package: &Value| package["manifest_path"].as_str().expect("a path").to_owned();
    let lab = packages.iter().filter(|package| place(package).contains("/lab/"));
    let lab: BTreeSet<&str> = lab.filter_map(|package| package["name"].as_str()).collect();
    let of_lab: Vec<_> = needed.intersection(&lab).copied().collect();
    assert_eq!(of_lab, ["equic-net", "equic-plugin-kit"]);
    // Then check all crates, including external ones.
    let crates = |package: &str, features: &str| -> BTreeSet<String> {
        let of = ["--package", package, "--features", features];
        let tree = tree(&[&of[..], &["--edges", "normal,build"]].concat());
        tree.iter().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
    };
    let product = crates("equic-cli", "boringssl");
    let wrong: Vec<_> = LABORATORY.iter().filter(|name| product.contains(**name)).collect();
    assert!(wrong.is_empty(), "equic-cli is built of {wrong:?}");
    // Check the names in the list: `equic-lab` must contain all of them, except the model and the
    // crates for tests.
    let lab = crates("equic-lab-cli", SHIPPED);
    for name in LABORATORY.iter().filter(|name| {
        !["equic-gateway-model", "equic-testing", "equic-test-kit", "equic-tcp"].contains(name)
    }) {
        assert!(lab.contains(*name), "equic-lab-cli is not built of {name}");
    }
}

/// Returns the lines of `cargo tree`: each crate that is compiled for this machine, with its
/// features. Asks only for crates that a build has downloaded, not for those that only other
/// systems need.
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

/// Packets without encryption (docs/transport.md) are only for simulations. The command, the C
/// library, QUIC over tokio and HTTP/3 must not contain code for them, whatever features are
/// enabled and on any system.
#[test]
fn null_crypto_is_in_no_shipped_program() {
    let shipped = |args: &[&str]| tree(&[args, &["--edges", "no-dev"]].concat());
    let has_it = |tree: &BTreeSet<String>| tree.iter().any(|line| line.contains("null-crypto"));
    for package in ["equic-cli", "equic-lab-cli", "libequic", "equic-quic", "equic-http3"] {
        for more in [&[][..], &["--all-features"]] {
            let tree = shipped(&[&["--package", package], more].concat());
            assert!(tree.iter().any(|line| line.starts_with("equic-wire ")), "{tree:#?}");
            assert!(!has_it(&tree), "{package}: {tree:#?}");
        }
    }
    // Check that the test can fail: where the feature is enabled, it must be visible.
    let tree = shipped(&["--package", "equic-transport", "--features", "null-crypto"]);
    let wire = |line: &String| line.starts_with("equic-wire ") && line.contains("null-crypto");
    assert!(tree.iter().any(wire), "{tree:#?}");
    // `make build` and the packages build the whole workspace at once, so no member may enable the
    // feature.
    let tree = shipped(&["--workspace", "--features", SHIPPED]);
    assert!(!has_it(&tree), "{tree:#?}");
    // `cargo tree` only covers this system. Other systems give the same result: only crates of the
    // workspace can enable the feature, and their dependencies on each other are the same on every
    // system.
    let packages = packages();
    assert!(inner_dependencies(&packages).count() > 10);
    for (name, needed, how) in inner_dependencies(&packages) {
        assert!(how["target"].is_null(), "{name} needs {needed} only where {}", how["target"]);
    }
}

/// A crate that does not encrypt must not depend on a cryptography provider. Simulations include
/// one only for scenarios with TLS.
#[test]
fn crypto_provider_is_absent_in_simulations_without_tls() {
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

/// A program must contain only one cryptography provider. If there are several, code that uses the
/// default provider fails, or picks one of them at run time.
#[test]
fn crypto_provider_of_a_program_is_unique() {
    let providers = |args: &[&str]| -> Vec<&'static str> {
        let tree = tree(&[args, &["--edges", "no-dev"]].concat());
        let has = |name: &&str| tree.iter().any(|line| line.starts_with(&format!("{name} v")));
        ["aws-lc-rs", "ring"].into_iter().filter(has).collect()
    };
    for package in ["equic-cli", "equic-lab-cli", "equic-quic", "equic-transport", "equic-http3"] {
        assert_eq!(providers(&["--package", package]), ["aws-lc-rs"], "{package}");
    }
    // A user who brings another provider must be able to leave this one out.
    for package in ["equic-quic", "equic-transport", "equic-tcp"] {
        let none = providers(&["--package", package, "--no-default-features"]);
        assert_eq!(none, [""; 0], "{package}");
    }
}

/// `equic-sim` is a separate workspace (docs/decisions/0029-equic-sim.md). It must use the same
/// versions of dependencies as the main workspace, so that shared crates are compiled only once and
/// get the same updates.
#[test]
fn dependencies_of_the_simulator_have_the_same_versions() {
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
    let (all, own) = (packages("Cargo.lock"), packages("lab/sim-cli/Cargo.lock"));
    assert!(own.len() > 50 && all.len() > own.len());
    // Versions are compatible if they have the same leading number, such as 1.x.y or 0.1.x.
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

/// Two cryptography providers would double the compile time and the code to maintain, so shipped
/// programs only contain AWS-LC (docs/decisions/0018-aws-lc.md). In packages, the command also
/// contains BoringSSL's AES-GCM, but only for packets
/// (docs/decisions/0065-boringssl-for-packets.md). Crates include it only with the feature
/// `boringssl`. Crates that need no cryptography have no provider.
#[test]
fn crypto_provider_of_shipped_programs_is_aws_lc() {
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
    for package in ["equic-cli", "equic-lab-cli"] {
        assert_eq!(providers(&["--package", package, "--features", "boringssl"]), command);
        assert_eq!(providers(&["--package", package]), ["aws-lc-rs"]);
    }
    assert_eq!(providers(&["--package", "equic-quic"]), ["aws-lc-rs"]);
    assert_eq!(providers(&["--package", "libequic"]), [""; 0]);
    // `make build` builds the whole workspace at once, so a crate that is not shipped could enable
    // additional features in the shipped ones.
    assert_eq!(providers(&["--workspace", "--features", SHIPPED]), command);
    assert_eq!(providers(&["--workspace"]), ["aws-lc-rs"]);
}

/// Support for PNG files takes a fifth of the compile time, so only shipped programs may include
/// it.
#[test]
fn features_include_png_only_if_it_is_requested() {
    let has_png = |args: &[&str]| tree(args).iter().any(|line| line.starts_with("resvg v"));
    assert!(has_png(&["--workspace", "--features", SHIPPED]));
    assert!(!has_png(&["--workspace"]));
}

/// Returns the lines of the Makefile and of the scripts that call Cargo. Continued lines are
/// joined.
fn calls_of_cargo() -> Vec<(String, String)> {
    let mut files = vec![format!("{ROOT}/Makefile"), format!("{ROOT}/packaging/install.mk")];
    for file in std::fs::read_dir(format!("{ROOT}/scripts")).expect("there are scripts") {
        files.push(file.expect("it is readable").path().to_string_lossy().into_owned());
    }
    let scripts = files.into_iter().filter(|file| !file.ends_with(".py"));
    let mut calls = Vec::new();
    for file in scripts {
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        let text = text.replace("\\\n", " ");
        let lines =
            text.lines().filter(|line| line.contains("cargo ") || line.contains("$(CARGO) "));
        calls.extend(lines.map(|line| (file.clone(), line.to_owned())));
    }
    calls
}

/// Every build of the workspace must use the same features. Otherwise, most of it would be compiled
/// a second time.
#[test]
fn features_are_the_same_in_every_workspace_build() {
    let calls = calls_of_cargo();
    let whole = calls.iter().filter(|(_, line)| line.contains("--workspace"));
    let whole: Vec<_> = whole.filter(|(_, line)| !line.trim_start().starts_with('#')).collect();
    assert!(whole.len() > 10, "{whole:#?}");
    for (file, line) in whole {
        let same = line.contains(&format!("--features {SHIPPED} ")) || line.contains("$(FEATURES)");
        assert!(same, "{file}: {line}");
    }
}

/// `make demo` must compile only the crates that the demo needs: no other QUIC stacks, no
/// benchmarks, no second cryptography library, no PNG files.
#[test]
fn dependencies_of_the_demo_are_only_those_it_needs() {
    let calls = calls_of_cargo();
    let demo = calls.iter().find(|(_, line)| line.contains("--profile demo"));
    let (_, line) = demo.expect("the Makefile builds the demo");
    let build = line.split_once("--locked ").expect("what follows selects packages and features").1;
    let arguments: Vec<&str> =
        build.split_whitespace().chain(["--edges", "normal,build"]).collect();
    let names = |tree: &BTreeSet<String>| -> BTreeSet<String> {
        tree.iter().filter_map(|line| Some(line.split_whitespace().next()?.to_owned())).collect()
    };
    let (demo, all) =
        (names(&tree(&arguments)), names(&tree(&["--workspace", "--features", SHIPPED])));
    let unwanted = [
        "boring-sys",
        "equic-bench",
        "equic-bench-contract",
        "equic-interop",
        "equic-scenario",
        "flate2",
        "h3-quinn",
        "quinn",
        "resvg",
    ];
    for name in unwanted {
        assert!(all.contains(name), "{name} has another name now: change it here");
        assert!(!demo.contains(name), "{name} is compiled for the demo: {demo:#?}");
    }
    assert!(demo.contains("equic-experiments") && demo.contains("equic-gateway"), "{demo:#?}");
}

/// Dependencies of tests must not enable more features of shared crates. If they did, Cargo would
/// compile everything that depends on these crates again. This takes minutes, and the tests would
/// run against another build than the shipped one.
#[test]
fn features_of_tests_are_those_of_shipped_programs() {
    let build = tree(&["--workspace", "--features", SHIPPED, "--edges", "normal,build"]);
    let tests = tree(&["--workspace", "--features", SHIPPED, "--edges", "normal,build,dev"]);
    let twice: Vec<&String> = build.difference(&tests).collect();
    assert!(
        twice.is_empty(),
        "tests have other features of these: let lab/cli/Cargo.toml ask for them, too: {twice:#?}"
    );
    assert!(build.len() > 100 && tests.len() > build.len());
}

/// A folder must not have the name of a folder at another level, such as `lab/bench` and `bench`.
/// Excepted are Cargo's folders with what is below them, and folders named after other QUIC stacks,
/// which `examples/` and `lab/peers/` have.
#[test]
fn folders_at_different_levels_have_different_names() {
    let output = Command::new("git").args(["ls-files", "--cached"]).current_dir(ROOT).output();
    let listed = output.ok().filter(|output| output.status.success());
    // Sources in an archive have no list of files.
    let Some(listed) = listed.and_then(|output| String::from_utf8(output.stdout).ok()) else {
        assert!(!Path::new(ROOT).join(".git").exists(), "git does not list the files");
        return;
    };
    let mut levels: BTreeMap<&str, BTreeMap<usize, &str>> = BTreeMap::new();
    for file in listed.lines() {
        let folders = file.rsplit_once('/').map_or("", |(folders, _)| folders).split('/');
        for (level, name) in folders.enumerate() {
            if level > 0 && ["src", "tests", "benches", "examples"].contains(&name) {
                break;
            }
            levels.entry(name).or_default().insert(level, file);
        }
    }
    assert!(levels.len() > 100, "{levels:#?}");
    levels.retain(|name, places| {
        let stack = |file: &&str| file.starts_with("examples/") || file.starts_with("lab/peers/");
        places.len() > 1 && *name != ".cargo" && !places.values().all(stack)
    });
    assert!(levels.is_empty(), "{levels:#?}");
}
