//! Unreliable datagrams (RFC 9221).

use super::handshake::violation;
use super::network::{Faults, Network};
use super::*;

fn numbered(number: u32, length: usize) -> Vec<u8> {
    let mut data = vec![0; length.max(4)];
    data[..4].copy_from_slice(&number.to_be_bytes());
    data
}

/// Reads all received datagrams.
fn drain(connection: &mut Connection) -> Vec<u32> {
    let mut numbers = Vec::new();
    while let Some(data) = connection.read_datagram() {
        numbers.push(u32::from_be_bytes(data[..4].try_into().unwrap()));
    }
    numbers
}

#[test]
fn datagram_frames_arrive_once_or_are_counted_as_lost() {
    for loss in [0.0, 0.2] {
        let mut network = Network::new(1, Faults { loss, ..Faults::none() });
        network.connect();
        let (mut sent, mut arrived) = (0u32, Vec::new());
        network.run_until(Duration::from_secs(60), |client, server| {
            let most = client.max_datagram_size().expect("the server accepts datagrams");
            assert!((1100..1472).contains(&most), "{most}");
            while sent < 500 {
                match client.send_datagram(numbered(sent, (sent as usize * 37) % most)) {
                    Ok(()) => sent += 1,
                    Err(DatagramError::Full) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            arrived.extend(drain(server));
            let stats = client.stats();
            sent == 500
                && (arrived.len() as u64 + stats.datagram_frames_lost) >= 500
                && client.path().in_flight() == 0
        });
        let stats = network.client.stats();
        assert_eq!(stats.datagram_frames_sent, 500, "never again: {}", network.describe());
        let unique: std::collections::BTreeSet<u32> = arrived.iter().copied().collect();
        assert_eq!(unique.len(), arrived.len(), "none twice");
        assert_eq!(loss > 0.0, stats.datagram_frames_lost > 0, "{stats:?}");
        let received = network.server().stats().datagram_frames_received;
        assert_eq!(received, arrived.len() as u64);
    }
}

#[test]
fn datagram_frames_that_are_not_read_drop_the_oldest() {
    let buffer = 20_000;
    let set = |config: &mut TransportConfig| config.datagram_receive_buffer = buffer;
    let mut network = Network::with(1, Faults::none(), set);
    network.connect();
    let mut sent = 0;
    network.run_until(Duration::from_secs(60), |client, server| {
        while sent < 300 && client.send_datagram(numbered(sent, 1000)).is_ok() {
            sent += 1;
        }
        assert!(server.datagrams.memory() <= buffer);
        server.stats().datagram_frames_received == 300
    });
    let dropped = network.server().stats().datagram_frames_dropped;
    let read = drain(network.server_mut());
    assert_eq!(read.len() as u64 + dropped, 300);
    assert!(read.len() >= 15 && *read.last().unwrap() == 299, "{read:?}");
    // Empty datagrams count too.
    let mut sent = 0;
    network.run_until(Duration::from_secs(60), |client, server| {
        while sent < 3000 && client.send_datagram(Vec::new()).is_ok() {
            sent += 1;
        }
        assert!(server.datagrams.memory() <= buffer);
        server.stats().datagram_frames_received == 3300
    });
}

#[test]
fn datagram_frame_that_does_not_fit_is_refused() {
    let mut network = Network::new(1, Faults::none());
    let before = network.client.send_datagram(vec![1]);
    assert_eq!(before, Err(DatagramError::Unsupported), "the peer's consent is not known yet");
    network.connect();
    let most = network.client.max_datagram_size().unwrap();
    let refused = network.client.send_datagram(vec![1; most + 1]);
    assert_eq!(refused, Err(DatagramError::TooLarge(most)));
    // Datagrams of the maximum size, and at the same time streams in both directions.
    for number in 0..20 {
        let most = network.client.max_datagram_size().unwrap();
        network.client.send_datagram(numbered(number, most)).unwrap();
        echo(&mut network, 50_000);
    }
    assert_eq!(drain(network.server_mut()), (0..20).collect::<Vec<_>>());
    let now = network.now();
    network.client.close(now, VarInt::from_u32(0), "");
    assert_eq!(network.client.send_datagram(vec![1]), Err(DatagramError::Closed));
}

#[test]
fn datagram_send_buffer_room_is_reported() {
    let mut network = Network::new(1, Faults::none());
    network.connect();
    let mut count = 0;
    while network.client.send_datagram(vec![0; 1000]).is_ok() {
        count += 1;
    }
    assert!((40..=65).contains(&count), "{count}");
    assert_eq!(network.client.send_datagram(vec![0; 1000]), Err(DatagramError::Full));
    network.run_until(Duration::from_secs(10), |client, _| !client.datagrams.wants_to_send());
    assert!(network.seen(0, &Event::DatagramsWritable));
    assert!(network.seen(1, &Event::DatagramsReadable));
}

/// RFC 9221 s.3: a DATAGRAM frame without consent, or larger than permitted, closes the connection.
#[test]
fn datagram_frame_beyond_the_limit_closes_the_connection() {
    for buffer in [0, 100] {
        let set = |config: &mut TransportConfig| config.datagram_receive_buffer = buffer;
        let mut network = Network::with(1, Faults::none(), set);
        network.connect();
        assert_eq!(network.client.max_datagram_size(), (buffer > 0).then_some(97));
        // A client that ignores the limit.
        network.client.peer.as_mut().unwrap().pretend_max_datagram_frame_size(65_535);
        network.client.send_datagram(vec![0; 100]).unwrap();
        network.run_until(Duration::from_secs(10), |_, server| server.is_drained());
        let closed = network.closed();
        assert_eq!(violation(&network, 1), Some(Violation::DatagramSize), "{closed:?}");
    }
}

/// The path MTU decreases while datagrams wait. Datagrams that do not fit any longer are dropped.
#[test]
fn datagram_frames_too_large_for_a_shrunken_path_are_dropped() {
    let mut network = Network::new(1, Faults::none());
    network.connect();
    echo(&mut network, 50_000);
    let most = network.client.max_datagram_size().unwrap();
    assert!(most > 1300);
    for number in 0..5 {
        network.client.send_datagram(numbered(number, most)).unwrap();
    }
    network.client.send_datagram(numbered(5, 100)).unwrap();
    network.client.path_mut().on_peer_limit(1200);
    let mut arrived = Vec::new();
    network.run_until(Duration::from_secs(10), |_, server| {
        arrived.extend(drain(server));
        arrived == [5]
    });
    assert_eq!(network.client.stats().datagram_frames_lost, 5);
}
