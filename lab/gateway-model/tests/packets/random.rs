//! Generates random scripts from a seed, with a grammar of packets and with mutations.
//!
//! All values come from small sets, so that packets interact: they have the same sources, ports,
//! connection IDs and fragment identifications. Many lengths are at the limits of the rules.

use super::frame::{self, Packet, udp_between};
use super::quic::{self, Long};
use super::script::{LEDGERS, START, Script, Step, case, ring};
use equic_gateway_model::{
    AclAction, AclEntry, Arrival, Config, FragmentPolicy, Listener, Override, Own, PrefixRates,
    QuotaPolicy, Rate, RetryPolicy, Service, TakenVersions,
};
use equic_token::{Clock, ConnectionId, Epoch, IdFormat, Key, KeyRing, RetryToken};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::net::{IpAddr, SocketAddr};

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLISECOND;

/// A reserved version. For some connection IDs, the gateway puts the same version into its Version
/// Negotiation packets.
const RESERVED: u32 = 0xdada_dada;

const SOURCES: [&str; 24] = [
    "192.0.2.1",
    "192.0.2.2",
    "192.0.3.1",
    "198.51.100.7",
    "2001:db8::1",
    "2001:db8::2",
    "2001:db8:0:1::1",
    "2001:db8:0:100::1",
    "2001:db8:1::1",
    "64:ff9b::c000:201",
    "64:ff9b::c000:202",
    "64:ff9b:1::1",
    "64:ff9b:1::2",
    "fe80::1",
    "fe80::2",
    "::ffff:192.0.2.1",
    "::",
    "127.0.0.1",
    "::1",
    "0.1.2.3",
    "224.0.0.1",
    "255.255.255.255",
    "ff02::1",
    "::192.0.2.1",
];
const SERVERS: [&str; 5] = ["10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2", "0.0.0.0"];
const LISTENERS: [&str; 8] = [
    "0.0.0.0:443",
    "[::]:443",
    "10.0.0.1:443",
    "[fd00::1]:443",
    "10.0.0.1:8443",
    "[::]:8443",
    "0.0.0.0:8443",
    "[::ffff:10.0.0.1]:443",
];
const V4_PREFIXES: [u8; 6] = [0, 8, 16, 24, 31, 32];
const V6_PREFIXES: [u8; 7] = [0, 16, 32, 48, 64, 127, 128];

/// Settings that are fixed when the program is loaded. The values are the IPv4 and IPv6 prefix
/// lengths, whether packets with too many headers are dropped, and whether packets arrive on the
/// loopback interface.
const LOADS: [(u8, u8, bool, bool); 3] =
    [(32, 64, false, false), (24, 128, true, true), (31, 48, false, false)];

/// Returns the seed from the environment variable EQUIC_SEED, or a new one. Prints the seed in both
/// cases, so that a failure can be repeated.
pub(crate) fn seed() -> u64 {
    let seed = match std::env::var("EQUIC_SEED") {
        Ok(seed) => seed.parse().expect("EQUIC_SEED is a number"),
        Err(_) => rand::rng().random_range(0..1 << 32),
    };
    eprintln!("EQUIC_SEED={seed}");
    seed
}

/// Returns the number of cases from the environment variable EQUIC_CASES, or `default`.
pub(crate) fn cases(default: u64) -> u64 {
    std::env::var("EQUIC_CASES")
        .map_or(default, |cases| cases.parse().expect("EQUIC_CASES is a number"))
}

/// Generates all random values.
pub(crate) struct Random {
    rng: StdRng,
    /// Source of the packet that is being generated.
    client: Option<SocketAddr>,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random { rng: StdRng::seed_from_u64(seed), client: None }
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.rng.random()
    }

    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from.choose(&mut self.rng).expect("nothing to pick from").clone()
    }

    /// Returns a configuration and `len` steps.
    pub(crate) fn script(&mut self, len: usize) -> Script {
        let mut script = case("random");
        script.config = self.config();
        if self.chance(30) {
            script = script.all_dead();
        }
        for _ in 0..len {
            let step = self.step(&script.config);
            script.steps.push((step, None));
        }
        script
    }

    pub(crate) fn config(&mut self) -> Config {
        let services: Vec<Service> =
            (0..self.rng.random_range(1..=3)).map(|_| self.service()).collect();
        let mut listeners = Vec::new();
        for (i, text) in LISTENERS.iter().enumerate() {
            if i < 2 || self.chance(50) {
                let at: SocketAddr = text.parse().unwrap();
                let number = self.rng.random_range(0..services.len());
                listeners.push((Listener { addr: at.ip(), port: at.port() }, number));
            }
        }
        let (v4_prefix_len, v6_prefix_len, drop_deep_headers, on_loopback) = self.pick(&LOADS);
        Config {
            services,
            listeners,
            v4_prefix_len,
            v6_prefix_len,
            drop_deep_headers,
            on_loopback,
            dry_run: self.chance(5),
            lease_ns: self.pick(&[SECOND, 3_600 * SECOND]),
            older_ids_until_ns: self.pick(&[u64::MAX, u64::MAX, START + 2 * SECOND, 0]),
        }
    }

    fn service(&mut self) -> Service {
        Service {
            name: self.pick(&["", "web", "a name of exactly 31 characters"]),
            enabled: self.chance(95),
            dry_run: self.chance(8),
            require_fixed_bit: self.chance(30),
            versions: self.pick(&[
                TakenVersions::Both,
                TakenVersions::Both,
                TakenVersions::Both,
                TakenVersions::V1,
                TakenVersions::V2,
            ]),
            refuse_unknown_versions: self.chance(25),
            version_negotiation: self.chance(40),
            also_client: self.chance(20),
            check_ids: self.chance(40),
            stateless_reset: self.chance(50),
            group: self.pick(&[0, 0, 1]),
            max_connections: self.pick(&[0, 1, 2, 5]),
            policy: self.pick(&[
                QuotaPolicy::New,
                QuotaPolicy::New,
                QuotaPolicy::Strict,
                QuotaPolicy::Underway,
                QuotaPolicy::Underway,
            ]),
            fragments: self.pick(&[
                FragmentPolicy::Pass,
                FragmentPolicy::Follow,
                FragmentPolicy::Drop,
            ]),
            retry: self.pick(&[
                RetryPolicy::Never,
                RetryPolicy::Never,
                RetryPolicy::Always,
                RetryPolicy::Always,
                RetryPolicy::Adaptive,
            ]),
            answers_per_service: self.rate(60, 1..6),
            retry_above: self.rate(80, 1..6),
            retry_hold_ns: self.pick(&[0, 1, SECOND, 10 * SECOND]),
            new_per_source: self.rate(40, 1..6),
            new_per_prefix: self.prefix_rates(),
            new_per_service: self.rate(20, 1..10),
            packets_per_source: self.rate(40, 1..20),
            bytes_per_source: self.rate(20, 1000..20_000),
            packets_per_service: self.rate(20, 1..20),
            unproven_per_service: self.rate(30, 1..6),
            handshake_ns: self.pick(&[0, 1, MILLISECOND, SECOND, 10 * SECOND]),
            overrides: self.overrides(),
        }
    }

    /// Returns overrides of limits of a service, each for one prefix. The list may be empty.
    fn overrides(&mut self) -> Vec<Override> {
        let count = self.pick(&[0, 0, 1, 2, 4]);
        let mut all: Vec<Override> = Vec::new();
        for _ in 0..count {
            let addr = self.source();
            let lengths: &[u8] = if addr.is_ipv4() { &V4_PREFIXES } else { &V6_PREFIXES };
            let prefix_len = self.pick(lengths);
            all.push(Override {
                addr,
                prefix_len,
                max_connections: self.pick(&[None, Some(0), Some(1), Some(3)]),
                new_per_source: self.chance(50).then(|| self.rate(80, 1..6)),
                packets_per_source: self.chance(30).then(|| self.rate(80, 1..20)),
                bytes_per_source: self.chance(20).then(|| self.rate(80, 1000..20_000)),
            });
        }
        all
    }

    /// Returns rates for prefixes. Most services have none, and the others have several.
    fn prefix_rates(&mut self) -> PrefixRates {
        let percent = self.pick(&[0, 0, 60]);
        PrefixRates {
            v4_32: self.rate(percent, 0..5),
            v4_24: self.rate(percent, 1..6),
            v6_64: self.rate(percent, 1..5),
            v6_56: self.rate(percent, 1..6),
            v6_48: self.rate(percent, 1..6),
            v6_32: self.rate(percent, 1..6),
        }
    }

    /// In `percent` of the cases, returns a rate with a burst from this range. Otherwise, returns
    /// no limit.
    fn rate(&mut self, percent: u32, burst: std::ops::Range<u64>) -> Rate {
        if !self.chance(percent) {
            return Rate::OFF;
        }
        let per_second = self.pick(&[1, 7, 10, 1_000, 123_457, 1_000_000_007]);
        let rate = Rate::per_second(per_second, self.rng.random_range(burst));
        // Some rates are per hour instead of per second.
        let slower = if self.chance(10) { 3_600 } else { 1 };
        Rate { cost_ns: rate.cost_ns * slower, burst_ns: rate.burst_ns * slower }
    }

    fn step(&mut self, config: &Config) -> Step {
        let source = self.source();
        match self.rng.random_range(0..100) {
            0..68 => Step::Packet(self.frame()),
            68..74 => self.arrival(),
            74..86 => Step::Wait(self.wait(config)),
            86 => self.place(),
            87..90 => {
                let lengths: &[u8] = if source.is_ipv4() { &V4_PREFIXES } else { &V6_PREFIXES };
                let action = self.pick(&[AclAction::Deny, AclAction::Allow]);
                let expires_ns = match self.rng.random_range(0..3) {
                    0 => 0,
                    _ => START + self.rng.random_range(0..20) * SECOND / 4,
                };
                let entry = self.chance(80).then_some(AclEntry { action, expires_ns });
                Step::List { addr: source, prefix_len: self.pick(lengths), entry }
            }
            90..93 => Step::Connections {
                ledger: self.rng.random_range(0..3),
                source,
                group: self.pick(&[0, 0, 1]),
                count: self.rng.random_range(0..5),
            },
            93..95 => Step::Opened {
                ledger: self.rng.random_range(0..3),
                source,
                group: self.pick(&[0, 0, 1]),
                more: self.pick(&[1, 1, 2, 3, 1 << 31, u32::MAX]),
            },
            95..97 => Step::Heartbeat {
                ledger: self.rng.random_range(0..3),
                ahead: self.pick(&[0, 0, SECOND / 2, SECOND, 3_600 * SECOND]),
            },
            97..99 => {
                let number = self.rng.random_range(0..config.services.len());
                Step::Service { number, service: Box::new(self.service()) }
            }
            _ if self.chance(50) => Step::ForgetHandshakes,
            _ if self.chance(50) => self.own(),
            _ => Step::DryRun(self.chance(20)),
        }
    }

    /// Returns a step in which all, some or none of the host's addresses become known.
    fn own(&mut self) -> Step {
        if self.chance(30) {
            return Step::Own(None);
        }
        let servers: Vec<IpAddr> = SERVERS.iter().map(|server| server.parse().unwrap()).collect();
        let mut own = Own::default();
        for server in servers {
            match self.rng.random_range(0..10) {
                0 => own.broadcasts.push(server),
                1 => {}
                _ => own.addrs.push(server),
            }
        }
        if self.chance(90) {
            own.macs.push(frame::SERVER_MAC);
        }
        Step::Own(Some(own))
    }

    /// Returns a step in which a server takes or leaves its slot, or in which all servers of a slot
    /// are found to be dead.
    fn place(&mut self) -> Step {
        match self.rng.random_range(0..3) {
            0 => Step::Dead {
                place: self.pick(&[0, 1, 2, 5]),
                groups: self.pick(&[0, u64::MAX, u64::MAX, 1, 2]),
            },
            _ => Step::Place {
                ledger: self.rng.random_range(0..LEDGERS),
                taken: self.chance(30),
                barred: self.pick(&[0, 1, 2, u64::MAX]),
            },
        }
    }

    fn wait(&mut self, config: &Config) -> u64 {
        let service = &config.services[0];
        let edges = [
            1,
            MILLISECOND,
            SECOND / 4,
            SECOND - 1,
            service.handshake_ns,
            service.handshake_ns + 1,
            service.new_per_source.burst_ns,
            service.new_per_source.cost_ns >> 20,
            service.retry_above.cost_ns >> 20,
            service.retry_hold_ns,
            config.lease_ns.min(SECOND),
            self.rng.random_range(0..3 * SECOND),
        ];
        self.pick(&edges)
    }

    fn source(&mut self) -> IpAddr {
        // The first sources occur more often than the others.
        let index = self.rng.random_range(0..SOURCES.len()).min(self.rng.random_range(0..25));
        SOURCES[index].parse().unwrap()
    }

    /// Returns a batch of datagrams, or a packet without its Ethernet header.
    fn arrival(&mut self) -> Step {
        if self.chance(30) {
            let arrival = Arrival { no_ethernet: true, segment: 0 };
            // The packet is padded, because BPF_PROG_TEST_RUN needs at least 14 bytes.
            let mut packet = self.frame().split_off(14);
            packet.resize(packet.len().max(14), 0);
            return Step::Arrival(packet, arrival);
        }
        let first = self.packet();
        let segment = first.payload().len().max(1);
        let mut payload = first.payload().to_vec();
        for _ in 0..self.rng.random_range(1..4) {
            let again = self.chance(60);
            let next = if again { first.payload().to_vec() } else { self.payload() };
            payload.extend(next.iter().take(segment));
            payload.resize(payload.len().next_multiple_of(segment), 0x41);
        }
        if self.chance(30) {
            let less = self.rng.random_range(0..segment);
            payload.truncate(payload.len() - less);
        }
        let frame = first.with_payload(payload).build();
        Step::Arrival(frame, Arrival { no_ethernet: false, segment })
    }

    /// Returns a frame. Most frames are for a service.
    pub(crate) fn frame(&mut self) -> Vec<u8> {
        let mut frame = self.packet().build();
        if self.chance(8) {
            self.mutate(&mut frame, 14);
        }
        frame
    }

    /// Returns random bytes, or a valid frame with a few changed bytes.
    pub(crate) fn garbage(&mut self) -> Vec<u8> {
        if self.chance(25) {
            let len = self.rng.random_range(14..200);
            return self.bytes(len);
        }
        let mut frame = self.packet().build();
        for _ in 0..self.rng.random_range(0..4) {
            self.mutate(&mut frame, 14);
        }
        frame
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.rng.fill(&mut bytes[..]);
        bytes
    }

    /// Changes bytes near the front, or truncates the bytes to a length of at least `min`.
    pub(crate) fn mutate(&mut self, bytes: &mut Vec<u8>, min: usize) {
        if bytes.is_empty() {
            return;
        }
        match self.rng.random_range(0..4) {
            0 => {
                let len = self.rng.random_range(0..=bytes.len()).max(min);
                bytes.truncate(len);
            }
            1 => {
                let at = self.rng.random_range(0..bytes.len().min(120));
                bytes[at] ^= 1 << self.rng.random_range(0..8);
            }
            2 => {
                let at = self.rng.random_range(0..bytes.len().min(120));
                bytes[at] = self.pick(&[0, 1, 8, 17, 20, 44, 60, 0x3f, 0x40, 0x80, 0xff]);
            }
            _ => {
                let at = self.rng.random_range(0..bytes.len());
                bytes[at] = self.rng.random();
            }
        }
    }

    fn packet(&mut self) -> Packet {
        let source = self.source();
        let servers: Vec<IpAddr> = SERVERS
            .iter()
            .map(|server| server.parse::<IpAddr>().unwrap())
            .chain(["::ffff:10.0.0.1".parse().unwrap()])
            .filter(|server| server.is_ipv4() == source.is_ipv4())
            .collect();
        let from = SocketAddr::new(source, self.pick(&[1000, 1000, 1001]));
        let group = if source.is_ipv4() { "239.0.0.1" } else { "ff05::1" };
        let server = if self.chance(3) { group.parse().unwrap() } else { self.pick(&servers) };
        let to = SocketAddr::new(server, self.pick(&[443, 443, 443, 443, 8443, 53]));
        // In some cases, the client is unset, so that the token is made for another client.
        self.client = if self.chance(90) { Some(from) } else { None };
        let payload = self.payload();
        let mut packet = udp_between(from, to, payload);
        if self.chance(3) {
            let mac = self.pick(&[[0xff; 6], [2, 0, 0, 0, 0, 9], [3, 0, 0, 0, 0, 1]]);
            packet = if self.chance(70) {
                packet.with_destination_mac(mac)
            } else {
                packet.with_source_mac(mac)
            };
        }
        if self.chance(15) {
            for _ in 0..self.rng.random_range(1..=3) {
                packet = packet.vlan(self.pick(&[frame::TPID_8021Q, frame::TPID_8021AD, 0x9100]));
            }
        }
        if source.is_ipv4() && self.chance(10) {
            packet = packet.ip_options(self.rng.random_range(1..=10));
        }
        if source.is_ipv6() && self.chance(20) {
            packet = self.extensions(packet);
        }
        if self.chance(12) {
            packet = self.fragment(packet);
        }
        if self.chance(4) {
            packet = packet.protocol(self.pick(&[1, 6, 17, 50, 58, 59, 132]));
        }
        if self.chance(5) {
            packet = packet.udp_len(self.rng.random_range(0..2000));
        }
        if self.chance(3) {
            packet = packet.ip_len(self.rng.random_range(0..1500));
        }
        if self.chance(6) {
            packet = packet.padding(self.rng.random_range(1..60));
        }
        if self.chance(2) {
            packet = packet.cut(self.rng.random_range(14..100));
        }
        packet
    }

    fn fragment(&mut self, packet: Packet) -> Packet {
        let identification = self.pick(&[1, 2, 0x0001_0001]);
        let (offset, more) =
            self.pick(&[(0, true), (0, true), (0, false), (150, true), (150, false), (1, false)]);
        packet.fragment(identification, offset, more)
    }

    fn extensions(&mut self, mut packet: Packet) -> Packet {
        const NUMBERS: [u8; 5] = [
            frame::HOP_BY_HOP,
            frame::ROUTING,
            frame::AUTHENTICATION,
            frame::DESTINATION_OPTIONS,
            frame::MOBILITY,
        ];
        let count = self.pick(&[1, 1, 2, 3, 8, 15, 16, 17, 20]);
        for _ in 0..count {
            let length = if self.chance(5) { 20 } else { self.rng.random_range(0..3) };
            packet = packet.extension(self.pick(&NUMBERS), length, 1);
            if self.chance(2) {
                packet = self.fragment(packet);
            }
        }
        packet
    }

    fn payload(&mut self) -> Vec<u8> {
        let mut payload = match self.rng.random_range(0..100) {
            0..45 => self.initial(),
            45..75 => self.coalesced(),
            75..80 => quic::short(self.pick(&[0, 1, 20, 21, 22, 500])),
            80..85 => {
                let id = self.made_id();
                quic::short_to(&id, self.pick(&[13, 20, 21, 22, 23, 43, 44, 45, 500, 8000]))
            }
            85..87 => quic::version_negotiation(),
            87..92 => {
                let len = self.rng.random_range(0..100);
                self.bytes(len)
            }
            92..97 => {
                let version = self.pick(&[quic::UNKNOWN, RESERVED]);
                self.long().version(version).fill(self.pick(&[100, 1200, 1452])).build()
            }
            _ => self.long().fill(self.pick(&[1400, 3000, 8000])).build(),
        };
        if self.chance(12) {
            self.mutate(&mut payload, 0);
        }
        if self.chance(15) {
            let len = self.pick(&[1199, 1200, 1201, 1250]);
            payload.resize(len, 0);
        }
        payload
    }

    /// Returns a well-formed Initial packet that fills its datagram.
    fn initial(&mut self) -> Vec<u8> {
        let mut packet = quic::initial();
        packet.dcid = self.cid();
        packet.scid = self.scid();
        if self.chance(20) {
            packet = packet.v2();
        }
        if self.chance(40) {
            packet = self.token(packet);
        }
        packet.fill(self.pick(&[1199, 1200, 1200, 1200, 1250, 1452])).build()
    }

    fn coalesced(&mut self) -> Vec<u8> {
        let packets: Vec<Long> = (0..self.rng.random_range(1..=5)).map(|_| self.long()).collect();
        let mut payload = quic::datagram(&packets);
        if self.chance(20) {
            payload.extend(quic::short(30));
        }
        let len = self.pick(&[0, 1199, 1200, 1200, 1200]);
        payload.resize(len.max(payload.len()), 0);
        payload
    }

    fn long(&mut self) -> Long {
        let mut packet = match self.rng.random_range(0..100) {
            0..35 => quic::initial(),
            35..65 => quic::handshake(),
            65..95 => quic::zero_rtt(),
            _ => quic::retry(),
        };
        packet.dcid = if self.chance(30) { self.made_id() } else { self.cid() };
        packet.scid = self.scid();
        let version = self.pick(&[
            quic::V1,
            quic::V1,
            quic::V1,
            quic::V1,
            quic::V2,
            quic::UNKNOWN,
            RESERVED,
            0,
        ]);
        if self.chance(40) {
            packet = packet.version(version);
        }
        if self.chance(30) {
            packet = self.token(packet);
        }
        if self.chance(4) {
            packet = packet.token_len(self.pick(&[0, 1, 1100, 5000, (1 << 62) - 1]));
        }
        if self.chance(6) {
            packet = packet.length(self.pick(&[0, 19, 20, 21, 1100, 5000, (1 << 62) - 1]));
        }
        if self.chance(15) {
            packet = packet.body(self.pick(&[0, 19, 20, 21, 300, 1100]));
        }
        if self.chance(5) {
            packet = packet.greased();
        }
        if self.chance(8) {
            packet = packet.wide_varints();
        }
        packet
    }

    /// Adds a token to an Initial packet: random bytes, or a token made with the key ring. The
    /// latter is valid only for some time and for some packets.
    fn token(&mut self, packet: Long) -> Long {
        if self.chance(25) {
            return packet.token(self.pick(&[1, 16, 63, 64, 80, 200]));
        }
        let somebody = || SocketAddr::new(IpAddr::from([192, 0, 2, 99]), 1);
        let client = self.client.unwrap_or_else(somebody);
        let id = |bytes: &[u8]| ConnectionId::new(bytes).unwrap_or(ConnectionId::EMPTY);
        let issued = START / MILLISECOND + self.rng.random_range(0..20) * 500;
        let retry = if self.chance(90) { id(&packet.dcid) } else { id(&self.cid()) };
        let token = RetryToken::new(client, id(&[1; 9]), retry, issued).seal(&ring());
        let Ok(mut token) = token.map(Vec::from) else { return packet };
        if self.chance(15) {
            self.mutate(&mut token, 0);
        }
        packet.with_token(&token)
    }

    /// Returns a connection ID as a server makes it: with the key ring, with another key for the
    /// same rotation, or for another rotation. Some IDs are changed afterwards.
    fn made_id(&mut self) -> Vec<u8> {
        let another = |epoch| {
            let epoch = Epoch::new(epoch).expect("a number under 7");
            KeyRing::new(Clock::Monotonic, epoch, Key::from_bytes([8; Key::LEN]))
        };
        let ring = match self.rng.random_range(0..10) {
            0..6 => ring(),
            6 => another(2),
            epoch => another(epoch - 4),
        };
        let format = IdFormat::new(12, 2).expect("it is a format");
        let server = [self.pick(&[0, 0, 1, 5, 16]), self.pick(&[0, 1])];
        let id = format.seal(&ring, &server, self.rng.random_range(0..4));
        let mut id = id.expect("the server's ID is as long as it has to be").as_bytes().to_vec();
        if self.chance(15) {
            let at = self.rng.random_range(0..id.len());
            id[at] ^= 1 << self.rng.random_range(0..8);
        }
        id
    }

    fn cid(&mut self) -> Vec<u8> {
        let len = self.pick(&[8, 8, 8, 8, 8, 20, 20, 7, 4, 0, 21, 255]);
        vec![self.pick(&[0xd0, 0xd1, 0xd2, 0xd3]); len]
    }

    fn scid(&mut self) -> Vec<u8> {
        let len = self.pick(&[5, 5, 5, 5, 5, 0, 0, 8, 20, 21, 255]);
        vec![self.pick(&[0x50, 0x51]); len]
    }
}
