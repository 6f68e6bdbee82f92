use super::*;
use crate::config::listfile::parse_at_most;
use crate::config::{
    ConfigError, Key, Listen, OverrideConfig, Problem, Setting, canonical_prefix,
    overrides_from_abi, parse_list, parse_prefix, read_list,
};
use crate::{Policy, Rate, Versions};
use ipnet::{IpNet, Ipv6Net};

const FULL: &str = r#"
deny = ["203.0.113.0/24", "2001:db8:bad::/48"]
allow = ["192.0.2.1", "::ffff:198.51.100.0/120"]
deny_files = ["a.txt", "/b.txt"]
allow_files = ["c.txt"]

[gateway]
name = "edge"
interfaces = ["eth0", "eth1"]
mode = "native"
dry_run = true
source_prefix_v4 = 24
source_prefix_v6 = 56
sources = 1000
handshakes = 2000
ledger_sources = 3000
acl_entries = 100
lease = "500ms"
events = "10/s burst 20"
drop_deep_headers = false
wait = true

[ban]
reasons = ["quota", "rate_new_source"]
proof = "none"
times = 5
within = "10s"
for = "1m"
growth = 1.5
max = "1h"
forgive_after = "2h"
sources = 1000
dry_run = true
state = "bans.json"

[[service]]
name = "web"
listen = ["443", 8443, "192.0.2.1:4433", "[::]:4434"]
policy = "strict"
max_connections = 5
new_per_source = "20/s burst 40"
new_per_v4_32 = "5/s burst 50"
new_per_v4_24 = "40/s burst 90"
new_per_v6_64 = "10/s burst 20"
new_per_v6_56 = "30/s burst 40"
new_per_v6_48 = "100/min"
new_per_v6_32 = "500/s burst 2000"
new_per_service = "1000/s"
packets_per_source = "300/min"
bytes_per_source = "10MB/s burst 1MB"
packets_per_service = "50k/s burst 100k"
unproven_per_service = "1000/s"
handshake_timeout = "5s"
fragments = "follow"
dry_run = true
require_fixed_bit = true
versions = "1"
refuse_unknown_versions = true
version_negotiation = true
also_client = true
group = "all"

[[service.override]]
prefixes = ["203.0.113.0/24", "2001:db8:77::/48"]
max_connections = 500
new_per_source = "200/s burst 400"

[[service.override]]
prefixes = ["198.51.100.0/24"]
packets_per_source = "off"
bytes_per_source = "1MB/s"

[[service]]
name = "dns"
listen = ["853"]

[[service]]
name = "web2"
listen = ["444"]
group = "all"
"#;

#[test]
fn config_file_round_trips() {
    let config = Config::parse(FULL).unwrap();
    assert_eq!(config.groups(), [0, 1, 0]);
    assert_eq!(config.allow[1].to_string(), "198.51.100.0/24");
    assert_eq!(config.services[0].new_per_source, Rate::per_second(20, 40));
    assert_eq!(config.listeners().count(), 2 + 2 + 1 + 1 + 2 + 2);
    let text = toml::to_string(&config).unwrap();
    assert_eq!(Config::parse(&text).unwrap(), config, "{text}");
    assert!(text.contains("answers_per_service = \"1000000/s\""), "these are packets: {text}");
    assert!(text.contains("bytes_per_source = \"10MB/s burst 1MB\""), "{text}");
}

#[test]
fn config_of_a_service_round_trips_through_the_abi() {
    let config = Config::parse(FULL).unwrap();
    for service in &config.services {
        let mut back = service_from_abi(&service.to_abi(7));
        // The XDP program's structure does not contain overrides, so they are copied here.
        back.overrides.clone_from(&service.overrides);
        let mut want = service.clone();
        (want.listen, want.group) = (Vec::new(), None);
        assert_eq!(back.to_abi(7), service.to_abi(7));
        let value = |key: Key, service| key.of_service().map(|setting| setting.value_of(service));
        for key in Key::all() {
            if !matches!(key, Key::PacketsPerSource) {
                assert_eq!(value(key, &back), value(key, &want), "{}", key.name());
            }
        }
    }
    for policy in [Policy::New, Policy::Strict, Policy::Underway] {
        let service = ServiceConfig { policy, ..ServiceConfig::default() };
        assert_eq!(service_from_abi(&service.to_abi(0)).policy, policy);
    }
    for versions in [Versions::Both, Versions::V1, Versions::V2] {
        let service = ServiceConfig { versions, ..ServiceConfig::default() };
        assert_eq!(service_from_abi(&service.to_abi(0)).versions, versions);
        let setting = Setting::parse("versions", versions.name()).unwrap();
        let mut changed = ServiceConfig::default();
        setting.apply(&mut changed);
        assert_eq!(changed, service);
    }
    let wrong = Setting::parse("versions", "3").unwrap_err().to_string();
    assert!(wrong.contains("`1`, `2` or `1,2`"), "{wrong}");
}

#[test]
fn config_errors_name_line_and_key() {
    let cases = [
        ("[[service]]\nname = \"a\"\nlisten = [\"443\"]\nmax_conns = 5\n", 4, "max_conns"),
        (
            "[[service]]\nname = \"a\"\nlisten = [\"443\"]\nnew_per_source = \"20\"\n",
            4,
            "20/s burst 40",
        ),
        (
            "[[service]]\nname = \"a\"\nlisten = [\"443\"]\npolicy = \"soft\"\n",
            4,
            "`new`, `underway` or `strict`",
        ),
        ("[[service]]\nname = \"a\"\nlisten = [\"eth0\"]\n", 3, "192.0.2.1:443"),
        ("[[service]]\nname = \"a\"\nlisten = [70000]\n", 3, "port"),
        ("[[service]]\nname = \"a\"\nlisten = [\"0\"]\n", 3, "1 to 65535"),
        ("[[service]]\nname = \"a\"\nlisten = []\n", 3, "needs a port or an address"),
        ("[[service]]\nname = \"a b\"\nlisten = [\"443\"]\n", 2, "not a valid name"),
        ("[[service]]\nname = \"gateway\"\nlisten = [\"443\"]\n", 2, "another meaning"),
        ("[[service]]\nlisten = [\"443\"]\n", 1, "the name is missing"),
        (
            "[[service]]\nname = \"a\"\nlisten = [\"443\"]\n[[service]]\nname = \"a\"\nlisten = [\"444\"]\n",
            5,
            "two services",
        ),
        (
            "[[service]]\nname = \"a\"\nlisten = [\"443\"]\n[[service]]\nname = \"b\"\nlisten = [\"[::]:443\"]\n",
            6,
            "any IPv6, port 443",
        ),
        (
            "[[service]]\nname = \"a\"\nlisten = [\"443\"]\nhandshake_timeout = \"1h\"\n",
            4,
            "100ms to 10m",
        ),
        ("[gateway]\nsources = 5\n", 2, "64 to 16777216"),
        ("[gateway]\nsource_prefix_v6 = 129\n", 2, "16 to 128"),
        ("[gateway]\nlease = \"1\"\n", 2, "`250ms`"),
        ("[gateway]\nlease = \"1ms\"\n", 2, "100ms to 1m"),
        ("[gateway]\ninterfaces = [\"a/b\"]\n", 2, "interface"),
        ("deny = [\"192.0.2.1/24\"]\n", 1, "write 192.0.2.0/24 or 192.0.2.1"),
        (
            "deny = [\"192.0.2.0/24\"]\nallow = [\"192.0.2.0/24\"]\n[[service]]\nname = \"a\"\nlisten = [\"443\"]\n",
            1,
            "both the deny list and the allow list",
        ),
        ("deny = \n", 1, "string values must be quoted"),
        ("ban = 5\n", 1, "write [ban]"),
        ("[service]\nname = \"a\"\n", 1, "double brackets"),
        ("[ban]\ntimes = 0\n", 2, "1 to 1000000000"),
        ("[ban]\nfor = \"2h\"\nmax = \"1h\"\n", 3, "less than `for`"),
        ("[ban]\ngrowth = nan\n", 2, "1 to 100"),
        ("[ban]\nreasons = []\n", 2, "no source is ever banned"),
        ("[ban]\nreasons = [\"new\"]\n", 2, "not a refusal"),
        ("[ban]\nreasons = [\"denied\"]\n", 2, "the result of a ban"),
        ("[ban]\nreasons = [\"qouta\"]\n", 2, "did you mean quota"),
        ("[ban]\nproof = \"maybe\"\n", 2, "cannot be forged"),
    ];
    for (text, want, part) in cases {
        let error = Config::parse(text).expect_err(text);
        let ConfigError::Problems { problems, more: 0, .. } = &error else { panic!("{error:?}") };
        let about = |problem: &&Problem| problem.to_string().contains(part);
        let line = problems.iter().find(about).map(|problem| problem.line);
        assert_eq!(line, Some(want), "{text}\n{error}");
    }
    assert!(Config::parse("").unwrap_err().to_string().contains("[[service]]"));
}

/// Returns a configuration with a service and an override. The override's text begins in line 6.
fn with_override(text: &str) -> String {
    format!("[[service]]\nname = \"a\"\nlisten = [\"443\"]\n\n[[service.override]]\n{text}\n")
}

#[test]
fn override_errors_name_line_and_cause() {
    let cases = [
        ("max_connections = 5", 5, "write, for example, prefixes = "),
        ("prefixes = [\"192.0.2.0/24\"]", 5, "sets no limit"),
        ("prefixes = [\"2001:db8::/80\"]\nmax_connections = 5", 5, "2001:db8::/64"),
        (
            "prefixes = [\"192.0.2.0/24\", \"192.0.2.0/24\"]\nmax_connections = 5",
            5,
            "192.0.2.0/24 is listed twice",
        ),
        ("prefixes = [\"192.0.2.1/24\"]\nmax_connections = 5", 6, "192.0.2.0/24"),
        ("prefixes = [\"192.0.2.0/24\"]\nbytes_per_source = \"9/s\"", 5, "burst"),
        ("prefixes = [\"192.0.2.0/24\"]\nretry = \"always\"", 7, "no such key"),
    ];
    for (text, line, part) in cases {
        let error = Config::parse(&with_override(text)).expect_err(text);
        let ConfigError::Problems { problems, .. } = &error else { panic!("{error:?}") };
        let about = |problem: &&Problem| problem.to_string().contains(part);
        let found = problems.iter().find(about).map(|problem| problem.line);
        assert_eq!(found, Some(line), "{text}\n{error}");
    }
    let text = "[[service]]\nname = \"a\"\nlisten = [\"443\"]\noverride = 3\n";
    assert!(Config::parse(text).unwrap_err().to_string().contains("4:12: service.a.override: "));
}

#[test]
fn override_prefixes_are_limited_to_255() {
    let with = |count: u32| {
        let prefix = |n: u32| std::net::Ipv4Addr::from_bits(0x0b00_0000 + (n << 8));
        let net = |n| IpNet::new(prefix(n).into(), 24).unwrap();
        let mut config = Config::for_port(443);
        let prefixes = (0..count).map(net).collect();
        let own = OverrideConfig { prefixes, max_connections: Some(5), ..Default::default() };
        config.services[0].overrides = vec![own];
        config.validate().map_err(|error| error.to_string())
    };
    assert_eq!(with(255), Ok(()));
    assert!(with(256).unwrap_err().contains("256 prefixes of all services; there is room for 255"));
}

/// The XDP program's form of overrides must convert back to the same configuration.
#[test]
fn override_round_trips_through_the_abi() {
    let config = Config::parse(FULL).unwrap();
    let all = crate::overrides::in_memory(&config.services);
    for (index, service) in (0..).zip(&config.services) {
        assert_eq!(overrides_from_abi(index, &all), service.overrides);
    }
    let limit =
        |service, ip: &str| crate::overrides::connections_limit(&all, service, ip.parse().unwrap());
    assert_eq!(limit(0, "203.0.113.9"), Some(500));
    assert_eq!(limit(0, "2001:db8:77:5::1"), Some(500));
    assert_eq!(limit(0, "198.51.100.1"), None, "it sets another limit");
    assert_eq!((limit(0, "203.0.114.9"), limit(1, "203.0.113.9")), (None, None));
}

/// Every problem must be reported with its position, in the order of the text.
#[test]
fn config_errors_are_reported_together_in_order() {
    let text = r#"deny = ["192.0.2.0/24", "10.0.0.1/8", 5]
alow = []
max_connections = 5

[gateway]
nam = "x"
sources = 5
lease = "1"
interfaces = ["eth0", "eth0", "a/b"]
dry_run = "yes"
dry_run = true

[bann]
times = 3

[ban]
tmes = 3
within = 60
reasons = ["quota", "nosuch"]

[[service]]
name = "web"
listen = ["443", "x", 70000]
max_conections = 3
policy = "nwe"
new_per_source = 20

[[service]]
name = "web"
listen = ["443"]
sources = 3
handshake_timeout = "1h"
"#;
    let error = Config::parse(text).unwrap_err();
    let told = error.lines();
    let wanted = [
        "1:25: deny: `10.0.0.1/8` is not a prefix",
        "1:39: deny: invalid type: integer",
        "2:1: alow: there is no such key; did you mean `allow` or `allow_files`?",
        "3:1: max_connections: there is no such key here; it belongs to a [[service]]",
        "6:1: gateway.nam: there is no such key; did you mean `name`?",
        "7:11: gateway.sources: 5 is out of range: 64 to 16777216",
        "8:9: gateway.lease: `1` is not",
        "9:14: gateway.interfaces: `a/b` is not a valid name of a network interface",
        "9:14: gateway.interfaces: the interface `eth0` is listed twice",
        "10:11: gateway.dry_run: invalid type: string \"yes\", expected true or false",
        "11:1: the key `dry_run` is given twice",
        "13:2: bann: there is no such key; did you mean `ban`?",
        "17:1: ban.tmes: there is no such key; did you mean `times`?",
        "18:10: ban.within: invalid type",
        "19:21: ban.reasons: there is no reason `nosuch`",
        "23:18: service.web.listen: `x` is not a port",
        "23:23: service.web.listen: `70000`",
        "24:1: service.web.max_conections: there is no such key; did you mean `max_connections`?",
        "25:10: service.web.policy: `nwe` is not a policy: `new`, `underway` or `strict`",
        "26:18: service.web.new_per_source: write a rate with its unit in quotes, such as \"20/s\"",
        "29:8: service.web.name: two services have this name",
        "30:10: service.web.listen: service `web` already listens at any IPv4, port 443",
        "30:10: service.web.listen: service `web` already listens at any IPv6, port 443",
        "31:1: service.web.sources: there is no such key here; it belongs to [gateway]",
        "32:21: service.web.handshake_timeout: 1h is out of range: 100ms to 10m",
    ];
    for (line, want) in told.iter().zip(wanted) {
        assert!(line.starts_with(want), "{want}\n{line}\n\n{error}");
    }
    assert_eq!(told.len(), wanted.len(), "{error}");

    // The file's name must come first, as in messages of compilers.
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "[gateway]\nnam = 1\n").unwrap();
    let error = Config::read(file.path()).unwrap_err().to_string();
    assert!(error.contains(&format!("{}:2:1: gateway.nam: ", file.path().display())), "{error}");
    // Options of `equic serve` are no keys, and keys that look like them are something else.
    for (key, instead) in
        [("retry_threshold", "`equic serve --retry N`"), ("user_quota", "`max_connections`")]
    {
        let text = format!("[[service]]\nname = \"web\"\nlisten = [\"443\"]\n{key} = 5\n");
        let error = Config::parse(&text).unwrap_err().to_string();
        assert!(error.contains(instead) && !error.contains("did you mean"), "{error}");
    }
    // A file has thousands of mistakes. Only the first ones must be reported.
    let many: String = (0..5_000).map(|index| format!("zzz{index} = 1\n")).collect();
    let lines = Config::parse(&many).unwrap_err().lines();
    assert!(lines.len() == 1_001 && lines[1_000] == "... and 4001 more", "{}", lines[1_000]);
}

#[test]
fn list_file_parses_and_its_errors_name_the_line() {
    let text = b"# comment\n192.0.2.1\n\n  2001:db8::/32 # why\r\n::ffff:198.51.100.0/120\n";
    let list: Vec<String> = parse_list(text).unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(list, ["192.0.2.1/32", "2001:db8::/32", "198.51.100.0/24"]);
    let long = vec![b'1'; 1000];
    let bad = [&b"1.2.3.4\n1.2.3\n10.0.0.1/8\n\xff\xfe\n"[..], &long].concat();
    let lines = parse_list(&bad).unwrap_err().lines();
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert!(lines[0].starts_with("2:1: `1.2.3` is not an address or prefix"), "{lines:?}");
    assert!(lines[1].starts_with("3:1: `10.0.0.1/8`") && lines[1].contains("10.0.0.0/8"));
    assert!(lines[2].starts_with("4:1: ") && lines[3].starts_with("5:1: "), "{lines:?}");

    // Some editors write a byte order mark, and line ends of Windows.
    let marked = parse_list(b"\xef\xbb\xbf192.0.2.1\r\n0.0.0.0/0\r\n").unwrap();
    assert_eq!(marked, [parse_prefix("192.0.2.1").unwrap(), parse_prefix("0.0.0.0/0").unwrap()]);
    // Reading must stop early if a file is not a list.
    let lines = parse_list(&b"x\n".repeat(5_000)).unwrap_err().lines();
    assert_eq!(lines.len(), 1_000);
    let text = b"192.0.2.1\n192.0.2.2\n192.0.2.3\n";
    assert_eq!(parse_at_most(3, text).unwrap().len(), 3);
    let absurd = parse_at_most(2, text).unwrap_err().to_string();
    assert_eq!(absurd, "3:1: the list has more than 2 prefixes, which is the maximum");

    for value in ["{ file = \"asn.tsv\", asn = [64500] }", "7"] {
        let text = format!("deny_files = [\"a\", {value}]\n[[service]]\nlisten = [443]\n");
        let error = Config::parse(&text).unwrap_err().to_string();
        assert!(error.starts_with("1:20: ") && error.contains("`prefixes-of`"), "{error}");
    }

    let folder = tempfile::tempdir().unwrap();
    let (deny, allow) = (folder.path().join("deny"), folder.path().join("allow"));
    std::fs::write(&deny, "192.0.2.1\n192.0.2.1\nx\n").unwrap();
    let path = folder.path().join("config");
    let text = "deny_files = [\"deny\"]\nallow_files = [\"allow\"]\ndeny = [\"192.0.2.2\"]\n\
                [[service]]\nname = \"a\"\nlisten = [\"443\"]\n";
    std::fs::write(&path, text).unwrap();
    // The error must contain every problem of all files.
    let error = Config::read(&path).unwrap_err().to_string();
    assert!(error.contains("deny:3:1: `x`"), "{error}");
    let missing = format!("config:2:16: allow_files: cannot read {}: No such", allow.display());
    assert!(error.contains(&missing), "{error}");
    // A file can also disappear after the configuration was read.
    std::fs::write(&allow, "192.0.2.1\n").unwrap();
    let config = Config::read(&path).unwrap();
    std::fs::remove_file(&allow).unwrap();
    let error = config.listed().unwrap_err().to_string();
    assert!(error.contains("deny:3:1: `x`") && error.contains("allow: No such file"), "{error}");
    std::fs::write(&deny, "192.0.2.1\n192.0.2.1\n").unwrap();
    std::fs::write(&allow, "192.0.2.1\n").unwrap();
    let error = Config::read(&path).unwrap().listed().unwrap_err().to_string();
    assert!(error.contains("192.0.2.1/32 is on both the deny list and the allow list"), "{error}");
    std::fs::write(&allow, "192.0.2.3\n").unwrap();
    let mut config = Config::read(&path).unwrap();
    assert_eq!(config.listed().unwrap().len(), 3);
    config.gateway.acl_entries = 2;
    let error = config.listed().unwrap_err().to_string();
    assert!(
        error.contains(
            "gateway.acl_entries: the lists have 3 IPv4 entries, but there is only room for 2"
        ),
        "{error}"
    );
    assert!(
        read_list(&folder.path().join("none")).unwrap_err().to_string().contains("cannot read")
    );
}

#[test]
fn setting_parses_and_applies() {
    let set = |key: &str, value: &str| {
        let setting = Setting::parse(key, value)?;
        let mut service = ServiceConfig::default();
        setting.apply(&mut service);
        let row = setting.key.of_service();
        Ok::<_, ConfigError>(row.map(|row| row.value_of(&service).to_string()).unwrap_or_default())
    };
    let cases = [
        ("max_connections", "100", "100"),
        ("web.max_connections", "off", "0"),
        ("policy", "strict", "strict"),
        ("new_per_source", " 20/s burst 40 ", "20/s burst 40"),
        ("answers_per_service", "200k/s", "200000/s"),
        ("bytes_per_source", "200kB/s", "200kB/s"),
        ("web.dry_run", "on", "true"),
        ("fragments", "drop", "drop"),
        ("handshake_timeout", "3s", "3s"),
        ("enabled", "no", "false"),
    ];
    for (key, value, shown) in cases {
        assert_eq!(set(key, value).unwrap_or_else(|e| panic!("{key}={value}: {e}")), shown);
    }
    assert!(Setting::parse("dry_run", "true").unwrap().is_for_gateway());
    assert!(Setting::parse("gateway.lease", "2s").unwrap().is_for_gateway());
    assert!(!Setting::parse("web.dry_run", "true").unwrap().is_for_gateway());
    let unknown = Setting::parse("max_conections", "5").unwrap_err().to_string();
    assert!(unknown.contains("did you mean max_connections"), "{unknown}");
    for (key, value, part) in [
        ("max_connections", "-1", "whole number"),
        ("max_connections", "10MB", "not bytes"),
        ("new_per_source", "10MB/s", "in bytes"),
        ("MAX_CONNECTIONS", "5", "did you mean max_connections?"),
        ("policy", "n\new", "control character"),
        ("max_connections", "5000000000", "0 to 4294967295"),
        ("web.policy", "x", "`web.policy`: `x` is not a policy"),
        ("enabled", "maybe", "true"),
        ("handshake_timeout", "1h", "out of range"),
        ("bytes_per_source", "1000/s", "burst of 1000 bytes"),
        ("bytes_per_source", "63/s burst 64KiB", "64 bytes per second or more"),
        ("lease", "1ns", "out of range"),
        ("web.lease", "1s", "no setting `web.lease`"),
        ("gateway.policy", "new", "no setting"),
        ("", "", "no setting"),
    ] {
        let error = Setting::parse(key, value).expect_err(key).to_string();
        assert!(error.contains(part), "{key}={value}: {error}");
    }
    assert!(Setting::parse_pair("policy").unwrap_err().to_string().contains("KEY=VALUE"));
    assert_eq!(Setting::parse_pair("web.policy=new").unwrap().service.as_deref(), Some("web"));
    for key in Key::all() {
        assert!(Setting::parse(key.name(), "zzz").is_err());
    }
}

#[test]
fn listener_and_prefix_texts_parse_and_print() {
    for text in ["443", "192.0.2.1:443", "[2001:db8::1]:443", "0.0.0.0:1", "[::]:65535"] {
        assert_eq!(text.parse::<Listen>().unwrap().to_string(), text);
    }
    let mapped: Listen = "[::ffff:192.0.2.1]:443".parse().unwrap();
    assert_eq!(mapped, "192.0.2.1:443".parse().unwrap());
    let Listener::Exact(key) = Listener::of("192.0.2.1:443".parse().unwrap()) else {
        panic!("exact")
    };
    assert_eq!(key.addr, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 192, 0, 2, 1]);
    assert_eq!((key.port, key.family), (443u16.to_be(), 4));
    let any = |text: &str| Listener::of(text.parse().unwrap());
    assert_eq!(any("0.0.0.0:443"), Listener::Any { v4: true, port: 443 });
    assert_eq!(any("[::]:443"), Listener::Any { v4: false, port: 443 });
    for (text, shown) in [
        ("192.0.2.7", "192.0.2.7/32"),
        ("2001:db8::/32", "2001:db8::/32"),
        ("::ffff:1.2.3.4", "1.2.3.4/32"),
        ("0.0.0.0/0", "0.0.0.0/0"),
    ] {
        assert_eq!(parse_prefix(text).unwrap().to_string(), shown);
    }
    for text in ["", "192.0.2", "192.0.2.0/33", "fe80::1%eth0", "x/8", "10.0.0.1/8"] {
        assert!(parse_prefix(text).is_err(), "{text}");
    }
}

/// Lists of unrouted addresses contain `::ffff:0:0/96`, which must not deny every IPv4 address.
#[test]
fn prefix_of_all_mapped_addresses_is_refused() {
    for length in 81..=96 {
        let net = Ipv6Net::new("::ffff:0:0".parse().unwrap(), length).unwrap().trunc();
        let error = parse_prefix(&net.to_string()).unwrap_err().to_string();
        assert!(error.contains("0.0.0.0/0") && error.contains(&net.to_string()), "{error}");
        // A program that uses this library can set prefixes without parsing them.
        let config = Config { deny: vec![net.into()], ..Config::for_port(443) };
        assert!(config.validate().unwrap_err().to_string().contains("0.0.0.0/0"), "{net}");
        let config = Config { allow: vec![net.into()], ..Config::for_port(443) };
        assert!(config.validate().is_err(), "{net}");
        assert_eq!(canonical_prefix(net.into()), IpNet::from(net), "it is never 0.0.0.0/0");
    }
    // A prefix of up to /80 means IPv6 addresses only, because IPv4 addresses have lists of their
    // own.
    for length in 0..=80 {
        let net = Ipv6Net::new("::".parse().unwrap(), length).unwrap();
        assert_eq!(parse_prefix(&net.to_string()).unwrap(), IpNet::from(net));
    }
    for length in 97..=128 {
        let net = Ipv6Net::new("::ffff:192.0.2.0".parse().unwrap(), length).unwrap().trunc();
        let IpNet::V4(v4) = parse_prefix(&net.to_string()).unwrap() else { panic!("{net}") };
        assert_eq!(
            (v4.prefix_len(), v4.addr()),
            (length - 96, net.addr().to_ipv4_mapped().unwrap())
        );
    }
    for text in ["::fffe:0:0/96", "::/96", "::1:0:0:0/81"] {
        assert_eq!(parse_prefix(text).unwrap().to_string(), text, "next to the mapped addresses");
    }
    for text in ["::ffff:192.0.2.1/120", "::ffff:0:1/96", "::1/0"] {
        assert!(parse_prefix(text).unwrap_err().to_string().contains("bits after"), "{text}");
    }
}

/// A program may truncate a file before it writes it again. At that moment, the file must not be
/// read as an empty list, which would admit every source.
#[test]
fn list_file_without_text_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deny");
    for text in ["", "\n", " \n\t\r\n"] {
        std::fs::write(&path, text).unwrap();
        let error = read_list(&path).unwrap_err().to_string();
        assert!(
            error.contains("deny: the list file is empty") && error.contains("# empty"),
            "{error}"
        );
    }
    std::fs::write(&path, "# empty\n").unwrap();
    assert_eq!(read_list(&path).unwrap(), []);
}

#[test]
fn config_converts_masks_sizes_and_names_to_the_abi() {
    let gateway =
        GatewayConfig { source_prefix_v4: 24, source_prefix_v6: 56, ..GatewayConfig::default() };
    let load = gateway.to_load(9, None);
    assert_eq!(load.v4_mask.to_ne_bytes(), [255, 255, 255, 0]);
    assert_eq!(load.v6_mask[0].to_ne_bytes(), [255, 255, 255, 255, 255, 255, 255, 0]);
    assert_eq!(load.v6_mask[1], 0);
    assert_eq!(load.ledger_mask + 1, 16_384);
    assert_eq!(buckets_for(16), 4);
    assert_eq!(c_name::<8>("123456789").map(|c| c as u8), *b"1234567\0");
    assert_eq!(from_c_name(&c_name::<8>("abc")), "abc");
}
