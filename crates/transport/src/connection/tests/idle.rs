//! Memory of a connection that does nothing.

use super::*;

/// Returns the capacity of a space for records of packets in flight, and for the list of the next
/// packet's frames.
fn places(connection: &Connection) -> usize {
    connection.spaces.data().loss.sent().capacity() + connection.spaces.list_capacity()
}

#[test]
fn memory_of_the_handshake_is_released() {
    let mut network = Network::new(1, Faults::none());
    network.connect();
    network.wait(Duration::from_secs(1));
    for end in [&network.client, network.server()] {
        assert_eq!(end.spaces.ids().collect::<Vec<_>>(), [SpaceId::DATA]);
        assert_eq!(places(end), 0, "{:?}", end.side);
    }
}

#[test]
fn memory_of_a_transfer_is_released_when_nothing_is_in_flight() {
    let mut network = Network::new(1, Faults::none());
    network.connect();
    send_one_way(&mut network, 1 << 20);
    assert!(places(&network.client) > 20, "{}", places(&network.client));
    // The memory is freed at most a second after the connection became idle. An end that needs
    // memory again no longer waits to free it.
    network.wait(Duration::from_secs(2));
    send_one_way(&mut network, 1 << 20);
    // The server became idle before this transfer, which took less than a second. A PING is
    // sufficient.
    network.wait(Duration::from_secs(2));
    network.client.ping();
    network.wait(Duration::from_secs(1));
    for end in [&network.client, network.server()] {
        assert_eq!(places(end), 0, "{:?}", end.side);
    }
    send_one_way(&mut network, 1 << 20);
}

#[test]
fn memory_of_a_connection_in_use_is_kept() {
    let faults = Faults { delay: MS, ..Faults::none() };
    let mut network = Network::new(1, faults);
    network.connect();
    network.wait(Duration::from_secs(2));
    let mut kept = 0;
    // Requests of one round trip each, for half a second.
    for _ in 0..200 {
        send_one_way(&mut network, 1000);
        kept += usize::from(places(&network.client) > 0);
    }
    assert!(kept >= 195, "{kept}");
}

/// Most memory of an idle connection is the `Connection` itself. Fields that only few connections
/// need are boxed.
#[test]
fn memory_of_the_connection_itself_is_small() {
    // Without packet protection, the struct needs room for both kinds of keys.
    let most = if cfg!(feature = "null-crypto") { 3_160 } else { 3_040 };
    assert!(size_of::<Connection>() <= most, "{}", size_of::<Connection>());
    assert!(size_of::<Path>() <= 640, "{}", size_of::<Path>());
}
