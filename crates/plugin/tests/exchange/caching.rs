//! Tests which bundles are put into the cache: only those that were loaded, and only after they
//! were loaded.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use equic_plugin::exchange::{Accepted, Cache, Frame, Loaded, MemoryCache, Status};

use crate::hostile::{give, hand, last_status, offer, victim_of};
use crate::pair::{bundle, load, taking};

/// A cache that records each `put` in the list of events.
struct Noting {
    cache: MemoryCache,
    events: Arc<Mutex<Vec<&'static str>>>,
}

impl Cache for Noting {
    fn get(&self, hash: &[u8; 32]) -> Option<Arc<[u8]>> {
        self.cache.get(hash)
    }

    fn put(&self, hash: &[u8; 32], bundle: &Arc<[u8]>) {
        self.events.lock().unwrap().push("kept");
        self.cache.put(hash, bundle);
    }
}

/// Offers and sends a bundle. Returns the `load` and `put` calls in their order, and the offer's
/// status if it has ended.
fn events(loads: bool, steps: u64, memory: usize) -> (Vec<&'static str>, Option<Status>) {
    let events = Arc::new(Mutex::new(Vec::new()));
    let (noted, kept) = (Arc::clone(&events), Arc::clone(&events));
    let mut end = victim_of(taking(move |config| {
        config.cache = Some(Arc::new(Noting { cache: MemoryCache::new(1 << 20), events: kept }));
        config.load = Arc::new(move |plugin: &Accepted<'_>| {
            noted.lock().unwrap().push("loaded");
            if loads { load(plugin) } else { Err("it cannot be compiled".to_owned()) }
        });
        let limits = &mut config.policy.as_mut().unwrap().limits;
        (limits.address_steps_per_second, limits.total_memory) = (steps, memory);
    }));
    let bytes = bundle(1, 1_000);
    hand(&mut end, &Frame::Offer(offer(0, &bytes))).unwrap();
    if last_status(&end).is_none() {
        give(&mut end, 0, &bytes);
    }
    let events = events.lock().unwrap().clone();
    (events, last_status(&end))
}

#[test]
fn bundle_is_cached_after_it_was_loaded() {
    let plenty = (1 << 40, 1 << 20);
    assert_eq!(events(true, plenty.0, plenty.1), (vec!["loaded", "kept"], None));
    assert_eq!(events(false, plenty.0, plenty.1), (vec!["loaded"], Some(Status::Failed)));
    // At first, an address has the steps of a quarter of a second. They are enough for the offer,
    // which costs 300,000 steps, but not for loading.
    assert_eq!(events(true, 1_300_000, plenty.1), (vec![], Some(Status::Failed)));
}

/// A plugin that exceeds the memory limit is loaded, but its bundle must not be put into the cache.
#[test]
fn bundle_of_a_plugin_without_memory_is_not_cached() {
    struct Large;
    impl equic_transport::operation::Hook for Large {
        fn memory(&self) -> usize {
            1 << 30
        }
    }
    let loaded = Arc::new(AtomicBool::new(false));
    let cache = Arc::new(MemoryCache::new(1 << 20));
    let mut end = victim_of(taking(|config| {
        let loaded = Arc::clone(&loaded);
        config.cache = Some(Arc::clone(&cache) as Arc<dyn Cache>);
        config.load = Arc::new(move |_: &Accepted<'_>| {
            loaded.store(true, Ordering::Relaxed);
            Ok(Loaded { hook: Box::new(Large), points: Vec::new(), frames: Vec::new() })
        });
    }));
    let bytes = bundle(1, 1_000);
    hand(&mut end, &Frame::Offer(offer(0, &bytes))).unwrap();
    give(&mut end, 0, &bytes);
    assert!(loaded.load(Ordering::Relaxed));
    assert_eq!(last_status(&end), Some(Status::TooLarge));
    assert!(cache.get(&offer(0, &bytes).hash).is_none());
}
