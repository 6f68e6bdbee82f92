//! Tests the plugin exchange between two well-behaved ends. The network between them loses and
//! reorders frames.

use std::sync::Arc;

use equic_plugin::Origin;
use equic_plugin::exchange::{
    Budgets, Cache, FolderCache, MemoryCache, PluginId, Progress, Push, Status,
};

use crate::common::{key, manifest};
use crate::pair::{Pair, bundle, config, progress, push, taking};

fn over(progress: &[Progress]) -> Option<(Status, &str)> {
    match progress.last()? {
        Progress::Over(status, why) => Some((*status, why)),
        _ => None,
    }
}

const OWN: Origin = Origin::Own;
const PEER: Origin = Origin::Peer;

fn id(by: Origin, number: u64) -> PluginId {
    PluginId { by, number }
}

#[test]
fn exchange_offers_fetches_and_attaches_a_plugin() {
    let pushing = config(|config| config.push = vec![push(1, 5000)]);
    let mut pair = Pair::new(1, 0.0, pushing, taking(|_| {}));
    pair.run();
    let [server, client] = &pair.ends;
    assert_eq!(client.attached, [id(PEER, 0)]);
    assert_eq!(server.attached, [], "it is for the peer alone");
    assert_eq!(progress(&server.heard), [Progress::Offered, Progress::Active]);
    let all = [Progress::Offered, Progress::Fetched, Progress::Active];
    assert_eq!(progress(&client.heard), all);
    let heard = client.heard.lock().unwrap();
    let name = heard.last().and_then(|update| update.name.clone());
    assert_eq!(name.map(|(name, _)| name), Some("example".to_owned()));
    assert_eq!(client.exchange.memory(), 0);
}

#[test]
fn exchange_works_in_both_directions_despite_losses() {
    for seed in 0..30 {
        let pushes = |from: u64| (0..5).map(|n| push(from + n, 12_000)).collect();
        let first = taking(|config| config.push = pushes(100));
        let second = taking(|config| {
            config.push = pushes(200);
            config.window = 2000;
        });
        let mut pair = Pair::new(seed, 0.3, first, second);
        pair.run();
        for end in &pair.ends {
            let mut attached = end.attached.clone();
            attached.sort();
            assert_eq!(attached, [0, 1, 2, 3, 4].map(|number| id(PEER, number)), "seed {seed}");
            let active =
                progress(&end.heard).iter().filter(|one| **one == Progress::Active).count();
            assert_eq!(active, 10, "five of ours, five of theirs; seed {seed}");
            assert_eq!(end.exchange.memory(), 0);
        }
    }
}

#[test]
fn cache_prevents_a_second_fetch() {
    let folder = tempfile::tempdir().unwrap();
    let caches: [Arc<dyn Cache>; 2] = [
        Arc::new(MemoryCache::new(1 << 20)),
        Arc::new(FolderCache::open(folder.path(), "equic.test").unwrap()),
    ];
    for cache in caches {
        let visit = || {
            let pushing = config(|config| config.push = vec![push(1, 30_000)]);
            let client = taking(|config| config.cache = Some(cache.clone()));
            let mut pair = Pair::new(2, 0.1, pushing, client);
            pair.run();
            assert_eq!(pair.ends[1].attached, [id(PEER, 0)]);
            (pair.data, progress(&pair.ends[1].heard))
        };
        let (data, _) = visit();
        assert!(data >= 30_000);
        let again = [Progress::Offered, Progress::Cached, Progress::Active];
        assert_eq!(visit(), (0, again.to_vec()));
    }
    // The cache for another peer must not have the bundle, and a file that was changed on disk must
    // count as missing.
    let hash = *push(1, 30_000).hash();
    let other = FolderCache::open(folder.path(), "../other.test").unwrap();
    assert_eq!(other.get(&hash), None);
    let same = FolderCache::open(folder.path(), "equic.test").unwrap();
    assert!(same.get(&hash).is_some());
    let files = walk(folder.path());
    assert_eq!(files.len(), 1);
    std::fs::write(&files[0], b"something else").unwrap();
    assert_eq!(same.get(&hash), None);
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

#[test]
fn cache_in_memory_keeps_its_limit() {
    let cache = MemoryCache::new(2500);
    let bundles: Vec<Arc<[u8]>> = (0..3).map(|n| vec![n; 1000].into()).collect();
    for (n, bundle) in bundles.iter().enumerate() {
        cache.put(&[n as u8; 32], bundle);
    }
    cache.put(&[9; 32], &vec![0; 3000].into());
    let kept = [0, 1, 2, 9].map(|n| cache.get(&[n; 32]).is_some());
    assert_eq!(kept, [false, true, true, false]);
}

#[test]
fn plugin_is_replaced_and_removed_despite_losses() {
    for seed in 0..20 {
        let mut pair = Pair::new(seed, 0.2, config(|_| {}), taking(|_| {}));
        pair.ends[0].exchange.offer(push(1, 3000), None);
        pair.run();
        pair.ends[0].exchange.offer(push(2, 4000), Some(id(OWN, 0)));
        pair.run();
        assert_eq!(pair.ends[1].attached, [id(PEER, 1)]);
        let heard = progress(&pair.ends[0].heard);
        let replaced = |one: &Progress| matches!(one, Progress::Over(Status::Detached, _));
        assert_eq!(heard.iter().filter(|one| replaced(one)).count(), 1, "seed {seed}");
        // The plugin is detached by the end that offered it.
        assert!(pair.ends[0].exchange.detach(id(OWN, 1)));
        assert!(!pair.ends[0].exchange.detach(id(OWN, 0)), "it is over");
        pair.run();
        assert_eq!(pair.ends[1].attached, []);
        // The plugin is detached by the end that runs it.
        pair.ends[0].exchange.offer(push(3, 3000), None);
        pair.run();
        assert!(pair.ends[1].exchange.detach(id(PEER, 2)));
        pair.run();
        assert_eq!(pair.ends[1].attached, []);
        let heard = progress(&pair.ends[0].heard);
        assert_eq!(
            over(&heard),
            Some((Status::Removed, "the endpoint that ran the plugin has detached it"))
        );
    }
}

#[test]
fn offer_can_be_withdrawn_during_the_fetch() {
    for seed in 0..20 {
        let mut pair = Pair::new(seed, 0.3, config(|_| {}), taking(|config| config.window = 500));
        pair.ends[0].exchange.offer(push(1, 20_000), None);
        pair.ends[0].exchange.detach(id(OWN, 0));
        pair.run();
        assert_eq!((pair.ends[1].attached.len(), pair.ends[1].exchange.memory()), (0, 0));
        let heard = progress(&pair.ends[0].heard);
        assert!(matches!(over(&heard), Some((Status::Detached, _))), "{heard:?}");
    }
}

#[test]
fn plugin_at_both_ends_is_attached_and_detached_at_both() {
    let both = Push::new(&bundle(1, 3000)).unwrap().at_both_ends();
    let pushing = config(|config| config.push = vec![Arc::new(both)]);
    let mut pair = Pair::new(1, 0.0, pushing, taking(|_| {}));
    pair.run();
    assert_eq!(pair.ends[0].attached, [id(OWN, 0)]);
    assert_eq!(pair.ends[1].attached, [id(PEER, 0)]);
    // If a plugin for both ends fails at the peer's end, this end must detach it too.
    pair.ends[1].exchange.on_failed(id(PEER, 0), Status::Failed, "out of steps");
    pair.run();
    assert_eq!(pair.ends[0].attached, []);
    let heard = progress(&pair.ends[0].heard);
    assert_eq!(over(&heard), Some((Status::Failed, "out of steps")));
}

#[test]
fn offer_is_not_sent_if_the_peer_would_refuse_it() {
    let cases = [
        (config(|_| {}), "the peer accepts no plugins"),
        (taking(|config| config.policy = Some(equic_plugin::Policy::default())), "no plugins"),
        (taking(|config| config.budgets.size = 100), "the peer accepts at most 100"),
        (taking(|config| config.budgets.total = 100), "the peer accepts at most 100"),
    ];
    for (taking, expected) in cases {
        let pushing = config(|config| config.push = vec![push(1, 3000)]);
        let mut pair = Pair::new(1, 0.0, pushing, taking);
        pair.run();
        let heard = progress(&pair.ends[0].heard);
        let [Progress::NotOffered(why)] = &heard[..] else { panic!("{heard:?}") };
        assert!(why.contains(expected), "{why}");
        assert_eq!(progress(&pair.ends[1].heard), []);
    }
    // The plugin needs a class that the peer's policy grants to no author.
    let tunes = manifest("\"tune\", \"observe\"", "", "");
    let tunes = equic_plugin::pack(&tunes, b"code", Some(&key(7))).unwrap();
    let pushing = config(|config| config.push = vec![Arc::new(Push::new(&tunes).unwrap())]);
    let observe = equic_plugin::Policy::parse("anyone = [\"observe\"]").unwrap();
    let mut pair = Pair::new(1, 0.0, pushing, taking(|config| config.policy = Some(observe)));
    pair.run();
    let heard = progress(&pair.ends[0].heard);
    assert_eq!(
        heard,
        [Progress::NotOffered(
            "the peer does not grant the class `tune` to plugins that it receives".to_owned()
        )]
    );
}

#[test]
fn plugin_number_stays_within_the_limit_of_the_peer() {
    let pushing = config(|config| config.push = (0..20).map(|n| push(n, 9000)).collect());
    let few = taking(|config| config.budgets = Budgets { plugins: 3, ..Budgets::default() });
    let mut pair = Pair::new(1, 0.1, pushing, few);
    pair.run();
    assert_eq!(pair.ends[1].attached.len(), 3);
    pair.ends[0].exchange.detach(id(OWN, 1));
    pair.run();
    pair.ends[0].exchange.offer(push(30, 9000), None);
    pair.run();
    assert_eq!(pair.ends[1].attached.len(), 3);
}

#[test]
fn policy_refusal_is_reported_to_the_peer_with_its_reason() {
    // The policy does not name the plugin's author, so the plugin may observe but not tune.
    let tunes = manifest("\"tune\", \"observe\"", "", "");
    let tunes = equic_plugin::pack(&tunes, b"code", Some(&key(8))).unwrap();
    let pushing = config(|config| config.push = vec![Arc::new(Push::new(&tunes).unwrap())]);
    let mut pair = Pair::new(1, 0.0, pushing, taking(|_| {}));
    pair.run();
    let heard = progress(&pair.ends[0].heard);
    let Some((Status::Refused, why)) = over(&heard) else { panic!("{heard:?}") };
    assert!(why.contains("`tune`"), "{why}");
    // The loader fails with a reason that is longer than a STATUS frame can carry.
    let pushing = config(|config| config.push = vec![push(1, 100)]);
    let fails = taking(|config| {
        config.load =
            Arc::new(|_: &equic_plugin::exchange::Accepted<'_>| Err("\u{e9}".repeat(150)));
    });
    let mut pair = Pair::new(1, 0.0, pushing, fails);
    pair.run();
    let heard = progress(&pair.ends[0].heard);
    assert_eq!(over(&heard), Some((Status::Failed, &*"\u{e9}".repeat(100))), "200 bytes of it");
}
