//! Tests the life of a gateway from the first attachment to its end, using only the command.

use crate::common::{
    EQUIC, ROOT, Running, config_of_own_gateway, equic, equic_in, equic_lab_in, eventually, lab,
    unique, v4,
};
use equic_netns::Namespace;
use serde_json::{Value, json};

fn start(host: &Namespace, name: &str, rest: &[&str]) -> (Running, Value) {
    let gateway = Running::gateway(host, name, rest);
    let ready = gateway.event("ready");
    (gateway, ready)
}

fn status(name: &str) -> Value {
    equic(&["gateway", "status", "--json", "--gateway", name]).json()
}

/// Returns the ID of the XDP program on the host's interface, as `ip` reports it.
fn attached(host: &Namespace) -> Option<u64> {
    let mut ip = host.command("ip");
    ip.args(["-j", "link", "show", "eth0"]);
    let links: Value = crate::common::finish(ip).json();
    links[0]["xdp"]["prog"]["id"].as_u64()
}

fn verdicts(status: &Value, reason: &str) -> u64 {
    let rows = status["services"][0]["verdicts"].as_array().unwrap();
    rows.iter()
        .filter(|row| row["reason"] == reason)
        .filter_map(|row| row["packets"].as_u64())
        .sum()
}

#[test]
fn gateway_runs_is_changed_and_detached() {
    let Some(lab) = lab("cli-gateway", 1) else { return };
    let (server, client) = (lab.server(), lab.client(0));
    let name = &unique("steer");
    let (mut gateway, ready) = start(server, name, &["--max-connections", "7"]);
    assert_eq!(ready["schema"], "equic.gateway.run/1");
    assert_eq!(ready["interfaces"][0]["interface"], "eth0");
    assert_eq!(attached(server), ready["program_id"].as_u64());

    let seen = status(name);
    assert_eq!(seen["schema"], "equic.gateway.status/1");
    assert_eq!(seen["services"][0]["max_connections"], 7);
    assert_eq!(seen["owner"]["pid"], gateway.pid());
    let list = equic(&["gateway", "status", "--all"]).ok();
    assert!(list.contains(name.as_str()), "{list}");

    // The second setting is invalid. The first one is valid, but must not be applied either.
    let target = ["--gateway", name.as_str()];
    let set = |settings: &[&str]| equic(&[&["gateway", "set"], settings, &target[..]].concat());
    assert_eq!(set(&["quic.max_connections=9", "web.policy=strict"]).code, Some(1));
    assert_eq!(set(&["max_connections=9", "policy=soft"]).code, Some(2));
    assert_eq!(status(name)["services"][0]["max_connections"], 7);
    let changes = set(&["max_connections=9", "policy=strict", "lease=2s", "--json"]).json();
    assert_eq!(changes["schema"], "equic.gateway.set/1");
    assert_eq!(changes["changes"].as_array().unwrap().len(), 3);
    assert_eq!(
        (&changes["changes"][0]["old"], &changes["changes"][0]["new"]),
        (&"7".into(), &"9".into())
    );
    let value = |index: usize, which: &str| changes["changes"][index][which].clone();
    assert_eq!((value(0, "old_value"), value(0, "new_value")), (7.into(), 9.into()));
    assert_eq!((value(1, "old_value"), value(1, "new_value")), ("new".into(), "strict".into()));
    assert_eq!(value(2, "new_value"), json!({ "seconds": 2.0 }));
    let rate = set(&["new_per_source=120/min burst 40", "require_fixed_bit=on", "--json"]).json();
    let value = |index: usize, which: &str| rate["changes"][index][which].clone();
    assert_eq!(value(0, "old_value"), json!({ "per_second": null, "burst": null }));
    assert_eq!(value(0, "new_value"), json!({ "per_second": 2.0, "burst": 40 }));
    assert_eq!((value(1, "old_value"), value(1, "new_value")), (false.into(), true.into()));
    set(&["new_per_source=off"]).ok();
    let seen = status(name);
    assert_eq!((&seen["services"][0]["policy"], &seen["lease"]), (&"strict".into(), &"2s".into()));

    // Random packets with a short header must pass until their sender is denied.
    let target_address = format!("{}:443", v4(server));
    let garbage = [
        "net",
        "flood",
        "garbage",
        "--target",
        &target_address,
        "--packets",
        "50",
        "--duration",
        "10s",
        "--json",
    ];
    let sent = equic_lab_in(client, &garbage).json_lines();
    assert_eq!(sent.last().unwrap()["report"]["sent"], 50);
    eventually("50 packets are seen", || {
        (verdicts(&status(name), "established") == 50).then_some(())
    });
    let source = v4(client).to_string();
    let denied = equic(&[&["gateway", "deny", &source, "--for", "10m"], &target[..]].concat()).ok();
    assert_eq!(denied, format!("denied: {source}/32 for 10m\n"));
    equic_lab_in(client, &garbage).ok();
    eventually("50 packets are denied", || (verdicts(&status(name), "denied") == 50).then_some(()));
    let lists = equic(&[&["gateway", "lists", "--json"], &target[..]].concat()).json();
    let entry = &lists["entries"][0];
    assert_eq!(
        (&entry["prefix"], &entry["action"]),
        (&format!("{source}/32").into(), &"deny".into()),
        "{lists}"
    );
    assert!((1..=600).contains(&entry["expires_in"]["secs"].as_u64().unwrap()), "{lists}");

    let sources =
        equic(&[&["gateway", "sources", "--json", "--by", "drops"], &target[..]].concat()).json();
    let row = &sources["sources"][0];
    assert_eq!(
        (&row["source"], &row["packets"], &row["drops"]),
        (&source.clone().into(), &100.into(), &50.into()),
        "{sources}"
    );
    let table = equic(&[&["gateway", "sources"], &target[..]].concat()).ok();
    assert!(table.contains(&source) && table.contains("denied"), "{table}");

    // `explain` must judge packets with a copy of the running gateway's state.
    let explain = |rest: &[&str]| {
        equic(&[&["gateway", "explain", "--json", "--src", &source], rest, &target[..]].concat())
            .json()
    };
    assert_eq!(explain(&["--short"])["reason"], "denied");
    assert_eq!(verdicts(&status(name), "denied"), 50, "asking changed the gateway");

    let forget = || equic(&[&["gateway", "forget", &source], &target[..]].concat());
    assert_eq!(forget().ok(), format!("forgotten: {source}/32\n"));
    let again = forget();
    assert!(again.code == Some(1) && again.stderr.contains("on neither list"), "{again:?}");
    assert_eq!(explain(&["--short"])["reason"], "established");

    lists_as_json(name);

    let both = equic(&["gateway", "detach", name, "--gateway", name]);
    assert_eq!(both.code, Some(2), "{both:?}");
    let detached = equic(&["gateway", "detach", "--gateway", name, "--json"]).json();
    assert_eq!(detached["interfaces"].as_array().unwrap().len(), 1);
    let left = gateway.event("left");
    assert!(left["why"].as_str().unwrap().contains("detached"), "{left}");
    assert!(gateway.wait().success());
    assert_eq!(attached(server), None);
}

/// Checks the JSON output of the commands that change lists.
fn lists_as_json(name: &str) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("list.txt");
    std::fs::write(&file, "192.0.2.7\n192.0.2.9\n").unwrap();
    let file = file.to_str().unwrap();
    let run = |args: &[&str]| equic(&[&["gateway"], args, &["--json", "--gateway", name]].concat());
    let denied = run(&["deny", "198.51.100.0/24", "192.0.2.1", "--for", "90s"]).json();
    assert_eq!(
        denied,
        json!({
            "schema": "equic.gateway.deny/1",
            "entries": [
                { "prefix": "198.51.100.0/24", "for_s": 90.0 }, { "prefix": "192.0.2.1/32", "for_s": 90.0 },
            ],
        })
    );
    let allowed = run(&["allow", "192.0.2.1"]).json();
    assert_eq!(
        allowed,
        json!({ "schema": "equic.gateway.allow/1", "entries": [{ "prefix": "192.0.2.1/32", "for_s": null }] })
    );
    let loaded = run(&["deny", "--file", file]).json();
    assert_eq!(loaded["list"], json!({ "added": 2, "removed": 0, "kept": 0, "left": 0 }));
    assert_eq!(
        (&loaded["schema"], &loaded["files"]),
        (&"equic.gateway.deny/1".into(), &json!([file]))
    );
    // Prefixes that are loaded from a file must replace those that were loaded before.
    std::fs::write(file, "192.0.2.0/24\n").unwrap();
    let loaded = run(&["deny", "--file", file]).json();
    assert_eq!(loaded["list"], json!({ "added": 1, "removed": 2, "kept": 0, "left": 0 }));
    let entries = run(&["lists"]).json()["entries"].clone();
    let prefixes: Vec<_> =
        entries.as_array().unwrap().iter().map(|e| e["prefix"].clone()).collect();
    assert_eq!(prefixes, ["192.0.2.0/24", "192.0.2.1/32", "198.51.100.0/24"]);
    let forgotten = run(&["forget", "192.0.2.1", "203.0.113.1"]);
    assert_eq!(forgotten.code, Some(1), "{forgotten:?}");
    let said: Value = serde_json::from_str(&forgotten.stdout).unwrap();
    assert_eq!(
        said,
        json!({ "schema": "equic.gateway.forget/1", "forgotten": ["192.0.2.1/32"], "missing": ["203.0.113.1/32"] })
    );
}

/// Runs the guide's commands that show how much memory a gateway takes. The only change is the name
/// of the gateway.
#[test]
fn gateway_memory_is_shown_by_the_commands_of_the_guide() {
    let Some(lab) = lab("cli-memory", 1) else { return };
    let name = &unique("memory");
    let (_gateway, _) = start(lab.server(), name, &[]);
    let guide = std::fs::read_to_string(format!("{ROOT}/docs/guide.md")).unwrap();
    let lines: Vec<&str> = guide.lines().map(str::trim).collect();
    let at = lines.iter().position(|line| line.contains("memlock")).unwrap();
    let script = lines[at - 1..=at]
        .join("\n")
        .replace("equic gateway status", &format!("{EQUIC} gateway status --gateway {name}"));
    let mut sh = std::process::Command::new("sh");
    sh.args(["-c", &script]);
    let said = crate::common::finish(sh).ok();
    let size: f64 = said.trim().strip_suffix(" MiB").unwrap().parse().unwrap();
    assert!(size > 5.0, "{script}\n{said}");
}

#[test]
fn gateway_ends_on_a_signal_and_a_second_one_is_refused() {
    let Some(lab) = lab("cli-second", 1) else { return };
    let server = lab.server();
    let name = &unique("first");
    let (gateway, ready) = start(server, name, &[]);
    let second = equic_in(server, &["gateway", "run", "-i", "eth0", "-p", "444"]);
    assert_eq!(second.code, Some(1), "{second:?}");
    for part in [
        "interface `eth0` already has an XDP program",
        "`equic_gateway`",
        "equic gateway detach --gateway eth0",
    ] {
        assert!(second.stderr.contains(part), "{second:?}");
    }
    let folder = tempfile::tempdir().unwrap();
    let own = config_of_own_gateway(folder.path(), "eth0", "busy", 444);
    let busy = equic_in(server, &["serve", "--listen", "[::]:444", "--gateway-config", &own]);
    assert!(busy.code == Some(1) && busy.stderr.contains("already has an XDP program"), "{busy:?}");
    assert_eq!(attached(server), ready["program_id"].as_u64());
    assert!(gateway.terminate().success());
    assert_eq!(attached(server), None);
}

#[test]
fn gateway_leaves_nothing_if_an_interface_is_missing() {
    let Some(lab) = lab("cli-partly", 1) else { return };
    let server = lab.server();
    let args = ["gateway", "run", "-i", "eth0", "-i", "eth1", "-p", "443"];
    let out = equic_in(server, &args);
    assert_eq!(out.code, Some(1), "{out:?}");
    assert!(out.stderr.contains("no network interface `eth1`"), "{out:?}");
    assert_eq!(attached(server), None);
}

#[test]
fn gateway_that_is_killed_leaves_its_interface() {
    let Some(lab) = lab("cli-killed", 1) else { return };
    let (mut gateway, _) = start(lab.server(), &unique("killed"), &[]);
    gateway.signal(nix::sys::signal::Signal::SIGKILL);
    gateway.wait();
    eventually("the interface is free", || attached(lab.server()).is_none().then_some(()));
}

#[test]
fn gateway_survives_its_terminal_under_nohup() {
    let Some(lab) = lab("cli-nohup", 1) else { return };
    let name = unique("nohup");
    let mut nohup = lab.server().command("nohup");
    nohup.arg(EQUIC).stderr(std::process::Stdio::null());
    let args = ["gateway", "run", "-i", "eth0", "-p", "443", "--name", &name, "--json"];
    let gateway = Running::start(nohup, &args);
    gateway.event("ready");
    gateway.signal(nix::sys::signal::Signal::SIGHUP);
    gateway.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(gateway.event("left")["why"], "SIGTERM");
}

#[test]
fn gateway_with_once_ends_with_its_interface() {
    let Some(lab) = lab("cli-gone", 1) else { return };
    let (mut gateway, _) = start(lab.server(), &unique("gone"), &["--once"]);
    let mut ip = lab.server().command("ip");
    ip.args(["link", "delete", "eth0"]);
    crate::common::finish(ip).ok();
    assert_eq!(gateway.event("detached")["interface"]["name"], "eth0");
    gateway.event("left");
    assert!(gateway.wait().success());
}

#[test]
fn gateway_dry_run_drops_nothing_and_its_events_say_so() {
    let Some(lab) = lab("cli-dry", 1) else { return };
    let (server, client) = (lab.server(), lab.client(0));
    let name = &unique("dry");
    let (gateway, _) = start(server, name, &["--dry-run", "--events"]);
    let target = format!("{}:443", v4(server));
    // These packets are too short for a short header packet.
    let flood = [
        "net",
        "flood",
        "garbage",
        "--target",
        &target,
        "--size",
        "20",
        "--packets",
        "10",
        "--duration",
        "10s",
    ];
    equic_lab_in(client, &flood).ok();
    let drop = gateway.event("drop");
    let packet = &drop["packet"];
    assert_eq!(
        (&packet["reason"], &packet["dropped"]),
        (&"tiny_short".into(), &false.into()),
        "{drop}"
    );
    eventually("all are counted", || (verdicts(&status(name), "tiny_short") == 10).then_some(()));
    let seen = status(name);
    assert_eq!((&seen["dry_run"], &seen["services"][0]["dropped"]), (&true.into(), &0.into()));
    let text = equic(&["gateway", "status", "--gateway", name]).ok();
    assert!(text.contains("dry run: the gateway drops nothing"), "{text}");
    assert!(gateway.terminate().success());
}
