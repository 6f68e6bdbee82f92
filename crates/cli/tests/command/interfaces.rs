//! Tests of interfaces that move to another namespace, are renamed or are replaced, of other kinds
//! of namespaces, and of gateways in other network namespaces.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use super::daemon::{Daemon, ip, text_of};
use crate::common::{EQUIC, Out, Running, equic, equic_in, eventually, finish, lab, unique};

/// A BPF file system in its own directory. It is unmounted when the value is dropped.
struct BpfFs(tempfile::TempDir);

impl BpfFs {
    fn mount() -> BpfFs {
        let fs = BpfFs(tempfile::tempdir().expect("a folder"));
        let mut mount = Command::new("mount");
        mount.args(["-t", "bpf", "-o", "mode=0700", "bpf", text_of(fs.0.path())]);
        finish(mount).ok();
        fs
    }

    fn unmount(&self) -> Out {
        let mut umount = Command::new("umount");
        umount.args(["--lazy", text_of(self.0.path())]);
        finish(umount)
    }

    fn dir(&self) -> PathBuf {
        self.0.path().join("pin")
    }
}

impl Drop for BpfFs {
    fn drop(&mut self) {
        self.unmount();
    }
}

/// Returns whether an XDP program is attached to an interface, as `ip` reports it.
fn attached(host: &equic_netns::Namespace, interface: &str) -> bool {
    let mut ip = host.command("ip");
    ip.args(["link", "show", interface]);
    finish(ip).ok().contains("xdp")
}

#[test]
fn interface_that_moves_is_reported_and_attached_when_it_comes_back() {
    let Some(lab) = lab("cli-moved", 1) else { return };
    let (server, client) = (lab.server(), lab.client(0));
    let daemon = Daemon::new("moved");
    daemon.configure("", "interfaces = [\"eth1\"]\nwait = true", "");
    let gateway = daemon.run(server, &[]);
    for index in ["", "index 4242"] {
        ip(server, &format!("link add eth1 {index} type veth peer name peer1"));
        daemon.await_interface("eth1", "attached");
        // In the new namespace, another interface already has this index, so the moved interface
        // gets a new one.
        ip(client, "link add other index 4242 type veth peer name other1");
        ip(server, &format!("link set eth1 netns {}", client.name));
        assert!(gateway.event("detached")["why"].as_str().unwrap().contains("moved"));
        daemon.await_interface("eth1", "missing");
        let told = daemon.condition("interface eth1").expect("it is reported");
        assert!(told.contains("moved to another network namespace"), "{told}");
        assert!(
            daemon
                .equic(&["status"])
                .ok()
                .contains("attached to no interface, so nothing is protected")
        );
        assert!(!attached(client, "eth1"), "the configuration is not for that namespace");
        // The interface is moved back.
        ip(client, &format!("link set eth1 netns {}", server.name));
        daemon.await_interface("eth1", "attached");
        assert!(attached(server, "eth1"));
        ip(server, "link set eth1 up");
        eventually("it is well again", || {
            daemon.condition("interface eth1").is_none().then_some(())
        });
        ip(server, "link delete peer1");
        assert_eq!(gateway.event("detached")["why"], "interface gone");
        daemon.await_interface("eth1", "missing");
        ip(client, "link delete other");
    }
    assert!(gateway.terminate().success());
}

#[test]
fn interface_that_is_no_longer_configured_is_not_reported_as_well() {
    let Some(lab) = lab("cli-unasked", 1) else { return };
    let daemon = Daemon::new("unasked");
    daemon.configure("", "interfaces = [\"eth0\", \"nosuch0\"]\nwait = true", "");
    let log = daemon.path("log");
    let mut command = lab.server().command(EQUIC);
    command.stderr(std::fs::File::create(&log).unwrap());
    let gateway = daemon.run_with(command, &["--log", "text"]);
    eventually("it is reported", || daemon.condition("interface nosuch0"));
    daemon.configure("", "interfaces = [\"eth0\"]\nwait = true", "");
    daemon.equic(&["reload"]).ok();
    assert_eq!(gateway.event("unconfigured")["about"], "interface nosuch0");
    assert_eq!(daemon.condition("interface nosuch0"), None);
    assert!(gateway.terminate().success());
    let log = std::fs::read_to_string(&log).unwrap();
    assert!(log.contains("interface nosuch0: no longer in the configuration"), "{log}");
    assert!(!log.contains("interface nosuch0: the problem ended"), "{log}");
}

#[test]
fn interface_that_takes_the_name_of_another_is_protected_in_its_place() {
    let Some(lab) = lab("cli-replaced", 1) else { return };
    let server = lab.server();
    let daemon = Daemon::new("replaced");
    daemon.configure("", "interfaces = [\"eth1\"]\nwait = true", "");
    let gateway = daemon.run(server, &[]);
    ip(server, "link add eth1 type veth peer name peer1");
    daemon.await_interface("eth1", "attached");
    ip(server, "link set eth1 name old1");
    ip(server, "link add eth1 type veth peer name peer2");
    eventually("the program has moved", || {
        (attached(server, "eth1") && !attached(server, "old1")).then_some(())
    });
    assert_eq!(daemon.interface("eth1"), "attached");
    // The interface that now has the name has another XDP program, so the gateway must stay
    // attached to the old interface.
    ip(server, "link set eth1 name old2");
    let foreign = super::daemon::foreign::attach_first(server, "eth1");
    let told = eventually("it is reported", || {
        daemon.condition("interface eth1").filter(|told| told.contains("another interface"))
    });
    assert!(told.contains("not protected") && told.contains(&foreign.to_string()), "{told}");
    assert!(attached(server, "old2"));
    ip(server, "link set dev eth1 xdp off");
    eventually("the program has moved", || {
        (attached(server, "eth1") && !attached(server, "old2")).then_some(())
    });
    assert!(gateway.terminate().success());
    assert!(!attached(server, "eth1"));
}

#[test]
fn interface_alternative_names_are_accepted() {
    let Some(lab) = lab("cli-altname", 1) else { return };
    let server = lab.server();
    let long = "a-name-that-is-longer-than-those-of-interfaces";
    for name in ["wan0", long] {
        ip(server, &format!("link property add dev eth0 altname {name}"));
    }
    let fs = BpfFs::mount();
    let daemon = Daemon::new("altname");
    let config = |name: &str| {
        daemon.configure(
            "",
            &format!("interfaces = [\"{name}\"]\npin = \"{}\"", text_of(&fs.dir())),
            "",
        );
    };
    config("wan0");
    let gateway = daemon.run(server, &[]);
    let seen = |name: &str| {
        assert_eq!(daemon.interface(name), "attached");
        let status = daemon.status();
        assert_eq!(status["report"]["conditions"], serde_json::json!([]), "{status}");
    };
    seen("wan0");
    for name in ["eth0", "wan0", long] {
        let status = equic_in(server, &["gateway", "status", "--json", "--gateway", name]).json();
        assert_eq!(status["name"], daemon.name.as_str(), "{name}");
    }
    // The configuration uses another name of the same interface. The program must stay attached.
    let before = daemon.status()["program_id"].clone();
    config(long);
    daemon.equic(&["reload"]).ok();
    seen(long);
    drop(gateway);
    let gateway = daemon.run(server, &[]);
    seen(long);
    assert_eq!(daemon.status()["program_id"], before);
    let check = equic_in(server, &["gateway", "check", text_of(&daemon.path("equic.toml"))]);
    assert!(!check.stderr.contains("there is no interface"), "{check:?}");
    // The interface must stay protected when it loses its alternative name.
    ip(server, &format!("link property del dev eth0 altname {long}"));
    let told = eventually("it is reported", || daemon.condition(&format!("interface {long}")));
    assert!(told.contains("is called eth0 now"), "{told}");
    let detach = ["gateway", "detach", "--gateway", &daemon.name, "-i", "wan0"];
    assert!(equic_in(server, &detach).ok().contains("detached from eth0"));
    drop(gateway);
}

#[test]
fn interface_under_two_names_is_protected_once() {
    let Some(lab) = lab("cli-twonames", 1) else { return };
    let server = lab.server();
    ip(server, "link property add dev eth0 altname wan0");
    let daemon = Daemon::new("twonames");
    let configure = |keys: &str| daemon.configure("", keys, "max_connections = 5");
    configure("interfaces = [\"eth0\", \"wan0\"]");
    let check = equic_in(server, &["gateway", "check", text_of(&daemon.path("equic.toml"))]);
    assert!(
        check.stderr.contains("`wan0` and `eth0` are two names of the same interface"),
        "{check:?}"
    );
    for keys in ["", "\nwait = true"] {
        configure(&format!("interfaces = [\"eth0\", \"wan0\"]{keys}"));
        let gateway = daemon.run(server, &[]);
        daemon.await_interface("eth0", "attached");
        daemon.await_interface("wan0", "same");
        let told = daemon.condition("interface wan0").expect("it is reported");
        assert!(told.contains("is another name of eth0"), "{told}");
        assert!(!daemon.equic(&["status"]).ok().contains("not protected"));
        // Configure only the other name, then both names in reverse order, and then only the first
        // name.
        configure(&format!("interfaces = [\"wan0\"]{keys}"));
        daemon.equic(&["reload"]).ok();
        daemon.await_interface("wan0", "attached");
        assert_eq!(daemon.condition("interface wan0"), None);
        configure(&format!("interfaces = [\"eth0\", \"wan0\"]{keys}"));
        daemon.equic(&["reload"]).ok();
        daemon.await_interface("eth0", "same");
        assert_eq!(daemon.interface("wan0"), "attached");
        configure(&format!("interfaces = [\"eth0\"]{keys}"));
        daemon.equic(&["reload"]).ok();
        daemon.await_interface("eth0", "attached");
        // A detach by an operator must count for all names of the interface.
        configure(&format!("interfaces = [\"eth0\", \"wan0\"]{keys}"));
        daemon.equic(&["reload"]).ok();
        daemon.await_interface("wan0", "same");
        let detach = ["gateway", "detach", "--gateway", &daemon.name, "-i", "eth0"];
        equic_in(server, &detach).ok();
        let why = gateway.event("left")["why"].as_str().unwrap().to_owned();
        assert!(why.contains("detached the gateway from its last interface"), "{why}");
        drop(gateway);
        assert!(!attached(server, "eth0"));
    }
}

#[test]
fn pinned_gateway_starts_again_after_its_interface_moved() {
    let Some(lab) = lab("cli-pinmoved", 1) else { return };
    let (server, client) = (lab.server(), lab.client(0));
    let fs = BpfFs::mount();
    let daemon = Daemon::new("pinmoved");
    let pin = fs.dir();
    ip(server, "link add eth1 type veth peer name peer1");
    for (interfaces, stays) in [("[\"eth0\", \"eth1\"]", true), ("[\"eth1\"]", false)] {
        daemon.configure(
            "",
            &format!("interfaces = {interfaces}\npin = \"{}\"", text_of(&pin)),
            "",
        );
        drop(daemon.run(server, &[]));
        ip(server, &format!("link set eth1 netns {}", client.name));
        let peer = if stays { "peer2" } else { "peer3" };
        ip(server, &format!("link add eth1 type veth peer name {peer}"));
        ip(client, "link set eth1 name eth9");
        if stays {
            // A takeover from this other namespace would leave the interface in the first one
            // unprotected, so it must fail.
            let config = daemon.path("equic.toml");
            let wrong = ["gateway", "run", "--config", text_of(&config), "-i", "eth9"];
            let wrong = equic_in(client, &wrong);
            assert_eq!(wrong.code, Some(1), "{wrong:?}");
            assert!(wrong.stderr.contains("in another network namespace"), "{wrong:?}");
            assert!(attached(server, "eth0") && attached(client, "eth9"));
        }
        let gateway = daemon.run(server, &[]);
        daemon.await_interface("eth1", "attached");
        assert!(attached(server, "eth1") && !attached(client, "eth9"));
        assert!(gateway.terminate().success());
        equic(&["gateway", "detach", "--pin", text_of(&pin)]).ok();
        ip(client, "link delete eth9");
    }
}

#[test]
fn pinned_gateway_reports_that_its_file_system_is_gone() {
    let Some(lab) = lab("cli-unmounted", 1) else { return };
    let fs = BpfFs::mount();
    let daemon = Daemon::new("unmounted");
    daemon.configure("", &format!("interfaces = [\"eth0\"]\npin = \"{}\"", text_of(&fs.dir())), "");
    let gateway = daemon.run(lab.server(), &[]);
    assert_eq!(daemon.status()["report"]["conditions"], serde_json::json!([]));
    fs.unmount().ok();
    let told = eventually("it is reported", || daemon.condition("pins"));
    assert!(told.contains("unmounted") && told.contains("mount -t bpf"), "{told}");
    assert!(daemon.equic(&["status"]).ok().contains("warning: pins: "));
    assert_eq!(daemon.interface("eth0"), "attached", "it protects as before");
    drop(gateway);
}

#[test]
fn interface_on_top_of_an_unprotected_one_is_reported() {
    let Some(lab) = lab("cli-stacked", 1) else { return };
    let server = lab.server();
    ip(server, "link add link eth0 name top0 type macvlan mode bridge");
    ip(server, "link set top0 up");
    let daemon = Daemon::new("stacked");
    daemon.configure("", "interfaces = [\"top0\"]", "");
    let gateway = daemon.run(server, &[]);
    let told = eventually("it is reported", || daemon.condition("interface top0"));
    assert!(told.contains("macvlan on top of eth0") && told.contains("Protect eth0"), "{told}");
    daemon.configure("", "interfaces = [\"eth0\"]", "");
    daemon.equic(&["reload"]).ok();
    eventually("all is well", || {
        (daemon.status()["report"]["conditions"] == serde_json::json!([])).then_some(())
    });
    assert!(gateway.terminate().success());
}

/// Returns a command that runs in a time namespace whose clocks are a million seconds ahead.
fn later(host: &equic_netns::Namespace) -> Command {
    let mut command = host.command("unshare");
    command.args(["--time", "--monotonic", "1000000", "--boottime", "1000000"]);
    command.args(["--fork", "--kill-child", EQUIC.path()]);
    command
}

#[test]
fn time_namespaces_do_not_matter_to_gateway_and_servers() {
    let Some(lab) = lab("cli-timens", 1) else { return };
    let server = lab.server();
    for gateway_is_later in [false, true] {
        let (name, listen) = (unique("timens"), "[::]:443");
        let here = || server.command(EQUIC);
        let (of_gateway, of_server) =
            if gateway_is_later { (later(server), here()) } else { (here(), later(server)) };
        let args = ["gateway", "run", "-i", "eth0", "-p", "443", "--json", "--name", &name];
        let gateway =
            Running::start(of_gateway, &[&args[..], &["--max-connections", "5"]].concat());
        gateway.event("ready");
        let args = ["serve", "--json", "--gateway", &name, "--listen", listen];
        let serving = Running::start(of_server, &args);
        let port = serving.event("ready")["port"].clone();
        assert_eq!(port, 443);
        let target = ["--gateway", name.as_str()];
        let run = |args: &[&str]| equic(&[&["gateway"], args, &target[..]].concat());
        let status = run(&["status", "--json"]).json();
        let ledger = &status["ledgers"][0];
        assert_eq!((&ledger["alive"], &ledger["counts"]), (&true.into(), &true.into()), "{status}");
        assert!(status["uptime_s"].as_f64().unwrap() < 10_000.0, "{status}");
        assert_eq!(status["owner"]["alive"], true, "{status}");
        assert_eq!(status["report"]["conditions"], serde_json::json!([]));
        // Entries with an expiry time must be valid for processes in both time namespaces.
        run(&["deny", "192.0.2.1", "--for", "1h"]).ok();
        let mut lists = later(server);
        lists.args(["gateway", "lists", "--json"]).args(target);
        for lists in [run(&["lists", "--json"]), finish(lists)] {
            assert_eq!(lists.json()["entries"].as_array().map(Vec::len), Some(1));
        }
        drop(serving);
        eventually("the server is missed", || {
            let left = run(&["status", "--json"]).json()["ledgers"].as_array()?.len();
            (left == 0).then_some(())
        });
        drop(gateway);
    }
}

/// Returns the names of the gateways that `status --list` or `--all` prints.
fn listed(out: Out) -> Vec<String> {
    let json: Value = out.json();
    let gateways = json["gateways"].as_array().expect("gateways").iter();
    gateways.map(|one| one["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn discovery_is_limited_to_this_network_namespace() {
    let Some(lab) = lab("cli-apart", 2) else { return };
    let (server, first, second) = (lab.server(), lab.client(0), lab.client(1));
    let (name, other) = (unique("apart"), unique("apart-other"));
    let one = Running::gateway(server, &name, &[]);
    let program = one.event("ready")["program_id"].clone();
    let _far = Running::gateway(first, &other, &[]);
    _far.event("ready");
    let status = |host, rest: &[&str]| equic_in(host, &[&["gateway", "status"], rest].concat());
    assert_eq!(status(server, &["--json"]).json()["name"], name.as_str());
    assert_eq!(status(first, &["--json"]).json()["name"], other.as_str());
    assert_eq!(listed(status(server, &["--list", "--json"])), std::slice::from_ref(&name));
    assert_eq!(listed(status(second, &["--list", "--json"])), Vec::<String>::new());
    let all = listed(status(second, &["--all", "--json"]));
    assert!(all.contains(&name) && all.contains(&other), "{all:?}");
    // Unless a gateway is named, commands must never choose one of another namespace.
    for args in [&["status"][..], &["deny", "192.0.2.1"], &["detach"], &["lists"]] {
        let refused = equic_in(second, &[&["gateway"], args].concat());
        assert_eq!(refused.code, Some(1), "{refused:?}");
        let said = &refused.stderr;
        assert!(said.contains("no gateway runs in this network namespace"), "{said}");
        assert!(said.contains(&name) && said.contains("--gateway"), "{said}");
    }
    // A name or a program ID must find the gateway from any namespace.
    for selector in [name.clone(), program.to_string()] {
        let found = status(second, &["--json", "--gateway", &selector]).json();
        assert_eq!(found["program_id"], program);
    }
    // If two gateways have the same name, the one in this namespace must be chosen.
    let _twin = Running::gateway(second, &name, &[]);
    let twin = _twin.event("ready")["program_id"].clone();
    assert_eq!(status(server, &["--json", "--gateway", &name]).json()["program_id"], program);
    assert_eq!(status(second, &["--json", "--gateway", &name]).json()["program_id"], twin);
    let both = status(first, &["--gateway", &name]);
    assert!(both.code == Some(1) && both.stderr.contains("several gateways match"), "{both:?}");
}
