//! Changes of addresses: by a NAT, by the application, to the server's preferred address, and by an
//! attacker.

use std::net::{IpAddr, SocketAddr};

use super::operations::{doing, replace};
use super::*;
use crate::crypto::testing::configs;
use crate::operation::{Decision, Operation};

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn migration_by_nat_rebinding_is_followed() {
    for new in ["198.51.100.1:5544", "203.0.113.7:4433"] {
        let mut network = Network::new(1, Faults::none());
        network.connect();
        echo(&mut network, 20_000);
        network.client_address = address(new);
        echo(&mut network, 20_000);
        assert_eq!(network.server().remote_address(), address(new));
        // The old address is probed for three PTOs of a path without RTT samples.
        network.pass(Duration::from_secs(4));
        assert!(network.server().path().is_validated());
        assert_eq!(network.server().paths.iter().count(), 1, "the old path is removed");
        echo(&mut network, 200_000);
    }
}

#[test]
fn migration_by_continuous_nat_rebinding_with_loss() {
    for seed in 0..15 {
        let faults = Faults { loss: 0.1, jitter: Duration::from_millis(30), ..Faults::none() };
        let mut network = Network::new(seed, faults);
        network.connect();
        for port in 0..8 {
            network.client_address.set_port(6000 + port);
            // A client that only waits must send a PING, because the server sends to the client's
            // old address.
            network.client.ping();
            echo(&mut network, 30_000);
            assert!(network.server().paths.iter().count() <= 4);
        }
        assert_eq!(network.server().remote_address().port(), 6007);
    }
}

#[test]
fn migration_uses_another_connection_id() {
    let mut network = Network::new(2, Faults::none());
    network.connect();
    let early = Network::new(2, Faults::none()).client.migrate(Timestamp::START, None);
    assert_eq!(early, Err(MigrateError::NotConfirmed));
    let server = network.now();
    assert_eq!(network.server_mut().migrate(server, None), Err(MigrateError::Server));
    echo(&mut network, 20_000);
    let (now, before) = (network.now(), network.client.path().remote_id());
    let new: IpAddr = "203.0.113.7".parse().unwrap();
    network.client.migrate(now, Some(new)).unwrap();
    network.client_address = SocketAddr::new(new, 4433);
    echo(&mut network, 200_000);
    network.pass(Duration::from_secs(3));
    let (client, server) = (&network.client, network.server());
    assert_ne!(client.path().remote_id(), before);
    assert!(client.path().is_validated() && server.path().is_validated());
    assert_eq!(server.remote_address(), network.client_address);
    assert_eq!(client.ids.remote.get(before.unwrap()), None, "the old one is retired");
    assert!(server.path().remote_id() > Some(0), "the server does not use its old ID");
    // The client can migrate any number of times, because the peer issues new IDs.
    for turn in 0..10 {
        let now = network.now();
        network.client.migrate(now, None).unwrap();
        network.client_address.set_port(7000 + turn);
        echo(&mut network, 30_000);
        network.pass(Duration::from_secs(3));
    }
}

#[test]
fn migration_that_is_disabled_still_follows_nat_rebinding() {
    let mut network = Network::with(3, Faults::none(), |config| config.allow_migration = false);
    network.connect();
    let now = network.now();
    assert_eq!(network.client.migrate(now, None), Err(MigrateError::Forbidden));
    network.client_address.set_port(5);
    echo(&mut network, 20_000);
}

/// RFC 9000 s.9.3.1, s.9.3.2: the new address does not answer. The bytes sent to an attacker are
/// bounded, and the connection continues at the peer's address.
#[test]
fn migration_by_a_copied_packet_does_not_last() {
    let mut network = Network::new(4, Faults::none());
    network.connect();
    echo(&mut network, 20_000);
    let home = network.client_address;
    // The attacker forwards one packet from its own address, faster than the path.
    network.client_address = address("203.0.113.66:666");
    network.client.ping();
    let now = network.now();
    network.run_until(Duration::from_secs(1), |_, server| server.remote_address().port() == 666);
    network.client_address = home;
    let sent = network.server().stats().bytes_sent;
    network.pass(Duration::from_secs(5));
    assert!(network.now() > now);
    assert_eq!(network.server().remote_address(), home);
    echo(&mut network, 20_000);
    let to_attacker = network.to(address("203.0.113.66:666"));
    assert!(
        to_attacker <= 3 * 1500,
        "{to_attacker} of {}",
        network.server().stats().bytes_sent - sent
    );
}

#[test]
fn migration_to_the_preferred_address() {
    let preferred = "192.0.2.99:443";
    for reachable in [true, false] {
        let addresses = PreferredAddresses { ipv4: Some(preferred.parse().unwrap()), ipv6: None };
        let ((client, server), transport) = (configs(), Arc::<TransportConfig>::default());
        let client = ClientConfig { tls: client, transport: transport.clone() };
        let preferred_addresses = Some(addresses);
        let server = ServerConfig { tls: server, transport, preferred_addresses };
        let mut network = Network::between(5, Faults::none(), &client, server);
        if !reachable {
            network.lost_addresses.push(address(preferred));
        }
        network.connect();
        echo(&mut network, 50_000);
        network.pass(Duration::from_secs(5));
        echo(&mut network, 50_000);
        let expected = if reachable { preferred } else { "192.0.2.1:443" };
        assert_eq!(network.client.remote_address(), address(expected));
        if reachable {
            assert_eq!(network.client.path().remote_id(), Some(1));
        }
    }
}

/// RFC 9000 s.9.6.1: the client uses the address of the family in use, in the form that its socket
/// uses.
#[test]
fn migration_to_the_preferred_address_of_the_family_in_use() {
    let cases = [
        ("192.0.2.1:443", Some("192.0.2.99:4433")),
        ("[::ffff:192.0.2.1]:443", Some("[::ffff:192.0.2.99]:4433")),
        ("[2001:db8::1]:443", Some("[2001:db8::99]:4434")),
    ];
    let (v4, v6) = ("192.0.2.99:4433".parse().unwrap(), "[2001:db8::99]:4434".parse().unwrap());
    for (remote, expected) in cases {
        for (ipv4, ipv6) in [(Some(v4), Some(v6)), (Some(v4), None), (None, Some(v6))] {
            let mut network = Network::new(1, Faults::none());
            network.connect();
            let client = &mut network.client;
            client.path_mut().pretend_remote(address(remote));
            let (id, token) = (ConnectionId::cut(&[9; 8]), equic_wire::ResetToken([9; 16]));
            client.preferred_address = PreferredAddress::new(ipv4, ipv6, id, token).map(Box::new);
            client.try_preferred(Timestamp::START);
            let tried = client.paths.iter().map(|path| path.remote()).nth(1);
            let offered =
                if remote.contains("192.0.2.1") { ipv4.is_some() } else { ipv6.is_some() };
            assert_eq!(tried, expected.filter(|_| offered).map(address), "{remote}");
        }
    }
}

/// A packet arrives from a new address and creates a path. The PATH_RESPONSE in it ends this path.
/// The server does not migrate there, and does not answer the PATH_CHALLENGE in the packet.
#[test]
fn migration_to_a_path_that_ends_in_its_first_packet() {
    let mut network = Network::new(11, Faults::none());
    network.connect();
    echo(&mut network, 20_000);
    network.pass(Duration::from_secs(3));
    let (now, home) = (network.now(), network.client_address);
    let server = network.server_mut();
    let active = server.path().key();
    server.challenge(now, active);
    let asked = server.path().challenge().unwrap();
    server.path_mut().on_challenge_sent(now, Duration::from_secs(1), true);
    // PATH_RESPONSE, PATH_CHALLENGE, PING.
    let payload = [&[0x1b][..], &asked, &[0x1a], &[7; 8], &[0x01]].concat();
    let mut datagram = network.client.forge(SpaceId::DATA, &payload);
    let remote = address("203.0.113.7:7");
    let arrival = DatagramMeta { remote, local: None, ecn: EcnCodepoint::NotEct };
    let server = network.server_mut();
    let before = server.stats().packets_received;
    server.handle_datagram(now, arrival, &mut datagram);
    assert_eq!(server.stats().packets_received, before + 1);
    let paths: Vec<SocketAddr> = server.paths.iter().map(|path| path.remote()).collect();
    assert_eq!(paths, [home], "the new path was removed");
    assert!(!server.path().is_asking() && server.path().key() == active);
    echo(&mut network, 20_000);
    assert_eq!(network.to(remote), 0, "datagrams were sent to the new address");
}

#[test]
fn migration_by_packets_without_keys_makes_no_paths() {
    let mut network = Network::new(6, Faults::none());
    network.connect();
    let now = network.now();
    for port in 0..1000 {
        let mut bytes = vec![0x40; 100];
        let remote = SocketAddr::new("203.0.113.1".parse().unwrap(), 1000 + port);
        let arrival = DatagramMeta { remote, local: None, ecn: EcnCodepoint::NotEct };
        network.server_mut().handle_datagram(now, arrival, &mut bytes);
    }
    assert_eq!(network.server().paths.iter().count(), 1);
    echo(&mut network, 1000);
}

/// Returns a server, the address of a stranger, and the current time. The server has received two
/// packets, of which the first came late and from the stranger's address. That address is a path to
/// which the server does not migrate. The server has a PATH_RESPONSE to send there, and an
/// acknowledgement to send to the home address.
fn with_an_answer_to_a_stranger() -> (Connection, SocketAddr, Timestamp) {
    let mut network = Network::new(7, Faults::none());
    network.connect();
    network.wait(Duration::from_secs(2));
    let home = network.client_address;
    let (mut client, mut server, now) = network.into_ends();
    let stranger = address("203.0.113.66:666");
    let from = |remote| DatagramMeta { remote, local: None, ecn: EcnCodepoint::NotEct };
    let mut buffer = vec![0; 2000];
    let mut pings = [const { Vec::new() }; 2];
    for ping in &mut pings {
        client.ping();
        let size = client.poll_transmit(now, &mut buffer).unwrap().size;
        *ping = buffer[..size].to_vec();
    }
    let [first, second] = &mut pings;
    server.handle_datagram(now, from(home), second);
    server.handle_datagram(now, from(stranger), first);
    assert_eq!(server.remote_address(), home);
    let path = server.paths.iter_mut().find(|path| path.remote() == stranger).unwrap();
    // As if the stranger had sent a PATH_CHALLENGE.
    path.answer([1; 8]);
    (server, stranger, now)
}

/// Returns the destination and time of each datagram that the server sends within `time` by its
/// timers. Panics if the timers do not end.
fn sent_within(
    server: &mut Connection,
    now: Timestamp,
    time: Duration,
) -> Vec<(SocketAddr, Duration)> {
    let (mut sent, mut rounds) = (Vec::new(), 0);
    let mut buffer = vec![0; 2000];
    while let Some(at) = server.poll_timeout().filter(|at| *at <= now + time) {
        let at = now.max(at);
        server.handle_timeout(at);
        while let Some(transmit) = server.poll_transmit(at, &mut buffer) {
            sent.push((transmit.destination, at.since(now)));
        }
        rounds += 1;
        assert!(rounds < 20, "{sent:?}");
    }
    sent
}

/// An address that claims to be the peer's has credit for less than a packet (RFC 9000 s.8.1). It
/// must not block packets that are due elsewhere, and must not make a timer expire endlessly.
#[test]
fn anti_amplification_credit_below_a_packet_blocks_nothing() {
    for left in 0..100 {
        let (mut server, stranger, now) = with_an_answer_to_a_stranger();
        let path = server.paths.iter_mut().find(|path| path.remote() == stranger).unwrap();
        let credit = path.credit().unwrap();
        path.on_datagram_sent(credit as usize - left);
        let acks = server.stats().acks_sent;
        let sent = sent_within(&mut server, now, Duration::from_secs(1));
        assert!(sent.iter().any(|(to, _)| *to != stranger), "{left} bytes are left: {sent:?}");
        assert!(server.stats().acks_sent > acks, "{left} bytes are left: {sent:?}");
    }
}

/// If something else prevents sending to a validated address, here a hook, packets that are due at
/// the home address are sent there in time.
#[test]
fn path_that_sends_nothing_blocks_nothing() {
    let (mut server, stranger, now) = with_an_answer_to_a_stranger();
    let elsewhere = server.paths.iter().find(|path| path.remote() == stranger).unwrap().key();
    let refuse = doing(move |_, call, outputs| {
        if call.inputs[1] != u64::from(elsewhere.0) {
            return Ok(Decision::Default);
        }
        outputs.fill(0);
        Ok(Decision::Done)
    });
    replace(&mut server, Operation::HasContent, refuse);
    let acks = server.stats().acks_sent;
    let most = TransportConfig::default().max_ack_delay;
    let sent = sent_within(&mut server, now, most);
    assert!(!sent.is_empty() && sent.iter().all(|(to, _)| *to != stranger), "{sent:?}");
    assert!(server.stats().acks_sent > acks);
}
