//! Tests packet payloads that bytecode reconstructs, by forward error correction or by forgery.

mod common;

use std::time::Duration;

use common::{assert_none_failed, at, attach, download, link, network, of_text, seed, tree_plugin};
use equic_net::{Chance, Link};
use equic_plugin::Plugin;
use equic_plugin_kit::{End, Network};

/// Totals for many answers over a path that loses packets.
struct Answers {
    /// Number of answers that took at least one round trip longer than the fastest.
    late: u64,
    lost: u64,
    recovered: u64,
}

/// Sends answers over a path that loses this percentage of packets. Each connection ends after its
/// first loss. The congestion window shrinks after a loss, with and without the plugin, which would
/// affect the later answers.
fn answers(percent: f64, plugin: Option<&Plugin>) -> Answers {
    let seed = seed();
    let link = Link { drop: Chance::percent(percent), ..link() };
    let (mut times, mut lost, mut recovered) = (Vec::new(), 0, 0);
    for number in 0..60 {
        let mut network = network(&link, seed + number);
        for end in [End::Server, End::Client] {
            if let Some(plugin) = plugin {
                attach(&mut network, end, plugin);
            }
        }
        let lost_now =
            |network: &mut Network| network.connection(End::Server).unwrap().stats().packets_lost;
        let before = lost_now(&mut network);
        for _ in 0..5 {
            times.push(download(&mut network, 9_000));
            network.pass(Duration::from_millis(300)).unwrap();
            if lost_now(&mut network) > before {
                break;
            }
        }
        assert_none_failed(&mut network);
        lost += lost_now(&mut network) - before;
        recovered += network.connection(End::Client).unwrap().stats().packets_recovered;
    }
    let usual = *times.iter().min().unwrap();
    let late = times.iter().filter(|time| **time > usual + link.delay).count() as u64;
    println!("{} answers, {late} late, {lost} lost, {recovered} recovered", times.len());
    Answers { late, lost, recovered }
}

/// With forward error correction, the data must arrive unchanged, and at most half as many losses
/// may delay an answer by a round trip.
#[test]
fn fec_recovers_losses_before_retransmission() {
    let without = answers(3.0, None);
    assert_eq!(without.recovered, 0);
    for name in ["fec-xor", "fec-rlc"] {
        let with = answers(3.0, Some(&tree_plugin(name)));
        let (lost, lost_too) = (without.lost, with.lost);
        assert!(lost > 20 && lost_too > 20, "losses are still told: {lost}, {lost_too}");
        assert!(3 * with.recovered > lost_too, "{name}: {} of {lost_too}", with.recovered);
        assert!(2 * with.late * lost < without.late * lost_too, "{name}: {} late", with.late);
    }
}

/// Sends an answer of six or seven packets, and loses the packets with these numbers. Returns the
/// time until the answer was read, the number of recovered packets, and the number of packets that
/// the sender declared lost.
fn answer_without(name: &str, packets: &[u64]) -> (Duration, u64, u64) {
    let plugin = tree_plugin(name);
    let mut network = network(&link(), seed());
    for end in [End::Server, End::Client] {
        attach(&mut network, end, &plugin);
    }
    network.pass(Duration::from_secs(1)).unwrap();
    network.lose(End::Server, packets);
    // The packets of this answer and two repair frames do not fill the congestion window.
    let took = download(&mut network, 7_000);
    assert_none_failed(&mut network);
    network.pass(Duration::from_secs(1)).unwrap();
    let recovered = network.connection(End::Client).unwrap().stats().packets_recovered;
    (took, recovered, network.connection(End::Server).unwrap().stats().packets_lost)
}

/// Two packets of the same coding window are lost. A single XOR sum cannot recover them, but two
/// sums with different factors can. The answer must not be late, and the sender's congestion
/// controller must notice both losses.
#[test]
fn fec_rlc_recovers_two_losses_in_one_window() {
    let (usual, none, _) = answer_without("fec-rlc", &[]);
    assert_eq!(none, 0);
    for pair in [[0, 1], [1, 2], [0, 5], [3, 4], [1, 4]] {
        let (took, recovered, lost) = answer_without("fec-rlc", &pair);
        assert_eq!(recovered, 2, "{pair:?}");
        assert!(took < usual + link().delay, "{pair:?}: {took:?} of {usual:?}");
        assert!(lost >= 2, "{pair:?}: {lost}");
        let (took, recovered, _) = answer_without("fec-xor", &pair);
        assert_eq!(recovered, 0, "{pair:?}");
        assert!(took > usual + link().delay, "{pair:?}: {took:?} of {usual:?}");
    }
    // Three packets are lost, which two sums cannot recover.
    let (_, recovered, _) = answer_without("fec-rlc", &[1, 2, 4]);
    assert_eq!(recovered, 0);
}

/// In a long transfer, a plugin that sends a sum after every eight packets must recover two losses.
#[test]
fn fec_rlc_recovers_losses_in_neighbouring_windows() {
    let plugin = tree_plugin("fec-rlc");
    let mut network = network(&link(), seed());
    for end in [End::Server, End::Client] {
        attach(&mut network, end, &plugin);
    }
    network.lose(End::Server, &[60, 64, 120, 131]);
    download(&mut network, 1_000_000);
    assert_none_failed(&mut network);
    let recovered = network.connection(End::Client).unwrap().stats().packets_recovered;
    assert!(recovered >= 3, "{recovered}");
}

/// If no packet is lost, nothing must be recovered, and only the repair frames may add bytes.
#[test]
fn fec_repair_frames_cost_an_eighth() {
    let run = |plugin: Option<&str>| {
        let mut network = network(&link(), seed());
        if let Some(name) = plugin {
            let plugin = tree_plugin(name);
            attach(&mut network, End::Server, &plugin);
            attach(&mut network, End::Client, &plugin);
        }
        let before = network.connection(End::Server).unwrap().stats().bytes_sent;
        download(&mut network, 1_000_000);
        assert_none_failed(&mut network);
        assert_eq!(network.connection(End::Client).unwrap().stats().packets_recovered, 0);
        network.connection(End::Server).unwrap().stats().bytes_sent - before
    };
    let usual = run(None);
    for name in ["fec-xor", "fec-rlc"] {
        let more = run(Some(name));
        println!("{usual} bytes without, {more} with {name}");
        assert!((1.10..1.25).contains(&(more as f64 / usual as f64)), "{name}: {usual}, {more}");
    }
}

/// If a plugin delivers a payload that the peer cannot have sent, the plugin must fail, but the
/// connection must survive. No frame in such a payload may close the connection.
#[test]
fn fec_payload_that_the_peer_cannot_have_sent_detaches_the_plugin() {
    let text = r#"
        static equic_u64 number = 1ull << 40;

        equic_u64 run(void *call, const equic_u8 *bytes, equic_u64 length)
        {
            (void)call;
            equic_process_payload(number++, bytes, length);
            return EQUIC_DONE;
        }"#;
    let lines = "capabilities = [\"tune\", \"payload\"]";
    let plugin = of_text("payload", &at(lines, "HookMessage", "replace"), text).unwrap();
    let mut network = network(&link(), seed());
    let hook = plugin.attach(network.connection(End::Client).unwrap()).unwrap();
    let mut tell =
        |payload: &[u8]| network.connection(End::Client).unwrap().tell_hook(hook, payload).is_ok();
    // The payload has the frames PADDING, CONNECTION_CLOSE, HANDSHAKE_DONE and an unknown type. All
    // of them must be ignored.
    assert!(tell(&[0, 0x1c, 0, 0, 0, 0x1e, 0x40, 0xff, 0x08]));
    // A payload with a STREAM frame that ends before its stream ID must be refused.
    assert!(!tell(&[0x08]));
    download(&mut network, 100_000);
    let failed = network.failures(End::Client);
    assert_eq!(failed.len(), 1);
    assert!(failed[0].1.0.contains("truncated frame"), "{failed:?}");
    assert_eq!(network.connection(End::Client).unwrap().stats().packets_recovered, 1);
    // A function that only observes must not deliver payloads.
    let lines = at(lines, "HookMessage", "after");
    let lines = lines.replace("[\"tune\"", "[\"observe\"");
    let why = of_text("payload-after", &lines, text).unwrap_err().to_string();
    assert!(why.contains("`run` calls equic_process_payload"), "{why}");
}
