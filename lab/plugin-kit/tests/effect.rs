//! Tests that each plugin of this source tree has its intended effect on connections in memory.

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use common::{
    assert_none_failed, attach, bottleneck, download, link, network, network_with, of_text, seed,
    tree_plugin,
};
use equic_net::{Chance, Link};
use equic_plugin_kit::{End, Network};
use equic_transport::congestion::Algorithm;
use equic_transport::{Timestamp, TransportConfig};

#[test]
fn cap_limits_window_and_pacing_rate() {
    let (seed, link) = (seed(), link());
    let bytes = 2_000_000;
    let usual = download(&mut network(&link, seed), bytes);
    let mut capped = network(&link, seed);
    attach(&mut capped, End::Server, &tree_plugin("cap"));
    let took = download(&mut capped, bytes);
    assert_none_failed(&mut capped);
    // The plugin permits 30,000 bytes per round trip of 40 ms, which is 750,000 bytes per second.
    // The pacing rate is lower than that.
    let (least, most) = (Duration::from_millis(3_900), Duration::from_millis(5_000));
    assert!((least..most).contains(&took), "{took:?}");
    assert!(2 * usual < took, "{usual:?} without, {took:?} with it");
    let window = capped.connection(End::Server).unwrap().stats().path.congestion_window;
    assert!(window <= 30_000, "{window}");
}

#[test]
fn ack_delay_sends_fewer_acknowledgements() {
    // The queue never drops a packet, because each gap would cause an acknowledgement at once.
    let (seed, link) = (seed(), bottleneck(20_000_000, 2_000));
    let acks = |plugin: bool| {
        let mut network = network(&link, seed);
        if plugin {
            attach(&mut network, End::Client, &tree_plugin("ack-delay"));
        }
        let took = download(&mut network, 3_000_000);
        assert_none_failed(&mut network);
        (network.connection(End::Client).unwrap().stats().acks_sent, took)
    };
    let ((usual, fast), (seldom, took)) = (acks(false), acks(true));
    assert!(2 * seldom < usual, "{usual} without, {seldom} with it");
    assert!(took < 2 * fast, "{fast:?} without, {took:?} with it");
}

#[test]
fn cap_can_be_changed_and_detached() {
    let mut network = network(&link(), seed());
    let plugin = tree_plugin("cap");
    let hook = plugin.attach(network.connection(End::Server).unwrap()).unwrap();
    let mut rates = Vec::new();
    for cap in [None, Some([400_000u64, 2_000_000]), Some([15_000, 200_000])] {
        if let Some(cap) = cap {
            let message: Vec<u8> = cap.into_iter().flat_map(u64::to_le_bytes).collect();
            network.connection(End::Server).unwrap().tell_hook(hook, &message).unwrap();
        }
        let bytes = 600_000;
        rates.push(bytes as f64 / download(&mut network, bytes).as_secs_f64());
    }
    network.connection(End::Server).unwrap().detach(hook).unwrap();
    rates.push(600_000.0 / download(&mut network, 600_000).as_secs_f64());
    assert_none_failed(&mut network);
    println!("{rates:.0?} bytes a second");
    for (rate, most) in rates.iter().zip([500_000.0, 2_000_000.0, 200_000.0]) {
        assert!((0.6 * most..1.05 * most).contains(rate), "{rates:?}");
    }
    assert!(rates[3] > 2_500_000.0, "without it: {rates:?}");
}

/// On a path with varying round-trip times, the plugin must send probes sooner than RFC 9002 does,
/// so that the slowest short answers arrive sooner.
#[test]
fn tail_loss_probe_sends_probes_sooner() {
    let seed = seed();
    let ms = Duration::from_millis;
    let link =
        Link { delay: ms(5), jitter: ms(20), drop: Chance::percent(10.0), ..Link::default() };
    let run = |plugin: bool| {
        let mut network = network(&link, seed);
        if plugin {
            attach(&mut network, End::Server, &tree_plugin("tail-loss-probe"));
        }
        let mut times: Vec<Duration> = (0..600).map(|_| download(&mut network, 2_500)).collect();
        assert_none_failed(&mut network);
        times.sort_unstable();
        // Use the slowest quarter of the answers, most of which lost a packet.
        times[450..].iter().sum::<Duration>() / 150
    };
    let (usual, probed) = (run(false), run(true));
    println!("the slowest quarter takes {usual:?}, and with probes {probed:?}");
    assert!(probed < usual.mul_f64(0.95), "{usual:?} without, {probed:?} with it");
}

/// The plugin `reno` must behave like the transport's NewReno, and not like the CUBIC of the
/// connection to which it is attached.
#[test]
fn reno_bytecode_behaves_like_native_newreno() {
    let (seed, link) = (seed(), bottleneck(10_000_000, 40));
    let run = |algorithm, plugin: bool| {
        let config = TransportConfig::default().with_congestion(Arc::new(algorithm));
        let mut network = network_with(&link, seed, config);
        if plugin {
            attach(&mut network, End::Server, &tree_plugin("reno"));
        }
        let took = download(&mut network, 8_000_000).as_secs_f64();
        assert_none_failed(&mut network);
        let stats = network.connection(End::Server).unwrap().stats();
        println!(
            "{algorithm} {plugin}: {took:.3} s, {} lost, {:?}",
            stats.packets_lost, stats.path
        );
        (took, stats.packets_lost)
    };
    let (native, lost) = run(Algorithm::NewReno, false);
    let (bytecode, lost_too) = run(Algorithm::Cubic, true);
    assert!((0.95 * native..1.05 * native).contains(&bytecode), "{native} and {bytecode} s");
    assert!(lost_too > 0 && lost_too < 3 * lost, "{lost} and {lost_too}");
    let (cubic, _) = run(Algorithm::Cubic, false);
    assert_ne!(cubic, bytecode);
}

/// Transfers data from the server. Returns the duration in seconds, and the number of lost packets.
fn carried(
    link: &Link,
    algorithm: Algorithm,
    plugin: Option<&str>,
    seed: u64,
    bytes: u64,
) -> (f64, u64) {
    let config = TransportConfig::default().with_congestion(Arc::new(algorithm));
    let mut network = network_with(link, seed, config);
    if let Some(plugin) = plugin {
        attach(&mut network, End::Server, &tree_plugin(plugin));
    }
    let took = download(&mut network, bytes).as_secs_f64();
    assert_none_failed(&mut network);
    let lost = network.connection(End::Server).unwrap().stats().packets_lost;
    println!("{algorithm} {plugin:?}: {took:.3} s, {lost} lost");
    (took, lost)
}

/// The plugin `cubic`, which uses integers and is attached to a connection with NewReno, must take
/// as long as the native CUBIC: without losses, with an overflowing queue, and with random losses.
#[test]
fn cubic_bytecode_behaves_like_native_cubic() {
    let seed = seed();
    let wide = bottleneck(50_000_000, 1_000);
    let full = bottleneck(20_000_000, 40);
    // Use several seeds. Which packets are lost depends on when they are sent, so the result of a
    // single seed would be random.
    let lossy = Link { drop: Chance::percent(0.1), ..bottleneck(20_000_000, 100) };
    for (link, bytes, seeds, within) in
        [(wide, 4_000_000, 1, 0.01), (full, 10_000_000, 1, 0.03), (lossy, 5_000_000, 5, 0.03)]
    {
        let sum = |algorithm, plugin| {
            let runs =
                (seed..seed + seeds).map(|seed| carried(&link, algorithm, plugin, seed, bytes));
            runs.fold((0.0, 0), |(took, lost), run| (took + run.0, lost + run.1))
        };
        let (native, lost) = sum(Algorithm::Cubic, None);
        let (bytecode, lost_too) = sum(Algorithm::NewReno, Some("cubic"));
        let range = (1.0 - within) * native..(1.0 + within) * native;
        assert!(range.contains(&bytecode), "{native} and {bytecode} s");
        assert!(lost_too <= 2 * lost, "{lost} and {lost_too} lost");
    }
}

/// The router marks packets that wait longer than 40 ms in a queue of 100 ms, and the transport
/// itself does not use ECN. With the plugin `ecn`, fewer packets must be lost, and the transfer
/// must not take longer.
#[test]
fn ecn_marks_replace_losses() {
    let seed = seed();
    let run = |plugin: bool| {
        let config = TransportConfig::default().with_ecn(false);
        let mut network = network_with(&bottleneck(10_000_000, 100), seed, config);
        network.mark_above(Duration::from_millis(40));
        if plugin {
            let ecn = tree_plugin("ecn");
            attach(&mut network, End::Server, &ecn);
            attach(&mut network, End::Client, &ecn);
        }
        let took = download(&mut network, 5_000_000).as_secs_f64();
        assert_none_failed(&mut network);
        let lost = network.connection(End::Server).unwrap().stats().packets_lost;
        println!("{plugin}: {took:.3} s, {lost} lost");
        (took, lost)
    };
    let ((usual, lost), (marked, lost_too)) = (run(false), run(true));
    assert!(2 * lost_too < lost, "{lost} lost without, {lost_too} with it");
    assert!(marked < 1.01 * usual, "{usual} s without, {marked} s with it");
}

#[test]
fn monitor_reports_figures_of_the_connection() {
    let mut network = network(&bottleneck(10_000_000, 40), seed());
    attach(&mut network, End::Server, &tree_plugin("monitor"));
    download(&mut network, 3_000_000);
    let stats = network.connection(End::Server).unwrap().stats();
    network.pass(Duration::from_millis(200)).unwrap();
    assert_none_failed(&mut network);
    let words = |message: &[u8]| -> Vec<u64> {
        message.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
    };
    let told: Vec<Vec<u64>> =
        network.messages(End::Server).iter().map(|(_, message)| words(message)).collect();
    assert!(told.len() > 20, "{}", told.len());
    for pair in told.windows(2) {
        assert_eq!(pair[1][0] - pair[0][0], 100_000_000, "ten a second");
    }
    let sum = |at: usize| told.iter().map(|figures| figures[at]).sum::<u64>();
    assert_eq!(sum(7), stats.packets_lost, "packets lost");
    assert!(sum(3) > 300, "samples: {}", sum(3));
    let rtt = Duration::from_nanos(told.last().unwrap()[1]);
    assert!((40..100).contains(&rtt.as_millis()), "{rtt:?}");
    assert!(told.last().unwrap()[6] > 3_000_000, "bytes sent");
}

/// After a client migrates, the server's connection has two paths. The plugin `monitor` must report
/// both of them for a while, and the new path from the migration on.
#[test]
fn monitor_reports_figures_of_each_path() {
    // The connection keeps the old path until the new path is validated, which takes a round trip.
    let mut network = network(&Link { delay: Duration::from_millis(150), ..link() }, seed());
    attach(&mut network, End::Client, &tree_plugin("monitor"));
    network.transfer(End::Client, 1_000_000, Duration::from_secs(60)).unwrap();
    let figures = |network: &mut Network| -> Vec<[u64; 9]> {
        let word = |word: &[u8]| u64::from_le_bytes(word.try_into().unwrap());
        let all = network.messages(End::Client);
        let words = |message: &[u8]| message.chunks_exact(8).map(word).collect::<Vec<u64>>();
        all.iter().map(|(_, message)| words(message).try_into().unwrap()).collect()
    };
    let before = figures(&mut network);
    let old = before[0][8];
    assert!(before.iter().all(|one| one[8] == old), "{before:?}");
    let now = Timestamp::START + network.elapsed();
    network.connection(End::Client).unwrap().migrate(now, None).unwrap();
    network.transfer(End::Client, 1_000_000, Duration::from_secs(60)).unwrap();
    assert_none_failed(&mut network);
    let after = figures(&mut network);
    let new: Vec<&[u64; 9]> = after.iter().filter(|one| one[8] != old).collect();
    let samples = |all: &[&[u64; 9]]| all.iter().map(|one| one[3]).sum::<u64>();
    assert!(samples(&new) > 50, "{after:?}");
    // While there are two paths, the plugin sends a message for each of them at the same time.
    let both = after.iter().any(|one| one[8] == old && new.iter().any(|new| new[0] == one[0]));
    assert!(both, "{after:?}");
}

/// Plugins at both ends send each other frames of their own. Each frame that one end queued must
/// arrive at the other end.
#[test]
fn frames_of_plugins_arrive_at_the_other_end() {
    let manifest = r#"
        capabilities = ["observe", "tune", "frames"]
        [[frames]]
        type = 0x1f00
        ack-eliciting = true
    "#;
    let at = |operation: &str, frame: &str| {
        let function = operation.to_lowercase();
        format!(
            "[[operations]]\noperation = \"{operation}\"\nanchor = \"replace\"\nfunction = \"{function}\"\n{frame}\n"
        )
    };
    let own = ["WriteFrame", "ParseFrame", "ProcessFrame", "FrameAcked"];
    let own: String = own.into_iter().map(|one| at(one, "frame = 0x1f00")).collect();
    let manifest = [manifest, &own, &at("HookTimer", ""), &at("InitOpaqueData", "")].concat();
    let text = r#"
        static equic_u64 sent, acked;

        equic_u64 initopaquedata(void) { equic_set_timer(0); return EQUIC_DONE; }
        equic_u64 hooktimer(void)
        {
            if (sent < 20 && equic_queue_frame(0x1f00, 1000 + sent))
                sent++;
            equic_set_timer(0);
            return EQUIC_DONE;
        }
        /* The type as a variable-length integer of two bytes, and the token. */
        equic_u64 writeframe(struct equic_write_frame *call, equic_u8 *bytes, equic_u64 room)
        {
            call->out.length = 0;
            if (room < 4)
                return EQUIC_DONE;
            bytes[0] = 0x5f;
            bytes[1] = 0x00;
            bytes[2] = call->in.token >> 8;
            bytes[3] = call->in.token;
            call->out.length = 4;
            return EQUIC_DONE;
        }
        equic_u64 parseframe(struct equic_parse_frame *call, const equic_u8 *bytes, equic_u64 length)
        {
            (void)bytes;
            call->out.length = length < 4 ? 0 : 4;
            return EQUIC_DONE;
        }
        equic_u64 processframe(struct equic_process_frame *call, const equic_u8 *bytes, equic_u64 length, equic_u64 type)
        {
            equic_u64 got[3] = { type, length, (bytes[2] << 8) + bytes[3] };
            call->out.accept = 1;
            equic_tell(got, sizeof(got));
            return EQUIC_DONE;
        }
        equic_u64 frameacked(struct equic_frame_acked *call)
        {
            acked++;
            if (acked == 20)
                equic_tell(&call->in.token, 8);
            return EQUIC_DONE;
        }"#;
    let plugin = of_text("frames", &manifest, text).unwrap();
    let mut network = network(&link(), seed());
    attach(&mut network, End::Server, &plugin);
    attach(&mut network, End::Client, &plugin);
    download(&mut network, 1_000_000);
    network.pass(Duration::from_secs(2)).unwrap();
    assert_none_failed(&mut network);
    let told = network.messages(End::Client);
    let words = |message: &[u8]| -> Vec<u64> {
        message.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
    };
    let got: BTreeSet<Vec<u64>> =
        told.iter().map(|(_, m)| words(m)).filter(|words| words.len() == 3).collect();
    let wanted: BTreeSet<Vec<u64>> = (1000..1020).map(|token| vec![0x1f00, 4, token]).collect();
    assert_eq!(got, wanted);
    assert_eq!(told.iter().filter(|(_, message)| message.len() == 8).count(), 1, "all arrived");
}
