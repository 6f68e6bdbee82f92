//! Changes every key of the configuration by a reload of a running gateway. Either the new value
//! must be in force afterwards, or the reload must be refused with the key's name, and nothing may
//! have changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use equic_gateway::{Config, Key, SERVICE_SETTINGS, ServiceSetting, SettingValue};
use serde_json::{Value, json};

use crate::common::{EQUIC, Out, Running, equic, eventually, finish, lab, unique};

/// Expected result of a changed key.
#[derive(Debug, Clone)]
enum Then {
    /// The change is in force: this part of [`Scene::seen`] has this value. Nothing else may have
    /// changed.
    Live(&'static str, Value),
    /// The reload is refused. The error has "needs a restart: " and this text.
    Restart(&'static str),
}
use Then::{Live, Restart};

/// A change to test: the key, its new value as TOML (empty to remove the key or the table), and the
/// expected result.
type Row = (&'static str, String, Then);

/// A configuration file: its tables, each with keys and their values as TOML.
type Document = BTreeMap<&'static str, Vec<(String, String)>>;

/// A gateway with a configuration file and list files.
struct Scene {
    folder: tempfile::TempDir,
    name: String,
}

impl Scene {
    fn new() -> Scene {
        let scene = Scene { folder: tempfile::tempdir().unwrap(), name: unique("keys") };
        let write = |file: &str, text: &str| std::fs::write(scene.path().join(file), text).unwrap();
        write("deny", "198.51.100.1\n");
        write("more", "198.51.100.2\n");
        write("allow", "203.0.113.2\n");
        scene
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn base(&self) -> Document {
        let table = |keys: &[(&str, &str)]| {
            keys.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let quoted = |text: &str| format!("\"{text}\"");
        let socket = quoted(self.path().join("socket").to_str().unwrap());
        let name = quoted(&self.name);
        [
            (
                "",
                table(&[
                    ("deny", "[\"192.0.2.1\"]"),
                    ("allow", "[\"203.0.113.1\"]"),
                    ("deny_files", "[\"deny\"]"),
                    ("allow_files", "[\"allow\"]"),
                ]),
            ),
            ("gateway", table(&[("name", &name), ("interfaces", "[\"eth0\"]")])),
            ("gateway.socket", table(&[("path", &socket)])),
            ("ban", table(&[("times", "1000")])),
            ("service", table(&[("name", "\"web\""), ("listen", "[\"443\"]")])),
            (
                "service.override",
                table(&[("prefixes", "[\"198.51.100.0/24\"]"), ("max_connections", "5")]),
            ),
        ]
        .into()
    }

    fn write(&self, document: &Document) {
        let mut text = String::new();
        for (table, keys) in document {
            match *table {
                "" => {}
                "service" | "service.override" => writeln!(text, "[[{table}]]").unwrap(),
                _ => writeln!(text, "[{table}]").unwrap(),
            }
            for (key, value) in keys {
                writeln!(text, "{key} = {value}").unwrap();
            }
        }
        std::fs::write(self.path().join("equic.toml"), text).unwrap();
    }

    /// Returns the configuration file with one key changed.
    fn changed(&self, key: &str, value: &str) -> Document {
        let mut document = self.base();
        if let Some((table, _)) = document.iter().find(|(table, _)| **table == key) {
            let table = *table;
            // Adding the table `service` appends a second service. The table `gateway` keeps its
            // interfaces, because they are required.
            if table == "gateway" {
                document.get_mut(table).unwrap().retain(|(key, _)| key == "interfaces");
            } else if value.is_empty() {
                document.remove(table);
            } else {
                document.get_mut(table).unwrap().push((value.to_owned(), "[\"8444\"]".to_owned()));
            }
            return document;
        }
        let (table, key) = key.rsplit_once('.').unwrap_or(("", key));
        let keys = document.get_mut(table).unwrap_or_else(|| panic!("no table {table}"));
        keys.retain(|(other, _)| other != key);
        keys.push((key.to_owned(), value.to_owned()));
        document
    }

    fn equic(&self, args: &[&str]) -> Out {
        equic(&[&["gateway"], args, &["--gateway", &self.name]].concat())
    }

    /// Returns the whole configuration as the running gateway shows it.
    fn seen(&self) -> Value {
        let status = self.equic(&["status", "--json"]).json();
        let lists = self.equic(&["lists", "--json"]).json();
        let entries = lists["entries"].as_array().unwrap().iter();
        let lists: BTreeMap<String, Value> = entries
            .map(|entry| (entry["prefix"].as_str().unwrap().to_owned(), entry["action"].clone()))
            .collect();
        let mut service = status["services"][0].clone();
        for count in ["packets", "bytes", "dropped", "would_drop", "verdicts", "adaptive"] {
            service.as_object_mut().unwrap().remove(count);
        }
        let report = &status["report"];
        json!({
            "name": status["name"], "dry_run": status["dry_run"], "lease": status["lease"],
            "events": status["events"], "pin": status["pin"], "interfaces": report["interfaces"],
            "ban": report["ban_rules"], "lists": lists, "service": service,
            "services": status["services"].as_array().unwrap().len(),
            "socket": self.path().join("socket").exists(),
        })
    }
}

fn service(key: &'static str, at: &'static str, value: &str) -> Row {
    (key, value.to_owned(), Live(at, value.trim_matches('"').into()))
}

/// Returns a change of the deny or allow list, and the entries that both lists must have
/// afterwards.
fn lists(key: &'static str, value: &str, deny: &[&str], allow: &[&str]) -> Row {
    let denied = deny.iter().map(|prefix| ((*prefix).to_owned(), json!("deny")));
    let allowed = allow.iter().map(|prefix| ((*prefix).to_owned(), json!("allow")));
    let all: BTreeMap<String, Value> = denied.chain(allowed).collect();
    (key, value.to_owned(), Live("/lists", json!(all)))
}

fn list_rows() -> Vec<Row> {
    let (denied, allowed) = ("192.0.2.1/32", ["203.0.113.1/32", "203.0.113.2/32"]);
    vec![
        lists("deny", "[\"192.0.2.9\"]", &["192.0.2.9/32", "198.51.100.1/32"], &allowed),
        lists("allow", "[]", &[denied, "198.51.100.1/32"], &["203.0.113.2/32"]),
        lists("allow_files", "[]", &[denied, "198.51.100.1/32"], &["203.0.113.1/32"]),
        lists("deny_files", "[\"more\"]", &[denied, "198.51.100.2/32"], &allowed),
    ]
}

fn gateway_rows() -> Vec<Row> {
    let restart = |key: &'static str, value: &str| (key, value.to_owned(), Restart(key));
    vec![
        ("gateway", String::new(), Restart("gateway.name")),
        restart("gateway.name", "\"another\""),
        (
            "gateway.interfaces",
            "[\"eth1\"]".to_owned(),
            Live(
                "/interfaces",
                json!([{ "name": "eth1", "state": "attached", "detail": "native" }]),
            ),
        ),
        restart("gateway.mode", "\"generic\""),
        restart("gateway.wait", "true"),
        ("gateway.dry_run", "true".to_owned(), Live("/dry_run", json!(true))),
        restart("gateway.source_prefix_v4", "24"),
        restart("gateway.source_prefix_v6", "56"),
        restart("gateway.sources", "1024"),
        restart("gateway.handshakes", "1024"),
        restart("gateway.ledger_sources", "1024"),
        restart("gateway.acl_entries", "1024"),
        service("gateway.lease", "/lease", "\"3s\""),
        service("gateway.events", "/events", "\"7/s burst 9\""),
        restart("gateway.poll_every", "\"1s\""),
        restart("gateway.seccomp", "false"),
        restart("gateway.drop_deep_headers", "false"),
        restart("gateway.retry_keys", "\"/nowhere/keys\""),
        restart("gateway.rotation_file", "\"/nowhere/rotation\""),
        restart("gateway.metrics", "\"127.0.0.1:9433\""),
        restart("gateway.pin", "\"/sys/fs/bpf/equic-nowhere\""),
        ("gateway.socket", String::new(), Restart("gateway.socket (removed)")),
        restart("gateway.socket.path", "\"/nowhere/socket\""),
        restart("gateway.socket.owner", "\"root\""),
        restart("gateway.socket.group", "\"root\""),
        restart("gateway.socket.mode", "\"0600\""),
        restart("gateway.socket.users", "[\"root\"]"),
        restart("gateway.socket.max_servers", "3"),
        restart("gateway.socket.max_per_user", "3"),
    ]
}

fn ban_rows(folder: &Path) -> Vec<Row> {
    let state = folder.join("bans").to_str().unwrap().to_owned();
    let number = |key, at, value: u32| (key, value.to_string(), Live(at, value.into()));
    vec![
        ("ban", String::new(), Live("/ban", Value::Null)),
        ("ban.reasons", "[\"rate_new_source\"]".to_owned(), Restart("ban.reasons")),
        service("ban.proof", "/ban/proof", "\"none\""),
        number("ban.times", "/ban/times", 7),
        service("ban.within", "/ban/within", "\"2m\""),
        service("ban.for", "/ban/for", "\"2m\""),
        ("ban.growth", "3.5".to_owned(), Live("/ban/growth", json!(3.5))),
        service("ban.max", "/ban/max", "\"2d\""),
        service("ban.forgive_after", "/ban/forgive_after", "\"2d\""),
        number("ban.sources", "/ban/sources", 128),
        ("ban.dry_run", "true".to_owned(), Live("/ban/dry_run", json!(true))),
        ("ban.state", "\"bans\"".to_owned(), Live("/ban/state", state.into())),
    ]
}

fn service_rows() -> Vec<Row> {
    let mut rows = vec![
        ("service", "[[service]]\nname = \"two\"\nlisten".to_owned(), Restart("service.two (new)")),
        ("service.name", "\"new\"".to_owned(), Restart("service.web (removed)")),
        ("service.listen", "[\"8443\"]".to_owned(), Live("/service/listen", json!(["8443"]))),
        ("service.group", "\"all\"".to_owned(), Restart("service.web.group")),
        ("service.users", "[\"root\"]".to_owned(), Restart("service.web.users")),
    ];
    rows.extend(SERVICE_SETTINGS.iter().map(|setting| {
        let (key, at) = (format!("service.{}", setting.name), format!("/service/{}", setting.name));
        let value = other_value(setting);
        (&*key.leak(), value.to_string(), Live(at.leak(), value))
    }));
    rows
}

/// Returns a value that differs from the default. `retry` is not `always`, because then every client
/// would have to validate its address.
fn other_value(setting: &ServiceSetting) -> Value {
    match setting.default_value() {
        SettingValue::Flag(on) => json!(!on),
        SettingValue::Number(number) => json!(number + 7),
        SettingValue::Rate(_) | SettingValue::Threshold(_) => json!("20/s burst 40"),
        SettingValue::ByteRate(_) => json!("10MB/s burst 1MB"),
        SettingValue::Duration(_) => json!("7s"),
        name => {
            let names = setting.kind.names().iter().rev();
            let mut others = names.filter(|other| **other != name.to_string());
            json!(others.next().expect("another name"))
        }
    }
}

fn override_rows() -> Vec<Row> {
    let own = |rest: Value| {
        let mut own = json!({ "prefixes": ["198.51.100.0/24"], "max_connections": 5 });
        own.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        Live("/service/override", json!([own]))
    };
    let rate = "20/s burst 40";
    let bytes = "10MB/s burst 1MB";
    let text = |value: &str| format!("\"{value}\"");
    // Rates in bytes are displayed without a unit prefix.
    let shown = json!({ "bytes_per_source": "10000000/s burst 1000000" });
    vec![
        ("service.override", String::new(), Live("/service/override", Value::Null)),
        (
            "service.override.prefixes",
            "[\"198.51.100.0/25\"]".to_owned(),
            own(json!({ "prefixes": ["198.51.100.0/25"] })),
        ),
        ("service.override.max_connections", "6".to_owned(), own(json!({ "max_connections": 6 }))),
        ("service.override.new_per_source", text(rate), own(json!({ "new_per_source": rate }))),
        (
            "service.override.packets_per_source",
            text(rate),
            own(json!({ "packets_per_source": rate })),
        ),
        ("service.override.bytes_per_source", text(bytes), own(shown)),
    ]
}

/// Removes the part that the change affects.
fn without(mut seen: Value, at: &str) -> Value {
    if let Some(part) = seen.pointer_mut(at) {
        *part = Value::Null;
    } else {
        // If the key has no value, it is missing in the output.
        let (parent, key) = at.rsplit_once('/').unwrap();
        seen.pointer_mut(parent).unwrap()[key] = Value::Null;
    }
    seen
}

#[test]
fn reload_applies_or_refuses_every_key() {
    let scene = Scene::new();
    let rows: Vec<Row> =
        [list_rows(), gateway_rows(), ban_rows(scene.path()), service_rows(), override_rows()]
            .concat();
    let named: BTreeSet<String> = rows.iter().map(|(key, ..)| (*key).to_owned()).collect();
    let known: BTreeSet<String> = Config::keys().into_iter().collect();
    assert_eq!(named, known, "a row for every key of a configuration, and no other");
    for key in Key::all().map(Key::name) {
        let lives = |(row, _, then): &Row| row.ends_with(key) && matches!(then, Live(..));
        assert!(rows.iter().any(lives), "`set` changes {key} live, and so does a reload");
    }
    let Some(lab) = lab("cli-keys", 1) else { return };
    let server = lab.server();
    let mut link = server.command("ip");
    link.args("link add eth1 type veth peer name peer1".split(' '));
    finish(link).ok();
    scene.write(&scene.base());
    let file = scene.path().join("equic.toml");
    let args = ["gateway", "run", "--json", "--config", file.to_str().unwrap()];
    let gateway = Running::start(server.command(EQUIC), &args);
    gateway.event("ready");
    let base = eventually("its report is there", || {
        let seen = scene.seen();
        (!seen["interfaces"].is_null()).then_some(seen)
    });
    for (key, value, then) in rows {
        scene.write(&scene.changed(key, &value));
        let out = scene.equic(&["reload"]);
        let seen = scene.seen();
        match then {
            Restart(named) => {
                let told = format!("needs a restart: {named}");
                let refused = out.code == Some(1) && out.stderr.lines().any(|l| l.ends_with(&told));
                assert!(refused, "{key}: {out:?}");
                assert_eq!(seen, base, "{key}: refused, and yet something changed");
            }
            Live(at, wanted) => {
                assert_eq!(out.code, Some(0), "{key}: {out:?}");
                let now = seen.pointer(at).cloned().unwrap_or_default();
                assert_eq!(now, wanted, "{key}: in force is something else");
                let was = base.pointer(at).cloned().unwrap_or_default();
                assert_ne!(now, was, "{key}: the row changes nothing");
                assert_eq!(without(seen, at), without(base.clone(), at), "{key}: more has changed");
                scene.write(&scene.base());
                scene.equic(&["reload"]).ok();
                assert_eq!(scene.seen(), base, "{key}: not as before");
            }
        }
    }
    assert!(gateway.terminate().success());
}
