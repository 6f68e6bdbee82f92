//! A NAT gives the client another address while the handshake is under way.

use super::validated::{HOME, address};
use super::*;

const DELAY: Duration = Duration::from_millis(10);

/// Returns a network on which the client's packets have another source port from this time on.
fn rebound_at(time: Duration) -> Network {
    let mut network = Network::new(1, Faults { delay: DELAY, ..Faults::none() });
    let at = Timestamp::START + time;
    while network.now() < at {
        let left = at.since(network.now());
        network.wait(left.min(MS));
    }
    network.client_address.set_port(5544);
    network
}

/// The rebinding happens in the last round trip, after the client has received the server's first
/// flight.
#[test]
fn handshake_completes_after_a_nat_rebinding_in_its_last_round_trip() {
    for time in 20..=60 {
        let mut network = rebound_at(MS * time);
        let before = network.now();
        network.connect();
        echo(&mut network, 20_000);
        let took = network.now().since(before);
        assert!(took < Duration::from_secs(3), "rebound at {time} ms: {took:?}");
        assert_eq!(network.server().remote_address(), network.client_address);
    }
}

/// In the first round trip, a server's connection stays at the address of the client's first packet
/// (RFC 9000 s.9). If its Initial packets went to several addresses, a Handshake packet would no
/// longer validate the address in use (s.8.1). An endpoint begins another connection for the new
/// address.
#[test]
fn handshake_stays_at_the_address_of_its_first_packet() {
    for time in [1, 5, 10, 15, 19] {
        let mut network = rebound_at(MS * time);
        let (home, new) = (address(HOME), network.client_address);
        network.wait(Duration::from_secs(5));
        assert!(!network.client.is_connected(), "rebound at {time} ms");
        assert_eq!(network.to(new), 0, "rebound at {time} ms");
        // The credit of one datagram. Datagrams from another address do not count.
        assert!((1..=3 * 1200).contains(&network.to(home)), "rebound at {time} ms");
        network.run_until(Duration::from_secs(60), |client, server| {
            client.is_drained() && server.is_drained()
        });
        assert!(network.closed().iter().all(|reason| *reason == Some(CloseReason::IdleTimeout)));
    }
}

/// RFC 9002 s.6.2.4: a server that has the client's Finished discards Handshake packets. A probe
/// with only such packets would have no effect.
#[test]
fn pto_probe_of_the_handshake_takes_application_data_along() {
    let mut network = Network::new(1, Faults { delay: DELAY, ..Faults::none() });
    network.run_until(Duration::from_secs(1), |client, _| client.is_connected());
    let client = &mut network.client;
    let id = client.open(Direction::Unidirectional).unwrap();
    client.streams().write(id, b"request").unwrap();
    let (mut now, mut buffer) = (network.now(), vec![0; 1500]);
    let client = &mut network.client;
    while client.poll_transmit(now, &mut buffer).is_some() {}
    let in_flight = |client: &Connection, id| {
        let space = client.spaces.get(id).unwrap();
        space.loss.last_ack_eliciting().is_some()
    };
    assert!(in_flight(client, SpaceId::Handshake) && in_flight(client, SpaceId::DATA));
    let next =
        [SpaceId::Handshake, SpaceId::DATA].map(|id| client.spaces.get(id).unwrap().numbers.next());
    let timeouts = client.stats().probe_timeouts;
    while client.stats().probe_timeouts == timeouts {
        now = client.poll_timeout().unwrap();
        client.handle_timeout(now);
    }
    client.poll_transmit(now, &mut buffer).expect("a probe");
    let after =
        [SpaceId::Handshake, SpaceId::DATA].map(|id| client.spaces.get(id).unwrap().numbers.next());
    assert!(
        after[0] > next[0] && after[1] > next[1],
        "the first datagram does not have both: {after:?}"
    );
}

/// The server's handshake may be incomplete because data of the other space is missing.
#[test]
fn pto_probe_of_a_server_repeats_initial_and_handshake_together() {
    let mut network = Network::new(1, Faults::none());
    network.deliver_only_first_client_datagram();
    network.run_until(Duration::from_secs(5), |_, server| server.stats().packets_received > 0);
    let (_, mut server, mut now) = network.into_ends();
    let mut buffer = vec![0; 1500];
    while server.poll_transmit(now, &mut buffer).is_some() {}
    // Credit for more datagrams.
    server.path_mut().on_datagram_received(1200);
    let numbers = |server: &Connection| {
        [SpaceId::Initial, SpaceId::Handshake]
            .map(|id| server.spaces.get(id).unwrap().numbers.next())
    };
    let before = numbers(&server);
    let timeouts = server.stats().probe_timeouts;
    while server.stats().probe_timeouts == timeouts {
        now = server.poll_timeout().unwrap();
        server.handle_timeout(now);
    }
    server.poll_transmit(now, &mut buffer).expect("a probe");
    let after = numbers(&server);
    assert!(after[0] > before[0] && after[1] > before[1], "{before:?} {after:?}");
}
