//! The last validated address: a server counts a connection at this address. An attacker can write
//! any source address into a packet. Only the host that has an address receives what is sent to it.

use super::*;
use crate::crypto::testing::configs;

pub(super) const HOME: &str = "198.51.100.1:4433";
const SERVER: &str = "192.0.2.1:443";
pub(super) const PING: &[u8] = &[0x01];

pub(super) fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Returns the address of another host that sends and answers nothing.
pub(super) fn victim(host: u8) -> SocketAddr {
    SocketAddr::from(([203, 0, 113, host], 4433))
}

/// A server, and a client that can write any source address into its packets. The client receives
/// only what is sent to its true address.
pub(super) struct Forger {
    pub client: Connection,
    pub server: Connection,
    pub now: Timestamp,
    /// Addresses at which the client receives. Its own packets come from the first.
    pub own: Vec<SocketAddr>,
    /// Maximum size of datagrams that reach the client.
    pub largest: usize,
    /// Destination and size of each datagram that the server sent.
    pub sent: Vec<(SocketAddr, usize)>,
}

impl Forger {
    pub(super) fn new() -> Forger {
        Forger::with(|_| {})
    }

    pub(super) fn with(set: impl Fn(&mut TransportConfig)) -> Forger {
        let mut network = Network::with(1, Faults::none(), |config| {
            // Without an idle timeout, silence does not end these connections.
            config.max_idle_timeout = Duration::ZERO;
            set(config);
        });
        network.connect();
        network.wait(Duration::from_secs(2));
        let (client, server, now) = network.into_ends();
        let own = vec![address(HOME)];
        Forger { client, server, now, own, largest: usize::MAX, sent: Vec::new() }
    }

    /// Delivers a datagram to the server from an address.
    pub(super) fn deliver(&mut self, from: SocketAddr, datagram: &mut [u8]) {
        let arrival = DatagramMeta { remote: from, local: None, ecn: EcnCodepoint::NotEct };
        self.server.handle_datagram(self.now, arrival, datagram);
        self.answer();
    }

    /// Delivers one packet of the client with these frames from an address.
    pub(super) fn forge(&mut self, from: SocketAddr, payload: &[u8]) {
        let mut datagram = self.client.forge(SpaceId::DATA, payload);
        self.deliver(from, &mut datagram);
    }

    /// Sends all datagrams of the server. The client receives those to its own addresses.
    pub(super) fn answer(&mut self) {
        let mut buffer = vec![0; 2000];
        while let Some(sent) = self.server.poll_transmit(self.now, &mut buffer) {
            self.sent.push((sent.destination, sent.size));
            if self.own.contains(&sent.destination) && sent.size <= self.largest {
                let remote = address(SERVER);
                let arrival = DatagramMeta { remote, local: None, ecn: sent.ecn };
                self.client.handle_datagram(self.now, arrival, &mut buffer[..sent.size]);
            }
        }
    }

    /// Advances the time. If `honest` is set, the client also sends its own datagrams. `look` is
    /// called with the server after each step.
    pub(super) fn pass(&mut self, time: Duration, honest: bool, mut look: impl FnMut(&Connection)) {
        let end = self.now + time;
        for step in 0.. {
            assert!(step < 100_000, "endless timers");
            let client = self.client.poll_timeout().filter(|_| honest);
            let next = [self.server.poll_timeout(), client].into_iter().flatten().min();
            let Some(at) = next.filter(|at| *at <= end) else { break };
            self.now = self.now.max(at);
            if self.server.poll_timeout().is_some_and(|at| at <= self.now) {
                self.server.handle_timeout(self.now);
            }
            self.answer();
            if honest {
                self.client_sends();
            }
            look(&self.server);
        }
        self.now = end;
    }

    pub(super) fn client_sends(&mut self) {
        if self.client.poll_timeout().is_some_and(|at| at <= self.now) {
            self.client.handle_timeout(self.now);
        }
        let mut buffer = vec![0; 2000];
        while let Some(sent) = self.client.poll_transmit(self.now, &mut buffer) {
            self.deliver(self.own[0], &mut buffer[..sent.size].to_vec());
        }
    }

    pub(super) fn sent_to(&self, address: SocketAddr) -> usize {
        self.sent.iter().filter(|(to, _)| *to == address).map(|(_, size)| size).sum()
    }

    pub(super) fn validated(&self) -> Option<SocketAddr> {
        self.server.validated_address()
    }
}

fn stays_at_home(server: &Connection) {
    assert_eq!(server.validated_address(), Some(address(HOME)));
}

/// RFC 9000 s.9.3.2: one packet seems to come from another address, and no packet follows. The peer
/// answers neither at the new address nor at the old one.
#[test]
fn migration_is_reverted_after_one_forged_packet_and_silence() {
    let mut forger = Forger::new();
    forger.forge(victim(1), PING);
    assert_eq!(forger.server.remote_address(), victim(1), "RFC 9000 s.9.3");
    assert_eq!(forger.validated(), Some(address(HOME)));
    forger.pass(Duration::from_secs(30), false, stays_at_home);
    assert_eq!(forger.server.remote_address(), address(HOME));
    let received = 60;
    assert!(forger.sent_to(victim(1)) <= 3 * received, "RFC 9000 s.8.1");
    // The server sends no more bytes to this address.
    let before = forger.sent_to(victim(1));
    forger.server.ping();
    forger.answer();
    forger.pass(Duration::from_secs(30), false, stays_at_home);
    assert_eq!(forger.sent_to(victim(1)), before);
    assert!(forger.sent.last().is_some_and(|(to, _)| *to == address(HOME)));
    assert!(!forger.server.is_drained());
    // The client sends again from its own address.
    forger.forge(address(HOME), PING);
    forger.pass(Duration::from_secs(5), true, stays_at_home);
}

#[test]
fn migration_is_reverted_while_forged_packets_go_on() {
    for (victims, pause) in [(1, 100), (1, 1000), (1, 4000), (2, 700), (50, 50), (200, 1100)] {
        let mut forger = Forger::new();
        for turn in 0..200_u32 {
            forger.forge(victim((turn % victims) as u8), PING);
            stays_at_home(&forger.server);
            forger.pass(Duration::from_millis(pause), false, stays_at_home);
            assert!(forger.server.paths.iter().count() <= 4);
        }
        forger.pass(Duration::from_secs(30), false, stays_at_home);
        assert_eq!(forger.server.remote_address(), address(HOME), "{victims} victims");
        for host in 0..victims {
            // Each PING is shorter than 60 bytes.
            let most = 3 * 60 * 200 / victims as usize;
            assert!(forger.sent_to(victim(host as u8)) <= most);
        }
    }
}

/// In between, the client sends from its own address and answers there.
#[test]
fn migration_is_reverted_for_a_client_that_is_there_and_forges() {
    let mut forger = Forger::new();
    for turn in 0..100 {
        forger.forge(victim(turn % 3), PING);
        forger.pass(Duration::from_millis(400), true, stays_at_home);
        forger.forge(address(HOME), PING);
        assert_eq!(forger.server.remote_address(), address(HOME));
    }
}

/// RFC 9000 s.9.1: PATH_CHALLENGE, PATH_RESPONSE, NEW_CONNECTION_ID and PADDING cause no migration.
#[test]
fn migration_is_not_caused_by_probing_packets() {
    let mut forger = Forger::new();
    let challenge = [&[0x1a][..], &[7; 8], &[0; 1150]].concat();
    let response = [&[0x1b][..], &[7; 8]].concat();
    for payload in [&challenge[..], &response, &[0; 100]] {
        forger.forge(victim(1), payload);
        assert_eq!(forger.server.remote_address(), address(HOME));
        forger.pass(Duration::from_secs(5), false, stays_at_home);
    }
    assert!(forger.sent_to(victim(1)) <= 3 * 1500);
}

/// Only the answer to the challenge validates the address.
#[test]
fn migration_follows_a_client_that_answers() {
    let mut forger = Forger::new();
    let new = address("203.0.113.200:7");
    // A NAT has rebound, and the client does not know its new address.
    forger.forge(new, PING);
    assert_eq!((forger.server.remote_address(), forger.validated()), (new, Some(address(HOME))));
    forger.own = vec![new];
    forger.server.ping();
    forger.answer();
    forger.pass(Duration::from_secs(5), true, |_| {});
    assert_eq!((forger.server.remote_address(), forger.validated()), (new, Some(new)));
    // The state of the old address was discarded. The server validates it like any other address.
    assert_eq!(forger.server.paths.iter().count(), 1);
    forger.forge(address(HOME), PING);
    assert_eq!(forger.server.remote_address(), address(HOME));
    forger.pass(Duration::from_secs(30), false, |server| {
        assert_eq!(server.validated_address(), Some(new));
    });
    assert_eq!(forger.server.remote_address(), new);
}

/// A client constantly alternates between two addresses. The validated address is always one of
/// them.
#[test]
fn migration_of_a_client_that_alternates_is_validated_once() {
    let mut forger = Forger::new();
    let both = [address(HOME), address("203.0.113.200:7")];
    forger.own = both.to_vec();
    let mut seen = [false; 2];
    for turn in 0..60 {
        forger.own.swap(0, 1);
        let from = forger.own[0];
        forger.forge(from, PING);
        if turn % 5 == 0 {
            forger.forge(victim(1), PING);
        }
        forger.pass(Duration::from_millis(1 + turn * 37 % 900), true, |_| {});
        let at = both.iter().position(|own| forger.validated() == Some(*own));
        seen[at.expect("validated an address of another host")] = true;
    }
    assert_eq!(seen, [true; 2]);
}

/// The validation of one address fails while that of the next address runs, and vice versa.
#[test]
fn path_validation_that_fails_leaves_others_running() {
    let mut forger = Forger::new();
    let new = address("203.0.113.200:7");
    forger.forge(victim(1), PING);
    forger.pass(Duration::from_millis(2900), false, stays_at_home);
    // The validation of the first address fails after 3 s.
    forger.forge(new, PING);
    forger.pass(Duration::from_secs(1), false, stays_at_home);
    assert_eq!(forger.server.remote_address(), new);
    forger.own = vec![new];
    forger.forge(new, PING);
    forger.pass(Duration::from_secs(5), true, |_| {});
    assert_eq!((forger.server.remote_address(), forger.validated()), (new, Some(new)));
}

/// RFC 9000 s.9.3.3: an attacker copies a client's packets and sends them from the attacker's
/// address, where it does not answer.
#[test]
fn anti_amplification_count_is_not_moved_by_a_copied_packet() {
    let mut forger = Forger::new();
    for turn in 0..20 {
        forger.client.ping();
        let mut buffer = vec![0; 2000];
        let sent = forger.client.poll_transmit(forger.now, &mut buffer).expect("a ping");
        let bytes = &buffer[..sent.size];
        // Alternates whether the copy or the original arrives first.
        let order =
            if turn % 2 == 0 { [victim(9), address(HOME)] } else { [address(HOME), victim(9)] };
        for from in order {
            forger.deliver(from, &mut bytes.to_vec());
            stays_at_home(&forger.server);
        }
        forger.pass(Duration::from_millis(300), true, stays_at_home);
    }
    forger.pass(Duration::from_secs(10), true, stays_at_home);
    assert_eq!(forger.server.remote_address(), address(HOME));
}

/// RFC 9000 s.9: before the handshake is confirmed, packets from another address are discarded.
#[test]
fn path_validation_is_not_proved_by_handshake_packets_from_elsewhere() {
    let (client, server) = configs();
    let transport = Arc::<TransportConfig>::default();
    let client = ClientConfig { tls: client, transport: transport.clone() };
    let server = ServerConfig { tls: server, transport, preferred_addresses: None };
    let mut network = Network::between(3, Faults::none(), &client, server);
    // The first flight comes from the client's address. All later packets seem to come from a
    // victim.
    network.run_until(Duration::from_secs(1), |_, server| server.stats().packets_received > 0);
    network.client_address = victim(1);
    network.run_some(200);
    assert_eq!(network.server().validated_address(), None);
    assert_eq!(network.to(victim(1)), 0);
    assert!(!network.server().is_connected());
}

/// RFC 10069: a path is opened from a forged address, and the validated path is abandoned there.
#[test]
fn multipath_path_from_a_forged_address_ends_the_connection_if_it_is_the_only_one() {
    let mut forger = Forger::with(|config| config.max_paths = 4);
    let id = forger.client.open_path(forger.now, None, address(SERVER)).expect("there are IDs");
    let mut payload = vec![0; 64];
    let mut writer = equic_wire::Writer::new(&mut payload);
    let abandon = equic_wire::frame::PathAbandon {
        path_id: PathId::ZERO,
        error_code: TransportErrorCode::NO_ERROR,
    };
    equic_wire::frame::Frame::PathAbandon(abandon).write(&mut writer).expect("it fits");
    let length = writer.position();
    let mut datagram = forger.client.forge(SpaceId::Data(id), &payload[..length]);
    forger.deliver(victim(1), &mut datagram);
    let counted = [None, Some(address(HOME))];
    forger.pass(Duration::from_secs(60), false, |server| {
        assert!(counted.contains(&server.validated_address()), "{:?}", server.validated_address());
    });
    assert!(forger.sent_to(victim(1)) <= 3 * 100);
    assert!(forger.server.is_drained(), "RFC 9000 s.9.3.2: no validated address is left");
    let closed = std::iter::from_fn(|| forger.server.poll_event())
        .any(|event| event == Event::Closed(CloseReason::NoValidatedPath));
    assert!(closed);
}

/// Two paths are validated. A forged packet on one of them migrates neither.
#[test]
fn multipath_paths_return_to_their_own_validated_address() {
    let mut forger = Forger::with(|config| config.max_paths = 4);
    let id = forger.client.open_path(forger.now, None, address(SERVER)).expect("there are IDs");
    forger.client_sends();
    forger.pass(Duration::from_secs(5), true, stays_at_home);
    for space in [SpaceId::DATA, SpaceId::Data(id)] {
        let mut datagram = forger.client.forge(space, PING);
        forger.deliver(victim(1), &mut datagram);
        forger.pass(Duration::from_secs(10), false, stays_at_home);
        for path in forger.server.paths() {
            assert_eq!((path.remote, path.validated), (address(HOME), true));
        }
    }
}
