//! PATH_CHALLENGE and PATH_RESPONSE: which frames are sent, in which datagrams, and with which
//! connection IDs.

use std::sync::Mutex;

use super::validated::{Forger, HOME, PING, address, victim};
use super::*;
use crate::crypto::testing::configs;
use crate::operation::{AttachPoint, Call, Hook, HookContext, HookError, Operation};

const CHALLENGE: u64 = 0x1a;
const RESPONSE: u64 = 0x1b;

/// Hook that records the data of all frames of one type that a connection writes.
struct Written(u64, Arc<Mutex<Vec<[u8; 8]>>>);

impl Hook for Written {
    fn before(&mut self, _: &mut HookContext<'_>, call: &Call<'_>) -> Result<(), HookError> {
        if call.parameter == self.0 {
            let bytes = call.bytes.as_slice();
            self.1.lock().unwrap().push(bytes[1..9].try_into().unwrap());
        }
        Ok(())
    }
}

/// Records the data of the frames of this type that a connection writes from now on.
fn written(connection: &mut Connection, kind: u64) -> Arc<Mutex<Vec<[u8; 8]>>> {
    let list = Arc::new(Mutex::new(Vec::new()));
    let points = [AttachPoint::observe(Operation::WriteFrame)];
    connection.attach(Box::new(Written(kind, list.clone())), &points).unwrap();
    list
}

/// Returns PATH_CHALLENGE frames with these numbers as data.
fn challenges(numbers: std::ops::Range<u64>) -> Vec<u8> {
    numbers.flat_map(|number| [&[0x1a][..], &number.to_be_bytes()].concat()).collect()
}

/// RFC 9000 s.8.2.2.
#[test]
fn path_challenge_each_one_of_a_packet_is_answered() {
    for count in [1, 2, 3, 20, 64] {
        let mut forger = Forger::new();
        let answered = written(&mut forger.server, RESPONSE);
        let before = forger.sent.len();
        forger.forge(address(HOME), &challenges(0..count));
        let expected: Vec<[u8; 8]> = (0..count).map(u64::to_be_bytes).collect();
        assert_eq!(*answered.lock().unwrap(), expected);
        let sizes: Vec<usize> = forger.sent[before..].iter().map(|(_, size)| *size).collect();
        assert_eq!(sizes, [1200], "one datagram of the size that s.8.2.2 requires");
    }
}

#[test]
fn path_challenge_each_one_of_several_packets_is_answered() {
    let mut forger = Forger::new();
    let answered = written(&mut forger.server, RESPONSE);
    for numbers in [0..3, 3..4, 4..9] {
        let mut datagram = forger.client.forge(SpaceId::DATA, &challenges(numbers));
        let arrival =
            DatagramMeta { remote: address(HOME), local: None, ecn: EcnCodepoint::NotEct };
        forger.server.handle_datagram(forger.now, arrival, &mut datagram);
    }
    forger.answer();
    assert_eq!(answered.lock().unwrap().len(), 9);
}

/// Any number of PATH_CHALLENGE frames in a packet elicits one datagram, and the state is bounded.
#[test]
fn path_challenge_flood_draws_one_datagram_for_a_packet() {
    let mut forger = Forger::new();
    let answered = written(&mut forger.server, RESPONSE);
    for turn in 0..20_u64 {
        let before = forger.sent.len();
        forger.forge(address(HOME), &challenges(turn * 1000..turn * 1000 + 150));
        assert!(forger.sent.len() <= before + 1);
    }
    let answered = answered.lock().unwrap().len();
    assert!((64..=20 * 64).contains(&answered), "{answered}");
}

/// RFC 9000 s.8.2.1: "unpredictable data in every PATH_CHALLENGE frame".
#[test]
fn path_challenge_goes_again_with_other_data() {
    let mut forger = Forger::new();
    let asked = written(&mut forger.server, CHALLENGE);
    for turn in 0..4 {
        // Credit for more than one datagram.
        forger.forge(victim(1), &[PING, &[0; 1100]].concat());
        forger.pass(Duration::from_millis(700 + turn), false, |_| {});
    }
    let asked = asked.lock().unwrap();
    assert!(asked.len() >= 4, "{asked:?}");
    for (at, data) in asked.iter().enumerate() {
        assert!(!asked[..at].contains(data), "{asked:?}");
    }
}

/// RFC 9000 s.8.2.1: the first challenge answers a small packet and is therefore small. The second
/// one is not.
#[test]
fn path_challenge_of_1200_bytes_follows_a_smaller_one() {
    let mut forger = Forger::new();
    let new = address("203.0.113.200:7");
    let asked = written(&mut forger.server, CHALLENGE);
    forger.own = vec![new];
    forger.forge(new, PING);
    let first: Vec<usize> = forger.sent.iter().filter(|(to, _)| *to == new).map(|s| s.1).collect();
    assert!(first.iter().all(|size| *size < 1200) && !first.is_empty(), "{first:?}");
    forger.pass(Duration::from_secs(5), true, |_| {});
    assert!(forger.sent.iter().any(|(to, size)| *to == new && *size >= 1200));
    let at_new = asked.lock().unwrap().len();
    assert!(at_new >= 2, "{at_new} challenges");
    assert!(!forger.server.path().is_asking() && forger.validated() == Some(new));
    assert_eq!(forger.server.paths.iter().count(), 1, "the old path is removed");
}

#[test]
fn path_validation_fails_on_a_path_that_carries_no_1200_bytes() {
    let mut forger = Forger::new();
    let new = address("203.0.113.200:7");
    // The new path carries only small datagrams. The old one still works.
    forger.own = vec![new];
    forger.largest = 1000;
    forger.forge(new, PING);
    forger.pass(Duration::from_millis(500), true, |_| {});
    assert_eq!((forger.server.remote_address(), forger.validated()), (new, Some(new)));
    assert!(forger.server.path().is_asking(), "the path is not probed with 1,200 bytes");
    forger.pass(Duration::from_secs(10), false, |_| {});
    assert_eq!(forger.server.remote_address(), address(HOME), "RFC 9000 s.9.3.2");
}

/// RFC 9000 s.9.5: a peer that probes a path before it migrates must not be linkable between its
/// networks.
#[test]
fn path_challenge_from_a_new_address_is_answered_under_another_connection_id() {
    let mut forger = Forger::new();
    let (new, before) = (address("203.0.113.200:7"), forger.server.path().remote_id());
    let probe = [challenges(0..1), vec![0; 1150]].concat();
    let mut buffer = vec![0; 2000];
    let mut datagram = forger.client.forge(SpaceId::DATA, &probe);
    let arrival = DatagramMeta { remote: new, local: None, ecn: EcnCodepoint::NotEct };
    forger.server.handle_datagram(forger.now, arrival, &mut datagram);
    let old = forger.server.ids.remote.get(before.unwrap()).unwrap();
    let sent = forger.server.poll_transmit(forger.now, &mut buffer).unwrap();
    assert_eq!(sent.destination, new);
    assert_ne!(&buffer[1..=old.len()], old.as_bytes());
    let path = forger.server.paths.iter().find(|path| path.remote() == new).unwrap();
    let sequence = path.remote_id();
    assert_ne!(sequence, before);
    // The connection ID does not change when the client migrates to the path.
    forger.own = vec![new];
    forger.forge(new, PING);
    forger.pass(Duration::from_secs(5), true, |_| {});
    assert_eq!((forger.server.remote_address(), forger.validated()), (new, Some(new)));
    assert_eq!(forger.server.path().remote_id(), sequence);
    assert_eq!(forger.server.ids.remote.get(before.unwrap()), None, "the old one is retired");
}

/// A peer that constantly opens new paths does not exhaust the connection IDs.
#[test]
fn path_challenge_from_many_addresses_leaves_connection_ids_for_the_next() {
    let mut forger = Forger::new();
    for host in 1..=60 {
        let probe = [challenges(0..1), vec![0; 1150]].concat();
        forger.forge(victim(host), &probe);
        forger.pass(Duration::from_millis(100), true, |_| {});
    }
    forger.pass(Duration::from_secs(10), true, |_| {});
    assert_eq!(forger.server.remote_address(), address(HOME));
    assert!(!forger.server.closing.is_closed() && !forger.client.closing.is_closed());
    let new = address("203.0.113.200:7");
    forger.own = vec![new];
    forger.forge(new, PING);
    forger.pass(Duration::from_secs(5), true, |_| {});
    assert_eq!(forger.validated(), Some(new));
}

const PREFERRED: &str = "192.0.2.99:443";

fn with_preferred() -> Network {
    let addresses = PreferredAddresses { ipv4: Some(PREFERRED.parse().unwrap()), ipv6: None };
    let ((client, server), transport) = (configs(), Arc::<TransportConfig>::default());
    let client = ClientConfig { tls: client, transport: transport.clone() };
    let server = ServerConfig { tls: server, transport, preferred_addresses: Some(addresses) };
    Network::between(5, Faults::none(), &client, server)
}

/// RFC 9000 s.9.6.2.
#[test]
fn migration_to_a_preferred_address_waits_for_validation() {
    let preferred = address(PREFERRED).ip();
    let mut network = with_preferred();
    network.connect();
    let mut moved = false;
    network.run_until(Duration::from_secs(5), |_, server| {
        let path = server.path();
        if path.local() == Some(preferred) {
            assert!(path.is_validated(), "migrated before the path was validated");
            moved = true;
        }
        moved
    });
    echo(&mut network, 50_000);
    assert_eq!(network.server().path().local(), Some(preferred));
}

/// An attacker sends a copy of a client's packet to the preferred address. The server probes this
/// path but does not migrate.
#[test]
fn migration_to_a_preferred_address_not_for_a_copied_packet() {
    let mut network = with_preferred();
    network.client.preferred_address = None;
    network.run_until(Duration::from_secs(5), |client, _| {
        // The client does not migrate to the preferred address.
        client.preferred_address = None;
        client.handshake.is_confirmed()
    });
    network.wait(Duration::from_secs(1));
    let home = network.client_address;
    let (mut client, mut server, mut now) = network.into_ends();
    assert_eq!(client.remote_address(), address("192.0.2.1:443"));
    let local = Some(address(PREFERRED).ip());
    let arrival = DatagramMeta { remote: home, local, ecn: EcnCodepoint::NotEct };
    server.handle_datagram(now, arrival, &mut client.forge(SpaceId::DATA, PING));
    assert_ne!(server.path().local(), local, "not yet");
    let mut asked = 0;
    for _ in 0..100 {
        let mut buffer = vec![0; 2000];
        while let Some(sent) = server.poll_transmit(now, &mut buffer) {
            asked += usize::from(sent.source == local);
        }
        assert_ne!(server.path().local(), local, "migrated without a PATH_RESPONSE");
        now = server.poll_timeout().unwrap().min(now + Duration::from_millis(100));
        server.handle_timeout(now);
    }
    assert!(asked > 0, "the new path is probed");
}
