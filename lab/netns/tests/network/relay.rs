//! Tests of the relay between real sockets.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use crate::common::PATIENCE;
use equic_net::{Chance, Fate, Link};
use equic_netns::relay::{Config, Rebind, RebindTo, Relay, Report, Way};

const MS: Duration = Duration::from_millis(1);

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket
}

fn config(server: &UdpSocket) -> Config {
    let server = server.local_addr().expect("an address");
    Config { keep: 1 << 20, ..Config::new((Ipv4Addr::LOCALHOST, 0).into(), server) }
}

fn receive(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = [0; 2000];
    let (len, from) = socket.recv_from(&mut buffer).expect("a datagram in time");
    (buffer[..len].to_vec(), from)
}

#[test]
fn relay_delays_datagrams_in_both_directions() {
    let (server, client) = (socket(), socket());
    let mut config = config(&server);
    config.to_server.delay = 30 * MS;
    config.to_client.delay = 20 * MS;
    let relay = Relay::start(config).expect("a relay");
    let start = Instant::now();
    client.send_to(b"question", relay.fronts()[0]).expect("it is sent");
    let (question, from) = receive(&server);
    assert!(start.elapsed() >= 30 * MS);
    server.send_to(b"answer", from).expect("it is sent");
    let (answer, front) = receive(&client);
    assert!(start.elapsed() >= 50 * MS);
    assert_eq!(
        (&question[..], &answer[..], front),
        (&b"question"[..], &b"answer"[..], relay.fronts()[0])
    );
    let report = relay.stop().expect("a report");
    let ways: Vec<Way> = report.records.iter().map(|record| record.way).collect();
    assert_eq!(ways, [Way::ToServer, Way::ToClient]);
    assert_eq!(report.records[0].seen_as, from);
    assert_eq!((report.counts.clients, report.counts.to_server.bytes), (1, 8));
}

/// Sends numbered datagrams through a relay, and waits for those that must arrive. Returns the
/// relay's report and the received datagrams.
fn run(link: Link, seed: u64, count: u32) -> (Report, Vec<Vec<u8>>) {
    let (server, client) = (socket(), socket());
    let relay = Relay::start(Config { to_server: link, seed, ..config(&server) }).expect("a relay");
    let mut came = Vec::new();
    server.set_read_timeout(Some(300 * MS)).expect("a timeout");
    for number in 0..count {
        client.send_to(&number.to_be_bytes(), relay.fronts()[0]).expect("it is sent");
        // Send one datagram at a time, so that buffers have no effect.
        let mut buffer = [0; 100];
        server.set_nonblocking(true).expect("it is set");
        while let Ok((len, _)) = server.recv_from(&mut buffer) {
            came.push(buffer[..len].to_vec());
        }
        server.set_nonblocking(false).expect("it is set");
    }
    let mut buffer = [0; 100];
    while let Ok((len, _)) = server.recv_from(&mut buffer) {
        came.push(buffer[..len].to_vec());
    }
    (relay.stop().expect("a report"), came)
}

#[test]
fn relay_follows_its_seed_and_reports_every_fate() {
    let chance = Chance::percent;
    let link = Link {
        drop: chance(20.0),
        corrupt: chance(10.0),
        duplicate: chance(10.0),
        ..Link::default()
    };
    let fates = |report: &Report| -> Vec<Fate> {
        report.records.iter().map(|record| record.fate).collect()
    };
    let (report, came) = run(link.clone(), 5, 200);
    let count = |fate| fates(&report).into_iter().filter(|other| *other == fate).count();
    let expected = 200 - count(Fate::Dropped) + count(Fate::Duplicated);
    assert_eq!(came.len(), expected, "{:?}", report.counts);
    assert!(count(Fate::Dropped) > 0 && count(Fate::Corrupted) > 0 && count(Fate::Duplicated) > 0);
    let intact: BTreeSet<Vec<u8>> =
        (0..200u32).map(|number| number.to_be_bytes().to_vec()).collect();
    let arrived = report.records.iter().filter(|record| record.fate.is_intact());
    for record in arrived {
        assert!(came.contains(&record.payload), "{:?}", record.payload);
    }
    assert!(came.iter().filter(|payload| !intact.contains(*payload)).count() > 0);
    let (again, _) = run(link, 5, 200);
    assert_eq!(fates(&report), fates(&again));
}

#[test]
fn relay_rebinds_a_client_and_closes_its_old_address() {
    for to in [RebindTo::Port, RebindTo::Address] {
        let (server, client) = (socket(), socket());
        let mut config = config(&server);
        config.rebind = Some(Rebind { first: 50 * MS, every: None, to });
        let relay = Relay::start(config).expect("a relay");
        let front = relay.fronts()[0];
        client.send_to(b"\xc1", front).expect("it is sent");
        let (_, first) = receive(&server);
        // The datagrams have long headers, as in a handshake. A client must not move during its
        // handshake.
        let start = Instant::now();
        while start.elapsed() < 150 * MS {
            client.send_to(b"\xc1", front).expect("it is sent");
            assert_eq!(receive(&server).1, first);
        }
        let start = Instant::now();
        let second = loop {
            client.send_to(b"2", front).expect("it is sent");
            let (_, from) = receive(&server);
            if from != first {
                break from;
            }
            assert!(start.elapsed() < PATIENCE, "it never moved");
        };
        assert_eq!(first.ip() != second.ip(), to == RebindTo::Address);
        assert_ne!(first.port(), second.port());
        server.send_to(b"old", first).expect("it is sent");
        server.send_to(b"new", second).expect("it is sent");
        assert_eq!(receive(&client).0, b"new");
        let report = relay.stop().expect("a report");
        assert_eq!(report.counts.rebindings, 1);
        let old = report.records.iter().filter(|record| record.fate == Fate::Unreachable).count();
        assert_eq!(old, 1);
    }
}

#[test]
fn relay_forwards_ecn_marks() {
    use quinn_udp::{EcnCodepoint, RecvMeta, Transmit, UdpSocketState};
    let (server, client) = (socket(), socket());
    let relay = Relay::start(config(&server)).expect("a relay");
    let sending = UdpSocketState::new((&client).into()).expect("a state");
    let receiving = UdpSocketState::new((&server).into()).expect("a state");
    server.set_nonblocking(false).expect("it is set");
    let marks = [Some(EcnCodepoint::Ect0), None, Some(EcnCodepoint::Ect1), Some(EcnCodepoint::Ce)];
    for ecn in marks {
        let destination = relay.fronts()[0];
        let transmit =
            Transmit { destination, ecn, contents: b"marked", segment_size: None, src_ip: None };
        sending.send((&client).into(), &transmit).expect("it is sent");
        let (mut buffer, mut meta) = ([0; 1 << 16], [RecvMeta::default()]);
        let mut slices = [std::io::IoSliceMut::new(&mut buffer)];
        receiving.recv((&server).into(), &mut slices, &mut meta).expect("it comes");
        assert_eq!(meta[0].ecn, ecn);
    }
    assert_eq!(relay.stop().expect("a report").counts.to_server.ecn, [1, 1, 1, 1]);
}

#[test]
fn relay_with_a_wrong_configuration_is_refused() {
    let server = socket();
    let refused = |change: fn(&mut Config)| {
        let mut config = config(&server);
        change(&mut config);
        assert!(Relay::start(config).is_err());
    };
    refused(|config| config.fronts.clear());
    refused(|config| config.fronts = vec!["[::1]:0".parse().expect("an address")]);
    refused(|config| config.to_client.drop.percent = 101.0);
    refused(|config| config.to_server.rate = Some(0));
    refused(|config| {
        config.server = "192.0.2.1:1".parse().expect("an address");
        config.rebind = Some(Rebind { first: 50 * MS, every: None, to: RebindTo::Address });
    });
}
