//! Tests of the logs of whole connections.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use equic_wire::Version;
use serde_json::Value;

use super::handshake::{LIMIT, with_retry};
use super::versions::{V1, V2, no_version_2, speaking};
use super::*;
use crate::cid::ID_LEN;
use crate::crypto::testing::configs;
use crate::qlog::{FileHeader, JsonSeq, ReferenceTime, Trace, schema};

/// A file that can be read while it is written.
#[derive(Clone, Default)]
pub(super) struct Shared(Arc<Mutex<Vec<u8>>>);

impl Shared {
    fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Makes a connection log as JSON and as text.
pub(super) fn log(connection: &mut Connection, json: Shared, text: Shared) {
    let header = FileHeader {
        title: Some("a test".into()),
        vantage_name: None,
        vantage: connection.side(),
        odcid: connection.ids.original_dcid(),
        reference_time: ReferenceTime::Monotonic {
            zero: Timestamp::START,
            wall_clock: Some(Duration::from_secs(1_700_000_000)),
        },
    };
    let trace = Trace::new(text, Timestamp::START);
    connection.set_qlog(Box::new((JsonSeq::new(json, &header), trace)));
}

/// Returns a network with logs of both ends: the client's log, and the server's.
fn logged(seed: u64, faults: Faults, algorithm: Algorithm) -> (Network, [(Shared, Shared); 2]) {
    let mut network = Network::with(seed, faults, |config| config.congestion = Arc::new(algorithm));
    let logs = log_both(&mut network);
    (network, logs)
}

/// Makes both ends log. The server's log starts after its other preparation.
fn log_both(network: &mut Network) -> [(Shared, Shared); 2] {
    let logs: [(Shared, Shared); 2] = Default::default();
    log(&mut network.client, logs[0].0.clone(), logs[0].1.clone());
    let (json, text) = logs[1].clone();
    let mut first = network.on_server.take();
    network.on_server = Some(Box::new(move |server| {
        if let Some(first) = first.take() {
            first(server);
        }
        log(server, json, text);
    }));
    logs
}

/// Returns the events of a file, after checks of each one.
pub(super) fn events(file: &Shared) -> Vec<Value> {
    let mut records = schema::records(&file.bytes()).unwrap();
    schema::check_header(&records[0]).unwrap();
    records.remove(0);
    let mut before = 0.0;
    for record in &records {
        schema::check_event(record).unwrap();
        let time = record["time"].as_f64().unwrap();
        assert!(time >= before, "the time decreases: {record}");
        before = time;
    }
    records
}

pub(super) fn named<'a>(events: &'a [Value], name: &str) -> Vec<&'a Value> {
    let name = format!("quic:{name}");
    events.iter().filter(|event| event["name"] == name.as_str()).map(|one| &one["data"]).collect()
}

fn space(packet: &Value) -> (String, u64) {
    let header = &packet["header"];
    let kind = header["packet_type"].as_str().unwrap();
    (kind.to_owned(), header["packet_number"].as_u64().unwrap())
}

/// Asserts that the log of one end agrees with its counters and with the datagrams on the network.
fn agrees(events: &[Value], end: &Connection, trace: &[(Timestamp, usize)], text: &Shared) {
    let stats = end.stats();
    let count = |name| named(events, name).len() as u64;
    assert_eq!(count("packet_sent"), stats.packets_sent);
    assert_eq!(count("packet_received"), stats.packets_received);
    assert_eq!(count("packet_dropped"), stats.packets_dropped);
    assert_eq!(count("packet_lost"), stats.packets_lost);
    assert_eq!(count("udp_datagrams_received"), stats.datagrams_received);
    let sent = events.iter().filter(|event| event["name"] == "quic:udp_datagrams_sent");
    let sent: Vec<(f64, u64)> = sent
        .map(|event| {
            let size = event["data"]["raw"][0]["length"].as_u64().unwrap();
            (event["time"].as_f64().unwrap(), size)
        })
        .collect();
    let seen = trace.iter().map(|(at, size)| (at.as_nanos() as f64 / 1e6, *size as u64));
    assert_eq!(sent, seen.collect::<Vec<_>>());
    // The packets of each datagram precede it in the log, and fill it. A checksum does not identify
    // the packets, because two of many thousand datagrams may have the same.
    let mut packets: Vec<&Value> = Vec::new();
    for event in events {
        let data = &event["data"];
        match event["name"].as_str() {
            Some("quic:packet_sent") => packets.push(data),
            Some("quic:udp_datagrams_sent") => {
                let length: u64 =
                    packets.iter().map(|one| one["raw"]["length"].as_u64().unwrap()).sum();
                assert_eq!(Some(length), data["raw"][0]["length"].as_u64(), "{data}");
                let checksum = &data["datagram_payload_checksums"][0];
                for packet in packets.drain(..) {
                    assert_eq!(packet["datagram_payload_checksum"], *checksum, "{packet}");
                }
            }
            _ => {}
        }
    }
    assert!(packets.is_empty(), "packets without a datagram");
    let mut last: BTreeMap<String, u64> = BTreeMap::new();
    for packet in named(events, "packet_sent") {
        let (kind, number) = space(packet);
        assert!(last.insert(kind, number).is_none_or(|before| before < number), "{packet}");
    }
    // The last logged value of each metric is its current value.
    let mut metrics: BTreeMap<&str, &Value> = BTreeMap::new();
    let mine =
        |event: &&Value| event["tuple"].as_str().unwrap_or("0") == end.path().key().0.to_string();
    for event in events.iter().filter(mine) {
        if event["name"] == "quic:recovery_metrics_updated" {
            let data = event["data"].as_object().unwrap();
            metrics.extend(data.iter().map(|(name, value)| (name.as_str(), value)));
        }
    }
    assert_eq!(metrics["congestion_window"].as_u64(), Some(end.path().controller().window()));
    assert_eq!(metrics["bytes_in_flight"].as_u64(), Some(end.path().in_flight()));
    let rtt = end.path().rtt().smoothed().as_nanos() as f64 / 1e6;
    assert_eq!(metrics["smoothed_rtt"].as_f64(), Some(rtt));
    let text = String::from_utf8(text.bytes()).unwrap();
    let lines =
        |mark: &str| text.lines().filter(|line| line[11..].starts_with(mark)).count() as u64;
    assert_eq!(lines(" > "), stats.packets_sent);
    assert_eq!(lines(" < "), stats.packets_received);
    assert_eq!(lines(" x "), stats.packets_lost + stats.packets_dropped);
}

/// Asserts that the packets that one end logs as received were logged by the other as sent, frame
/// by frame.
fn corresponds(received: &[Value], sent: &[Value]) {
    let sent: BTreeMap<(String, u64), &Value> =
        named(sent, "packet_sent").into_iter().map(|packet| (space(packet), packet)).collect();
    let received = named(received, "packet_received");
    assert!(received.len() > 10);
    for packet in received {
        let original = sent[&space(packet)];
        for part in ["header", "frames", "raw"] {
            assert_eq!(packet[part], original[part]);
        }
    }
}

fn check(network: &Network, logs: &[(Shared, Shared); 2]) -> [Vec<Value>; 2] {
    let [client, server] = [events(&logs[0].0), events(&logs[1].0)];
    for (to_server, events, end, text) in [
        (true, &client, &network.client, &logs[0].1),
        (false, &server, network.server(), &logs[1].1),
    ] {
        let trace = network.trace();
        let mine = trace.iter().filter(|(_, to, _)| *to == to_server);
        let mine: Vec<_> = mine.map(|(at, _, size)| (*at, *size)).collect();
        agrees(events, end, &mine, text);
    }
    corresponds(&client, &server);
    corresponds(&server, &client);
    [client, server]
}

#[test]
fn qlog_of_bad_networks_is_valid_and_agrees_with_the_counters() {
    let seeds: Vec<u64> = match std::env::var("EQUIC_SEED") {
        Ok(seed) => vec![seed.parse().expect("EQUIC_SEED is a number")],
        Err(_) => (0..12).collect(),
    };
    for seed in seeds {
        println!("EQUIC_SEED={seed}");
        let algorithm = [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Bbr][seed as usize % 3];
        let (mut network, logs) = logged(seed, Faults::by_chance(seed), algorithm);
        network.connect();
        echo(&mut network, 40_000);
        network.client.update_keys();
        echo(&mut network, 40_000);
        check(&network, &logs);
        let now = network.now();
        network.client.close(now, VarInt::from_u32(7), "done");
        network.run_until(Duration::from_secs(60), |client, server| {
            client.is_drained() && server.is_drained()
        });
        check(&network, &logs);
    }
}

/// Logging does not change the run.
#[test]
fn qlog_does_not_change_the_run() {
    let (mut network, _) = logged(3, Faults::by_chance(3), Algorithm::Cubic);
    let mut silent = Network::new(3, Faults::by_chance(3));
    for network in [&mut network, &mut silent] {
        network.connect();
        echo(network, 30_000);
    }
    assert_eq!(network.trace(), silent.trace());
}

/// Every kind of event occurs.
#[test]
fn qlog_has_all_events() {
    let faults = Faults { rate: Some(1_000_000), loss: 0.01, ..Faults::none() };
    let (mut network, logs) = logged(2, faults, Algorithm::NewReno);
    network.connect();
    for size in [1_000, 1_000_000] {
        echo(&mut network, size);
    }
    assert!(network.client.update_keys());
    echo(&mut network, 10_000);
    network.client_address.set_port(999);
    echo(&mut network, 10_000);
    network.pass(Duration::from_secs(2));
    // A datagram that belongs to no connection.
    network.forge_to_client(vec![0x40; 100]);
    network.run_until(Duration::from_secs(100), |client, server| {
        client.is_drained() && server.is_drained()
    });
    let both = check(&network, &logs);
    let happened: BTreeSet<&str> =
        both.iter().flatten().map(|event| event["name"].as_str().unwrap()).collect();
    let expected = [
        "alpn_information",
        "congestion_state_updated",
        "connection_closed",
        "connection_id_updated",
        "connection_started",
        "connection_state_updated",
        "ecn_state_updated",
        "key_discarded",
        "key_updated",
        "marked_for_retransmit",
        "migration_state_updated",
        "mtu_updated",
        "packet_dropped",
        "packet_lost",
        "packet_received",
        "packet_sent",
        "packets_acked",
        "parameters_set",
        "recovery_metrics_updated",
        "recovery_parameters_set",
        "stream_state_updated",
        "timer_updated",
        "tuple_assigned",
        "udp_datagrams_received",
        "udp_datagrams_sent",
        "version_information",
    ]
    .map(|name| format!("quic:{name}"));
    let expected: BTreeSet<&str> = expected.iter().map(String::as_str).collect();
    assert_eq!(happened, expected);
    let [client, server] = &both;
    // Both ends log the same parameters.
    let parameters = |events: &[Value], initiator: &str| {
        let sets = named(events, "parameters_set").into_iter();
        let mut found: Vec<Value> =
            sets.filter(|one| one["initiator"] == initiator).cloned().collect();
        assert_eq!(found.len(), 1);
        found[0].as_object_mut().unwrap().remove("initiator");
        found.remove(0)
    };
    assert_eq!(parameters(client, "local"), parameters(server, "remote"));
    assert_eq!(parameters(server, "local"), parameters(client, "remote"));
    let states = |events: &[Value], name: &str| -> Vec<String> {
        let changes = named(events, name).into_iter();
        changes.map(|change| change["new"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(
        states(client, "connection_state_updated"),
        ["attempted", "handshake_started", "handshake_complete", "handshake_confirmed", "closed"]
    );
    assert_eq!(states(client, "ecn_state_updated").last().unwrap(), "capable");
    assert_eq!(
        states(server, "migration_state_updated"),
        ["migration_started", "migration_complete"]
    );
    let congestion = states(client, "congestion_state_updated");
    for state in ["slow_start", "recovery", "congestion_avoidance"] {
        assert!(congestion.iter().any(|one| one == state), "{congestion:?}");
    }
    let closed = named(client, "connection_closed");
    assert_eq!(closed[0]["trigger"], "idle_timeout");
}

/// The logged old and new states of each part of a stream have no gap.
#[test]
fn qlog_stream_states() {
    let (mut network, logs) = logged(1, Faults::none(), Algorithm::Cubic);
    network.connect();
    echo(&mut network, 10_000);
    let id = network.client.open(Direction::Unidirectional).unwrap();
    network.client.streams().write(id, b"never mind").unwrap();
    network.run_until(Duration::from_secs(1), |_, server| {
        server.accept(Direction::Unidirectional).is_some()
    });
    network.client.streams().reset(id, 9).unwrap();
    network.pass(Duration::from_secs(1));
    let mut ends = BTreeMap::new();
    for (end, log) in logs.iter().enumerate() {
        let mut states: BTreeMap<(u64, String), Vec<String>> = BTreeMap::new();
        for change in named(&events(&log.0), "stream_state_updated") {
            let key = (
                change["stream_id"].as_u64().unwrap(),
                change["stream_side"].as_str().unwrap().to_owned(),
            );
            let list = states.entry(key).or_default();
            assert_eq!(change["old"].as_str(), list.last().map(String::as_str));
            list.push(change["new"].as_str().unwrap().to_owned());
        }
        for ((id, side), list) in states {
            ends.insert((end, id, side), list.join(" "));
        }
    }
    let of = |end: usize, id, side: &str| ends[&(end, id, side.to_owned())].as_str();
    assert_eq!(of(0, 0, "sending"), "data_sent data_received destroyed");
    assert!(of(1, 0, "receiving").ends_with("destroyed"));
    assert_eq!(of(0, 2, "sending"), "send reset_sent destroyed");
    assert_eq!(of(1, 2, "receiving"), "receive reset_received");
}

fn text(shared: &Shared) -> String {
    String::from_utf8(shared.bytes()).unwrap()
}

/// A Retry packet has no number and no frames, but is logged as a packet. Its token is not logged.
#[test]
fn qlog_retry() {
    let mut network = Network::new(1, Faults::none());
    with_retry(&mut network, true);
    let logs = log_both(&mut network);
    network.connect();
    let client = events(&logs[0].0);
    let received = named(&client, "packet_received");
    let retry = received[0];
    assert_eq!(retry["header"]["packet_type"], "retry");
    let token = serde_json::json!({ "type": "retry", "raw": { "length": 5 } });
    assert_eq!(retry["header"]["token"], token);
    let datagrams = named(&client, "udp_datagrams_received");
    assert_eq!(retry["raw"]["length"], datagrams[0]["raw"][0]["length"]);
    assert_eq!(retry["datagram_payload_checksum"], datagrams[0]["datagram_payload_checksums"][0]);
    let retries = received.iter().filter(|one| one["header"]["packet_type"] == "retry");
    assert_eq!(retries.count(), 1);
    assert!(named(&client, "packet_dropped").is_empty());
    assert!(text(&logs[0].1).contains("< retry          - "), "{}", text(&logs[0].1));
}

/// Returns the versions as a list of `version_information` or `packet_received` has them.
fn list(versions: &[Version]) -> Value {
    versions.iter().map(|version| format!("{:08x}", version.0)).collect()
}

#[test]
fn qlog_version_negotiation() {
    const OFFER: &[Version] = &[Version(0x1a2a_3a4a), Version::V1];
    let mut network = speaking(1, Faults::none(), &[V2, V1], None, &[V1]);
    no_version_2(&mut network, OFFER);
    let logs = log_both(&mut network);
    network.connect();
    let client = events(&logs[0].0);
    let packet = named(&client, "packet_received")[0];
    assert_eq!(packet["header"]["packet_type"], "version_negotiation");
    assert_eq!(packet["supported_versions"], list(OFFER));
    let datagram = named(&client, "udp_datagrams_received")[0];
    assert_eq!(packet["raw"]["length"], datagram["raw"][0]["length"]);
    let versions = named(&client, "version_information");
    assert_eq!(versions.len(), 2);
    assert_eq!(versions[0]["chosen_version"], "6b3343cf");
    assert_eq!(versions[1]["server_versions"], list(OFFER));
    assert_eq!(versions[1]["chosen_version"], "00000001");
    assert!(text(&logs[0].1).contains(" 0x1a2a3a4a 0x1\n"), "{}", text(&logs[0].1));
}

#[test]
fn qlog_no_common_version() {
    let mut network = speaking(1, Faults::none(), &[V2], None, &[V1]);
    no_version_2(&mut network, &[Version::V1]);
    let client = Shared::default();
    log(&mut network.client, client.clone(), Shared::default());
    network.run_until(LIMIT, |client, _| client.is_drained());
    let client = events(&client);
    let last = named(&client, "version_information").pop().unwrap();
    assert_eq!(last["server_versions"], list(&[Version::V1]));
    assert_eq!(last.get("chosen_version"), None);
}

/// Both ends log the version after the upgrade (RFC 9368 s.2.3).
#[test]
fn qlog_upgrade_to_version_2() {
    let mut network = speaking(1, Faults::none(), &[V2, V1], Some(V1), &[V2, V1]);
    let logs = log_both(&mut network);
    network.connect();
    for (end, log) in logs.iter().enumerate() {
        let events = events(&log.0);
        let chosen: Vec<&Value> = named(&events, "version_information")
            .into_iter()
            .map(|one| &one["chosen_version"])
            .collect();
        assert_eq!(chosen, ["00000001", "6b3343cf"], "end {end}");
    }
}

/// The preferred address is logged without its stateless reset token, with which anyone could end
/// the connection.
#[test]
fn qlog_preferred_address() {
    let addresses = PreferredAddresses {
        ipv4: Some("192.0.2.99:443".parse().unwrap()),
        ipv6: Some("[2001:db8::99]:4433".parse().unwrap()),
    };
    let ((client, server), transport) = (configs(), Arc::<TransportConfig>::default());
    let client = ClientConfig { tls: client, transport: transport.clone() };
    let server = ServerConfig { tls: server, transport, preferred_addresses: Some(addresses) };
    let mut network = Network::between(1, Faults::none(), &client, server);
    let logs = log_both(&mut network);
    network.connect();
    let [client, server] = logs.map(|log| events(&log.0));
    let told = |events: &[Value], initiator: &str| {
        let sets = named(events, "parameters_set").into_iter();
        let mut sets = sets.filter(|one| one["initiator"] == initiator);
        sets.next().unwrap()["preferred_address"].clone()
    };
    let (ours, theirs) = (told(&server, "local"), told(&client, "remote"));
    assert_eq!(ours, theirs);
    let expected = [("ip_v4", "192.0.2.99"), ("ip_v6", "2001:db8::99")];
    assert!(expected.iter().all(|(key, value)| ours[key] == *value), "{ours}");
    assert_eq!((&ours["port_v4"], &ours["port_v6"]), (&443.into(), &4433.into()));
    assert_eq!(ours["connection_id"].as_str().map(str::len), Some(2 * ID_LEN));
    assert_eq!(ours.as_object().unwrap().len(), 5, "{ours}");
    assert_eq!(told(&client, "local"), Value::Null);
}
