//! Keys are updated in time. The tests also cover connections that cannot update (RFC 9001 s.6.6).

use std::sync::{Arc, Mutex};

use super::operations::{always, doing, replace};
use super::*;
use crate::crypto::KeyLimits;
use crate::crypto::testing::configs;
use crate::operation::{AttachPoint, Decision, Operation};

/// A number of packets that is used up in a few round trips.
const FEW: u64 = 100;

/// A window that is much smaller than [`FEW`] packets. Packets in flight must be acknowledged
/// before the keys are used up.
const SMALL: u64 = 32 << 10;

fn windows(config: &mut TransportConfig, window: u64) {
    let streams = &mut config.streams;
    (streams.stream_window, streams.max_stream_window) = (window, window);
    (streams.connection_window, streams.max_connection_window) = (window, window);
}

fn limited(seed: u64, faults: Faults, packets_per_key: u64, window: u64) -> Network {
    Network::with(seed, faults, |config| {
        config.key_limits = KeyLimits { packets_per_key, ..KeyLimits::default() };
        windows(config, window);
    })
}

fn ended_for_its_keys(reason: &CloseReason) -> bool {
    let code = TransportErrorCode::AEAD_LIMIT_REACHED.0.get();
    matches!(reason, CloseReason::Local(error) if error.code == code && !error.application)
}

/// Counts the packets of a kind that an end sends, by the first byte.
fn count_sent(network: &mut Network, to_server: bool, long: bool) -> Arc<Mutex<u64>> {
    let counted = Arc::new(Mutex::new(0));
    let count = counted.clone();
    network.meddle = Some(Box::new(move |server, bytes| {
        if server == to_server && (bytes[0] & 0x80 != 0) == long {
            *count.lock().unwrap() += 1;
        }
        vec![(server, bytes.to_vec())]
    }));
    counted
}

/// Both ends send, so either may update first. Some packets are lost or delayed.
#[test]
fn key_update_before_the_confidentiality_limit() {
    let late = Duration::from_millis(2);
    let bad = Faults { loss: 0.05, duplication: 0.05, jitter: late, ..Faults::none() };
    // Each reordered packet is acknowledged at once, and a small packet follows. Therefore,
    // hundreds of packets are sent before the first one with new keys is acknowledged.
    for seed in 1..=8 {
        let (faults, packets, bytes) =
            if seed == 1 { (Faults::none(), FEW, 1_500_000) } else { (bad, 8 * FEW, 3_000_000) };
        let mut network = limited(seed, faults, packets, SMALL);
        network.connect();
        echo(&mut network, bytes);
        let (client, server) = (network.client.key_updates(), network.server().key_updates());
        assert!(client.abs_diff(server) <= 1, "{client} {server}");
        let sent = network.client.stats().packets_sent.max(network.server().stats().packets_sent);
        assert!(
            client > 2 && (client + 1) * packets >= sent,
            "{client} updates for {sent} packets"
        );
        assert_eq!(network.closed(), [None, None], "{}", network.describe());
    }
}

/// Only one end has a limit and sends much. This end updates, and the other follows.
#[test]
fn key_update_by_either_end() {
    for limited_end in [Side::Client, Side::Server] {
        let (client_tls, server_tls) = configs();
        let transport = |side| {
            let mut config = TransportConfig::default();
            windows(&mut config, SMALL);
            if side == limited_end {
                config.key_limits.packets_per_key = FEW;
            }
            Arc::new(config)
        };
        let client = ClientConfig { tls: client_tls, transport: transport(Side::Client) };
        let transport = transport(Side::Server);
        let server = ServerConfig { tls: server_tls, transport, preferred_addresses: None };
        let mut network = Network::between(4, Faults::none(), &client, server);
        network.connect();
        let asked = Arc::new(Mutex::new([0, 0]));
        for (end, connection) in [Side::Client, Side::Server].into_iter().enumerate() {
            let count = asked.clone();
            let hook = doing(move |_, call, _| {
                assert_eq!(call.inputs, [1], "the update is not requested but due to the limit");
                count.lock().unwrap()[end] += 1;
                Ok(Decision::Default)
            });
            let connection =
                if connection == Side::Client { &mut network.client } else { network.server_mut() };
            replace(connection, Operation::UpdateKeys, hook);
        }
        echo(&mut network, 1_000_000);
        let asked = *asked.lock().unwrap();
        let other = usize::from(limited_end == Side::Client);
        // The hook is not called if there is no time to wait for the acknowledgement of the last
        // update.
        assert!(asked[1 - other] > 0 && asked[other] == 0, "{limited_end:?}: {asked:?}");
        assert!(network.client.key_updates() > 3);
        assert_eq!(network.closed(), [None, None]);
    }
}

/// RFC 9001 s.6.5: three PTOs between two updates, if the limits leave enough time.
#[test]
fn key_update_is_not_hurried() {
    let mut network = limited(5, Faults::none(), 2000, 1 << 20);
    network.connect();
    let mut last = None;
    for _ in 0..60 {
        let before = network.client.key_updates();
        echo(&mut network, 200_000);
        if network.client.key_updates() > before {
            let pause = network.client.path().rtt().pto_base() * 3;
            let now = network.now();
            assert!(last.is_none_or(|last| now.since(last) >= pause));
            last = Some(now);
        }
    }
    assert!(network.client.key_updates() > 2, "{}", network.client.key_updates());
}

#[test]
fn key_update_is_deferred_by_a_hook_within_bounds() {
    let mut network = limited(6, Faults::none(), FEW, SMALL);
    network.connect();
    let refuse = doing(|_, _, outputs| {
        outputs[0] = 0;
        Ok(Decision::Done)
    });
    replace(&mut network.client, Operation::UpdateKeys, refuse);
    assert!(!network.client.update_keys(), "the application's request is ignored");
    echo(&mut network, 500_000);
    assert!(network.client.stats().packets_sent > 3 * FEW);
    assert!(network.client.key_updates() >= 3, "{}", network.client.key_updates());
    assert_eq!(network.closed(), [None, None], "{}", network.describe());
}

/// The peer receives all packets and acknowledges none.
#[test]
fn key_update_without_acknowledgements_ends_the_connection() {
    let mut network = limited(7, Faults::none(), FEW, 8 << 20);
    network.connect();
    let start = network.client.spaces.data().numbers.next();
    replace(&mut network.client, Operation::CongestionWindow, always(&[1 << 40]));
    replace(&mut network.client, Operation::PaceUntil, always(&[u64::MAX]));
    // From now on, no packet of the peer arrives.
    let counted = Arc::new(Mutex::new(0));
    let count = counted.clone();
    network.meddle = Some(Box::new(move |to_server, bytes| {
        *count.lock().unwrap() += u64::from(to_server);
        if to_server { vec![(true, bytes.to_vec())] } else { Vec::new() }
    }));
    let id = network.client.open(Direction::Unidirectional).unwrap();
    network.client.streams().write(id, &[7; 1_000_000]).unwrap();
    network.run_until(Duration::from_secs(60), |client, _| client.closing.is_closed());
    let [client, _] = network.closed();
    assert!(client.as_ref().is_some_and(ended_for_its_keys), "{client:?}");
    // The packets of the handshake's keys, and of the next keys, none of which was acknowledged.
    assert!(*counted.lock().unwrap() <= 2 * FEW - start, "{counted:?}");
    // The last packets that these keys may protect notify the peer.
    network.run_until(Duration::from_secs(60), |_, server| server.closing.is_closed());
    assert!(matches!(&network.closed()[1], Some(CloseReason::Peer(_))));
}

#[test]
fn key_update_without_confirmation_ends_the_connection() {
    let mut network = limited(8, Faults::none(), FEW, 8 << 20);
    // Ignore HANDSHAKE_DONE.
    let ignore = doing(|_, _, outputs| {
        outputs[0] = 1;
        Ok(Decision::Done)
    });
    let point = AttachPoint::replace(Operation::ProcessFrame).of_frame(0x1e);
    network.client.attach(ignore, &[point]).unwrap();
    network.run_until(Duration::from_secs(5), |client, _| client.is_connected());
    assert!(!network.client.update_keys());
    let counted = count_sent(&mut network, true, false);
    let id = network.client.open(Direction::Unidirectional).unwrap();
    network.client.streams().write(id, &[7; 1_000_000]).unwrap();
    network.run_until(Duration::from_secs(60), |client, _| client.is_drained());
    let [client, server] = network.closed();
    assert!(client.as_ref().is_some_and(ended_for_its_keys), "{client:?}");
    assert!(matches!(server, Some(CloseReason::Peer(_))), "{server:?}");
    assert!((FEW / 2..=FEW).contains(&*counted.lock().unwrap()), "{counted:?}");
    assert_eq!(network.client.key_updates(), 0);
}

/// Keys of Initial packets are never updated.
#[test]
fn keys_of_initial_packets_have_limits() {
    let mut network = limited(9, Faults { loss: 1.0, ..Faults::none() }, 4, SMALL);
    network.run_until(Duration::from_secs(100), |client, _| client.is_drained());
    let [client, _] = network.closed();
    assert!(client.as_ref().is_some_and(ended_for_its_keys), "{client:?}");
    assert!(network.client.stats().datagrams_sent <= 4);
}

/// Packets that look like those of the peer are forged at an end with a limit on forgeries.
#[test]
fn keys_integrity_limit_counts_all_keys_together() {
    let mut network = Network::with(10, Faults::none(), |config| {
        config.key_limits.forged_packets = 10;
    });
    // Corrupted Initial packets, while there are no other keys yet.
    let mut damaged = 0;
    network.meddle = Some(Box::new(move |to_server, bytes| {
        let mut all = vec![(to_server, bytes.to_vec())];
        if !to_server && bytes[0] & 0xf0 == 0xc0 && damaged < 4 {
            damaged += 1;
            let mut forged = bytes.to_vec();
            forged[60] ^= 1;
            // No other packet that could be mistaken for the forged one.
            all.insert(0, (to_server, forged));
        }
        all
    }));
    network.connect();
    network.meddle = None;
    let before = network.client.stats().packets_dropped;
    assert!(before >= 1, "no Initial packet failed decryption");
    let id = network.client.ids.local.iter().next().unwrap();
    let short = |phase: u8, fill: u8| {
        let mut bytes = vec![fill; 60];
        bytes[0] = 0x40 | phase;
        bytes[1..=id.len()].copy_from_slice(id.as_bytes());
        bytes
    };
    // Header protection makes the key phase of a forged packet random, so both key phases are
    // tried. A key update in between does not reset the count.
    let mut sent = 0;
    while !network.client.closing.is_closed() {
        if sent == 3 {
            echo(&mut network, 10_000);
            assert!(network.client.update_keys());
            echo(&mut network, 10_000);
        }
        assert!(sent < 10, "the limit has no effect");
        network.forge_to_client(short(sent, sent));
        sent += 1;
    }
    assert!(sent > 3 && u64::from(sent) + before <= 10 + 1, "{sent} after {before}");
    // No more packets are decrypted, not even those of the peer.
    let opened = network.client.stats().packets_received;
    network.server_mut().ping();
    network.run_until(Duration::from_secs(9), |_, server| server.closing.is_closed());
    network.run_until(Duration::from_secs(9), |client, _| client.is_drained());
    assert_eq!(network.client.stats().packets_received, opened);
    let code = TransportErrorCode::AEAD_LIMIT_REACHED.0.get();
    let closed = network.closed();
    assert!(closed[0].as_ref().is_some_and(ended_for_its_keys), "{closed:?}");
    assert!(matches!(&closed[1], Some(CloseReason::Peer(error)) if error.code == code));
}
