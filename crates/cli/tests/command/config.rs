//! Tests of the example configuration: it loads, contains every key, and states the correct
//! defaults.

use crate::common::{EXAMPLE, equic};
use equic_gateway::{BanConfig, Config, GatewayConfig, ServiceConfig, SocketConfig};
use serde_json::Value;

fn keys(value: &Value) -> Vec<String> {
    value.as_object().expect("a table").keys().cloned().collect()
}

#[test]
fn example_config_has_every_key() {
    let text = std::fs::read_to_string(EXAMPLE).unwrap();
    let config = Config::parse(&text).unwrap_or_else(|error| panic!("{error}"));
    let service = ServiceConfig {
        group: Some("g".to_owned()),
        users: vec!["u".to_owned()],
        ..ServiceConfig::default()
    };
    let ban = BanConfig { state: Some("f".into()), ..BanConfig::default() };
    let mut top = serde_json::to_value(Config::default()).unwrap();
    // All tables of the configuration must be in the example.
    let tables = top.as_object_mut().unwrap();
    assert!(tables.remove("gateway").is_some() && tables.remove("service").is_some());
    assert!(text.contains("\n[ban]\n"));
    let some = || Some("s".to_owned());
    let socket = SocketConfig { owner: some(), group: some(), ..SocketConfig::default() };
    let gateway = GatewayConfig {
        pin: some(),
        retry_keys: some(),
        rotation_file: some(),
        socket: Some(SocketConfig::default()),
        ..GatewayConfig::default()
    };
    let of_gateway = keys(&serde_json::to_value(gateway).unwrap());
    assert!(of_gateway.contains(&"socket".to_owned()) && text.contains("[gateway.socket]"));
    let all = [
        of_gateway.into_iter().filter(|key| key != "socket").collect(),
        keys(&serde_json::to_value(socket).unwrap()),
        keys(&serde_json::to_value(service).unwrap()),
        keys(&serde_json::to_value(ban).unwrap()),
        keys(&serde_json::to_value(top).unwrap()),
    ];
    for key in all.concat() {
        assert!(
            text.lines().any(|line| line.starts_with(&format!("{key} = "))),
            "{key} is not there"
        );
    }
    assert!(config.services.len() == 2 && !config.deny.is_empty() && !config.allow.is_empty());
}

#[test]
fn example_config_has_the_settings_of_the_command() {
    let text = std::fs::read_to_string(EXAMPLE).unwrap();
    let settings = equic(&["gateway", "settings", "--toml"]).ok();
    let (table, settings) = settings.split_once('\n').unwrap();
    assert_eq!(table, "[[service]]");
    assert!(
        text.contains(settings),
        "docs/equic.example.toml must contain what `equic gateway settings --toml` prints after its first line:\n{settings}"
    );
    // A file with the printed table is a configuration.
    let with_name = format!("[[service]]\nname = \"web\"\nlisten = [\"443\"]\n{settings}");
    Config::parse(&with_name).unwrap_or_else(|error| panic!("{error}"));
}

/// The documented defaults, and values after `-o`, which replace those of a file.
#[test]
fn config_options_replace_values_of_the_file() {
    let check = |options: &[&str]| {
        equic(&[&["gateway", "check", EXAMPLE, "--json"], options].concat()).json()
    };
    let plain = check(&[]);
    assert_eq!(plain["replaced"].as_array().unwrap().len(), 0, "{plain}");
    let done = check(&[
        "-o",
        "web.max_connections=7",
        "-o",
        "policy=strict",
        "-o",
        "gateway.mode=generic",
        "-o",
        "ban.times=9",
    ]);
    let of = |key: &str| {
        let all = done["replaced"].as_array().unwrap();
        let found = all.iter().find(|one| one["key"] == key);
        let found = found.unwrap_or_else(|| panic!("{key}: {done}"));
        (found["old"].as_str().unwrap().to_owned(), found["new"].as_str().unwrap().to_owned())
    };
    let pair = |old: &str, new: &str| (old.to_owned(), new.to_owned());
    assert_eq!(of("web.max_connections"), pair("100", "7"));
    assert_eq!(of("web.policy"), pair("\"new\"", "\"strict\""));
    assert_eq!(of("web-alt.policy"), pair("\"new\"", "\"strict\""));
    assert_eq!(of("gateway.mode"), pair("\"auto\"", "\"generic\""));
    assert_eq!(of("ban.times").1, "9");
    let told = equic(&["gateway", "check", EXAMPLE, "-o", "web.max_connections=7"]);
    assert!(told.stderr.contains("web.max_connections = 7 replaces 100"), "{told:?}");
    for (option, part) in [
        ("max_connections=x", "a whole number"),
        ("gateway.socket.max_servers=99", "1 to 16"),
        ("web.listen=444", "an option cannot set this key"),
        ("nosuch.policy=new", "nosuch"),
    ] {
        let refused = equic(&["gateway", "check", EXAMPLE, "-o", option]);
        assert_ne!(refused.code, Some(0), "{option}");
        assert!(refused.stderr.contains(part), "{option}: {refused:?}");
    }
}

#[test]
fn example_config_states_the_real_defaults() {
    let config = Config::read(EXAMPLE.as_ref()).unwrap();
    // Values that the comments of the example file call examples.
    let socket = SocketConfig {
        owner: Some("root".to_owned()),
        group: Some("www-data".to_owned()),
        ..SocketConfig::default()
    };
    let gateway = GatewayConfig {
        retry_keys: Some("/run/equic/retry.keys".to_owned()),
        rotation_file: Some("/var/lib/equic/equic.rotation".to_owned()),
        interfaces: vec!["eth0".to_owned()],
        pin: Some("/sys/fs/bpf/equic/equic".to_owned()),
        socket: Some(socket),
        ..GatewayConfig::default()
    };
    assert_eq!(config.gateway, gateway);
    let state = Some("/var/lib/equic/bans.json".into());
    assert_eq!(config.ban, Some(BanConfig { state, ..BanConfig::default() }));
    let [web, alt] = config.services.as_slice() else { panic!("two services") };
    let example = |name: &str, service: &ServiceConfig| ServiceConfig {
        name: name.to_owned(),
        listen: service.listen.clone(),
        max_connections: 100,
        group: Some("public".to_owned()),
        ..ServiceConfig::default()
    };
    let rates = ServiceConfig {
        new_per_source: "20/s burst 40".parse().unwrap(),
        new_per_v4_24: "100/s burst 400".parse().unwrap(),
        new_per_v6_56: "40/s burst 80".parse().unwrap(),
        new_per_v6_48: "100/s burst 400".parse().unwrap(),
        new_per_v6_32: "1000/s".parse().unwrap(),
        overrides: web.overrides.clone(),
        new_per_service: "5000/s".parse().unwrap(),
        users: vec!["www-data".to_owned()],
        ..example("web", web)
    };
    assert_eq!(*web, rates);
    assert_eq!(*alt, example("web-alt", alt));
}
