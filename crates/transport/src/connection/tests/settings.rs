//! Connections with any settings that [`TransportConfig::validate`] accepts transfer data.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::super::multipath::Scheduler;
use super::*;
use crate::crypto::testing::configs;

/// Size of a transfer in bytes.
const LENGTH: usize = 1_000_000;

/// Returns a number of any size: small ones, those next to a power of two or a limit, and the
/// largest.
fn any(rng: &mut StdRng) -> u64 {
    const LIMITS: [u64; 9] = [8, 100, 1000, 1024, 1200, 2400, 10_000, 16_383, (1 << 62) - 1];
    let power = 1u64 << rng.random_range(0..64);
    let number = match rng.random_range(0..4) {
        0 => rng.random_range(0..4),
        1 => LIMITS[rng.random_range(0..LIMITS.len())],
        2 => power.wrapping_add(rng.random_range(0..power)),
        _ => power,
    };
    number.wrapping_add(rng.random_range(0..3)).wrapping_sub(1)
}

fn any_time(rng: &mut StdRng) -> Duration {
    let number = any(rng);
    match rng.random_range(0..4) {
        0 => Duration::from_nanos(number),
        1 => Duration::from_micros(number),
        2 => Duration::from_millis(number),
        _ => Duration::from_secs(number),
    }
}

/// Number of settings that [`change`] knows.
const SETTINGS: u32 = 28;

/// Sets a setting to any value of its type.
fn change(config: &mut TransportConfig, setting: u32, rng: &mut StdRng) {
    let streams = &mut config.streams;
    match setting {
        0 => streams.max_streams_bidi = any(rng),
        1 => streams.max_streams_uni = any(rng),
        2 => streams.stream_window = any(rng),
        3 => streams.max_stream_window = any(rng),
        4 => streams.connection_window = any(rng),
        5 => streams.max_connection_window = any(rng),
        6 => streams.send_buffer = any(rng),
        7 => streams.max_send_buffer = any(rng),
        8 => streams.connection_send_buffer = any(rng),
        9 => config.initial_window = Some(any(rng)),
        10 => config.packet_threshold = any(rng),
        11 => config.time_threshold = f32::from_bits(any(rng) as u32),
        12 => config.time_threshold = rng.random_range(0.5..20.0),
        13 => config.max_idle_timeout = any_time(rng),
        14 => config.max_ack_delay = any_time(rng),
        15 => config.max_mtu = any(rng) as u16,
        16 => config.initial_mtu = any(rng) as u16,
        17 => config.initial_rtt = any_time(rng),
        18 => config.connection_ids = any(rng),
        19 => config.key_limits.packets_per_key = any(rng),
        20 => config.key_limits.forged_packets = any(rng),
        21 => {
            let known = [KnownVersion::V1, KnownVersion::V2];
            let count = rng.random_range(0..4);
            config.versions = (0..count).map(|_| known[rng.random_range(0..2)]).collect();
            config.first_version = known.get(rng.random_range(0..3)).copied();
        }
        22 => config.keep_alive = any_time(rng),
        23 => {
            config.datagram_receive_buffer = any(rng) as usize;
            config.datagram_send_buffer = any(rng) as usize;
        }
        24 => config.max_paths = any(rng) as usize,
        25 => {
            let mut some = || (any(rng), vec![0; (any(rng) % 2000) as usize]);
            config.extra_parameters = vec![some(), some()];
        }
        26 => {
            config.mtu_discovery = rng.random();
            (config.ecn, config.grease) = (rng.random(), rng.random());
            (config.ack_frequency, config.allow_migration) = (rng.random(), rng.random());
            config.scheduler =
                if rng.random() { Scheduler::default() } else { Scheduler::RoundRobin };
        }
        _ => {
            let algorithms = [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Bbr];
            config.congestion = Arc::new(algorithms[rng.random_range(0..3)]);
        }
    }
}

/// Returns an accepted configuration, and the number of changes that were rejected.
fn accepted(rng: &mut StdRng) -> (TransportConfig, usize) {
    let (mut config, mut refused) = (TransportConfig::default(), 0);
    for _ in 0..rng.random_range(1..80) {
        let mut changed = config.clone();
        change(&mut changed, rng.random_range(0..SETTINGS), rng);
        match changed.validate() {
            Ok(()) => config = changed,
            Err(_) => refused += 1,
        }
    }
    (config, refused)
}

/// Each case has a number as its seed. `EQUIC_SEED` runs one seed.
#[test]
fn config_of_every_accepted_value_transfers_a_megabyte() {
    let seeds: Vec<u64> = match std::env::var("EQUIC_SEED") {
        Ok(seed) => vec![seed.parse().expect("EQUIC_SEED is a number")],
        Err(_) => (0..cases(if OPTIMIZED { 400 } else { 60 })).collect(),
    };
    let (mut kept, mut all_refused) = (0, 0);
    for seed in seeds {
        let mut rng = StdRng::seed_from_u64(seed);
        let (mut client, refused) = accepted(&mut rng);
        let (mut server, too) = accepted(&mut rng);
        all_refused += refused + too;
        kept += 1;
        // A peer that permits no streams can receive no data on streams, whatever else is set.
        server.streams.max_streams_uni = server.streams.max_streams_uni.max(1);
        client.streams.max_streams_uni = client.streams.max_streams_uni.max(1);
        // This test has no endpoint that answers packets of an unsupported version.
        let first = client.first_version.or(client.spoken().next());
        if first.is_some_and(|first| !server.spoken().any(|version| version == first)) {
            server.versions.clone_from(&client.versions);
            client.first_version = None;
        }
        eprintln!("EQUIC_SEED={seed}");
        if std::env::var_os("EQUIC_SEED").is_some() {
            eprintln!("client: {client:?}\nserver: {server:?}");
        }
        // The path carries the initial MTU of both ends, and not always more.
        let least = client.initial_mtu.max(server.initial_mtu).max(1250);
        let mtu = if rng.random() { least } else { least.max(1500) };
        let (client_tls, server_tls) = configs();
        let client = ClientConfig { tls: client_tls, transport: Arc::new(client) };
        let transport = Arc::new(server);
        let server = ServerConfig { tls: server_tls, transport, preferred_addresses: None };
        let faults = Faults { mtu, ..Faults::none() };
        let mut network = Network::between(seed, faults, &client, server);
        // A client whose first version is not its preferred one may have to begin again.
        network.new_servers = true;
        network.connect();
        send_one_way(&mut network, LENGTH);
        assert_eq!(network.closed(), [None, None], "{}", network.describe());
    }
    assert!(kept == 1 || all_refused > 0, "no value out of range was tried");
}

/// Each setting has the value of its range that permits the least.
#[test]
fn config_of_the_lowest_values_transfers_a_megabyte() {
    let lowest = |config: &mut TransportConfig| {
        let streams = &mut config.streams;
        for bytes in [
            &mut streams.stream_window,
            &mut streams.max_stream_window,
            &mut streams.connection_window,
            &mut streams.max_connection_window,
            &mut streams.send_buffer,
            &mut streams.max_send_buffer,
            &mut streams.connection_send_buffer,
        ] {
            *bytes = 1200;
        }
        (config.initial_window, config.initial_rtt) = (Some(2400), Duration::from_micros(1));
        (config.max_idle_timeout, config.keep_alive) = (100 * MS, MS);
        (config.max_ack_delay, config.connection_ids) = (Duration::ZERO, 1);
        (config.key_limits.packets_per_key, config.key_limits.forged_packets) = (10_000, 1_000);
        (config.datagram_receive_buffer, config.datagram_send_buffer) = (0, 0);
        assert_eq!(config.validate(), Ok(()));
    };
    let mut network = Network::with(1, Faults::none(), lowest);
    network.connect();
    send_one_way(&mut network, LENGTH);
    assert_eq!(network.closed(), [None, None], "{}", network.describe());
}

#[test]
fn config_of_the_largest_datagrams_transfers_a_megabyte() {
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Bbr] {
        let mut network = Network::with(1, Faults { mtu: 65_527, ..Faults::none() }, |config| {
            (config.max_mtu, config.initial_mtu) = (65_527, 65_527);
            config.congestion = Arc::new(algorithm);
        });
        network.connect();
        send_one_way(&mut network, 10 * LENGTH);
        assert_eq!(network.closed(), [None, None], "{}", network.describe());
    }
}
