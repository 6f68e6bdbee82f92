use super::*;
use crate::config::{Listen, ServiceConfig};

/// A configuration with two services.
fn config() -> Config {
    let service = |name: &str, port| ServiceConfig {
        name: name.to_owned(),
        listen: vec![Listen::Port(port)],
        ..ServiceConfig::default()
    };
    Config { services: vec![service("web", 443), service("alt", 444)], ..Config::default() }
}

fn set(options: &[&str]) -> crate::Result<Config> {
    let mut config = config();
    let options = options.iter().map(|text| ConfigOption::parse(text));
    config.set_options(&options.collect::<Result<Vec<_>, _>>()?)?;
    Ok(config)
}

fn error(options: &[&str]) -> String {
    let error = set(options).expect_err(&options.concat().chars().take(80).collect::<String>());
    error.to_string()
}

#[test]
fn a_service_takes_precedence_in_any_order() {
    for options in [
        ["max_connections=5", "web.max_connections=10"],
        ["web.max_connections=10", "max_connections=5"],
    ] {
        let services = set(&options).unwrap().services;
        assert_eq!(services.iter().map(|s| s.max_connections).collect::<Vec<_>>(), [10, 5]);
    }
}

#[test]
fn tables_and_lists_are_set() {
    let config = set(&[
        "gateway.mode=generic",
        "gateway.name = \"edge\"",
        "gateway.interfaces=[\"eth0\", \"a#b\"]",
        "gateway.socket.path=/run/equic#1.sock",
        "ban.dry_run=true",
        "gateway.dry_run=true",
        "lease=3s",
    ])
    .unwrap();
    assert_eq!(config.gateway.name, "edge");
    assert_eq!(config.gateway.interfaces, ["eth0", "a#b"]);
    assert_eq!(config.gateway.socket.unwrap().path, "/run/equic#1.sock");
    assert!(config.ban.unwrap().dry_run && config.gateway.dry_run);
    assert_eq!(config.gateway.lease, std::time::Duration::from_secs(3));
}

#[test]
fn a_key_is_given_once() {
    for twice in [
        ["policy=new", "policy=strict"],
        ["policy=new", " policy = new"],
        ["dry_run=true", "gateway.dry_run=false"],
        ["lease=2s", "gateway.lease=2s"],
        ["gateway.mode=auto", "gateway.mode=auto"],
        ["web.policy=new", "web.policy=strict"],
    ] {
        assert!(error(&twice).contains("the key is given twice"), "{twice:?}");
    }
}

#[test]
fn wrong_options_are_named() {
    for (option, part) in [
        ("", "KEY=VALUE"),
        ("policy", "KEY=VALUE"),
        ("=5", "the key is missing"),
        ("max_connections=", "`` is not a whole number"),
        ("max_connections=1.5", "from 0 to 4294967295"),
        ("max_connections=4294967296", "from 0 to 4294967295"),
        ("max_connections=18446744073709551616", "from 0 to 4294967295"),
        ("max_connections=1MiB", "not bytes"),
        ("retry_above=1/s", "burst of 2 or more"),
        ("retry_above=10MB/s", "is in bytes"),
        ("new_per_source=20s", "`20/s burst 40`"),
        ("retry_hold=20/s", "is not a duration"),
        ("bytes_per_source=20/s", "1500 bytes or more"),
        ("gateway.events=10MB/s", "is in bytes"),
        // TOML ignores comments, but an option has none.
        ("gateway.sources=64#5", "\"64#5\""),
        ("gateway.wait=true # x", "\"true # x\""),
        ("gateway.sources=64]#", "\"64]#\""),
        ("gateway.sources=-1", "a whole number"),
        ("gateway.wait=1", "true or false"),
        ("gateway.wait=true\n[ban]\ntimes=1", "control character"),
        ("gateway.\"mode\"=auto", "did you mean gateway.mode"),
        ("gateway..mode=auto", "did you mean gateway.mode"),
        ("p\u{f6}licy=new", "did you mean policy?"),
        ("\u{1b}[2J=x", "control character"),
        ("Max_Connections=5", "did you mean max_connections?"),
        ("max-connections=5", "did you mean max_connections?"),
        ("gateway.max_connections=5", "did you mean max_connections?"),
        ("ban.max_connections=5", "did you mean max_connections?"),
        ("ban.mode=auto", "gateway.mode or gateway.socket.mode"),
        ("web.lease=5s", "did you mean lease"),
        ("web.wait=true", "did you mean gateway.wait?"),
        ("gateway.socket=/run/x", "gateway.socket.path"),
        ("gateway.interfaces=eth0", "gateway.interfaces=[\"a\", \"b\"]"),
        ("gateway.interfaces=[eth0]", "gateway.interfaces=[\"a\", \"b\"]"),
        ("web.listen=444", "set it in a configuration file"),
        ("web.name=www", "set it in a configuration file"),
        ("deny=192.0.2.1", "set it in a configuration file"),
        ("name=edge", "did you mean gateway.name?"),
        ("wbe.policy=new", "did you mean web?"),
        (".policy=new", "its services are web, alt"),
    ] {
        let error = error(&[option]);
        assert!(error.contains(part), "{option}: {error}");
    }
}

#[test]
fn errors_about_long_options_are_short() {
    let long = "x\u{1f980}".repeat(200_000);
    for option in
        [format!("policy={long}"), format!("{long}=1"), format!("gateway.mode={long}"), long]
    {
        let error = error(&[&option]);
        assert!(error.len() < 1000 && error.contains("at most 4096"), "{error:.1000}");
    }
    let key = "x".repeat(4000);
    let error = error(&[&format!("{key}=1")]);
    assert!(error.contains(&format!("no setting `{}…`", "x".repeat(64))), "{error}");
}

/// The first wrong option of a long list is an error that names the option.
#[test]
fn option_lists_of_a_hundred_thousand_name_the_first_error() {
    let many = |key: &dyn Fn(usize) -> String| -> Vec<String> { (0..100_000).map(key).collect() };
    for (options, named) in [
        (many(&|_| "max_connections=5".to_owned()), "max_connections"),
        (many(&|number| format!("s{number}.policy=new")), "`s0`"),
        (many(&|number| format!("gateway.x{number}=1")), "gateway.x0"),
    ] {
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let error = error(&options);
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn empty_paths_and_names_are_no_values() {
    for option in [
        "gateway.retry_keys=",
        "gateway.rotation_file=",
        "gateway.pin=",
        "gateway.name=",
        "gateway.socket.owner=",
        "gateway.socket.path=",
        "ban.state=",
    ] {
        let key = option.trim_end_matches('=');
        let error = set(&[option]).unwrap().validate().unwrap_err().to_string();
        assert!(error.contains(key), "{option}: {error}");
    }
}
