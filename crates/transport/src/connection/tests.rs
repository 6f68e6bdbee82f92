//! Tests with two connections in one thread and in virtual time, over a simulated network with
//! faults.

mod attacker;
mod behaviour;
mod bounds;
mod calls;
mod challenges;
mod closing;
mod coalesced;
mod datagrams;
mod discarded;
mod early;
mod ecn;
mod frames;
mod frequency;
mod handshake;
mod held;
mod hostile;
mod hostile_start;
mod idle;
mod in_place;
mod key_exchange;
mod keys;
mod late;
mod messages;
mod migration;
mod mtu;
mod multipath;
mod nested;
mod network;
#[cfg(feature = "null-crypto")]
mod null;
mod operations;
mod own_parameters;
mod paper;
mod parts;
mod placed;
mod provided;
mod pto;
#[cfg(feature = "qlog")]
mod qlog;
mod rebound;
mod recovered;
mod requests;
mod settings;
mod several;
mod short_way;
mod spare_ids;
mod validated;
mod versions;

use std::time::Duration;

use equic_wire::{Direction, StreamId, VarInt};

use super::*;
use crate::congestion::Algorithm;
use crate::stream::ReadOutcome;
use crate::violation::Violation;
use network::{Faults, Network};

const MS: Duration = Duration::from_millis(1);

/// `false` in a debug build, which is not optimized. The builds of `make test` have assertions and
/// are optimized.
const OPTIMIZED: bool = !cfg!(debug_assertions) || option_env!("EQUIC_ASSERTIONS").is_some();

fn byte(offset: usize) -> u8 {
    (offset.wrapping_mul(0x9e37_79b9) >> 13) as u8
}

/// Echoes `length` bytes on one stream, and returns the time that it took.
fn echo(network: &mut Network, length: usize) -> Duration {
    let start = network.now();
    let id = network
        .client
        .open(Direction::Bidirectional)
        .unwrap_or_else(|| panic!("no stream: {}", network.describe()));
    let data: Vec<u8> = (0..length).map(byte).collect();
    let (mut written, mut back) = (0, Vec::new());
    let mut server: Option<(StreamId, Vec<u8>, bool)> = None;
    let mut finished = false;
    network.run_until(Duration::from_secs(600), |client, echo_server| {
        if written < length {
            written += client.streams().write(id, &data[written..]).unwrap_or(0);
            if written == length {
                client.streams().finish(id).unwrap();
            }
        }
        if server.is_none() {
            server = echo_server.accept(Direction::Bidirectional).map(|id| (id, vec![], false));
        }
        if let Some((id, pending, ended)) = &mut server {
            let mut buffer = [0; 8192];
            while pending.len() < 1 << 20 {
                match echo_server.streams().read(*id, &mut buffer) {
                    Ok(ReadOutcome::Bytes(count)) => pending.extend_from_slice(&buffer[..count]),
                    Ok(ReadOutcome::Finished) => {
                        *ended = true;
                        break;
                    }
                    _ => break,
                }
            }
            if let Ok(count) = echo_server.streams().write(*id, pending) {
                pending.drain(..count);
            }
            if *ended && pending.is_empty() {
                let _ = echo_server.streams().finish(*id);
            }
        }
        let mut buffer = [0; 8192];
        loop {
            match client.streams().read(id, &mut buffer) {
                Ok(ReadOutcome::Bytes(count)) => back.extend_from_slice(&buffer[..count]),
                Ok(ReadOutcome::Finished) => {
                    finished = true;
                    break;
                }
                _ => break,
            }
        }
        finished
    });
    assert_eq!(back.len(), length, "{}", network.describe());
    assert!(back == data, "{}", network.describe());
    network.now().since(start)
}

/// Sends `length` bytes on one stream from the client to the server.
fn send_one_way(network: &mut Network, length: usize) {
    let id = network.client.open(Direction::Unidirectional).expect("streams are allowed");
    let (mut written, mut read, mut finished) = (0, 0, false);
    let mut server = None;
    let (mut outgoing, mut buffer) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    // The part of `outgoing` that is not written yet. The buffer is filled once for several writes,
    // because a write may accept only a few bytes.
    let mut left = 0..0;
    network.run_until(Duration::from_secs(600), |client, end| {
        while written < length {
            if left.is_empty() {
                left = 0..(length - written).min(outgoing.len());
                for (at, byte) in outgoing[left.clone()].iter_mut().enumerate() {
                    *byte = self::byte(written + at);
                }
            }
            let Ok(count) = client.streams().write(id, &outgoing[left.clone()]) else { break };
            left.start += count;
            written += count;
            if written == length {
                client.streams().finish(id).unwrap();
            }
        }
        server = server.or_else(|| end.accept(Direction::Unidirectional));
        while let Some(id) = server {
            match end.streams().read(id, &mut buffer) {
                Ok(ReadOutcome::Bytes(count)) => {
                    let right = (0..count).all(|at| buffer[at] == byte(read + at));
                    assert!(right, "other bytes arrived near {read}");
                    read += count;
                }
                Ok(ReadOutcome::Finished) => {
                    finished = true;
                    break;
                }
                _ => break,
            }
        }
        finished
    });
    assert_eq!(read, length, "{}", network.describe());
}

#[test]
fn handshake_echo_and_close() {
    let mut network = Network::new(1, Faults::none());
    network.connect();
    let took = network.now().since(Timestamp::START);
    // One round trip for the client, half of another for the server's confirmation.
    assert!(took >= 20 * MS && took <= 45 * MS, "{took:?}");
    let took = echo(&mut network, 100_000);
    assert!(took < Duration::from_secs(1), "{took:?}");
    let now = network.now();
    network.client.close(now, VarInt::from_u32(7), "done");
    network.run_until(Duration::from_secs(10), |_, server| server.is_drained());
    let expected =
        ConnectionError { application: true, code: 7, reason: "done".into(), violation: None };
    assert_eq!(
        network.closed(),
        [Some(CloseReason::Local(expected.clone())), Some(CloseReason::Peer(expected))]
    );
}

/// Transfers data over networks with faults that a seed determines: loss, reordering, duplication,
/// corruption, forged packets, delay spikes, long round trips, black holes for large datagrams, and
/// NAT rebinding.
///
/// A failure prints its seed. `EQUIC_SEED` runs one seed. `EQUIC_CASES` is the number of seeds, by
/// default 2,000 in an optimized build.
#[test]
fn loss_and_reordering_lose_no_data() {
    let seeds: Vec<u64> = match std::env::var("EQUIC_SEED") {
        Ok(seed) => vec![seed.parse().expect("EQUIC_SEED is a number")],
        Err(_) => (0..cases(if OPTIMIZED { 2000 } else { 200 })).collect(),
    };
    for seed in seeds {
        // A client that only waits must send a PING, because the server sends to an address that
        // the client has lost.
        let faults = Faults::by_chance(seed);
        let mut network = Network::with(seed, faults, |config| {
            config.keep_alive = faults.rebind.map_or(Duration::ZERO, |every| every / 4);
        });
        network.connect();
        let length = 1 + (seed as usize * 7919) % 60_000;
        echo(&mut network, length);
        assert!(network.within_limits(), "{}", network.describe());
    }
}

/// Returns `EQUIC_CASES`, or `usual` if it is not set.
fn cases(usual: u64) -> u64 {
    let cases = std::env::var("EQUIC_CASES");
    cases.map_or(usual, |cases| cases.parse().expect("EQUIC_CASES is a number"))
}

/// At the end of slow start, the client sends far more than the path and its queue hold, and
/// thousands of packets are lost at once. The transfer must still complete: 210 MB over 1 Gb/s and
/// 50 ms. A build without optimization uses 1/32 of the amount and of the rate.
#[test]
fn cwnd_slow_start_on_a_fast_long_path() {
    let scale = if OPTIMIZED { 1 } else { 32 };
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Bbr] {
        let faults = Faults { rate: Some(125_000_000 / scale), delay: 25 * MS, ..Faults::none() };
        let mut network = Network::with(1, faults, |config| {
            config.congestion = Arc::new(algorithm);
            let streams = &mut config.streams;
            // Only congestion control limits the sender.
            let window = (64 << 20) / scale;
            (streams.stream_window, streams.max_stream_window) = (window, window);
            (streams.connection_window, streams.max_connection_window) = (window, window);
            streams.send_buffer = window;
        });
        network.connect();
        let start = network.now();
        send_one_way(&mut network, (210_000_000 / scale) as usize);
        let took = network.now().since(start);
        assert!(took < Duration::from_secs(8), "{algorithm}: {took:?}, {}", network.describe());
        let lost = network.client.stats().packets_lost;
        eprintln!("{algorithm}: {took:?}, {lost} packets lost");
        // BBR and HyStart++ end slow start earlier, plain slow start does not.
        assert!(algorithm != Algorithm::NewReno || lost > 1000 / scale, "no overshoot: {lost}");
    }
}

#[test]
fn mtu_black_hole_is_detected() {
    let black_hole = Some((Duration::from_millis(500), 1300));
    let mut network = Network::new(1, Faults { black_hole, ..Faults::none() });
    network.connect();
    while network.now().since(Timestamp::START) < Duration::from_millis(450) {
        echo(&mut network, 20_000);
    }
    assert_eq!(network.client.path().mtu(), 1472);
    for _ in 0..30 {
        echo(&mut network, 100_000);
    }
    let found = network.client.path().mtu();
    assert!((1280..=1300).contains(&found), "{found}");
}

#[test]
fn determinism_same_seed_gives_the_same_bytes() {
    // The TLS provider chooses keys and signatures at random, independently of the seed. The test
    // therefore compares only sizes and times.
    let run = |seed| {
        let mut network = Network::new(seed, Faults::by_chance(seed));
        network.connect();
        echo(&mut network, 30_000);
        network.trace()
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}

#[test]
fn cwnd_long_transfer_fills_the_path() {
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Bbr] {
        let faults = Faults { rate: Some(10_000_000 / 8), ..Faults::none() };
        let mut network =
            Network::with(1, faults, |config| config.congestion = Arc::new(algorithm));
        network.connect();
        let took = echo(&mut network, 4_000_000);
        // 4 MB in both directions at once over 10 Mb/s take 3.2 s, plus headers.
        assert!(took < Duration::from_millis(4400), "{algorithm}: {took:?}");
        assert!(network.client.stats().packets_lost < 400, "{algorithm}");
    }
}

#[test]
fn key_update_during_a_transfer() {
    let mut network = Network::new(1, Faults::none());
    network.connect();
    for updates in 1..=5 {
        echo(&mut network, 10_000);
        assert!(network.client.update_keys(), "update {updates}");
        echo(&mut network, 10_000);
        assert_eq!(network.client.key_updates(), updates);
        assert_eq!(network.server().key_updates(), updates);
    }
}

#[test]
fn idle_timeout_is_silent() {
    let mut network = Network::new(1, Faults::none());
    network.connect();
    let before = network.now();
    network.run_until(Duration::from_secs(100), |client, server| {
        client.is_drained() && server.is_drained()
    });
    assert_eq!(network.closed(), [Some(CloseReason::IdleTimeout), Some(CloseReason::IdleTimeout)]);
    let took = network.now().since(before);
    assert!((30..33).contains(&took.as_secs()), "{took:?}");
}

/// `poll_transmit` needs a buffer for a whole datagram. A smaller or empty buffer must not cause a
/// panic.
#[test]
fn buffer_without_room_is_no_panic() {
    for size in [0, 1, 2, 5, 20, 21, 40, 63, 64, 100] {
        let mut network = Network::new(1, Faults::none());
        let buffer = &mut vec![0; size];
        let mut now = network.now();
        network.client.poll_transmit(now, buffer);
        network.connect();
        let id = network.client.open(Direction::Unidirectional).unwrap();
        network.client.streams().write(id, &[7; 3000]).unwrap();
        now = network.now();
        for _ in 0..3 {
            let sent = network.client.poll_transmit(now, buffer);
            assert_ne!(sent.map(|sent| sent.size), Some(0), "empty datagram");
            network.server_mut().poll_transmit(now, buffer);
        }
        // With a larger buffer, the connection then sends what did not fit.
        echo(&mut network, 3000);
        now = network.now();
        network.client.close(now, VarInt::from_u32(7), "done");
        network.client.poll_transmit(now, buffer);
        network.server_mut().poll_transmit(now, buffer);
    }
}

#[test]
fn idle_timeout_without_a_peer() {
    let mut network = Network::new(1, Faults { loss: 1.0, ..Faults::none() });
    network.run_until(Duration::from_secs(100), |client, _| client.is_drained());
    let [client, _] = network.closed();
    assert_eq!(client, Some(CloseReason::IdleTimeout));
    // Probes back off: 1, 2, 4, ... PTOs of about a second.
    assert!((4..20).contains(&network.client.stats().datagrams_sent));
}

/// RFC 9000 s.8.1: at most three times the received bytes are sent until the address is validated.
#[test]
fn anti_amplification_of_an_unvalidated_address() {
    let mut network = Network::new(1, Faults::none());
    network.deliver_only_first_client_datagram();
    network.run_until(Duration::from_secs(60), |_, server| server.is_drained());
    let stats = network.server().stats();
    assert!(stats.bytes_received >= 1200);
    assert!(stats.bytes_sent <= 3 * stats.bytes_received, "{stats:?}");
}

#[test]
fn forged_datagrams_change_nothing() {
    let mut network = Network::new(1, Faults { forged: 0.5, ..Faults::none() });
    network.connect();
    echo(&mut network, 50_000);
    assert!(network.server().stats().packets_dropped > 5);
}

#[test]
fn mtu_small_path_works() {
    for mtu in [1200, 1300, 1472] {
        let mut network = Network::new(1, Faults { mtu, ..Faults::none() });
        network.connect();
        for _ in 0..20 {
            echo(&mut network, 20_000);
        }
        let found = network.client.path().mtu();
        assert!(found <= mtu && mtu - found < 20, "{mtu}: {found}, {}", network.describe());
    }
}

/// The builds of `make test` must have debug assertions and overflow checks.
#[test]
fn suite_is_compiled_with_assertions() {
    if option_env!("EQUIC_ASSERTIONS").is_some() {
        let (assertions, most) = (cfg!(debug_assertions), std::hint::black_box(u8::MAX));
        assert!(assertions, "debug assertions are off");
        let sum = std::panic::catch_unwind(|| std::hint::black_box(most + 1));
        assert!(sum.is_err(), "overflow checks are off");
    }
}
