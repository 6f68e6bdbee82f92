//! Tests that run eQUIC's plugins as quinn's congestion controller, with transfers through a relay
//! that drops packets.

mod common;

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use common::{ROOT, bundle, transfer};
use equic_transport::operation::{Field, Operation};
use quinn_plugin::{Controllers, Error, PluginCall};

/// Returns a bundle with the plugin of this name in `plugins/`.
fn tree_plugin(name: &str) -> Vec<u8> {
    let folder = Path::new(ROOT).join("plugins").join(name);
    let manifest = fs::read_to_string(folder.join("plugin.toml")).unwrap();
    bundle(&manifest, &folder.join(format!("{name}.c")))
}

/// Returns a bundle with a congestion controller. `source` must define the functions `on_acked` and
/// `on_event`.
fn controller(source: &str) -> Vec<u8> {
    let manifest = fs::read_to_string(Path::new(ROOT).join("plugins/reno/plugin.toml")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("controller.c");
    fs::write(&file, format!("#include <equic_plugin.h>\n{source}")).unwrap();
    bundle(&manifest, &file)
}

/// Loads a plugin. Returns it with a list to which each of its calls is added.
fn listened(bundle: &[u8]) -> (Controllers, Arc<Mutex<Vec<PluginCall>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&asked);
    let controllers = Controllers::load(bundle).unwrap();
    let push = move |one: &PluginCall| list.lock().unwrap().push(one.clone());
    (controllers.with_listener(push), asked)
}

/// NewReno in Rust, as in RFC 9002 s.7.3 and `plugins/reno/reno.c`. It computes the expected result
/// of each plugin call.
#[derive(Default)]
struct Reno {
    recovery_start: u64,
    acked: u64,
}

impl Reno {
    fn answer(&mut self, asked: &PluginCall) -> (u64, u64) {
        let before = asked.before;
        let (mut window, mut threshold) = (before.window, before.threshold);
        match asked.operation {
            Operation::CongestionAcked => {
                let (bytes, app_limited) = (asked.words[1], asked.words[3] != 0);
                let recovers = self.recovery_start != 0
                    && asked.now < self.recovery_start + before.smoothed_rtt;
                if app_limited || recovers {
                } else if window < threshold {
                    window += bytes;
                } else {
                    self.acked += bytes;
                    if self.acked >= window {
                        self.acked -= window;
                        window += before.datagram_size;
                    }
                }
            }
            Operation::CongestionEvent => {
                if self.recovery_start == 0 || asked.words[1] > self.recovery_start {
                    self.recovery_start = asked.now;
                    self.acked = 0;
                    window = (window / 2).max(2 * before.datagram_size);
                    threshold = window;
                }
            }
            other => panic!("{other} is not attached"),
        }
        (window, threshold)
    }
}

/// The plugin `plugins/reno` controls a connection of quinn. Each of its results must be that of
/// NewReno. Losses must halve the window, and quinn must use the window that the bytecode set last.
#[tokio::test]
async fn reno_plugin_controls_a_quinn_connection() {
    let (controllers, asked) = listened(&tree_plugin("reno"));
    let done = transfer(controllers, 4_000_000, Some(200)).await;
    assert!(done.dropped > 0, "the relay loses packets");
    let asked = asked.lock().unwrap();
    let count = |operation| asked.iter().filter(|one| one.operation == operation).count();
    assert!(count(Operation::CongestionAcked) > 1000, "{}", count(Operation::CongestionAcked));
    assert!(count(Operation::CongestionEvent) > 0);
    let mut reno = Reno::default();
    for one in asked.iter() {
        assert_eq!(one.failed, None);
        let (window, threshold) = reno.answer(one);
        assert_eq!((one.after.window, one.after.threshold), (window, threshold), "{one:?}");
    }
    let halved = |one: &&PluginCall| one.after.window <= one.before.window / 2 + 1;
    let events = asked.iter().filter(|one| one.operation == Operation::CongestionEvent);
    assert!(events.filter(halved).count() > 0, "a loss halves the window");
    let grown = asked.iter().filter(|one| one.after.window > one.before.window).count();
    assert!(grown > 0, "and acknowledgements open it");
    // The windows must be equal, because no persistent congestion occurred. quinn would not notify
    // a controller about it.
    assert_eq!(done.window, asked.last().unwrap().after.window);
}

/// The plugin `plugins/cubic`, which includes slow start with HyStart++, controls a connection of
/// quinn. A loss must reduce the window to seven tenths, only once for each flight of packets. The
/// window must grow again from there. quinn never calls the plugin's function for spurious losses.
#[tokio::test]
async fn cubic_plugin_controls_a_quinn_connection() {
    let (controllers, asked) = listened(&tree_plugin("cubic"));
    let done = transfer(controllers, 4_000_000, Some(200)).await;
    assert!(done.dropped > 0, "the relay loses packets");
    let asked = asked.lock().unwrap();
    let of = |operation| asked.iter().filter(move |one| one.operation == operation);
    assert!(asked.iter().all(|one| one.failed.is_none()));
    assert!(of(Operation::CongestionAcked).count() > 1000);
    let mut reductions = 0;
    for one in of(Operation::CongestionEvent) {
        let (before, after) = (one.before.window, one.after.window);
        if after == before {
            continue;
        }
        let seven_tenths = (before * 7 / 10).max(2 * one.before.datagram_size);
        assert!(after.abs_diff(seven_tenths) <= 1, "{one:?}");
        assert_eq!(one.after.threshold, after, "{one:?}");
        reductions += 1;
    }
    assert!(reductions > 0, "a loss reduces the window");
    let avoids = |one: &&PluginCall| one.before.window >= one.before.threshold;
    let grows = |one: &&PluginCall| one.after.window > one.before.window;
    let avoiding: Vec<&PluginCall> = of(Operation::CongestionAcked).filter(avoids).collect();
    assert!(avoiding.iter().filter(|one| grows(one)).count() > 0, "it grows again");
    assert!(avoiding.iter().all(|one| one.after.window >= one.before.window));
    assert_eq!(done.window, asked.last().unwrap().after.window);
}

/// The window that the bytecode sets must limit the bytes in flight. The test compares two programs
/// that set different windows.
#[tokio::test]
async fn window_of_the_bytecode_limits_quinn() {
    let pinned = "
        equic_u64 on_acked(struct equic_congestion_acked *call)
        {
            (void)call;
            equic_set(EQUIC_CONGESTION_WINDOW, 4 * equic_get(EQUIC_DATAGRAM_SIZE));
            return EQUIC_DONE;
        }
        equic_u64 on_event(struct equic_congestion_event *call)
        {
            (void)call;
            return EQUIC_DONE;
        }";
    let most = |asked: &[PluginCall]| {
        // The first calls are skipped, because quinn still uses the initial window during the
        // handshake.
        let later = asked.iter().skip(20);
        later.map(|one| one.before.in_flight.div_ceil(one.before.datagram_size)).max().unwrap()
    };
    let (controllers, asked) = listened(&controller(pinned));
    let done = transfer(controllers, 400_000, None).await;
    {
        let held = asked.lock().unwrap();
        assert!(held.iter().all(|one| one.after.window == 4 * one.after.datagram_size));
        // A fifth packet may be in flight, because a sender may send a packet if the window has
        // room for at least one byte.
        assert!(most(&held) <= 5, "{} datagrams in flight", most(&held));
        assert_eq!(done.window, held.last().unwrap().after.window);
    }

    let (controllers, asked) = listened(&tree_plugin("reno"));
    transfer(controllers, 400_000, None).await;
    let open = asked.lock().unwrap();
    assert!(most(&open) > 5, "{} datagrams in flight", most(&open));
}

/// A plugin whose bytecode never ends must be removed. The connection must continue with quinn's
/// own controller.
#[tokio::test]
async fn plugin_that_fails_is_detached() {
    let endless = "
        static volatile equic_u64 forever = 1;
        static equic_u64 calls;
        equic_u64 on_acked(struct equic_congestion_acked *call)
        {
            (void)call;
            calls += 1;
            while (calls > 10 && forever)
                ;
            return EQUIC_DONE;
        }
        equic_u64 on_event(struct equic_congestion_event *call)
        {
            (void)call;
            return EQUIC_DONE;
        }";
    let (controllers, asked) = listened(&controller(endless));
    let done = transfer(controllers, 400_000, None).await;
    let asked = asked.lock().unwrap();
    let acked: Vec<&PluginCall> =
        asked.iter().filter(|one| one.operation == Operation::CongestionAcked).collect();
    assert_eq!(acked.len(), 11, "it is not asked again");
    let why = acked[10].failed.as_deref().unwrap_or_default();
    assert!(why.contains("budget"), "{why}");
    assert!(done.window >= acked[10].after.window, "quinn's NewReno went on from there");
}

/// A plugin that needs something that quinn does not provide is refused before it runs. The error
/// must name what is missing.
#[test]
fn plugin_that_needs_more_than_quinn_has_is_refused() {
    let load = |name: &str| Controllers::load(&tree_plugin(name)).unwrap_err();
    assert!(matches!(load("tail-loss-probe"), Error::Operation(_) | Error::Field(_)));
    assert!(matches!(load("ack-delay"), Error::Operation(_) | Error::Field(_)));
    let manifest = fs::read_to_string(Path::new(ROOT).join("plugins/reno/plugin.toml")).unwrap();
    let reno = Path::new(ROOT).join("plugins/reno/reno.c");
    let more = manifest.replace("\"SmoothedRtt\"]", "\"SmoothedRtt\", \"PtoCount\"]");
    let error = Controllers::load(&bundle(&more, &reno)).unwrap_err();
    assert!(matches!(error, Error::Field(Field::PtoCount)), "{error}");
    let elsewhere = manifest.replace("\"CongestionEvent\"", "\"PersistentCongestion\"");
    let error = Controllers::load(&bundle(&elsewhere, &reno)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "quinn has no operation PersistentCongestion: use a plugin that is only a congestion controller"
    );
    assert!(matches!(Controllers::load(b"no bundle"), Err(Error::Bundle(_))));
}

/// `make test` must compile with debug assertions and overflow checks.
#[test]
fn suite_is_compiled_with_assertions() {
    if option_env!("EQUIC_ASSERTIONS").is_some() {
        let (assertions, most) = (cfg!(debug_assertions), std::hint::black_box(u8::MAX));
        assert!(assertions, "without debug assertions");
        let sum = std::panic::catch_unwind(|| std::hint::black_box(most + 1));
        assert!(sum.is_err(), "without overflow checks");
    }
}
