//! Tests the time and memory that a peer's address is charged for offering and loading plugins.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use equic_plugin::exchange::{Accepted, ExchangeConfig, Frame, Loaded, Offer, Status};
use equic_transport::operation::Hook;

use crate::hostile::{give, hand, last_status, offer, victim_of};
use crate::pair::{End, bundle, load, taking};

const SECOND: u64 = 1_000_000_000;

/// A hook that reports this amount of memory, in bytes.
struct Large(usize);

impl Hook for Large {
    fn memory(&self) -> usize {
        self.0
    }
}

fn offer_whole(end: &mut End, plugin: u64, replaces: Option<u64>) {
    let bytes = bundle(plugin, 1_000);
    hand(end, &Frame::Offer(Offer { replaces, ..offer(plugin, &bytes) })).unwrap();
    if last_status(end).is_none() {
        give(end, plugin, &bytes);
    }
}

#[test]
fn memory_of_a_connections_plugins_is_limited() {
    let mut end = victim_of(taking(|config| {
        let large = |_: &Accepted<'_>| {
            let hook = Box::new(Large(700 << 10));
            Ok(Loaded { hook, points: Vec::new(), frames: Vec::new() })
        };
        config.load = Arc::new(large);
    }));
    offer_whole(&mut end, 0, None);
    offer_whole(&mut end, 1, None);
    assert_eq!((end.attached.len(), last_status(&end)), (2, None));
    // A third plugin would exceed the limit of 1.5 MiB. It must be accepted if it replaces one of
    // the other two.
    offer_whole(&mut end, 2, None);
    assert_eq!((end.attached.len(), last_status(&end)), (2, Some(Status::TooLarge)));
    let bytes = bundle(3, 1_000);
    hand(&mut end, &Frame::Offer(Offer { replaces: Some(0), ..offer(3, &bytes) })).unwrap();
    give(&mut end, 3, &bytes);
    assert_eq!(end.attached.len(), 2);
    assert!(end.attached.iter().any(|id| id.number == 3), "{:?}", end.attached);
}

/// Limits each address to the steps that two plugins cost. An offer costs 300,000 steps, and
/// loading one of these plugins costs 150,000.
fn narrow(config: &mut ExchangeConfig) {
    config.peer = Some([192, 0, 2, 1].into());
    config.policy.as_mut().unwrap().limits.address_steps_per_second = 4_000_000;
}

#[test]
fn steps_for_offers_and_loading_are_shared_by_an_address() {
    let (first, heard) = taking(narrow);
    let (second, third) = (first.clone(), first.clone());
    let mut end = victim_of((first, heard));
    offer_whole(&mut end, 0, None);
    offer_whole(&mut end, 1, None);
    assert_eq!((end.attached.len(), last_status(&end)), (2, None));
    offer_whole(&mut end, 2, None);
    assert_eq!(last_status(&end), Some(Status::Failed), "an address has no more");
    // An offer on another connection of the same address must be refused, and an offer from another
    // address must be accepted.
    let mut again = victim_of((second, Default::default()));
    offer_whole(&mut again, 0, None);
    assert_eq!(again.attached.len(), 0);
    let mut other = ExchangeConfig { peer: Some([192, 0, 2, 2].into()), ..third };
    other.listener = None;
    let mut other = victim_of((other, Default::default()));
    offer_whole(&mut other, 0, None);
    assert_eq!(other.attached.len(), 1);
    // After a second, the address has steps again.
    again.exchange.set_now(SECOND);
    let bytes = bundle(9, 1_000);
    hand(&mut again, &Frame::Offer(offer(9, &bytes))).unwrap();
    give(&mut again, 9, &bytes);
    assert_eq!(again.attached.len(), 1);
}

/// If compiling an object takes longer than its steps pay for, the address must be charged for the
/// time.
#[test]
fn steps_are_charged_for_loading_time_if_there_is_a_clock() {
    let time = Arc::new(AtomicU64::new(0));
    let mut end = victim_of(taking(|config| {
        narrow(config);
        let (reads, passes) = (Arc::clone(&time), Arc::clone(&time));
        config.meter = Some(Arc::new(move || reads.load(Ordering::Relaxed)));
        config.load = Arc::new(move |plugin: &Accepted<'_>| {
            passes.fetch_add(10_000_000, Ordering::Relaxed);
            load(plugin)
        });
    }));
    offer_whole(&mut end, 0, None);
    assert_eq!(end.attached.len(), 1);
    offer_whole(&mut end, 1, None);
    assert_eq!((end.attached.len(), last_status(&end)), (1, Some(Status::Failed)));
}
