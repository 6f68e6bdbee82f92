//! Tests of `gateway explain` without a running gateway: the verdicts of the XDP program.

use std::path::Path;

use crate::common::{equic, finish, root};
use serde_json::Value;

const CONFIG: &str = r#"
deny = ["198.51.100.0/24"]
allow = ["203.0.113.7"]

[[service]]
name = "web"
listen = ["443"]
max_connections = 3
fragments = "drop"

[[service]]
name = "closed"
listen = ["192.0.2.200:444"]
require_fixed_bit = true
refuse_unknown_versions = true

[[service]]
name = "client"
listen = ["445"]
also_client = true

[[service]]
name = "rehearsal"
listen = ["446"]
max_connections = 1
dry_run = true

[[service]]
name = "told"
listen = ["447"]
versions = "1"
version_negotiation = true

[[service]]
name = "ids"
listen = ["448"]
check_ids = true

[[service]]
name = "asks"
listen = ["449"]
retry = "always"
max_connections = 2
"#;

fn config() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), CONFIG).unwrap();
    file
}

fn explain(config: &Path, rest: &str) -> Value {
    let mut args = vec!["gateway", "explain", "--json", "--config", config.to_str().unwrap()];
    args.extend(rest.split_whitespace());
    equic(&args).json()
}

#[test]
fn explain_judges_packets_described_by_flags() {
    if !root("explain_judges_packets_described_by_flags") {
        return;
    }
    let config = config();
    // Each case has flags, the expected verdict and the expected reason.
    let cases = [
        ("--src 192.0.2.9", "pass", "new"),
        ("--src 192.0.2.9 --initial --quic-version 2 --token 40", "pass", "new"),
        ("--src 2001:db8::9 --vlan 7 --vlan 8", "pass", "new"),
        ("--src ::ffff:192.0.2.9", "drop", "bad_source"),
        ("--src ::ffff:198.51.100.4", "drop", "bad_source"),
        ("--src 127.0.0.1", "drop", "bad_source"),
        ("--src ff02::1 --short", "drop", "bad_source"),
        ("--src 192.0.2.9 --size 1199", "drop", "small_initial"),
        ("--src 192.0.2.9 --dcid 00", "drop", "short_dcid"),
        ("--src 192.0.2.9 --quic-version 0xff00001d", "pass", "new_version"),
        ("--src 192.0.2.9 --short", "pass", "established"),
        ("--src 192.0.2.9 --short --size 20", "drop", "tiny_short"),
        ("--src 192.0.2.9 --handshake", "pass", "handshake"),
        ("--src 192.0.2.9 --0rtt", "pass", "handshake"),
        ("--src 192.0.2.9 --retry --token 30", "drop", "retry"),
        ("--src 192.0.2.9 --version-negotiation", "drop", "version_negotiation"),
        ("--src 192.0.2.9 --size 0", "drop", "empty"),
        ("--src 192.0.2.9 --size 5", "drop", "truncated"),
        ("--src 192.0.2.9 --scid 000102030405060708090a0b0c0d0e0f1011121314", "drop", "long_cid"),
        ("--src 192.0.2.9 --fragment first", "drop", "first_fragment"),
        ("--src 192.0.2.9 --fragment first --short", "drop", "first_fragment"),
        ("--src 192.0.2.9 --fragment later", "drop", "later_fragment"),
        ("--src 2001:db8::9 --fragment later", "drop", "later_fragment"),
        ("--src 198.51.100.4 --short", "drop", "denied"),
        ("--src 203.0.113.7 --connections 9", "pass", "allowed"),
        ("--src 192.0.2.9 --connections 2", "pass", "new"),
        ("--src 192.0.2.9 --connections 3", "drop", "quota"),
        ("--src 192.0.2.9 --connections 3 --short", "pass", "established"),
        (
            "--src 192.0.2.9 --dport 444 --dst 192.0.2.200 --quic-version 0x1a",
            "drop",
            "unknown_version",
        ),
        ("--src 192.0.2.9 --dport 445 --retry", "pass", "handshake"),
        ("--src 192.0.2.9 --dport 446 --connections 1", "pass", "quota"),
        ("--src 192.0.2.9 --dport 447", "pass", "new"),
        ("--src 192.0.2.9 --dport 447 --quic-version 2", "answer", "version_negotiation_sent"),
        ("--src 2001:db8::9 --dport 447 --quic-version 0x1a", "answer", "version_negotiation_sent"),
        // Only this gateway has the keys for connection IDs, so no server can have issued this ID.
        ("--src 192.0.2.9 --dport 448 --short", "drop", "forged_id"),
        (
            "--src 2001:db8::9 --dport 448 --short --dcid 6b0000010203040506070809",
            "drop",
            "forged_id",
        ),
        ("--src 192.0.2.9 --dport 448 --handshake", "drop", "forged_id"),
        ("--src 192.0.2.9 --dport 448 --0rtt", "drop", "forged_id"),
        ("--src 192.0.2.9 --dport 448", "pass", "new"),
        ("--src 203.0.113.7 --dport 448 --short", "pass", "allowed"),
    ];
    for (flags, verdict, reason) in cases {
        let said = explain(config.path(), flags);
        assert_eq!(said["schema"], "equic.gateway.explain/1");
        assert_eq!(
            (&said["verdict"], &said["reason"]),
            (&verdict.into(), &reason.into()),
            "{flags}: {said}"
        );
        let meaning = reason.parse::<equic_gateway::Reason>().unwrap().meaning();
        assert_eq!(said["meaning"], meaning);
    }
    // The reported number of connections must be that of the source, whatever the type of the
    // packet or the verdict.
    for kind in ["--initial", "--short", "--handshake", "--short --size 20", "--retry --token 30"] {
        let said = explain(config.path(), &format!("--src 192.0.2.9 --connections 3 {kind}"));
        assert_eq!(said["connections"], 3, "{kind}: {said}");
    }
    let other = explain(config.path(), "--src 192.0.2.9 --dst 192.0.2.1 --dport 53");
    assert_eq!((&other["verdict"], &other["reason"]), (&"pass".into(), &Value::Null), "{other}");
    let deep = explain(config.path(), "--src 192.0.2.9 --vlan 0 --vlan 0 --vlan 0");
    assert_eq!((&deep["verdict"], &deep["reason"]), (&"drop".into(), &Value::Null), "{deep}");
    assert_eq!((&deep["drops"], deep["service"].is_null()), (&true.into(), true), "{deep}");
    let dry = explain(config.path(), "--src 192.0.2.9 --dport 446 --connections 1");
    assert_eq!((&dry["drops"], &dry["dropped"]), (&true.into(), &false.into()), "{dry}");
}

#[test]
fn explain_prints_readable_text() {
    if !root("explain_prints_readable_text") {
        return;
    }
    let config = config();
    let config = config.path().to_str().unwrap();
    let args =
        ["gateway", "explain", "--config", config, "--src", "2001:db8::7", "--connections", "3"];
    let said = equic(&args).ok();
    assert!(said.starts_with("drop: quota, opens a connection"), "{said}");
    for part in
        ["service      web", "source       2001:db8::/64", "connections  3 open from this source"]
    {
        assert!(said.contains(part), "{said}");
    }
    let args = ["gateway", "explain", "--config", config, "--hex", "00"];
    assert!(equic(&args).ok().contains("not for a protected service"));
}

/// Returns an Ethernet frame with IPv4 and UDP to port 443, which carries a packet of `size` bytes
/// with a short header.
fn frame(source: [u8; 4], size: usize) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    let total = u16::try_from(28 + size).unwrap().to_be_bytes();
    bytes.extend([0x45, 0, total[0], total[1], 0, 0, 0, 0, 64, 17, 0, 0]);
    bytes.extend(source);
    bytes.extend([192, 0, 2, 1]);
    let length = u16::try_from(8 + size).unwrap().to_be_bytes();
    bytes.extend([
        0xc3,
        0x50,
        443u16.to_be_bytes()[0],
        443u16.to_be_bytes()[1],
        length[0],
        length[1],
        0,
        0,
    ]);
    bytes.extend(std::iter::repeat_n(0x40, size));
    bytes
}

/// Returns a capture file with these frames, each with its time in seconds.
fn pcap(frames: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1u32] {
        file.extend(word.to_le_bytes());
    }
    for (time, frame) in frames {
        let length = u32::try_from(frame.len()).unwrap();
        for word in [*time, 0, length, length] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    }
    file
}

#[test]
fn explain_judges_captures_packet_by_packet() {
    if !root("explain_judges_captures_packet_by_packet") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let config = path("config.toml");
    std::fs::write(
        &config,
        "[[service]]\nname = \"web\"\nlisten = [\"443\"]\npackets_per_source = \"1/s burst 2\"\n",
    )
    .unwrap();
    let here = |time| (time, frame([192, 0, 2, 9], 50));
    let arp = [vec![0xff; 6], vec![2, 0, 0, 0, 0, 1, 8, 6], vec![0; 46]].concat();
    // The rate limit permits two packets at once, but not a third. Ten seconds later, it permits
    // one again.
    let frames = [here(5), here(5), here(5), (6, arp), here(15), (15, frame([192, 0, 2, 8], 10))];
    let capture = path("capture.pcap");
    std::fs::write(&capture, pcap(&frames)).unwrap();

    let args = ["gateway", "explain", "--config", &config, "--pcap", &capture];
    let lines = equic(&[&args[..], &["--json"]].concat()).json_lines();
    let (summary, packets) = lines.split_last().unwrap();
    let reasons: Vec<&Value> = packets.iter().map(|packet| &packet["reason"]).collect();
    assert_eq!(
        reasons,
        ["established", "established", "rate_packets", "null", "established", "tiny_short"]
            .map(|reason| if reason == "null" { Value::Null } else { reason.into() })
            .iter()
            .collect::<Vec<_>>()
    );
    assert_eq!(packets[5]["packet"], 6);
    assert_eq!(packets[5]["source"], "192.0.2.8");
    let summary = &summary["summary"];
    assert_eq!((&summary["packets"], &summary["cut"]), (&6.into(), &0.into()));
    let of = |reason: &str| {
        let rows = summary["reasons"].as_array().unwrap();
        rows.iter()
            .find(|row| row["reason"] == reason)
            .unwrap_or_else(|| panic!("{summary}"))
            .clone()
    };
    assert_eq!(
        (&of("established")["packets"], &of("established")["dropped"]),
        (&3.into(), &0.into())
    );
    assert_eq!(
        (&of("tiny_short")["packets"], &of("tiny_short")["dropped"]),
        (&1.into(), &1.into())
    );

    let only = equic(&[&args[..], &["--json", "--summary"]].concat()).json_lines();
    assert_eq!(only.len(), 1);
    let table = equic(&[&args[..], &["--summary"]].concat()).ok();
    assert!(table.starts_with("6 packets\n") && table.contains("rate_packets"), "{table}");
    let list = equic(&args).ok();
    assert!(list.contains("     3  drop  rate_packets         192.0.2.9\n"), "{list}");

    // The capture is read from a pipe and truncated in the middle. The packets before the end must
    // be judged, and the exit code must report the error.
    let whole = std::fs::read(&capture).unwrap();
    std::fs::write(&capture, &whole[..whole.len() - 3]).unwrap();
    let damaged = equic(&[&args[..], &["--summary"]].concat());
    assert_eq!(damaged.code, Some(1), "{damaged:?}");
    assert!(damaged.stdout.starts_with("5 packets\n"), "{damaged:?}");
    assert!(
        damaged.stderr.contains("after packet 5, the file ends in the middle of a packet"),
        "{damaged:?}"
    );
    std::fs::write(&capture, whole).unwrap();
    let mut piped = std::process::Command::new("sh");
    let script = format!(
        "cat {capture} | {} gateway explain --config {config} --pcap - --summary",
        crate::common::EQUIC
    );
    piped.args(["-c", &script]);
    assert!(finish(piped).ok().starts_with("6 packets\n"));
}

/// Every Initial without a token is answered with a Retry packet, whatever the quota of the source.
/// The verdict on the client's next Initial matters.
#[test]
fn explain_says_what_happens_after_a_retry_packet() {
    if !root("explain_says_what_happens_after_a_retry_packet") {
        return;
    }
    let config = config();
    let judge = |rest: &str| explain(config.path(), &format!("--src 192.0.2.9 --dport 449 {rest}"));
    for (connections, verdict, reason) in [(0, "pass", "proved"), (2, "drop", "quota")] {
        for src in ["", "--quic-version 2", "--dcid 0102030405060708090a0b0c0d0e0f10"] {
            let judged = judge(&format!("--initial --connections {connections} {src}"));
            assert_eq!(judged["reason"], "retry_sent", "{judged}");
            let later = &judged["with_valid_token"];
            assert_eq!((&later["verdict"], &later["reason"]), (&verdict.into(), &reason.into()));
        }
    }
    // The verdict on other packets does not depend on Retry packets.
    assert_eq!(judge("--short")["with_valid_token"], Value::Null);
    let path = config.path().to_str().unwrap();
    let args = ["gateway", "explain", "--config", path, "--src", "2001:db8::9", "--dport", "449"];
    let text = equic(&[&args[..], &["--connections", "2"]].concat()).ok();
    assert!(text.contains("\nwith a valid token: drop: quota, opens a connection, but "), "{text}");
}
