//! Tests rules that concern several plugins of a connection: which plugin replaces which, which
//! frame types an offer may use, when plugins expire, and how much is compiled.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use equic_plugin::Origin;
use equic_plugin::exchange::{
    Accepted, Cache, ExchangeConfig, Frame, Kind, Load, Loaded, MemoryCache, Offer, PluginId,
    Progress, Push, Status,
};

use crate::common::{key, manifest};
use crate::hostile::{data, give, hand, last_status, offer, preamble, said, victim, victim_of};
use crate::pair::{End, Pair, bundle, config, load, progress, push, taking};

fn id(by: Origin, number: u64) -> PluginId {
    PluginId { by, number }
}

fn replacing(plugin: u64, replaces: u64, bytes: &[u8]) -> Frame<'static> {
    Frame::Offer(Offer { replaces: Some(replaces), ..offer(plugin, bytes) })
}

/// Returns the statuses that are due at this end, with their plugin IDs.
fn statuses(end: &mut End) -> Vec<(u64, Status)> {
    let said = said(&mut end.exchange);
    let of = |bytes: &Vec<u8>| match Frame::read(bytes).unwrap().0 {
        Frame::Status { plugin, status, .. } => Some((plugin, status)),
        _ => None,
    };
    said.iter().filter_map(of).collect()
}

#[test]
fn replacement_may_arrive_before_the_replaced_plugin() {
    let (first, second) = (bundle(1, 100), bundle(2, 100));
    let both = [(0, Status::Detached), (1, Status::Active)];
    // The bundle of the second plugin, which replaces the first, arrives before that of the first.
    let mut end = victim();
    hand(&mut end, &Frame::Offer(offer(0, &first))).unwrap();
    hand(&mut end, &replacing(1, 0, &second)).unwrap();
    give(&mut end, 1, &second);
    give(&mut end, 0, &first);
    assert_eq!(end.attached, [id(Origin::Peer, 1)]);
    assert_eq!(statuses(&mut end), both);
    // The second plugin already runs when the offer of the first one, which it replaces, arrives.
    let mut end = victim();
    hand(&mut end, &replacing(1, 0, &second)).unwrap();
    give(&mut end, 1, &second);
    hand(&mut end, &Frame::Offer(offer(0, &first))).unwrap();
    give(&mut end, 0, &first);
    assert_eq!(end.attached, [id(Origin::Peer, 1)]);
    assert_eq!(statuses(&mut end), both);
    // A plugin that is refused must not detach the plugin that it was to replace.
    let mut end = victim();
    hand(&mut end, &Frame::Offer(offer(0, &first))).unwrap();
    hand(&mut end, &replacing(1, 0, b"no bundle")).unwrap();
    give(&mut end, 1, b"no bundle");
    give(&mut end, 0, &first);
    assert_eq!(end.attached, [id(Origin::Peer, 0)]);
}

#[test]
fn replacement_may_overtake_two_plugins() {
    let bundles: Vec<Vec<u8>> = (0..3).map(|number| bundle(number, 100)).collect();
    let mut end = victim();
    hand(&mut end, &Frame::Offer(offer(0, &bundles[0]))).unwrap();
    give(&mut end, 0, &bundles[0]);
    assert_eq!(end.attached, [id(Origin::Peer, 0)]);
    hand(&mut end, &replacing(1, 0, &bundles[1])).unwrap();
    hand(&mut end, &replacing(2, 1, &bundles[2])).unwrap();
    give(&mut end, 2, &bundles[2]);
    assert_eq!(end.attached, [id(Origin::Peer, 2)]);
    let gone = [(0, Status::Detached), (1, Status::Detached), (2, Status::Active)];
    assert_eq!(statuses(&mut end), gone);
    // Two plugins each replace the other one. The first that arrives must run.
    let mut end = victim();
    hand(&mut end, &replacing(0, 1, &bundles[0])).unwrap();
    hand(&mut end, &replacing(1, 0, &bundles[1])).unwrap();
    give(&mut end, 0, &bundles[0]);
    assert_eq!(end.attached, [id(Origin::Peer, 0)]);
}

#[test]
fn replacement_is_repeated_despite_losses() {
    for seed in 0..30 {
        let mut pair = Pair::new(seed, 0.4, config(|_| {}), taking(|_| {}));
        for number in 0..8 {
            let other = (number > 0).then(|| id(Origin::Own, number - 1));
            pair.ends[0].exchange.offer(push(number, 200), other);
        }
        pair.run();
        assert_eq!(pair.ends[1].attached, [id(Origin::Peer, 7)], "seed {seed}");
    }
}

#[test]
fn plugin_is_detached_here_before_the_peer_answers() {
    let both = Push::new(&bundle(1, 3000)).unwrap().at_both_ends();
    let pushing = config(|config| config.push = vec![Arc::new(both)]);
    let mut pair = Pair::new(1, 0.0, pushing, taking(|_| {}));
    pair.run();
    assert_eq!(pair.ends[0].attached, [id(Origin::Own, 0)]);
    let end = &mut pair.ends[0];
    assert!(end.exchange.detach(id(Origin::Own, 0)));
    end.act();
    assert_eq!(end.attached, [], "the peer may never answer");
    // A late STATUS frame must not attach the plugin again.
    let active = Frame::Status { plugin: 0, status: Status::Active, reason: "" };
    hand(end, &active).unwrap();
    assert_eq!(end.attached, []);
}

#[test]
fn plugin_expires_while_it_runs() {
    let expiring = manifest("\"observe\"", "expires = \"2030-01-01T00:00:00Z\"", "");
    let expiring = equic_plugin::pack(&expiring, b"code", Some(&key(7))).unwrap();
    let expires = 1_893_456_000;
    let now = Arc::new(AtomicU64::new(expires - 10));
    let clock = |config: &mut ExchangeConfig| {
        let now = now.clone();
        config.clock = Arc::new(move || now.load(Ordering::Relaxed));
    };
    let pushing = config(|config| {
        clock(config);
        let both = Push::new(&expiring).unwrap().at_both_ends();
        config.push = vec![Arc::new(both), push(1, 100)];
    });
    let mut pair = Pair::new(1, 0.0, pushing, taking(clock));
    pair.run();
    assert_eq!(pair.ends[1].attached.len(), 2);
    assert_eq!(pair.ends[1].exchange.check_expiry(), Some(10));
    now.store(expires - 1, Ordering::Relaxed);
    assert_eq!(pair.ends[1].exchange.check_expiry(), Some(1));
    now.store(expires, Ordering::Relaxed);
    assert_eq!(pair.ends[1].exchange.check_expiry(), None);
    pair.run();
    assert_eq!(pair.ends[1].attached, [id(Origin::Peer, 1)]);
    assert_eq!(pair.ends[0].attached, []);
    let over = |one: Progress| match one {
        Progress::Over(status, why) => Some((status, why)),
        _ => None,
    };
    let over: Vec<_> = progress(&pair.ends[0].heard).into_iter().filter_map(over).collect();
    let [(Status::Expired, why)] = &over[..] else { panic!("{over:?}") };
    assert!(why.contains("1893456000"), "{why}");
    // If the peer's clock is behind, the side that offered the plugin must still detach it at its
    // own end when the plugin expires.
    now.store(expires - 10, Ordering::Relaxed);
    let both = Arc::new(Push::new(&expiring).unwrap().at_both_ends());
    pair.ends[0].exchange.offer(both, None);
    pair.run();
    assert_eq!(pair.ends[0].attached, [id(Origin::Own, 2)]);
    now.store(expires + 1, Ordering::Relaxed);
    assert_eq!(pair.ends[0].exchange.check_expiry(), None);
    pair.ends[0].act();
    assert_eq!(pair.ends[0].attached, []);
}

/// A loader that accepts every plugin and counts its calls.
#[derive(Default)]
struct Counting {
    compiled: AtomicUsize,
}

impl Load for Counting {
    fn load(&self, plugin: &Accepted<'_>) -> Result<Loaded, String> {
        self.compiled.fetch_add(1, Ordering::Relaxed);
        load(plugin)
    }
}

#[test]
fn compile_limit_of_a_connection_holds() {
    let loader = Arc::new(Counting::default());
    let mut end = victim_of(taking(|config| {
        config.load = loader.clone();
        config.compile_limit = 5_000;
        // The limits are high because the time of the test stands still. With the defaults, 256
        // offers at once would be refused.
        config.policy.as_mut().unwrap().limits.address_steps_per_second = 10_000_000_000;
        config.policy.as_mut().unwrap().limits.process_steps_per_second = 10_000_000_000;
    }));
    for plugin in 0..256 {
        let bytes = bundle(plugin, 1000);
        let replaces = plugin.checked_sub(1);
        hand(&mut end, &Frame::Offer(Offer { replaces, ..offer(plugin, &bytes) })).unwrap();
        give(&mut end, plugin, &bytes);
    }
    assert_eq!(loader.compiled.load(Ordering::Relaxed), 5);
    assert_eq!(last_status(&end), Some(Status::TooLarge));
}

/// A peer reconnects whenever it has used up its offers, and sends ten thousand different valid
/// bundles. The memory that remains after a connection must stay bounded, and so must the amount of
/// code that is compiled for one connection.
#[test]
fn compile_and_cache_limits_hold_for_ten_thousand_bundles() {
    let cache = Arc::new(MemoryCache::new(20_000));
    let loader = Arc::new(Counting::default());
    let mut hashes = Vec::new();
    for connection in 0..40 {
        let mut end = victim_of(taking(|config| {
            config.cache = Some(cache.clone());
            config.load = loader.clone();
            config.compile_limit = 10_000;
            // The limits are high because the time of the test stands still. With the defaults,
            // this many offers at once would be refused.
            config.policy.as_mut().unwrap().limits.address_steps_per_second = 10_000_000_000;
            config.policy.as_mut().unwrap().limits.process_steps_per_second = 10_000_000_000;
        }));
        for plugin in 0..256 {
            let bytes = bundle(1000 * connection + plugin, 100);
            let replaces = plugin.checked_sub(1);
            hand(&mut end, &Frame::Offer(Offer { replaces, ..offer(plugin, &bytes) })).unwrap();
            give(&mut end, plugin, &bytes);
            hashes.push(offer(plugin, &bytes).hash);
            assert!(end.exchange.memory() <= 64 << 10);
        }
        assert!(end.attached.len() <= 16 && said(&mut end.exchange).len() <= 2 * 256);
    }
    let different: BTreeSet<[u8; 32]> = hashes.iter().copied().collect();
    assert_eq!(different.len(), 40 * 256);
    assert_eq!(loader.compiled.load(Ordering::Relaxed), 40 * 100, "100 bytes each");
    let left = hashes.iter().filter(|hash| cache.get(hash).is_some()).count();
    assert!((1..=200).contains(&left), "{left} bundles of more than 100 bytes in 20,000");
}

/// If a peer disconnects in the middle of several transfers, the exchange must free everything.
#[test]
fn connection_end_during_transfers_frees_the_exchange() {
    let (config, heard) = taking(|config| config.push = vec![push(1, 5000)]);
    let peer = crate::pair::declared(&config);
    let listener = Arc::downgrade(config.listener.as_ref().unwrap());
    let mut end = End::new((config, heard));
    end.exchange.handle_parameters(&peer).unwrap();
    end.exchange.handle_confirmed();
    for plugin in 0..4 {
        let bytes = bundle(plugin, 10_000);
        hand(&mut end, &Frame::Offer(offer(plugin, &bytes))).unwrap();
        let code = preamble(&bytes);
        hand(&mut end, &data(plugin, 0, &bytes[..code])).unwrap();
        hand(&mut end, &data(plugin, code as u64 + 5, &bytes[code + 5..code + 200])).unwrap();
    }
    let mut room = [0; 1200];
    assert!(end.exchange.write(Kind::Offer, &mut room).is_some());
    assert!(end.exchange.memory() >= 40_000 && end.exchange.is_waiting());
    drop(end);
    assert!(listener.upgrade().is_none(), "nobody holds the configuration any more");
}
