//! Larger datagram sizes are probed when they are useful (RFC 8899; RFC 9000 s.14.3).

use super::network::{Faults, Network};
use super::*;

/// Returns the size of the largest datagram that an end has sent. Only probes exceed the base size
/// until one is acknowledged.
fn largest(network: &Network, to_server: bool) -> usize {
    let sizes = network.trace().into_iter().filter(|sent| sent.1 == to_server);
    sizes.map(|(_, _, size)| size).max().unwrap_or(0)
}

#[test]
fn mtu_small_exchange_sends_no_probe() {
    let mut network = Network::new(1, Faults::none());
    network.connect();
    for _ in 0..3 {
        echo(&mut network, 3_000);
    }
    network.wait(Duration::from_secs(1));
    let sent = [largest(&network, true), largest(&network, false)];
    assert_eq!(sent, [1200, 1200], "{}", network.describe());
}

#[test]
fn mtu_probe_of_a_long_transfer_loses_nothing() {
    for size in [60_000, 100_000, 1_000_000] {
        let mut network = Network::new(1, Faults::none());
        network.connect();
        echo(&mut network, size);
        let sent = [largest(&network, true), largest(&network, false)];
        assert_eq!(sent, [1472, 1472], "{size}: {}", network.describe());
        assert_eq!((network.client.path().mtu(), network.server().path().mtu()), (1472, 1472));
        let lost = [&network.client, network.server()].map(|end| end.stats().packets_lost);
        assert_eq!(lost, [0, 0], "{size}: {}", network.describe());
    }
}

#[test]
fn mtu_probe_after_many_small_exchanges() {
    let mut network = Network::new(1, Faults::none());
    network.connect();
    let mut count = 0;
    while network.client.path().mtu() == 1200 {
        echo(&mut network, 2_000);
        count += 1;
        assert!(count < 30, "{}", network.describe());
    }
    assert!(count > 10, "{count}: {}", network.describe());
}

#[test]
fn mtu_of_the_path_is_reported_to_senders_of_datagrams() {
    for too_large in [false, true] {
        let mut network = Network::new(1, Faults::none());
        network.connect();
        network.wait(Duration::from_secs(1));
        let most = network.client.max_datagram_size().unwrap();
        assert!(most < 1200 && network.client.path().mtu() == 1200, "{}", network.describe());
        let sent = network.client.send_datagram(vec![0; if too_large { 1400 } else { 10 }]);
        assert_eq!(sent, if too_large { Err(DatagramError::TooLarge(most)) } else { Ok(()) });
        network.run_until(Duration::from_secs(1), |client, _| client.path().mtu() == 1472);
        network.client.send_datagram(vec![0; 1400]).unwrap();
    }
}

#[test]
fn mtu_is_probed_again_after_a_migration() {
    let mut network = Network::new(1, Faults::none());
    network.connect();
    echo(&mut network, 100_000);
    let before = network.client.path().key();
    network.client.migrate(network.now(), None).unwrap();
    network.run_until(Duration::from_secs(5), |client, _| client.path().key() != before);
    assert_eq!(network.client.path().mtu(), 1200);
    echo(&mut network, 100_000);
    assert_eq!(network.client.path().mtu(), 1472, "{}", network.describe());
}
