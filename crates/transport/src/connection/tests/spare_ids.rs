//! Paths from new addresses of a peer that has issued no spare connection ID (RFC 9000 s.9.5).

use equic_wire::ResetToken;

use super::validated::{Forger, HOME, PING, address};
use super::*;
use crate::cid::RemoteIds;

const NEW: &str = "203.0.113.200:7";
const OWN: &str = "192.0.2.1";
const OTHER: &str = "192.0.2.99";

/// Returns a PATH_CHALLENGE in a payload for a packet of about 1,200 bytes.
fn probe() -> Vec<u8> {
    [&[0x1a, 1, 2, 3, 4, 5, 6, 7, 8][..], &[0; 1150]].concat()
}

/// Returns a server that has only the connection ID in use from its client. The server knows its
/// local address.
fn without_spares() -> Forger {
    let mut forger = Forger::new();
    while let Some(spare) = forger.server.unused_id(PathId::ZERO) {
        forger.server.ids.remote.retire(spare);
    }
    forger.server.path_mut().learn_local(Some(OWN.parse().unwrap()));
    forger
}

/// Makes the client use another connection ID of the server from now on, as a client that migrates
/// or probes does.
fn use_another_id(forger: &mut Forger) {
    let unused = forger.client.unused_id(PathId::ZERO);
    assert!(unused.is_some());
    forger.client.path_mut().use_remote_id(unused);
}

/// Delivers a packet from the client's new address to an address of the server. Returns the
/// destination and the connection ID of each packet that the server sends.
fn exchange(forger: &mut Forger, to: &str, payload: &[u8]) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut datagram = forger.client.forge(SpaceId::DATA, payload);
    let local = Some(to.parse().unwrap());
    let arrival = DatagramMeta { remote: address(NEW), local, ecn: EcnCodepoint::NotEct };
    forger.server.handle_datagram(forger.now, arrival, &mut datagram);
    let (mut buffer, mut sent) = (vec![0; 2000], Vec::new());
    let length = forger.client.ids.scid().len();
    while let Some(transmit) = forger.server.poll_transmit(forger.now, &mut buffer) {
        sent.push((transmit.destination, buffer[1..=length].to_vec()));
    }
    sent
}

fn new_connection_id(forger: &mut Forger, id: ConnectionId) -> Vec<u8> {
    let sequence = forger.client.ids.local.next_sequence();
    forger.client.ids.local.issue(id, ResetToken([9; 16]));
    [&[0x18, sequence as u8, 0, id.len() as u8][..], id.as_bytes(), &[9; 16]].concat()
}

fn current_id(forger: &Forger) -> Vec<u8> {
    let current = forger.server.path().remote_id().unwrap();
    forger.server.ids.remote.get(current).unwrap().as_bytes().to_vec()
}

/// An observer of both networks could link the paths by the ID.
#[test]
fn cid_spare_is_needed_to_answer_a_peer_that_uses_another_id() {
    for moves in [false, true] {
        let mut forger = without_spares();
        use_another_id(&mut forger);
        let payload = if moves { [probe(), PING.to_vec()].concat() } else { probe() };
        // Several packets: from the second one on, the ID is not new.
        for _ in 0..3 {
            let sent = exchange(&mut forger, OWN, &payload);
            assert!(sent.iter().all(|(to, _)| *to == address(HOME)), "{sent:?}");
            assert_eq!(forger.server.remote_address(), address(HOME));
        }
        // The peer issues an ID in a packet on the new path (s.9.5).
        let id = ConnectionId::cut(&vec![0x5a; forger.client.ids.scid().len()]);
        let more = new_connection_id(&mut forger, id);
        let sent = exchange(&mut forger, OWN, &[more, payload].concat());
        let to_new: Vec<_> = sent.iter().filter(|(to, _)| *to == address(NEW)).collect();
        assert!(!to_new.is_empty() && to_new.iter().all(|(_, used)| used == id.as_bytes()));
        let expected = if moves { NEW } else { HOME };
        assert_eq!(forger.server.remote_address(), address(expected));
        forger.own = vec![address(NEW), address(HOME)];
        forger.forge(address(expected), PING);
        forger.pass(Duration::from_secs(5), true, |_| {});
        assert!(!forger.server.closing.is_closed() && !forger.client.closing.is_closed());
    }
}

/// A NAT has changed the address of a peer without its knowledge. The server must keep using the
/// ID.
#[test]
fn cid_spare_is_not_needed_for_nat_rebinding() {
    let mut forger = without_spares();
    let current = current_id(&forger);
    let large = [PING, &[0; 1150]].concat();
    let sent = exchange(&mut forger, OWN, &large);
    assert!(sent.iter().any(|(to, id)| *to == address(NEW) && *id == current), "{sent:?}");
    assert_eq!(forger.server.remote_address(), address(NEW));
    forger.own = vec![address(NEW)];
    forger.forge(address(NEW), &large);
    forger.pass(Duration::from_secs(5), true, |_| {});
    assert_eq!(forger.validated(), Some(address(NEW)));
}

/// RFC 9000 s.9.5 lets the server keep the ID "while still sending from the same local address".
#[test]
fn cid_spare_is_needed_to_send_from_another_address_of_the_server() {
    let mut forger = without_spares();
    let sent = exchange(&mut forger, OTHER, &[probe(), PING.to_vec()].concat());
    assert!(sent.iter().all(|(to, _)| *to == address(HOME)), "{sent:?}");
    assert_eq!(forger.server.remote_address(), address(HOME));
}

/// A peer with zero-length connection IDs is recognized by other means, which link its addresses
/// anyway.
#[test]
fn cid_spare_is_not_needed_for_a_peer_without_ids() {
    let mut forger = without_spares();
    forger.server.ids.remote = RemoteIds::new(ConnectionId::EMPTY, 4);
    use_another_id(&mut forger);
    exchange(&mut forger, OWN, &[probe(), PING.to_vec()].concat());
    assert_eq!(forger.server.remote_address(), address(NEW));
}

/// If the peer issued spare IDs, each path has its own ID, whatever ID the peer uses.
#[test]
fn cid_spare_is_used_if_there_is_one() {
    for other in [false, true] {
        let mut forger = Forger::new();
        let current = current_id(&forger);
        if other {
            use_another_id(&mut forger);
        }
        let sent = exchange(&mut forger, OWN, PING);
        let to_new: Vec<_> = sent.iter().filter(|(to, _)| *to == address(NEW)).collect();
        assert!(!to_new.is_empty() && to_new.iter().all(|(_, id)| *id != current), "{sent:?}");
    }
}

/// The peer retires the ID of a path that is being probed, and issues no other one. The remaining
/// ID belongs to the current path.
#[test]
fn cid_spare_that_is_retired_leaves_the_probed_path_without_one() {
    let mut forger = Forger::new();
    use_another_id(&mut forger);
    exchange(&mut forger, OWN, &probe());
    let probed = |forger: &Forger| {
        let path = forger.server.paths.iter().find(|path| path.remote() == address(NEW));
        path.and_then(|path| path.remote_id())
    };
    assert!(probed(&forger).is_some());
    let sequences: Vec<u64> = forger.server.ids.remote.sequences().collect();
    let current = forger.server.path().remote_id().unwrap();
    for sequence in sequences {
        if sequence != current {
            forger.server.ids.remote.retire(sequence);
        }
    }
    let sent = exchange(&mut forger, OWN, &[probe(), PING.to_vec()].concat());
    assert!(sent.iter().all(|(to, _)| *to == address(HOME)), "{sent:?}");
    assert_eq!(forger.server.remote_address(), address(HOME));
}
