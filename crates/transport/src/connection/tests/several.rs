//! Several hooks that replace the same operation, and hooks that return the default.

use super::operations::{always, doing, replace};
use super::*;
use crate::connection::presence::MayBeAttached;
use crate::operation::{AttachPoint, Decision, HookError, Operation};

/// For every operation whose default a hook can call, a hook that returns the default changes
/// nothing.
#[test]
fn hook_that_answers_the_default_changes_nothing() {
    let run = |refined: bool| {
        let mut network = Network::new(3, Faults::none());
        let offers = Operation::ALL.iter().filter(|one| one.offers_default());
        let points: Vec<AttachPoint> = offers.map(|one| AttachPoint::refine(*one)).collect();
        assert!(points.len() > 30, "{}", points.len());
        if refined {
            network.client.attach(doing(|_, _, _| Ok(Decision::Done)), &points).unwrap();
        }
        network.connect();
        let time = echo(&mut network, 100_000);
        assert!(network.failed.is_empty(), "{:?}", network.failed);
        let stats = network.client.stats();
        (time, stats.datagrams_sent, stats.bytes_sent, stats.packets_lost)
    };
    assert_eq!(run(false), run(true));
}

#[test]
fn hook_attached_last_answers_first() {
    const SIZE: Operation = Operation::DatagramSize;
    let mut network = Network::new(1, Faults::none());
    network.connect();
    let size = |network: &mut Network| {
        let key = network.client.path().key();
        network.client.datagram_size(MayBeAttached, key, 1_400)
    };
    let client = &mut network.client;
    replace(client, SIZE, always(&[1_300]));
    let second = client.attach(always(&[1_250]), &[AttachPoint::replace(SIZE)]).unwrap();
    assert_eq!(size(&mut network), 1_250);
    let less = || {
        doing(|_, _, outputs| {
            outputs[0] -= 10;
            Ok(Decision::Done)
        })
    };
    let client = &mut network.client;
    client.attach(less(), &[AttachPoint::refine(SIZE)]).unwrap();
    replace(client, SIZE, doing(|_, _, _| Ok(Decision::Default)));
    client.attach(less(), &[AttachPoint::refine(SIZE)]).unwrap();
    let broken = client.attach(
        doing(|_, _, _| Err(HookError("broken".to_owned()))),
        &[AttachPoint::replace(SIZE)],
    );
    assert_eq!(size(&mut network), 1_230, "each hook subtracts ten from the answer before it");
    assert!(network.client.detach(broken.unwrap()).is_none(), "the failed hook is detached");
    network.client.detach(second).unwrap();
    assert_eq!(size(&mut network), 1_280);
}

/// If a hook in the middle of a chain fails, the others remain attached.
#[test]
fn hook_that_fails_leaves_the_others() {
    const WINDOW: Operation = Operation::CongestionWindow;
    let mut network = Network::new(1, Faults::none());
    network.connect();
    let window = |network: &mut Network| {
        let key = network.client.path().key();
        network.client.window(MayBeAttached, key)
    };
    let ids = [20_000, 15_000, 30_000].map(|bytes: u64| {
        let answers = doing(move |_, _, outputs| {
            outputs[0] = bytes;
            Ok(Decision::Done)
        });
        network.client.attach(answers, &[AttachPoint::replace(WINDOW)]).unwrap()
    });
    assert_eq!(window(&mut network), 15_000, "the smallest limit");
    network.client.detach(ids[1]).unwrap();
    assert_eq!(window(&mut network), 20_000);
    let broken = || doing(|_, _, _| Err(HookError("broken".to_owned())));
    for _ in 0..2 {
        network.client.attach(broken(), &[AttachPoint::replace(WINDOW)]).unwrap();
    }
    replace(&mut network.client, WINDOW, doing(|_, _, _| Ok(Decision::Default)));
    assert_eq!(window(&mut network), 20_000);
    network.client.detach(ids[0]).unwrap();
    assert_eq!(window(&mut network), 30_000);
    network.client.detach(ids[2]).unwrap();
    assert_eq!(window(&mut network), network.client.path().controller().window());
}
