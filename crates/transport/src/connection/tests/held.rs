//! Connections that the endpoint holds back.

use super::*;
use crate::driver::{Share, SharedWindow};

/// Only packets that count toward bytes in flight are held back. The peer's packets are
/// acknowledged nevertheless. When its turn comes, a connection sends the data that has waited.
#[test]
fn ack_is_sent_while_data_waits_for_its_turn() {
    let mut network = Network::new(1, Faults::none());
    network.connect();
    network.wait(100 * MS);
    let from_client = network.client.open(Direction::Unidirectional).unwrap();
    let from_server = network.server_mut().open(Direction::Unidirectional).unwrap();
    network.server_mut().driver().hold_back();
    network.client.streams().write(from_client, &[1; 5000]).unwrap();
    network.server_mut().streams().write(from_server, &[2; 5000]).unwrap();
    network.wait(100 * MS);
    assert!(network.server_mut().driver().is_held_back());
    assert_eq!(network.server().path().in_flight(), 0);
    assert_eq!(network.client.path().in_flight(), 0, "bytes in flight after all acknowledgements");
    assert_eq!(network.client.stats().packets_lost, 0);
    assert!(network.client.accept(Direction::Unidirectional).is_none());
    let mut buffer = [0; 10_000];
    assert_eq!(network.server_mut().accept(Direction::Unidirectional), Some(from_client));
    assert_eq!(
        network.server_mut().streams().read(from_client, &mut buffer).unwrap(),
        ReadOutcome::Bytes(5000)
    );
    network.server_mut().driver().take_turn(&SharedWindow::new(1200));
    network.wait(100 * MS);
    assert!(!network.server_mut().driver().is_held_back());
    assert_eq!(network.client.accept(Direction::Unidirectional), Some(from_server));
    assert_eq!(
        network.client.streams().read(from_server, &mut buffer).unwrap(),
        ReadOutcome::Bytes(5000)
    );
}

/// A connection starts on a path whose shared window other connections have used up. It uses their
/// datagram size, and sends a turn's worth of data. A connection that has seen a loss does not.
#[test]
fn cwnd_shared_is_known_to_a_new_member() {
    for lossy in [false, true] {
        let mut network = Network::new(1, Faults::none());
        network.connect();
        network.wait(100 * MS);
        let (mut connection, _, now) = network.into_ends();
        let mut buffer = [0; 2048];
        while connection.poll_transmit(now, &mut buffer).is_some() {}
        if lossy {
            connection.path_mut().pretend_lost(1);
        }
        let id = connection.open(Direction::Unidirectional).unwrap();
        connection.streams().write(id, &[2; 100_000]).unwrap();
        let window = SharedWindow::used_up(1400, 32 * 60_000);
        connection.driver().take_turn(&window);
        // The credit of the pacer is used up at this time.
        let (now, mut sizes) = (now + MS, Vec::new());
        while let Some(sent) = connection.poll_transmit(now, &mut buffer) {
            sizes.push(sent.size);
        }
        assert!(sizes.iter().filter(|size| **size == 1400).count() >= 7, "{sizes:?}");
        let sum: usize = sizes.iter().sum();
        let expected = if lossy { 10_000..20_000 } else { 55_000..62_000 };
        assert!(expected.contains(&sum), "{sum}: {sizes:?}");
    }
}

/// A connection with nothing to send does not wait for a turn. Neither does a connection that its
/// own window limits.
#[test]
fn cwnd_shared_does_not_hold_back_an_idle_member() {
    let mut network = Network::new(1, Faults::none());
    network.connect();
    network.wait(100 * MS);
    network.server_mut().driver().hold_back();
    network.wait(100 * MS);
    assert!(!network.server_mut().driver().is_held_back());
    let id = network.server_mut().open(Direction::Unidirectional).unwrap();
    network.server_mut().streams().write(id, &[2; 5000]).unwrap();
    network.server_mut().path_mut().pretend_in_flight(1 << 40);
    network.wait(MS);
    assert!(!network.server_mut().driver().is_held_back());
}

/// Bytes in flight count until they are acknowledged, or until the peer is no longer heard. The
/// other connections do not wait for a peer that is gone.
#[test]
fn cwnd_shared_is_not_used_by_a_silent_peer() {
    let mut network = Network::new(1, Faults::none());
    network.connect();
    network.wait(100 * MS);
    let (mut window, mut share) = (SharedWindow::new(1200), Share::default());
    let (mut connection, _, mut now) = network.into_ends();
    let mut buffer = [0; 2048];
    while connection.poll_transmit(now, &mut buffer).is_some() {}
    let id = connection.open(Direction::Unidirectional).unwrap();
    connection.streams().write(id, &[2; 5000]).unwrap();
    while connection.poll_transmit(now, &mut buffer).is_some() {}
    connection.driver().count_in(now, &mut window, &mut share);
    assert!(window.in_flight() >= 5000, "{}", window.in_flight());
    while connection.stats().probe_timeouts == 0 {
        now = connection.poll_timeout().unwrap();
        connection.handle_timeout(now);
    }
    connection.driver().count_in(now, &mut window, &mut share);
    assert_eq!(window.in_flight(), 0);
    connection.close(now, VarInt::ZERO, "");
    connection.driver().count_in(now, &mut window, &mut share);
    assert_eq!(window.in_flight(), 0);
}
