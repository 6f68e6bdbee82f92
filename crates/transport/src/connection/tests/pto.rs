//! The probe timeout, and each period that is a multiple of it. All of them count the peer's
//! max_ack_delay, and the answer of a hook at ProbeTimeout.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::early::{early_configs, visit};
use super::handshake::LIMIT;
use super::multipath::two_paths;
use super::operations::{always, doing, replace};
use super::*;
use crate::crypto::{KeyLimits, Wear};
use crate::operation::{Decision, Operation};
use equic_wire::{PathId, TransportErrorCode};

/// The max_ack_delay of both ends.
const DELAY: Duration = Duration::from_millis(400);

/// Time by which a hook can lengthen the PTO.
const LONGER: Duration = Duration::from_secs(1);

/// Time by which a timer must not be early.
const MOMENT: Duration = Duration::from_nanos(1);

/// Attaches a hook whose answer is limited to [`LONGER`] above the default.
fn lengthen(end: &mut Connection) {
    replace(end, Operation::ProbeTimeout, always(&[u64::MAX]));
}

/// Calls `check` for each end of a connection, without and with the hook. Its arguments are the
/// end, the other end, the time, and the PTO of the end.
fn for_each_end(
    set: impl Fn(&mut TransportConfig),
    check: impl Fn(&mut Connection, &mut Connection, Timestamp, Duration),
) {
    for (hooked, swapped) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut network = Network::with(1, Faults::none(), |config| {
            config.max_ack_delay = DELAY;
            set(config);
        });
        network.connect();
        echo(&mut network, 20_000);
        network.pass(Duration::from_secs(1));
        network.wait(Duration::from_millis(900));
        let (client, server, now) = network.into_ends();
        let (mut end, mut other) = if swapped { (server, client) } else { (client, server) };
        let mut pto = end.path().rtt().pto_base() + DELAY;
        if hooked {
            lengthen(&mut end);
            pto += LONGER;
        }
        check(&mut end, &mut other, now, pto);
    }
}

/// Sends all waiting datagrams and returns them.
fn send(end: &mut Connection, now: Timestamp) -> Vec<Vec<u8>> {
    let mut buffer = vec![0; 2000];
    std::iter::from_fn(|| {
        let sent = end.poll_transmit(now, &mut buffer)?;
        Some(buffer[..sent.size].to_vec())
    })
    .collect()
}

/// Delivers all that one end sends to the other one.
fn deliver(from: &mut Connection, to: &mut Connection, now: Timestamp) {
    let path = to.path();
    let arrival =
        DatagramMeta { remote: path.remote(), local: path.local(), ecn: EcnCodepoint::NotEct };
    for mut datagram in send(from, now) {
        to.handle_datagram(now, arrival, &mut datagram);
    }
}

#[test]
fn pto_timer_counts_the_peers_delay_and_hooks() {
    for_each_end(
        |_| {},
        |end, _, now, pto| {
            end.ping();
            assert!(!send(end, now).is_empty());
            assert_eq!(end.poll_timeout(), Some(now + pto));
            end.handle_timeout(now + pto);
            assert_eq!(end.stats().probe_timeouts, 1);
        },
    );
}

#[test]
fn close_lasts_three_ptos_with_the_peers_delay_and_hooks() {
    for_each_end(
        |_| {},
        |end, _, now, pto| {
            end.close(now, VarInt::from_u32(7), "done");
            let over = now + pto * 3;
            assert_eq!(end.poll_timeout(), Some(over));
            // The closing period is extended, because the peer was not notified yet.
            end.handle_timeout(over);
            assert_eq!(end.poll_timeout(), Some(over + pto * 3));
        },
    );
}

#[test]
fn close_is_prolonged_if_its_timer_is_late_by_more_than_a_pto() {
    for late in [false, true] {
        for_each_end(
            |_| {},
            |end, _, now, pto| {
                end.close(now, VarInt::from_u32(7), "done");
                assert!(!send(end, now).is_empty());
                let last = now + pto * 4;
                end.handle_timeout(if late { last + MOMENT } else { last });
                assert_eq!(end.is_drained(), !late);
            },
        );
    }
}

#[test]
fn close_by_the_peer_drains_for_three_ptos_with_its_delay_and_hooks() {
    for_each_end(
        |_| {},
        |end, other, now, pto| {
            other.close(now, VarInt::from_u32(7), "done");
            deliver(other, end, now);
            assert!(end.closing.is_closed());
            assert_eq!(end.poll_timeout(), Some(now + pto * 3));
        },
    );
}

#[test]
fn pto_limits_the_idle_timeout() {
    let short = |config: &mut TransportConfig| config.max_idle_timeout = MS;
    for_each_end(short, |end, _, _, pto| {
        assert_eq!(end.poll_timeout(), Some(end.activity.since() + pto * 3));
    });
}

/// RFC 9001 s.6.5.
#[test]
fn pto_determines_how_long_old_keys_are_kept() {
    for_each_end(
        |_| {},
        |end, other, now, pto| {
            assert!(other.update_keys());
            other.ping();
            deliver(other, end, now);
            assert_eq!(end.key_updates(), 1);
            let keys = end.keys.one_rtt().unwrap();
            assert_eq!(keys.previous_until(), Some(now + pto * 3));
        },
    );
}

/// RFC 9001 s.6.5.
#[test]
fn pto_determines_the_pause_between_key_updates() {
    let few = KeyLimits { packets_per_key: 100, ..KeyLimits::default() };
    for early in [true, false] {
        for_each_end(
            |config| config.key_limits = few,
            |end, other, now, pto| {
                let hooked = pto - end.path().rtt().pto_base() - DELAY;
                assert!(end.update_keys());
                end.ping();
                deliver(end, other, now);
                // The first acknowledgement of a packet with the new keys confirms them.
                other.ping();
                end.ping();
                deliver(end, other, now);
                other.handle_timeout(now + DELAY);
                deliver(other, end, now + DELAY);
                let confirmed = now + DELAY;
                for sent in 0..50 {
                    end.ping();
                    deliver(end, other, confirmed + MS * sent);
                    deliver(other, end, confirmed + MS * sent);
                }
                assert_eq!(end.keys.one_rtt().unwrap().wear(), Wear::Half);
                let updates = end.key_updates();
                // The packets above have changed the round-trip time.
                let pto = end.path().rtt().pto_base() + DELAY + hooked;
                let rested = confirmed + pto * 3;
                end.ping();
                send(end, if early { confirmed + (pto * 3 - MOMENT) } else { rested });
                assert_eq!(end.key_updates() - updates, u64::from(!early));
            },
        );
    }
}

/// RFC 9001 s.4.9.3.
#[test]
fn pto_determines_how_long_early_keys_are_kept() {
    for hooked in [false, true] {
        let (mut client, mut server) = early_configs();
        let transport = TransportConfig { max_ack_delay: DELAY, ..TransportConfig::default() };
        client.transport = Arc::new(transport);
        server.transport = client.transport.clone();
        visit(&client, &server);
        let mut network = Network::between(1, Faults::none(), &client, server);
        let id = network.client.open(Direction::Unidirectional).unwrap();
        network.client.streams().write(id, &[7; 100]).unwrap();
        network.run_until(LIMIT, |_, server| server.keys.has_early());
        let now = network.now();
        let server = network.server_mut();
        let mut pto = server.path().rtt().pto_base() + DELAY;
        if hooked {
            lengthen(server);
            pto += LONGER;
        }
        server.on_one_rtt_packet(now);
        assert_eq!(server.early.keys_until(), Some(now + pto * 3));
    }
}

/// RFC 9000 s.8.2.4.
#[test]
fn pto_determines_when_path_validation_is_given_up() {
    let initial = Duration::from_millis(3 * 333) + DELAY;
    for slow in [false, true] {
        for_each_end(
            |_| {},
            |end, _, now, pto| {
                let hooked = pto - end.path().rtt().pto_base() - DELAY;
                if slow {
                    end.path_mut().set_smoothed_rtt(Duration::from_secs(4));
                }
                let pto = end.path().rtt().pto_base() + DELAY + hooked;
                let key = end.path().key();
                end.challenge(now, key);
                let longer = if slow { pto } else { initial + hooked };
                assert_eq!(end.challenge_timer(), Some(now + longer * 3));
            },
        );
    }
}

#[test]
fn pto_is_the_pause_between_path_challenges() {
    for_each_end(
        |_| {},
        |end, _, now, pto| {
            let key = end.path().key();
            end.challenge(now, key);
            assert!(!send(end, now).is_empty());
            assert_eq!(end.challenge_timer(), Some(now + pto));
        },
    );
}

/// RFC 10069 s.3.4.
#[test]
fn pto_determines_how_long_an_abandoned_path_is_kept() {
    for hooked in [false, true] {
        let (mut end, now) = two_paths(|config| config.max_ack_delay = DELAY);
        let mut ptos = [0, 1].map(|id| {
            let path = end.paths.current(PathId::new(id)).unwrap();
            path.rtt().pto_base() + DELAY
        });
        assert!(ptos[0] < ptos[1], "the second path is slower: {ptos:?}");
        if hooked {
            lengthen(&mut end);
            ptos = ptos.map(|pto| pto + LONGER);
        }
        end.close_path(now, PathId::ZERO, TransportErrorCode::NO_ERROR).unwrap();
        let periods = end.multipath.as_ref().unwrap().abandon_periods(PathId::ZERO);
        assert_eq!(periods, Some((Some(now + ptos[0]), ptos[1] * 3)));
    }
}

/// RFC 10069 s.2.5, s.2.6, s.5.8.
#[test]
fn pto_of_the_slowest_path_counts_in_periods_of_the_connection() {
    for hooked in [false, true] {
        let (mut end, now) = two_paths(|config| {
            (config.max_ack_delay, config.max_idle_timeout) = (DELAY, MS);
        });
        let slow = end.paths.current(PathId::new(1)).unwrap();
        let mut pto = slow.rtt().pto_base() + DELAY;
        if hooked {
            lengthen(&mut end);
            pto += LONGER;
        }
        assert!(end.path().id() == PathId::ZERO);
        assert_eq!(end.longest_pto(), pto);
        assert_eq!(end.poll_timeout(), Some(end.activity.since() + pto * 3));
        end.close(now, VarInt::from_u32(7), "done");
        assert_eq!(end.poll_timeout(), Some(now + pto * 3));
    }
}

/// A plugin of the peer may have this hook, so it must not discard keys early, end the closing
/// period or the idle timeout early, or give up the validation of a path before its packets can
/// arrive.
#[test]
fn pto_of_periods_is_not_shortened_by_hooks() {
    for_each_end(
        |config| config.max_idle_timeout = MS,
        |end, _, _, _| {
            let key = end.path().key();
            let usual = end.path().rtt().pto_base() + DELAY;
            let unmeasured = Duration::from_millis(3 * 333) + DELAY;
            replace(end, Operation::ProbeTimeout, always(&[0]));
            assert!(end.pto(SpaceId::DATA) < usual, "a hook shortens the PTO timer");
            assert_eq!([end.longest_pto(), end.path_pto(key)], [usual; 2]);
            assert_eq!(end.new_path_pto(key), unmeasured);
            assert_eq!(end.space_pto(SpaceId::DATA), usual);
            assert_eq!(end.poll_timeout(), Some(end.activity.since() + usual * 3));
        },
    );
}

#[test]
fn pto_hook_is_not_called_for_packets_that_are_not_authentic() {
    let mut network = Network::with(1, Faults::none(), |_| {});
    network.connect();
    echo(&mut network, 20_000);
    network.pass(Duration::from_secs(1));
    let (mut end, mut other, now) = network.into_ends();
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    let counting = doing(move |_, _, _| {
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(Decision::Default)
    });
    replace(&mut end, Operation::ProbeTimeout, counting);
    other.ping();
    let datagram = send(&mut other, now).remove(0);
    let path = end.path();
    let arrival =
        DatagramMeta { remote: path.remote(), local: path.local(), ecn: EcnCodepoint::NotEct };
    let dropped = end.stats().packets_dropped;
    // With another Key Phase bit, the packet seems to be the first one after a key update.
    for phase in [0, 0x04] {
        let mut forged = datagram.clone();
        forged[0] ^= phase;
        *forged.last_mut().unwrap() ^= 1;
        end.handle_datagram(now, arrival, &mut forged);
    }
    assert_eq!(end.stats().packets_dropped, dropped + 2);
    assert_eq!(calls.load(Ordering::Relaxed), 0);
}
