//! ECN on networks that mark incorrectly (RFC 9000 s.13.4.2, A.4).

use super::*;
use crate::path::EcnState;

fn all_ce(_: bool, sent: EcnCodepoint) -> EcnCodepoint {
    if sent == EcnCodepoint::NotEct { sent } else { EcnCodepoint::Ce }
}

fn remarked(_: bool, sent: EcnCodepoint) -> EcnCodepoint {
    if sent == EcnCodepoint::Ect0 { EcnCodepoint::Ect1 } else { sent }
}

fn bleached(_: bool, _: EcnCodepoint) -> EcnCodepoint {
    EcnCodepoint::NotEct
}

fn states(network: &Network) -> [EcnState; 2] {
    [&network.client, network.server()].map(|end| end.path().ecn().state())
}

#[test]
fn ecn_fails_on_networks_that_change_every_mark() {
    for mark in [all_ce, remarked, bleached] {
        let mut network = Network::new(1, Faults::none());
        network.mark = Some(mark);
        network.connect();
        echo(&mut network, 400_000);
        assert_eq!(states(&network), [EcnState::Failed; 2]);
        let window = network.server().path().window();
        assert!(window > 10 * 1200, "the window has not grown: {window}");
    }
}

#[test]
fn ecn_stays_where_some_marks_arrive() {
    let mut network = Network::new(1, Faults::none());
    // The network marks all packets with CE during every fourth transfer.
    let mut count = 0;
    network.connect();
    for _ in 0..20 {
        count += 1;
        network.mark = if count % 4 == 0 { Some(all_ce) } else { None };
        echo(&mut network, 20_000);
    }
    assert_eq!(states(&network), [EcnState::Capable; 2]);
}

#[test]
fn ecn_is_validated_again_after_a_migration() {
    for (mark, marks) in [(None, true), (Some(all_ce as _), false)] {
        let mut network = Network::new(2, Faults::none());
        network.connect();
        echo(&mut network, 100_000);
        assert_eq!(states(&network), [EcnState::Capable; 2]);
        let now = network.now();
        network.client.migrate(now, None).unwrap();
        network.client_address.set_port(7000);
        network.mark = mark;
        echo(&mut network, 100_000);
        network.pass(Duration::from_secs(4));
        echo(&mut network, 100_000);
        // If an acknowledgement covers packets of both paths, the validation of ECN on the new path
        // may stay undecided. No packet is marked in this case.
        let ends = [&network.client, network.server()];
        assert_eq!(ends.map(|end| end.path().ecn().marks()), [marks; 2], "{:?}", states(&network));
    }
}

/// Answers on another path have no ECN marks, because the peer would add them to the counts of this
/// path.
#[test]
fn ecn_is_not_disturbed_by_probes_of_another_path() {
    use super::validated::{Forger, HOME, PING, address, victim};
    let mut forger = Forger::new();
    for turn in 0..30 {
        forger.forge(address(HOME), PING);
        forger.server.ping();
        forger.pass(Duration::from_millis(100), true, |_| {});
        let probe = [&[0x1a][..], &[7; 8], &[0; 1150]].concat();
        forger.forge(victim(turn), &probe);
    }
    forger.pass(Duration::from_secs(5), true, |_| {});
    assert_ne!(forger.server.path().ecn().state(), EcnState::Failed);
    assert_eq!(forger.server.remote_address(), address(HOME));
}
