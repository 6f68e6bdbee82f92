//! The plugins of the tree, as bytecode on connections in memory: what each of them changes.

mod common;

use std::time::Duration;

use common::{assert_none_failed, attach, bottleneck, download, link, network, of_the_tree, seed};
use equic_plugin_kit::End;

#[test]
fn a_cap_holds_window_and_pace() {
    let (seed, link) = (seed(), link());
    let bytes = 2_000_000;
    let usual = download(&mut network(&link, seed), bytes);
    let mut capped = network(&link, seed);
    attach(&mut capped, End::Server, &of_the_tree("cap"));
    let took = download(&mut capped, bytes);
    assert_none_failed(&mut capped);
    // 30,000 bytes a round trip of 40 ms are 750,000 a second, and the pace is below that.
    let (least, most) = (Duration::from_millis(3_900), Duration::from_millis(5_000));
    assert!((least..most).contains(&took), "{took:?}");
    assert!(2 * usual < took, "{usual:?} without, {took:?} with it");
    let window = capped.connection(End::Server).unwrap().stats().path.congestion_window;
    assert!(window <= 30_000, "{window}");
}

#[test]
fn acknowledgements_are_delayed() {
    let (seed, link) = (seed(), bottleneck(20_000_000, 100));
    let acks = |plugin: bool| {
        let mut network = network(&link, seed);
        if plugin {
            attach(&mut network, End::Client, &of_the_tree("ack-delay"));
        }
        let took = download(&mut network, 3_000_000);
        assert_none_failed(&mut network);
        (network.connection(End::Client).unwrap().stats().acks_sent, took)
    };
    let ((usual, fast), (seldom, took)) = (acks(false), acks(true));
    assert!(2 * seldom < usual, "{usual} without, {seldom} with it");
    assert!(took < 2 * fast, "{fast:?} without, {took:?} with it");
}
