//! Tests of a gateway that keeps running: list files, reload, logs, and changes of its interfaces
//! and disks.

#[path = "../e2e/foreign.rs"]
pub(super) mod foreign;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::{EQUIC, Out, Running, equic, equic_in, eventually, finish, lab, unique};
use equic_netns::Namespace;
use nix::sys::signal::Signal;
use serde_json::Value;

/// A gateway with a configuration file, which runs on the lab's server.
pub(super) struct Daemon {
    folder: tempfile::TempDir,
    pub(super) name: String,
}

impl Daemon {
    pub(super) fn new(name: &str) -> Daemon {
        Daemon { folder: tempfile::tempdir().expect("a folder"), name: unique(name) }
    }

    pub(super) fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    pub(super) fn write(&self, file: &str, text: &str) {
        std::fs::write(self.path(file), text).expect("it can be written");
    }

    /// Writes the configuration file. `gateway` is the content of the table `[gateway]` after the
    /// name.
    pub(super) fn configure(&self, top: &str, gateway: &str, service: &str) {
        let name = &self.name;
        let text = format!(
            "{top}\n[gateway]\nname = \"{name}\"\n{gateway}\n\
             [[service]]\nname = \"web\"\nlisten = [\"443\"]\n{service}\n"
        );
        self.write("equic.toml", &text);
    }

    pub(super) fn run(&self, host: &Namespace, rest: &[&str]) -> Running {
        self.run_with(host.command(EQUIC), rest)
    }

    pub(super) fn run_with(&self, command: Command, rest: &[&str]) -> Running {
        let config = self.path("equic.toml");
        let args = ["gateway", "run", "--json", "--config", config.to_str().expect("a path")];
        let gateway = Running::start(command, &[&args[..], rest].concat());
        gateway.event("ready");
        gateway
    }

    pub(super) fn equic(&self, args: &[&str]) -> Out {
        equic(&[&["gateway"], args, &["--gateway", &self.name]].concat())
    }

    pub(super) fn status(&self) -> Value {
        self.equic(&["status", "--json"]).json()
    }

    /// Returns the state of an interface in the gateway's report: `attached`, `missing`, ...
    pub(super) fn interface(&self, name: &str) -> Value {
        let report = self.status()["report"].clone();
        let all = report["interfaces"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|one| one["name"] == name).unwrap_or_default()["state"].clone()
    }

    pub(super) fn await_interface(&self, name: &str, state: &str) {
        eventually(&format!("{name} is {state}"), || (self.interface(name) == state).then_some(()));
    }

    /// Returns the message of the condition with this subject, or `None` if there is no such
    /// condition.
    pub(super) fn condition(&self, about: &str) -> Option<String> {
        let report = self.status()["report"].clone();
        let all = report["conditions"].as_array()?.clone();
        let found = all.into_iter().find(|one| one["about"] == about)?;
        found["message"].as_str().map(str::to_owned)
    }

    pub(super) fn entries(&self) -> Vec<(String, String, String)> {
        let lists = self.equic(&["lists", "--json"]).json();
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let entries = lists["entries"].as_array().expect("entries").iter();
        entries.map(|e| (text(&e["prefix"]), text(&e["action"]), text(&e["origin"]))).collect()
    }
}

pub(super) fn ip(host: &Namespace, args: &str) {
    let mut ip = host.command("ip");
    ip.args(args.split_whitespace());
    finish(ip).ok();
}

fn listed(prefix: &str, action: &str, origin: &str) -> (String, String, String) {
    (prefix.to_owned(), action.to_owned(), origin.to_owned())
}

pub(super) fn text_of(path: &Path) -> &str {
    path.to_str().expect("a path")
}

#[test]
fn list_file_is_loaded_by_a_command() {
    let Some(lab) = lab("cli-files", 1) else { return };
    let daemon = Daemon::new("files");
    daemon.configure("", "interfaces = [\"eth0\"]\nacl_entries = 100010", "");
    let _gateway = daemon.run(lab.server(), &[]);
    let many = |range: std::ops::Range<u32>| {
        range.fold(String::from("# many\n"), |mut text, index| {
            let _ = writeln!(text, "{}", std::net::Ipv4Addr::from(0x0a00_0000 + index * 2));
            text
        })
    };
    let file = daemon.path("deny");
    let load = || daemon.equic(&["deny", "--file", text_of(&file)]);
    daemon.write("deny", &many(0..100_000));
    assert_eq!(load().ok(), "prefixes: 100000 added, 0 removed, 0 kept\n");
    // An entry that an operator added with a command must stay, whatever the list file contains.
    daemon.equic(&["allow", "10.0.0.2", "192.0.2.7"]).ok();
    daemon.write("deny", &many(1..100_005));
    let out = load().ok();
    assert_eq!(
        out,
        "prefixes: 5 added, 1 removed, 99998 kept; 1 unchanged, because a command or the configuration added them\n"
    );
    // The list file has too many entries. Nothing may change, and the error must name the key.
    daemon.write("deny", &many(0..100_100));
    let out = load();
    assert!(out.code == Some(1) && out.stderr.contains("`acl_entries` of 10010"), "{out:?}");
    assert_eq!(daemon.entries().len(), 100_005);
    // The error must name every invalid line, and nothing may change.
    daemon.write("deny", "192.0.2.1\nnonsense\n192.0.2.3/24\n");
    let out = load();
    for part in ["nothing was changed", "deny:2:1: `nonsense`", "deny:3:1: `192.0.2.3/24`"] {
        assert!(out.code == Some(1) && out.stderr.contains(part), "{part}: {out:?}");
    }
    daemon.write("deny", "192.0.2.1 # only\n192.0.2.1\n");
    assert_eq!(load().ok(), "prefixes: 1 added, 100003 removed, 0 kept\n");
    assert_eq!(
        daemon.entries(),
        [
            listed("10.0.0.2/32", "allow", "command"),
            listed("192.0.2.1/32", "deny", "file"),
            listed("192.0.2.7/32", "allow", "command"),
        ]
    );
    // Loading the allow list must not change the deny list.
    daemon.write("allow", "192.0.2.9\n");
    daemon.equic(&["allow", "--file", text_of(&daemon.path("allow"))]).ok();
    assert_eq!(daemon.entries().len(), 4);
}

#[test]
fn reload_is_everything_or_nothing() {
    let Some(lab) = lab("cli-reload", 1) else { return };
    let server = lab.server();
    ip(server, "link add eth1 type veth peer name peer1");
    let daemon = Daemon::new("reload");
    let top = "deny = [\"192.0.2.1\"]\ndeny_files = [\"deny\"]";
    daemon.write("deny", "198.51.100.1\n198.51.100.2\n");
    daemon.configure(top, "interfaces = [\"eth0\"]", "max_connections = 5");
    // nohup(1) makes programs ignore SIGHUP. A gateway with a configuration file must handle the
    // signal nevertheless.
    let mut nohup = server.command("nohup");
    nohup.arg(EQUIC).stderr(Stdio::null());
    let gateway = daemon.run_with(nohup, &[]);
    daemon.equic(&["deny", "203.0.113.1"]).ok();
    daemon.equic(&["set", "max_connections=6"]).ok();
    let program = daemon.status()["program_id"].clone();

    daemon.write("deny", "198.51.100.2\n198.51.100.3\n");
    daemon.configure(
        top,
        "interfaces = [\"eth0\", \"eth1\"]\ndry_run = true\nlease = \"2s\"",
        "max_connections = 7\nnew_per_source = \"20/s burst 40\"",
    );
    let text = daemon.equic(&["reload"]).ok();
    assert!(text.contains("lists: 1 added, 1 removed, 2 kept"), "{text}");
    let status = daemon.status();
    let service = &status["services"][0];
    assert_eq!(service["max_connections"], 7, "the file's word, not the command's");
    assert_eq!(service["new_per_source"], "20/s burst 40");
    assert_eq!((&status["dry_run"], &status["lease"]), (&true.into(), &"2s".into()));
    assert_eq!(status["program_id"], program);
    daemon.await_interface("eth1", "attached");
    let entries = daemon.entries();
    assert_eq!(
        entries,
        [
            listed("192.0.2.1/32", "deny", "config"),
            listed("198.51.100.2/32", "deny", "config"),
            listed("198.51.100.3/32", "deny", "config"),
            listed("203.0.113.1/32", "deny", "command"),
        ]
    );

    // Changed listen addresses must take effect without a restart.
    let file = std::fs::read_to_string(daemon.path("equic.toml")).unwrap();
    daemon.write("equic.toml", &file.replace("[\"443\"]", "[\"192.0.2.1:443\", \"8443\"]"));
    daemon.equic(&["reload"]).ok();
    let listen = daemon.status()["services"][0]["listen"].clone();
    assert_eq!(listen, serde_json::json!(["8443", "192.0.2.1:443"]));

    // With an invalid configuration, the old one must stay in force. The reload command and
    // `status` must report all errors.
    daemon.write("deny", "nonsense\n");
    let refused = |text: &str, parts: &[&str]| {
        daemon.write("equic.toml", text);
        let out = daemon.equic(&["reload"]);
        let condition = daemon.condition("reload").unwrap_or_default();
        for part in parts {
            assert!(out.code == Some(1) && out.stderr.contains(part), "{part}: {out:?}");
            assert!(condition.contains(part), "{part}: {condition}");
        }
        assert_eq!(daemon.entries(), entries);
        assert_eq!(daemon.status()["services"][0]["max_connections"], 7);
    };
    refused(&file.replace("max_connections", "max_conn"), &["equic.toml:", "web.max_conn: there"]);
    refused(&file.replace("dry_run", "dry").replace("= 7", "= -7"), &["gateway.dry", "-7"]);
    refused(&file.replace("= 7", "= 8"), &["deny:1:1: `nonsense`"]);
    daemon.write("deny", "");
    refused(
        &file.replace("lease", "sources = 100\nacl_entries = 5\nlease").replace("= 7", "= 8"),
        &["needs a restart: gateway.sources", "needs a restart: gateway.acl_entries"],
    );
    refused(&file.replace("\"web\"", "\"new\""), &["service.web (removed)", "service.new (new)"]);
    refused(&format!("{file}[ban]\n"), &["needs a restart: ban (new; "]);
    let told = daemon.condition("reload").expect("it is reported");
    assert!(told.starts_with("the configuration file could not be applied"), "{told}");
    let other = "[[service]]\nname = \"two\"\nlisten = [\"443\"]\n";
    refused(&format!("{file}{other}"), &["already listens at any IPv4, port 443"]);

    // A successful reload must clear the condition.
    daemon.write("deny", "198.51.100.2\n198.51.100.3\n");
    daemon.write("equic.toml", &file.replace("\"eth0\", ", ""));
    gateway.signal(Signal::SIGHUP);
    eventually("it is well", || daemon.condition("reload").is_none().then_some(()));
    eventually("off eth0", || (daemon.status()["interfaces"].as_array()?.len() == 1).then_some(()));
    let reload = daemon.status()["report"]["reload"].clone();
    assert_eq!(reload["ok"], true, "{reload}");
    assert!(gateway.terminate().success());
}

/// A reload adds, changes and removes limits by prefix. A reload with an invalid limit must leave
/// the existing ones unchanged.
#[test]
fn reload_changes_limits_by_prefix() {
    let Some(lab) = lab("cli-override", 1) else { return };
    let daemon = Daemon::new("override");
    let configure = |overrides: &[(&str, u32)]| {
        let mut service = "max_connections = 2\n".to_owned();
        for (prefixes, max) in overrides {
            let _ = write!(
                service,
                "[[service.override]]\nprefixes = [{prefixes}]\nmax_connections = {max}\n"
            );
        }
        daemon.configure("", "interfaces = [\"eth0\"]", &service);
    };
    // Returns whether the gateway's maps now admit a new connection from a source that already
    // holds `held` connections.
    let lets_in = |source: &str, held: u32| {
        let held = held.to_string();
        let said =
            daemon.equic(&["explain", "--json", "--src", source, "--connections", &held]).json();
        match said["reason"].as_str() {
            Some("new") => true,
            Some("quota") => false,
            other => panic!("{other:?}: {said}"),
        }
    };
    // Returns whether `limit` is the exact limit of the source.
    let holds = |source: &str, limit: u32| lets_in(source, limit - 1) && !lets_in(source, limit);
    configure(&[]);
    let gateway = daemon.run(lab.server(), &[]);
    assert!(holds("198.51.100.9", 2) && holds("2001:db8::1", 2));

    configure(&[("\"198.51.100.0/24\"", 5), ("\"2001:db8::/32\"", 1)]);
    daemon.equic(&["reload"]).ok();
    assert!(holds("198.51.100.9", 5) && holds("198.51.100.200", 5) && holds("2001:db8::1", 1));
    assert!(holds("192.0.2.1", 2) && holds("2001:db9::1", 2), "others have the service's");

    // The reload changes one limit, makes one prefix longer, and removes one prefix.
    configure(&[("\"198.51.100.0/25\", \"203.0.113.7\"", 3)]);
    gateway.signal(Signal::SIGHUP);
    eventually("it is the new one", || holds("198.51.100.9", 3).then_some(()));
    assert!(holds("203.0.113.7", 3));
    assert!(holds("198.51.100.200", 2) && holds("2001:db8::1", 2));

    for (wrong, why) in [
        ("\"198.51.100.0/25\", \"198.51.100.0/25\"", "198.51.100.0/25"),
        ("\"2001:db8::1/128\"", "2001:db8::1/128"),
    ] {
        configure(&[(wrong, 9)]);
        let out = daemon.equic(&["reload"]);
        assert!(out.code == Some(1) && out.stderr.contains(why), "{out:?}");
        assert!(daemon.condition("reload").is_some_and(|told| told.contains(why)));
        assert!(holds("198.51.100.9", 3) && holds("203.0.113.7", 3));
    }

    configure(&[]);
    daemon.equic(&["reload"]).ok();
    assert!(holds("198.51.100.9", 2) && holds("203.0.113.7", 2));
    assert!(gateway.terminate().success());
}

#[test]
fn reload_without_a_file_is_refused() {
    let Some(lab) = lab("cli-nofile", 1) else { return };
    let name = unique("nofile");
    // Reset SIGHUP to its default, because tests may run under nohup(1), which makes programs
    // ignore it.
    let run = ["--default-signal=HUP", EQUIC.path(), "gateway", "run", "-i", "eth0", "-p", "443"];
    let gateway = Running::start(
        lab.server().command("env"),
        &[&run[..], &["--json", "--name", &name]].concat(),
    );
    gateway.event("ready");
    let out = equic(&["gateway", "reload", "--gateway", &name]);
    assert!(out.code == Some(1) && out.stderr.contains("without a configuration file"), "{out:?}");
    gateway.signal(Signal::SIGHUP);
    assert_eq!(gateway.event("left")["why"], "SIGHUP");
}

/// Tests warnings about limits that an attacker can evade with forged packets, or can use up at the
/// expense of other clients.
#[test]
fn check_warns_about_settings_that_forged_packets_evade() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("equic.toml");
    let check = |service: &str| {
        let text = format!(
            "[gateway]\ninterfaces = [\"lo\"]\n[gateway.socket]\npath = \"/run/x\"\n\
             [[service]]\nname = \"web\"\nlisten = [\"443\"]\n{service}\n"
        );
        std::fs::write(&path, text).unwrap();
        let out = equic(&["gateway", "check", "--json", text_of(&path)]);
        let json: Value = serde_json::from_str(out.ok().trim()).unwrap();
        let warnings = json["warnings"].as_array().unwrap().clone();
        warnings.iter().map(|one| one.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let about = |warnings: &[String]| -> Vec<String> {
        warnings.iter().map(|one| one.split(": ").next().unwrap().to_owned()).collect()
    };
    let (versions, retry) = ("service.web.version_negotiation", "service.web.retry");
    let ids = "service.web.check_ids";
    for (service, expected) in [
        ("", vec!["service.web"]),
        ("max_connections = 5", vec![]),
        ("new_per_service = \"50/s\"", vec![]),
        ("new_per_source = \"5/s\"", vec![versions, retry]),
        ("new_per_v6_48 = \"5/s\"", vec![versions, retry]),
        ("new_per_source = \"5/s\"\nversion_negotiation = true", vec![retry]),
        ("new_per_source = \"5/s\"\nrefuse_unknown_versions = true", vec![retry]),
        ("new_per_source = \"5/s\"\nretry = \"always\"", vec![]),
        ("new_per_source = \"5/s\"\nretry = \"adaptive\"", vec![]),
        ("retry = \"adaptive\"\nretry_above = \"off\"", vec!["service.web.retry_above"]),
        ("max_connections = 5\npolicy = \"underway\"", vec![versions, retry]),
        ("retry = \"always\"\ncheck_ids = true", vec![ids]),
        ("check_ids = true\nunproven_per_service = \"9/s\"", vec![versions]),
        ("unproven_per_service = \"9/s\"\nversion_negotiation = true", vec![]),
        ("retry = \"always\"\nalso_client = true", vec!["service.web.also_client"]),
    ] {
        assert_eq!(about(&check(service)), expected, "{service}");
    }
    let unbounded = check("new_per_source = \"5/s\"\nretry = \"never\"");
    let told = "only 256 times `new_per_source` limits the number of these packets";
    assert!(unbounded[0].contains(told), "{unbounded:?}");
    assert!(unbounded[1].contains("use up new_per_source of an address"), "{unbounded:?}");
    let bounded = check("new_per_source = \"5/s\"\nnew_per_service = \"9/s\"");
    let told =
        "only 256 times `new_per_source` and `new_per_service` limit the number of these packets";
    assert!(bounded[0].contains(told), "{bounded:?}");
    let unbounded = check("new_per_v6_48 = \"5/s\"");
    assert!(unbounded[0].contains("no rate limits the number of these packets"), "{unbounded:?}");
    let bounded = check("new_per_v6_48 = \"5/s\"\npackets_per_service = \"9/s\"");
    assert!(
        bounded[0].contains("only `packets_per_service` limits the number of these packets"),
        "{bounded:?}"
    );
}

/// Returns the warnings of `check` about a configuration.
fn warnings_about(text: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("equic.toml");
    std::fs::write(&path, text).unwrap();
    let json = equic(&["gateway", "check", "--json", text_of(&path)]).json();
    let warnings = json["warnings"].as_array().unwrap();
    warnings.iter().map(|one| one.as_str().unwrap().to_owned()).collect()
}

#[test]
fn check_warns_about_unknown_users_and_groups() {
    let service = "[[service]]\nname = \"web\"\nlisten = [\"443\"]\nmax_connections = 5\n";
    let of_socket = |keys: &str| {
        let socket = format!("[gateway.socket]\npath = \"/run/x\"\n{keys}\n");
        warnings_about(&format!("[gateway]\ninterfaces = [\"lo\"]\n{socket}{service}"))
    };
    assert_eq!(of_socket("users = [\"root\", \"4711\"]\nowner = \"0\"\ngroup = \"root\""), [""; 0]);
    for (keys, expected) in [
        ("users = [\"root\", \"nosuch1\"]", "gateway.socket.users: there is no user `nosuch1`"),
        ("owner = \"nosuch2\"", "gateway.socket.owner: there is no user `nosuch2`"),
        ("group = \"nosuch3\"", "gateway.socket.group: there is no group `nosuch3`"),
    ] {
        let warnings = of_socket(keys);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].starts_with(expected), "{warnings:?}");
    }
}

/// Tests warnings about settings that protect less than they seem to.
#[test]
fn check_warns_about_settings_that_expose() {
    let check = |gateway: &str, more: &str| {
        let gateway = format!("[gateway]\ninterfaces = [\"lo\"]\n{gateway}\n");
        let service = "[[service]]\nname = \"web\"\nlisten = [\"443\"]\nretry = \"always\"\n";
        let warnings = warnings_about(&format!("{gateway}{service}{more}\n"));
        warnings.iter().map(|one| one.split(": ").next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let socket = |keys: &str| format!("[gateway.socket]\npath = \"/run/x\"\n{keys}");
    for (gateway, more, expected) in [
        ("", "", None),
        ("drop_deep_headers = false", "", Some("gateway.drop_deep_headers")),
        ("metrics = \"0.0.0.0:9433\"", "", Some("gateway.metrics")),
        ("metrics = \"[::]:9433\"", "", Some("gateway.metrics")),
        ("metrics = \"127.0.0.1:9433\"", "", None),
        (socket("mode = \"0777\"").as_str(), "", Some("gateway.socket.mode")),
        (socket("mode = \"0666\"\nusers = [\"root\"]").as_str(), "", Some("gateway.socket.mode")),
        (socket("mode = \"0660\"").as_str(), "", None),
        ("", "new_per_v6_56 = \"9/s\"\nnew_per_v6_48 = \"8/s\"", Some("service.web.new_per_v6_48")),
        (
            "",
            "new_per_v6_64 = \"9/s\"\nnew_per_v6_32 = \"60/min\"",
            Some("service.web.new_per_v6_32"),
        ),
        ("", "new_per_v4_32 = \"9/s\"\nnew_per_v4_24 = \"8/s\"", Some("service.web.new_per_v4_24")),
        ("", "new_per_v4_32 = \"9/s\"\nnew_per_v4_24 = \"9/s\"", None),
        ("", "new_per_v4_32 = \"9/s\"\nnew_per_v6_48 = \"1/s\"", None),
        ("", "[ban]\nproof = \"none\"", None),
        ("", "[ban]", None),
    ] {
        let expected: Vec<&str> = expected.into_iter().collect();
        assert_eq!(check(gateway, more), expected, "{gateway} {more}");
    }
    let banned = |reasons: &str, retry: &str| {
        let ban = format!("[ban]\nproof = \"none\"\nreasons = [\"{reasons}\"]\n");
        let socket = "[gateway]\ninterfaces = [\"lo\"]\n[gateway.socket]\npath = \"/run/x\"\n";
        let service = "[[service]]\nname = \"web\"\nlisten = [\"443\"]\nmax_connections = 5\n";
        warnings_about(&format!("{socket}{ban}{service}retry = \"{retry}\"\n"))
    };
    for (reason, whom) in
        [("quota", "any address that is at its quota"), ("rate_packets", "any address")]
    {
        let warnings = banned(reason, "never");
        assert!(warnings.len() == 1 && warnings[0].starts_with("ban.proof is "), "{warnings:?}");
        assert!(warnings[0].contains(&format!("can get {whom} banned")), "{warnings:?}");
        assert_eq!(banned(reason, "always"), [""; 0]);
    }
}

#[test]
fn check_reports_every_error_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("equic.toml");
    let check = |text: &str| {
        std::fs::write(&path, text).unwrap();
        equic(&["gateway", "check", text_of(&path)])
    };
    let good = "deny = [\"192.0.2.1\"]\n[[service]]\nname = \"web\"\nlisten = [\"443\"]\n";
    let said = check(good).ok();
    assert!(said.contains("1 service, 1 prefix denied, 0 prefixes allowed, bans off"), "{said}");
    let out = check(&good.replace("listen", "lisen").replace("deny =", "denny ="));
    assert_eq!(out.code, Some(2), "{out:?}");
    for part in [
        "equic.toml:1:1: denny: there is no such key; did you mean `deny`",
        "4:1: service.web.lisen",
    ] {
        assert!(out.stderr.contains(part), "{part}: {out:?}");
    }
    let out = equic(&["gateway", "check", "--json", text_of(&path)]);
    let json: Value = serde_json::from_str(&out.stdout).unwrap();
    assert_eq!(out.code, Some(2));
    assert_eq!((&json["schema"], &json["ok"]), (&"equic.gateway.check/1".into(), &false.into()));
    assert_eq!(json["problems"].as_array().unwrap().len(), 3, "{json}");
    assert!(check(&format!("deny_files = [\"gone\"]\n{good}")).stderr.contains("cannot read"));
    // The example configuration must pass the check, because it names no list files.
    equic(&["gateway", "check", crate::common::EXAMPLE]).ok();

    // The configuration is valid, but the operator probably did not intend it.
    let quota = |gateway: &str| {
        format!(
            "[gateway]\n{gateway}\n[[service]]\nname = \"web\"\nlisten = [\"443\"]\nmax_connections = 5\n"
        )
    };
    let doubtful = quota("interfaces = [\"lo\", \"nosuch0\"]");
    let out = check(&doubtful);
    assert_eq!(out.code, Some(0), "{out:?}");
    assert!(
        out.stderr.contains("no interface `nosuch0`") && !out.stderr.contains("`lo`"),
        "{out:?}"
    );
    assert!(out.stderr.contains("the gateway will not start"), "{out:?}");
    assert!(out.stderr.contains("warning: service.web.max_connections: a quota counts"), "{out:?}");
    assert!(out.stderr.lines().all(|line| line.starts_with("equic: warning: ")), "{out:?}");
    let waiting = check(&quota("interfaces = [\"nosuch0\"]\nwait = true")).stderr;
    assert!(waiting.contains("protects the interface when it appears"), "{waiting}");
    let fed = check(&quota("interfaces = [\"lo\"]\n[gateway.socket]\npath = \"/run/x\""));
    assert_eq!((fed.code, fed.stderr.as_str()), (Some(0), ""), "{fed:?}");
    let ids = |gateway: &str, service: &str| {
        let service =
            format!("[[service]]\nname = \"web\"\nlisten = [\"443\"]\ncheck_ids = true\n{service}");
        check(&format!("[gateway]\ninterfaces = [\"lo\"]\n{gateway}\n{service}"))
    };
    let socket = "[gateway.socket]\npath = \"/run/x\"";
    for (doubt, why) in [
        (ids("", ""), "only servers with CAP_SYS_ADMIN can get the keys"),
        (ids(socket, "users = [\"root\"]\n"), "do not get the keys"),
    ] {
        assert_eq!(doubt.code, Some(0), "{doubt:?}");
        let told =
            doubt.stderr.contains("service.web.check_ids: clients of servers that do not make");
        assert!(told && doubt.stderr.contains(why), "{doubt:?}");
    }
    let guarded = "unproven_per_service = \"1000/s\"\nversion_negotiation = true\n";
    let sound = ids(socket, guarded);
    assert_eq!((sound.code, sound.stderr.as_str()), (Some(0), ""), "{sound:?}");
    std::fs::write(&path, doubtful).unwrap();
    let strict = equic(&["gateway", "check", "--strict", text_of(&path)]);
    assert_eq!(strict.code, Some(1), "{strict:?}");
    assert!(strict.stderr.contains("no interface `nosuch0`"), "{strict:?}");
    let json: Value =
        serde_json::from_str(equic(&["gateway", "check", "--json", text_of(&path)]).stdout.trim())
            .unwrap();
    assert_eq!((&json["ok"], json["warnings"].as_array().unwrap().len()), (&true.into(), 2));

    let nameless = check("[[service]]\nlisten = [\"443\"]\n");
    assert!(nameless.stderr.contains("name: the name is missing"), "{nameless:?}");
    assert!(!nameless.stderr.contains("``"), "{nameless:?}");
}

#[test]
fn log_has_changes_and_events() {
    let Some(lab) = lab("cli-log", 1) else { return };
    let daemon = Daemon::new("log");
    daemon.configure("", "interfaces = [\"eth0\"]", "max_connections = 5");
    let log = daemon.path("log");
    let mut command = lab.server().command(EQUIC);
    command.stderr(std::fs::File::create(&log).unwrap());
    let gateway = daemon.run_with(command, &["--log", "json"]);
    daemon.equic(&["set", "max_connections=9", "dry_run=on"]).ok();
    daemon.equic(&["deny", "192.0.2.1"]).ok();
    let lines = || -> Vec<Value> {
        let text = std::fs::read_to_string(&log).unwrap();
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    let logged = |event: &str, key: &str, value: Value| {
        eventually(&format!("{event} with {key} {value}"), || {
            let found = lines();
            found.into_iter().find(|line| line["event"] == event && line[key] == value)
        })
    };
    let set = logged("set", "key", "web.max_connections".into());
    assert_eq!(
        (&set["old"], &set["new"], &set["by"]),
        (&5.into(), &9.into(), &"another process".into())
    );
    logged("set", "key", "gateway.dry_run".into());
    // The process that made the change recorded its own user in the audit record.
    let audit = logged("audit", "what", "set web.max_connections=9 (was 5)".into());
    assert_eq!((&audit["uid"], &audit["process"]), (&0.into(), &"equic".into()), "{audit}");
    assert!(audit["pid"].is_u64() && audit["user"].is_string() && audit["at"].is_string());
    assert_ne!(audit["pid"], gateway.pid(), "{audit}");
    logged("audit", "what", "deny 192.0.2.1/32".into());
    assert_eq!(logged("list", "prefix", "192.0.2.1/32".into())["what"], "denied");
    daemon.equic(&["forget", "192.0.2.1"]).ok();
    logged("list", "what", "forgotten".into());
    let server = ["serve", "--gateway", &daemon.name, "--listen", "[::]:443", "--json"];
    let server = Running::start(lab.server().command(EQUIC), &server);
    server.event("ready");
    logged("server_joined", "pid", server.pid().into());
    let pid = server.pid();
    server.terminate();
    logged("server_left", "pid", pid.into());
    daemon.equic(&["reload"]).ok();
    logged("reload", "ok", true.into());
    assert_eq!(logged("set", "by", "reload".into())["level"], "info");
    daemon.configure("", "interfaces = [\"eth0\"]\nsources = 99", "max_connections = 5");
    assert_eq!(daemon.equic(&["reload"]).code, Some(1));
    assert_eq!(logged("reload", "ok", false.into())["level"], "warning");
    logged("condition", "about", "reload".into());
    assert!(gateway.terminate().success());
    let left = logged("left", "why", "SIGTERM".into());
    assert_eq!(left["schema"], "equic.gateway.log/1");
    let time = left["time"].as_str().unwrap();
    assert!(time.ends_with('Z') && time.contains('T'), "{time}");
    assert_eq!(lines()[0]["event"], "ready");
}

/// With a polling interval of an hour, the gateway can learn about changes only from the kernel's
/// notifications.
#[test]
fn interface_is_protected_as_soon_as_it_appears() {
    let Some(lab) = lab("cli-comes", 1) else { return };
    let server = lab.server();
    let name = unique("comes");
    let args = ["gateway", "run", "-i", "eth1", "-p", "443", "--json", "--name", &name];
    let more = ["-o", "gateway.wait=true", "-o", "gateway.poll_every=1h"];
    let gateway = Running::start(server.command(EQUIC), &[&args[..], &more].concat());
    gateway.event("ready");
    gateway.event("condition");
    let status = || equic(&["gateway", "status", "--json", "--gateway", &name]).json();
    let reported = |state: &str| {
        eventually(&format!("`status` says {state}"), || {
            (status()["report"]["interfaces"][0]["state"] == state).then_some(())
        });
    };
    for _ in 0..3 {
        ip(server, "link add eth1 index 77 type veth peer name peer1");
        assert_eq!(gateway.event("attached")["interface"]["interface"], "eth1");
        reported("attached");
        // An interface is deleted and created again with the same name and index. The gateway must
        // not take this for a detach by an operator.
        ip(server, "link delete eth1");
        ip(server, "link add eth1 index 77 type veth peer name peer1");
        assert_eq!(gateway.event("detached")["why"], "interface gone");
        assert_eq!(gateway.event("attached")["interface"]["ifindex"], 77);
        ip(server, "link delete eth1");
        assert_eq!(gateway.event("detached")["why"], "interface gone");
        reported("missing");
    }
    assert!(gateway.terminate().success());
}

/// Returns the field `Seccomp` of every thread: 0 for no filter, 2 for a filter
/// (proc_pid_status(5)).
fn filters(pid: u32) -> Vec<String> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of = |thread: std::fs::DirEntry| {
        let status = std::fs::read_to_string(thread.path().join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("Seccomp:"))?;
        Some(line.trim().to_owned())
    };
    threads.filter_map(|thread| of(thread.ok()?)).collect()
}

#[test]
fn seccomp_is_on_unless_it_is_disabled() {
    let Some(lab) = lab("cli-seccomp", 1) else { return };
    let server = lab.server();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let run = |more: &[&str]| {
        let name = unique("seccomp");
        let gateway = Running::gateway(server, &name, more);
        gateway.event("ready");
        gateway
    };
    let with = ["--socket", text_of(&socket), "--metrics", "127.0.0.1:9433"];
    let gateway = run(&with);
    let of_threads = filters(gateway.pid());
    assert!(of_threads.len() > 1 && of_threads.iter().all(|one| one == "2"), "{of_threads:?}");
    assert!(gateway.terminate().success());
    let gateway = run(&[&with[..], &["-o", "gateway.seccomp=false"]].concat());
    let of_threads = filters(gateway.pid());
    let ours = filters(std::process::id());
    assert!(of_threads.iter().all(|one| *one == ours[0]), "{of_threads:?}");
    assert!(gateway.terminate().success());
}

#[test]
fn interface_states_follow_the_interfaces() {
    let Some(lab) = lab("cli-comego", 1) else { return };
    let server = lab.server();
    let daemon = Daemon::new("comego");
    daemon.configure("", "interfaces = [\"eth0\", \"eth1\"]\nwait = true", "");
    // One interface is missing, and another program has attached its own XDP program to the other
    // one.
    let foreign = foreign::attach(server, "eth0");
    let mut gateway = daemon.run(server, &[]);
    daemon.await_interface("eth1", "missing");
    daemon.await_interface("eth0", "taken");
    let condition = daemon.condition("interface eth0").unwrap();
    assert!(condition.contains("somebody_elses") && condition.contains(&foreign.to_string()));
    let text = daemon.equic(&["status"]).ok();
    assert!(text.contains("NOT WELL: interface eth1: not protected: there is no such"), "{text}");
    ip(server, "link set dev eth0 xdp off");
    daemon.await_interface("eth0", "attached");
    ip(server, "link add eth1 type veth peer name peer1");
    daemon.await_interface("eth1", "attached");
    ip(server, "link set eth1 up");
    let well = || daemon.status()["report"]["conditions"] == serde_json::json!([]);
    eventually("all is well", || well().then_some(()));

    // When all interfaces have disappeared, the gateway must wait, and continue when one comes
    // back.
    ip(server, "link delete eth1");
    ip(server, "link delete eth0");
    daemon.await_interface("eth1", "missing");
    daemon.await_interface("eth0", "missing");
    assert_eq!(gateway.event("detached")["why"], "interface gone");
    ip(server, "link add eth1 type veth peer name peer1");
    daemon.await_interface("eth1", "attached");
    assert_eq!(daemon.status()["interfaces"].as_array().map(Vec::len), Some(1));

    // The following changes must not detach the program: down and up, another MTU, another name.
    for change in ["set eth1 down", "set eth1 up", "set eth1 mtu 9000", "set peer1 mtu 9000"] {
        ip(server, &format!("link {change}"));
    }
    ip(server, "link set eth1 down");
    ip(server, "link set eth1 name wan0");
    eventually("the new name is told", || daemon.condition("interface eth1"));
    assert!(daemon.condition("interface eth1").unwrap().contains("is called wan0 now"));
    assert_eq!(daemon.interface("eth1"), "attached");
    ip(server, "link set wan0 name eth1");
    eventually("it is reported to be down", || {
        daemon.condition("interface eth1").filter(|what| what.contains("is down"))
    });
    ip(server, "link set eth1 up");
    eventually("its name is told", || daemon.condition("interface eth1").is_none().then_some(()));

    // A detach by an operator must stay in force until the configuration is read again.
    daemon.write("equic.toml", &std::fs::read_to_string(daemon.path("equic.toml")).unwrap());
    ip(server, "link add eth0 type veth peer name peer0");
    daemon.await_interface("eth0", "attached");
    let detach = |rest: &[&str]| {
        equic_in(server, &[&["gateway", "detach", &daemon.name], rest].concat()).ok();
    };
    detach(&["-i", "eth1"]);
    daemon.await_interface("eth1", "detached");
    daemon.equic(&["reload"]).ok();
    daemon.await_interface("eth1", "attached");
    detach(&[]);
    assert!(
        gateway.event("left")["why"]
            .as_str()
            .unwrap()
            .contains("another process detached the gateway")
    );
    assert!(gateway.wait().success());
}

/// A file system of a few kilobytes. It is unmounted when the value is dropped.
struct Disk(PathBuf);

impl Disk {
    fn new(at: PathBuf) -> Disk {
        std::fs::create_dir(&at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=16k", "tmpfs", text_of(&at)]);
        finish(mount).ok();
        Disk(at)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn full_disk_is_reported_and_does_not_end_the_gateway() {
    let Some(lab) = lab("cli-disk", 1) else { return };
    let daemon = Daemon::new("disk");
    let disk = Disk::new(daemon.path("disk"));
    std::fs::write(disk.0.join("filler"), vec![0; 16 << 10]).unwrap();
    let ban = |state: &str| {
        let interfaces = "interfaces = [\"eth0\"]";
        daemon.configure("", &format!("{interfaces}\n[ban]\n{state}"), "");
    };
    ban("");
    let mut command = lab.server().command(EQUIC);
    command.stderr(std::fs::File::options().write(true).open("/dev/full").unwrap());
    let gateway = daemon.run_with(command, &["--log", "text"]);
    let told = eventually("the log cannot be written", || daemon.condition("output"));
    assert!(told.contains("cannot write the log: No space left on device"), "{told}");
    ban("state = \"disk/bans.json\"");
    daemon.equic(&["reload"]).ok();
    let told = eventually("the disk is full", || daemon.condition("ban state"));
    assert!(told.contains("bans.json: No space left on device"), "{told}");
    std::fs::remove_file(disk.0.join("filler")).unwrap();
    eventually("it is well", || daemon.condition("ban state").is_none().then_some(()));
    assert!(disk.0.join("bans.json").exists() && !disk.0.join("bans.json.new").exists());
    assert!(gateway.terminate().success());

    // The ban file is invalid. The gateway must report that and start without bans.
    std::fs::write(disk.0.join("bans.json"), "nonsense").unwrap();
    let gateway = daemon.run(lab.server(), &[]);
    let told = eventually("the file is nonsense", || daemon.condition("ban state"));
    assert!(told.contains("cannot read") && told.contains("bans.json.unread-1"), "{told}");
    let kept = std::fs::read_to_string(disk.0.join("bans.json.unread-1"));
    assert_eq!(kept.unwrap(), "nonsense", "nobody's file is lost");
    assert!(gateway.terminate().success());
}

/// A value that `-o` has set stays in force after a reload, and `reload` and `set` say so.
#[test]
fn reload_names_the_values_that_options_replace() {
    let Some(lab) = lab("cli-options", 1) else { return };
    let daemon = Daemon::new("options");
    daemon.configure("", "interfaces = [\"eth0\"]", "max_connections = 5");
    let _gateway = daemon.run(lab.server(), &["-o", "max_connections=9"]);
    daemon.configure("", "interfaces = [\"eth0\"]", "max_connections = 6");
    let text = daemon.equic(&["reload"]).ok();
    assert!(text.contains("\n  -o: web.max_connections = 9 replaces 6\n"), "{text}");
    assert_eq!(daemon.status()["services"][0]["max_connections"], 9);
    let text = daemon.equic(&["set", "max_connections=7"]).ok();
    assert!(text.contains("options `-o` with which the gateway was started replace"), "{text}");
}

/// The lines that `set` prints must keep the settings when they are in the configuration file.
#[test]
fn set_prints_lines_that_keep_the_settings() {
    let Some(lab) = lab("cli-keep", 1) else { return };
    let daemon = Daemon::new("keep");
    daemon.configure("# Ours.", "interfaces = [\"eth0\"]", "# The service.");
    let gateway = daemon.run(lab.server(), &[]);
    let file = daemon.path("equic.toml");
    eventually("it says how it is", || daemon.status()["report"]["config"].as_str().map(drop));
    let settings = [
        "max_connections=9",
        "policy=strict",
        "check_ids=on",
        "new_per_source=20/s burst 40",
        "bytes_per_source=10MB/s burst 1MB",
        "packets_per_source=off",
        "handshake_timeout=3s",
        "dry_run=on",
        "lease=2s",
        "events=100/s",
    ];
    let set = |args: &[&str]| daemon.equic(&[&["set"], args, &settings].concat());
    let said = set(&[]).ok();
    let heading = format!("these lines in {} keep the settings after a restart:", text_of(&file));
    assert!(said.contains(&heading) && said.contains("\n    max_connections = 9\n"), "{said}");
    let keep = set(&["--json"]).json()["keep"].clone();
    assert_eq!(keep["file"], text_of(&file));
    let lines = |service: &Value| {
        let mut tables = keep["tables"].as_array().unwrap().iter();
        let table = tables.find(|table| table["service"] == *service).unwrap();
        let lines = table["lines"].as_array().unwrap().iter();
        lines.map(|line| line.as_str().unwrap()).collect::<Vec<_>>().join("\n")
    };
    let services = || {
        let mut status = daemon.status();
        (status["services"].take(), status["dry_run"].take(), status["lease"].take())
    };
    let before = services();
    assert_eq!(before.0[0]["max_connections"], 9);

    let text = std::fs::read_to_string(&file).unwrap();
    let kept = text
        .replace("interfaces =", &format!("{}\ninterfaces =", lines(&Value::Null)))
        .replace("# The service.", &lines(&before.0[0]["name"]));
    daemon.write("equic.toml", &kept);
    gateway.signal(Signal::SIGHUP);
    assert_eq!(gateway.event("reload")["ok"], true);
    assert_eq!(services(), before);
}

/// Without a configuration file, the lines have no file.
#[test]
fn set_names_no_file_if_there_is_none() {
    let Some(lab) = lab("cli-unsaved", 1) else { return };
    let name = &unique("unsaved");
    let gateway = Running::gateway(lab.server(), name, &[]);
    gateway.event("ready");
    let set = equic(&["gateway", "set", "max_connections=8", "--json", "--gateway", name]).json();
    assert_eq!(set["keep"]["file"], Value::Null);
    assert_eq!(set["keep"]["tables"][0]["lines"], serde_json::json!(["max_connections = 8"]));
}
