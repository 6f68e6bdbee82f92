//! Tests of `equic-lab net run`, which runs scenarios of the simulator in real time. A busy machine
//! may be slow, so the tests only require minimum durations, which follow from the links.

use std::process::{Command, Stdio};

use equic_netns::Lab;
use nix::sys::signal::Signal;

use crate::common::{EQUIC_LAB, ROOT, Running, equic, equic_lab, eventually, root};

/// A scenario in which 100 KB take 0.16 s at 5 Mb/s. In addition, the handshake takes a round trip
/// of 40 ms, and the last byte needs 20 ms to arrive.
const SCENARIO: &str = r#"
seeds = 1
limit = "50 s"
[network]
topology = "simple"
link = { rate = "5 Mb/s", delay = "20 ms", loss = { packets = [10, 11, 30] }, back = { loss = "0 %" } }
[[flow]]
size = "100 KB"
[[flow]]
protocol = "tcp"
controller = "cubic"
size = "100 KB"
[[traffic]]
kind = "on-off"
rate = "100 kb/s"
"#;

fn scenario(folder: &tempfile::TempDir, text: &str) -> String {
    let path = folder.path().join("scenario.toml");
    std::fs::write(&path, text).unwrap();
    path.into_os_string().into_string().unwrap()
}

#[test]
fn net_run_transfers_by_quic_and_tcp() {
    if !root("net_run_transfers_by_quic_and_tcp") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let result = equic_lab(&["net", "run", &scenario(&folder, SCENARIO), "--json"]).json();
    assert_eq!(result["schema"], "equic.sim.run/1");
    let run = &result["runs"][0];
    let mut lost = 0;
    for (index, least) in [(0, 0.22), (1, 0.22)] {
        let flow = &run["flows"][index];
        assert_eq!((&flow["bytes"], flow["failure"].is_null()), (&100_000.into(), true), "{flow}");
        assert!(flow["completion"].as_f64().unwrap() > least, "{flow}");
        assert!(flow["min_rtt"].as_f64().unwrap() >= 0.04, "{flow}");
        assert!(flow["packets_sent"].as_u64().unwrap() > 70, "{flow}");
        lost += flow["lost"].as_u64().unwrap();
    }
    // The link drops packets by their number. These may belong to either flow, or to background
    // traffic.
    let there = &run["ports"][0];
    assert_eq!((&there["name"], &there["lost"]), (&"bottleneck, there".into(), &3.into()), "{run}");
    assert!(lost <= 3 && run["traffic"][0]["delivered"].as_u64() > Some(0), "{run}");
    assert!(run["real_time"]["packets"].as_u64() > Some(150), "{run}");
    assert_eq!(result["summary"]["flows"][1]["completed"], 1);
}

#[test]
fn net_run_carries_ipv6_and_ecn_marks() {
    if !root("net_run_carries_ipv6_and_ecn_marks") {
        return;
    }
    let text = r#"
seeds = 1
limit = "50 s"
[network]
topology = "simple"
ip = "v6"
link = { rate = "5 Mb/s", delay = "5 ms", queue = { kind = "red", ecn = true, min_threshold = 2, max_threshold = 20, weight = 1, max_probability = 0.5 } }
[[flow]]
size = "300 KB"
"#;
    let folder = tempfile::tempdir().unwrap();
    let result = equic_lab(&["net", "run", &scenario(&folder, text), "--json"]).json();
    let flow = &result["runs"][0]["flows"][0];
    assert_eq!((&flow["bytes"], flow["failure"].is_null()), (&300_000.into(), true), "{flow}");
    assert!(flow["marked"].as_u64() > Some(0), "{flow}");
}

/// Two links between client and server must both carry data of one connection. Ideally this takes
/// half the time of one link, but the test does not require that, because the machine may be
/// slower.
#[test]
fn net_run_uses_two_paths_for_a_flow() {
    if !root("net_run_uses_two_paths_for_a_flow") {
        return;
    }
    let text = r#"
seeds = 1
limit = "50 s"
[network]
topology = "two-path"
links = [{ rate = "4 Mb/s", delay = "10 ms" }, { rate = "4 Mb/s", delay = "15 ms" }]
[[flow]]
name = "two"
size = "1 MB"
quic = { paths = 2 }
[[flow]]
name = "one"
size = "100 KB"
"#;
    let folder = tempfile::tempdir().unwrap();
    let result = equic_lab(&["net", "run", &scenario(&folder, text), "--json"]).json();
    let run = &result["runs"][0];
    for (index, bytes) in [(0, 1_000_000), (1, 100_000)] {
        let flow = &run["flows"][index];
        assert_eq!((&flow["bytes"], flow["failure"].is_null()), (&bytes.into(), true), "{flow}");
    }
    // Find the direction of each link that the data takes, by its name.
    let sent = |name: &str| {
        let ports = run["ports"].as_array().unwrap();
        let port = ports.iter().find(|port| port["name"] == name).expect("a port");
        port["sent"].as_u64().unwrap()
    };
    assert!(sent("bottleneck 1, there") > 150 && sent("bottleneck 2, there") > 150, "{run}");
}

/// The client's plugin must limit the transfer to 500,000 bytes per second, a tenth of the link's
/// rate.
#[test]
fn net_run_applies_the_plugins_of_a_flow() {
    if !root("net_run_applies_the_plugins_of_a_flow") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("cap.qplug");
    let bundle = bundle.to_str().unwrap();
    equic(&["plugin", "build", &format!("{ROOT}/plugins/cap"), "-o", bundle]).ok();
    let text = r#"
seeds = 1
limit = "50 s"
[network]
topology = "simple"
link = { rate = "40 Mb/s", delay = "5 ms" }
[[flow]]
size = "1 MB"
quic = { client_plugins = ["cap.qplug"] }
"#;
    let path = scenario(&folder, text);
    let flow = &equic_lab(&["net", "run", &path, "--json"]).json()["runs"][0]["flows"][0];
    assert_eq!((&flow["bytes"], flow["failure"].is_null()), (&1_000_000.into(), true), "{flow}");
    assert!(flow["completion"].as_f64().unwrap() > 1.5, "{flow}");
    // A file that is not a plugin must be reported before anything starts, with its line in the
    // scenario.
    std::fs::write(bundle, "no bundle").unwrap();
    let out = equic_lab(&["net", "run", &path]);
    assert_eq!((out.code, out.stdout.as_str()), (Some(1), ""));
    assert!(
        out.stderr.contains(&format!("{path}:9: flow[1].quic.client_plugins: cap.qplug: ")),
        "{out:?}"
    );
}

#[test]
fn net_run_errors_name_the_line() {
    let text = "[network]\ntopology = \"simple\"\nlink = { rate = \"5 Mb/s\", delay = \"1 ms\" }\n[[flow]]\nprotocol = \"tcp\"\n\
                size = \"1 MB\"\ntcp = { delayed_ack = \"1 ms\" }\n";
    let folder = tempfile::tempdir().unwrap();
    let path = scenario(&folder, text);
    let out = equic_lab(&["net", "run", &path]);
    assert_eq!((out.code, out.stdout.as_str()), (Some(1), ""));
    assert!(out.stderr.contains(&format!("{path}:7: flow[1].tcp.delayed_ack: ")), "{out:?}");
    let out = equic_lab(&["net", "run", "lossi"]);
    assert_eq!(out.code, Some(2), "{out:?}");
    assert!(out.stderr.contains("did you mean lossy?"), "{out:?}");
}

#[test]
fn net_run_that_is_interrupted_leaves_nothing() {
    if !root("net_run_that_is_interrupted_leaves_nothing") {
        return;
    }
    let text = "limit = \"1000 s\"\n[network]\ntopology = \"simple\"\nlink = { rate = \"1 Mb/s\", delay = \"1 ms\" }\n[[flow]]\n";
    let folder = tempfile::tempdir().unwrap();
    let path = scenario(&folder, text);
    let mut command = Command::new(EQUIC_LAB);
    command.stderr(Stdio::null());
    let mut running = Running::start(command, &["net", "run", &path]);
    let pid = running.pid();
    let own = || Lab::list().unwrap().into_iter().find(|lab| lab.pid == pid);
    let lab = eventually("its lab", own);
    running.signal(Signal::SIGINT);
    assert!(!running.wait().success());
    assert!(own().is_none());
    for name in lab.names() {
        assert!(!std::path::Path::new("/run/netns").join(name).exists(), "{name}");
    }
}
