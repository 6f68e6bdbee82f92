//! Tests the most expensive known plugins with figures that do not depend on the machine: steps,
//! bytes, and the number of detached plugins. `equic-lab plugin-bench --limits` measures their
//! times.

use std::time::Duration;

use equic_plugin::Limits;
use equic_plugin_kit::End;
use equic_plugin_kit::limits::{Flooded, Idle, Kept, Observed, Replacing, WORKERS, Worker, kept};

const SECOND: Duration = Duration::from_secs(1);

/// Virtual time for which the plugins work.
const TIME: Duration = Duration::from_millis(300);

fn worker(does: &str) -> &'static Worker {
    WORKERS.iter().find(|worker| worker.does.contains(does)).expect("there is such a worker")
}

/// Returns the maximum number of steps that `per_second` permits during a test. It includes the
/// steps of a quarter of a second that are available at the start.
fn most(per_second: u64) -> u64 {
    per_second / 4 + per_second * TIME.as_millis() as u64 / 1_000
}

/// Runs workers. Returns the number of workers that still run, the number of steps that they were
/// charged during the test, and how often their address had too few steps since the start.
fn work(connections: u64, worker: &Worker, turns: u32) -> (usize, u64, u64) {
    let mut idle = Idle::new(connections, &worker.push(turns).unwrap()).unwrap();
    let before = idle.usage();
    idle.pass(TIME).unwrap();
    let after = idle.usage();
    (idle.running(), after.steps - before.steps, after.refused)
}

/// Plugins that use more steps than their connection permits must be detached, and then no more
/// steps must be charged.
#[test]
fn steps_of_plugins_of_an_idle_connection_are_limited() {
    let of_connection = Limits::default().steps_per_second;
    for name in ["64-bit division", "read of BytesUnsent", "read of ApplicationWaits"] {
        let worker = worker(name);
        let (running, steps, _) = work(1, worker, 6 * worker.turns);
        assert!(running < 15, "{name}: all 15 run on");
        // Each packet adds steps, but an idle connection sends and receives few packets.
        let most = most(of_connection) + 100 * Limits::default().steps_per_packet;
        assert!(steps <= most, "{name}: {steps} of {most}");
    }
}

/// Plugins that stay within the allowance of their connection must still be detached when the
/// connections of their address together use more steps than the address may.
#[test]
fn steps_of_plugins_of_one_address_are_limited() {
    let limits = Limits::default();
    let worker = worker("64-bit division");
    let connections = 2 * limits.address_steps_per_second / limits.steps_per_second;
    let (running, steps, refused) = work(connections, worker, worker.turns);
    assert!(running < 15 * connections as usize, "all run on");
    assert!(refused > 0, "no call found too few steps");
    let most = most(limits.address_steps_per_second);
    assert!(steps <= most, "{steps} of {most}");
    // On a single connection, the same plugins must keep running.
    assert_eq!(work(1, worker, worker.turns).0, 15);
}

/// A plugin that repeatedly sets its timer to the next nanosecond must be charged for each wake-up.
/// It must be detached when its steps are used up.
#[test]
fn steps_are_charged_for_each_early_timer() {
    let early = worker("one nanosecond later");
    let mut idle = Idle::new(1, &early.push(0).unwrap()).unwrap();
    let (before, woken) = (idle.usage().steps, idle.wake_ups());
    idle.stall();
    idle.pass(TIME).unwrap();
    let (wake_ups, packets) = idle.wake_ups();
    let (wake_ups, packets) = (wake_ups - woken.0, packets - woken.1);
    // A wake-up costs 5,000 steps, unless a packet was sent or received since the last one. The
    // timers of the other plugins expire every 10 ms.
    let paid = (idle.usage().steps - before) / 5_000;
    println!("{wake_ups} wake-ups, {paid} paid, {packets} packets, {} run on", idle.running());
    assert!(wake_ups > 200, "the timer is not early");
    assert!(wake_ups <= paid + packets, "wake-ups are not paid for");
    assert!(idle.running() < 15, "all plugins run on");
}

/// Plugins that queue frames whenever their timer expires must be charged for the packets.
#[test]
fn steps_are_charged_for_packets_with_plugin_frames() {
    let (running, steps, _) = work(1, worker("frame of 3 bytes"), 1);
    assert_eq!(running, 15, "these frames are within the rate");
    let (_, without, _) = work(1, worker("nothing"), 0);
    let frames = 15 * 100 * TIME.as_millis() as u64 / 1_000;
    assert!(steps > without + frames * 2_000, "{steps} steps, and {without} without frames");
}

/// A plugin with functions at many operations uses more steps per packet than a packet adds. It
/// must be detached.
#[test]
fn steps_added_by_packets_are_limited() {
    let limits = Limits::default();
    for (plugins, functions) in [(1, 32), (16, 32), (1, 1)] {
        let mut observed = Observed::new(plugins, functions, 0).unwrap();
        let before = observed.usage().steps;
        let begun = observed.pair.network.elapsed();
        let transfer = observed.pair.network.transfer(End::Client, 20_000_000, 60 * SECOND);
        transfer.unwrap();
        let took = observed.pair.network.elapsed() - begun;
        let stats = observed.pair.network.connection(End::Client).unwrap().stats();
        let packets = stats.packets_sent + stats.packets_received;
        let steps = observed.usage().steps - before;
        let idle = most(limits.steps_per_second) * (1 + took.as_nanos() as u64 / 300_000_000);
        assert!(steps <= idle + packets * limits.steps_per_packet, "{steps} in {took:?}");
        assert_eq!(observed.running() == plugins, functions == 1, "{plugins}, {functions}");
    }
}

/// The memory of plugins must stay within the limits of the connection and of the address.
#[test]
fn memory_of_a_connection_and_of_an_address_is_limited() {
    let limits = Limits::default();
    let connections = 14;
    let mut full = 0;
    for (what, bundle) in kept().unwrap() {
        let kept = Kept::new(connections, Some(&bundle)).unwrap();
        let bytes = kept.usage().bytes;
        assert!(bytes <= limits.address_memory, "{what}: {bytes}");
        assert!(bytes <= connections as usize * limits.total_memory, "{what}: {bytes}");
        assert!(kept.running() > 0, "{what}: {:?}", kept.refusals().first());
        let of_address = kept.refusals().iter().any(|why| why.contains("limit of the address"));
        full += usize::from(of_address);
        drop(kept);
    }
    assert!(full > 0, "no plugins reach the limit of the address");
}

/// Replacing a plugin must cost as many steps as an offer and an instance, and must free all memory
/// of the replaced plugin.
#[test]
fn replacement_is_charged_and_frees_its_memory() {
    let mut replacing = Replacing::new().unwrap();
    let before = replacing.usage();
    replacing.replace(10).unwrap();
    let after = replacing.usage();
    assert_eq!(replacing.running(), 16);
    assert_eq!(after.bytes, before.bytes);
    assert!(after.steps - before.steps >= 10 * 350_000, "{before:?} {after:?}");
}

/// The client must accept only a limited number of exchange frames that have no effect.
#[test]
fn exchange_frames_are_rate_limited() {
    let sent = Flooded::new().unwrap().send().unwrap();
    assert!((16_384..20_000).contains(&sent), "{sent} frames");
}
