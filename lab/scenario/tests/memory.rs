//! Tests that the estimate of a run's memory is close to the memory of real runs. Needs the feature
//! `play`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use equic_scenario::Scenario;
use equic_scenario::play::{Part, memory, play};

/// The system allocator with counters: the bytes that are allocated now, and their maximum.
struct Counting;

static TAKEN: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all calls are passed to the system allocator, with unchanged arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let taken = TAKEN.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(taken, Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        TAKEN.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the memory came from `alloc`, which uses the system allocator.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the estimated and the real peak memory of a run of this scenario.
fn both(text: &str) -> (f64, f64) {
    let scenario = Scenario::parse(text).unwrap_or_else(|error| panic!("{error}"));
    let before = TAKEN.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let outcome = play(&scenario, 1, Part::All).unwrap();
    let most = MOST.load(Ordering::Relaxed) - before;
    assert!(outcome.flows.iter().any(|flow| flow.bytes > 0), "{outcome:?}");
    (memory(&scenario) as f64, most as f64)
}

/// This file has only one test, because the counters would also count tests that run at the same
/// time.
#[test]
fn memory_estimate_is_near_the_actual_use() {
    let simple = |link: &str, flow: &str| {
        format!(
            "limit = \"20 s\"\n[network]\ntopology = \"simple\"\nlink = {{ {link} }}\n[[flow]]\n{flow}"
        )
    };
    let dumbbell = |pairs: u32, flow: &str| {
        format!(
            "limit = \"20 s\"\n[network]\ntopology = \"dumbbell\"\npairs = {pairs}\n\
             link = {{ rate = \"20 Mb/s\", delay = \"20 ms\" }}\n[[flow]]\ncount = {pairs}\n{flow}"
        )
    };
    let crowd = |flow: &str| {
        format!(
            "limit = \"4 s\"\n[network]\ntopology = \"dumbbell\"\npairs = 200\n\
             link = {{ rate = \"200 Mb/s\", delay = \"20 ms\", queue = \"2000 packets\" }}\n\
             [[flow]]\ncount = 200\nstagger = \"5 ms\"\n{flow}"
        )
    };
    let deep = "rate = \"10 Mb/s\", delay = \"50 ms\", queue = \"1000 packets\"";
    let long = "rate = \"50 Mb/s\", delay = \"100 ms\", queue = \"2000 packets\"";
    let mut wrong = Vec::new();
    for (name, text) in [
        ("a deep queue, QUIC", simple(deep, "size = \"8 MB\"")),
        ("a deep queue, TCP", simple(deep, "size = \"8 MB\"\nprotocol = \"tcp\"")),
        ("a long way, QUIC", simple(long, "size = \"20 MB\"")),
        ("a long way, TCP", simple(long, "size = \"20 MB\"\nprotocol = \"tcp\"")),
        ("many, QUIC", dumbbell(100, "size = \"50 KB\"")),
        ("many, TCP", dumbbell(100, "size = \"50 KB\"\nprotocol = \"tcp\"")),
        ("many without an end, QUIC", crowd("")),
        ("many without an end, TCP", crowd("protocol = \"tcp\"")),
        ("large shares, QUIC", dumbbell(10, "size = \"1 MB\"")),
        #[cfg(feature = "tls")]
        ("many, TLS", dumbbell(100, "size = \"50 KB\"\nquic = { protection = \"tls\" }")),
    ] {
        let (estimate, took) = both(&text);
        let times = estimate / took;
        println!("{name}: {estimate} estimated, {took} taken: {times:.2}");
        // If the estimate were less than half of the real value, a run could exhaust the memory. If
        // it were more than three times the real value, runs that fit would be rejected.
        if !(0.5..3.0).contains(&times) {
            wrong.push(format!("{name}: {estimate} estimated, {took} taken"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
