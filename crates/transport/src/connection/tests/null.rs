//! Connections without packet protection: the same round trips as with TLS, and every byte
//! determined by the seed.

use std::process::Command;

use super::*;
use crate::crypto::null::InsecureNullCrypto;

fn crypto() -> InsecureNullCrypto {
    let mut crypto = InsecureNullCrypto::for_simulation_only();
    crypto.alpn_protocols = vec![b"equic-test".to_vec()];
    crypto
}

fn network(seed: u64, faults: Faults) -> Network {
    let config = InsecureNullConfig::new(crypto());
    Network::null(seed, faults, &config, config.clone())
}

#[test]
fn null_crypto_round_trips_are_those_of_tls() {
    let (mut with, mut without) = (Network::new(1, Faults::none()), network(1, Faults::none()));
    let took = |network: &mut Network| {
        network.connect();
        let connected = network.now();
        echo(network, 100_000);
        (connected, network.now())
    };
    let ((connected, end), (connected_without, end_without)) =
        (took(&mut with), took(&mut without));
    assert_eq!(connected, connected_without);
    // The certificates have different sizes, so the windows differ after the handshake.
    let (least, most) = (end.min(end_without), end.max(end_without));
    assert!(most.since(least) < 10 * MS, "{end:?} {end_without:?}");
    assert_eq!(without.client.alpn(), Some(&b"equic-test"[..]));
    assert_eq!(without.server().alpn(), Some(&b"equic-test"[..]));
    assert_eq!(without.client.version(), KnownVersion::NullCrypto);
}

#[test]
fn null_crypto_loss_and_reordering_lose_no_data() {
    for seed in 0..cases(200) {
        let mut network = network(seed, Faults { rebind: None, ..Faults::by_chance(seed) });
        network.connect();
        echo(&mut network, 1 + (seed as usize * 7919) % 60_000);
        assert!(network.within_limits(), "{}", network.describe());
    }
}

#[test]
fn null_crypto_large_certificate_waits_for_address_validation() {
    let took = |certificate| {
        let mut crypto = crypto();
        crypto.sizes.certificate = certificate;
        let config = InsecureNullConfig::new(crypto);
        let mut network = Network::null(1, Faults::none(), &config, config.clone());
        network.run_until(Duration::from_secs(10), |client, _| client.is_connected());
        network.now().since(Timestamp::START)
    };
    assert_eq!((took(2_400), took(3_100)), (20 * MS, 20 * MS));
    // The server sends three datagrams for one, and the rest after the client's next datagram (RFC
    // 9000 s.8.1).
    assert_eq!((took(3_300), took(9_000)), (40 * MS, 40 * MS));
}

#[test]
fn null_crypto_large_client_hello_takes_two_datagrams() {
    let mut crypto = crypto();
    crypto.sizes.client_hello = 1_700;
    let config = InsecureNullConfig::new(crypto);
    let mut network = Network::null(1, Faults::none(), &config, config.clone());
    network.connect();
    let first = network.trace().iter().take_while(|(at, ..)| *at == Timestamp::START).count();
    assert_eq!(first, 2);
    echo(&mut network, 10_000);
}

#[test]
fn null_crypto_no_common_alpn_is_an_alert() {
    let mut other = crypto();
    other.alpn_protocols = vec![b"another".to_vec()];
    let (client, server) = (InsecureNullConfig::new(crypto()), InsecureNullConfig::new(other));
    let mut network = Network::null(1, Faults::none(), &client, server);
    network.run_until(Duration::from_secs(10), |client, server| {
        client.is_drained() && server.is_drained()
    });
    let Some(CloseReason::Peer(error)) = &network.closed()[0] else {
        panic!("{}", network.describe())
    };
    assert_eq!(error.code, TransportErrorCode::crypto(120).0.get());
}

#[test]
fn null_crypto_key_update() {
    let mut network = network(1, Faults::none());
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
fn null_crypto_damaged_and_forged_packets_are_dropped() {
    let faults = Faults { corruption: 0.3, forged: 0.3, ..Faults::none() };
    let mut network = network(1, faults);
    network.connect();
    echo(&mut network, 50_000);
    assert!(network.server().stats().packets_dropped > 5, "{}", network.describe());
}

#[test]
fn null_crypto_early_data_needs_a_session_and_its_limits() {
    let mut server = crypto();
    server.early_data = true;
    let server = InsecureNullConfig::new(server);
    let mut client = InsecureNullConfig::new(crypto());
    let mut first = Network::null(1, Faults::none(), &client, server.clone());
    assert!(!first.client.is_early());
    first.connect();
    echo(&mut first, 1_000);
    let session = first.client.insecure_null_session().cloned();
    Arc::make_mut(&mut client.crypto).session = Some(session.expect("a server gives one"));

    let mut network = Network::null(2, Faults::none(), &client, server.clone());
    assert!(network.client.is_early() && !network.client.is_connected());
    let took = echo(&mut network, 3_000);
    assert!(took < 30 * MS, "{took:?}");
    assert!(network.events.iter().all(|end| end.contains(&Event::EarlyDataAccepted)));

    // A server with other transport parameters accepts the connection and rejects the early data.
    let mut other = server;
    Arc::make_mut(&mut other.transport).streams.max_streams_bidi += 1;
    let mut network = Network::null(3, Faults::none(), &client, other);
    network.connect();
    assert!(network.events[0].contains(&Event::EarlyDataRejected), "{:?}", network.events);
    echo(&mut network, 3_000);
}

#[test]
fn null_crypto_is_not_used_with_tls_versions() {
    let null = KnownVersion::NullCrypto;
    for versions in [vec![null], vec![null, KnownVersion::V1], vec![KnownVersion::V1, null]] {
        let mut network = Network::with(1, Faults::none(), |config| {
            (config.versions, config.first_version) = (versions.clone(), Some(null));
        });
        assert_eq!(network.client.version(), KnownVersion::V1);
        network.connect();
        assert_eq!(network.client.version(), KnownVersion::V1);
        assert_eq!(network.server().version(), KnownVersion::V1);
        assert!(network.client.handshake.tls().cipher_suite().is_some());
        assert_eq!(network.client.insecure_null_session(), None);
    }
    // A TLS server does not accept a connection without protection, even if the client requests it.
    let (_, tls) = crate::crypto::testing::configs();
    let config = ServerConfig { tls, transport: Arc::default(), preferred_addresses: None };
    let (now, id) = (Timestamp::START, ConnectionId::cut(&[7; 8]));
    let remote = "192.0.2.9:9".parse().unwrap();
    let made = Connection::accept_from(now, &config, null, id, id, remote, [1; 32]);
    assert!(matches!(made, Err(StartError::OtherVersion(KnownVersion::NullCrypto))));
}

/// Datagrams that are requested together must be the same, byte for byte, as those requested one by
/// one. Acknowledgements, losses, window updates and key updates may happen at any moment. The same
/// holds if both ends use the general routes.
#[test]
fn null_crypto_batches_equal_single_datagrams() {
    let mut total = 0;
    for seed in 0..cases(60) {
        let outcome = |together, long| {
            let mut network = network(seed, Faults { rebind: None, ..Faults::by_chance(seed) });
            network.together = together;
            network.sum_up(true);
            network.connect();
            if long {
                short_way::attach_to(&mut network.client, short_way::LONG);
                short_way::attach_to(network.server_mut(), short_way::LONG);
            }
            for length in [1, 3_000, 150_000] {
                echo(&mut network, length);
                // The update may be refused, because the peer may not have acknowledged a packet
                // with the last keys.
                network.client.update_keys();
            }
            // Ignores whether packets were decrypted directly into stream buffers. The general
            // route never does this.
            let stats = [network.client.stats(), network.server().stats()]
                .map(|stats| Stats { packets_opened_to_streams: 0, ..stats });
            (network.digest(), network.trace(), stats, network.gathered)
        };
        let (digest, trace, stats, gathered) = outcome(0, false);
        assert_eq!(gathered, 0);
        for together in [1, 3, 44] {
            let (other_digest, other_trace, other_stats, gathered) = outcome(together, false);
            assert_eq!(trace, other_trace, "seed {seed}, {together} together");
            assert_eq!((digest, stats), (other_digest, other_stats), "seed {seed}, {together}");
            total += gathered;
        }
        let (long_digest, long_trace, long_stats, gathered) = outcome(44, true);
        assert_eq!((&trace, digest), (&long_trace, long_digest), "seed {seed}, the general route");
        assert_eq!(
            (stats, gathered),
            (long_stats, 0),
            "seed {seed}: the general route does not batch datagrams"
        );
    }
    assert!(total as u64 > 100 * cases(60), "{total} were together");
}

/// Returns the result of the run with this name as text: a digest of all datagrams with their
/// times, the time of the end, and the first datagrams. With TLS, the digest covers sizes and
/// times.
fn run(name: &str) -> String {
    let (kind, seed) = name.split_once(':').expect("kind:seed");
    let seed = seed.parse().expect("a number");
    let bad = Faults {
        loss: 0.1,
        duplication: 0.05,
        corruption: 0.05,
        forged: 0.05,
        jitter: 20 * MS,
        rate: Some(1_000_000),
        ..Faults::none()
    };
    let mut network = match kind {
        "clean" => network(seed, Faults::none()),
        "lossy" => network(seed, bad),
        "tls" => Network::new(seed, bad),
        other => panic!("unknown network {other}"),
    };
    network.sum_up(kind != "tls");
    network.connect();
    echo(&mut network, 200_000);
    assert!(network.client.update_keys());
    echo(&mut network, 50_000);
    let now = network.now();
    network.client.close(now, VarInt::from_u32(1), "done");
    network.run_until(Duration::from_secs(60), |_, server| server.is_drained());
    let trace = network.trace();
    let first: Vec<String> = (trace.iter().take(7))
        .map(|(at, up, size)| {
            let at = at.since(Timestamp::START).as_micros();
            format!("{at}{}{size}", if *up { '>' } else { '<' })
        })
        .collect();
    let end = network.now().as_nanos();
    let digest = network.digest().unwrap_or_default();
    format!("{digest:016x} {} datagrams until {end}, {}", trace.len(), first.join(" "))
}

const RUN: &str = "EQUIC_NULL_RUN";
const CAME_TO: &str = "the run came to ";

/// Runs the other process's part of a test. Without `EQUIC_NULL_RUN`, this test does nothing.
#[test]
fn null_crypto_one_run() {
    if let Ok(name) = std::env::var(RUN) {
        // The test harness has already written a part of the line.
        println!("\n{CAME_TO}{}", run(&name));
    }
}

fn elsewhere(name: &str) -> String {
    let this = std::env::current_exe().expect("a test has a path");
    let test = "connection::tests::null::null_crypto_one_run";
    let output = Command::new(this)
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(RUN, name)
        .output()
        .expect("it starts");
    let text = String::from_utf8(output.stdout).expect("text");
    let mut runs = text.lines().filter_map(|line| line.strip_prefix(CAME_TO));
    runs.next().unwrap_or_else(|| panic!("{text}")).to_owned()
}

/// Two processes must make every datagram with the same bytes at the same virtual time. Memory
/// addresses, hash seeds, the clock and other random sources must have no influence. With TLS,
/// whose bytes the provider determines, sizes and times must be equal.
#[test]
fn determinism_same_seed_gives_the_same_bytes_in_another_process() {
    for name in ["clean:1", "lossy:1", "lossy:2", "tls:1", "tls:2"] {
        let first = elsewhere(name);
        assert_eq!(first, elsewhere(name), "{name}");
        assert_eq!(first, run(name), "{name}");
    }
    assert_ne!(run("lossy:1"), run("lossy:2"));
}

/// The flights of a handshake, in microseconds and bytes, must not change by accident. The client's
/// first flight is padded. The server's flight has a certificate of 2,400 bytes in three datagrams,
/// as many as it may send. The client's Finished, the server's confirmation, and the first MTU
/// probe follow.
#[test]
fn null_crypto_first_datagrams_are_unchanged() {
    let run = run("clean:1");
    let (_, shape) = run.split_once(", ").unwrap();
    let flights =
        ["0>1200", "10000<1200 10000<1194 10000<403", "20000>1200", "30000<353", "40000>1472"];
    assert_eq!(shape, flights.join(" "));
}
