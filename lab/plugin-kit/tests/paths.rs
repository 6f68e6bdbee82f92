//! Tests this source tree's plugins for multipath (RFC 10069) on connections in memory. Each path
//! has its own link, and the tests compare the bytes that were sent on each link.

mod common;

use std::time::Duration;

use common::{assert_none_failed, attach, download, of_text, seed, tree_plugin};
use equic_net::{Link, Queue};
use equic_plugin::Plugin;
use equic_plugin_kit::tree::Source;
use equic_plugin_kit::{Beginning, End, Network};
use equic_transport::operation::{Operation, Overruled};
use equic_transport::{PathId, PathStatus, Scheduler, TransportConfig};

const MEGABYTE: u64 = 1_000_000;

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Returns a link of this many megabits per second, with this delay in each direction and a queue
/// of 100 ms.
fn line(megabits: u64, delay: u64) -> Link {
    Link {
        rate: Some(megabits * MEGABYTE),
        delay: ms(delay),
        queue: Queue::Time(ms(100)),
        overhead: 28,
        ..Link::default()
    }
}

/// Returns a connection with a path over each link. A path's ID is also the number of its link.
fn over(links: &[Link]) -> Network {
    of_config(links, &TransportConfig::default())
}

fn of_config(links: &[Link], config: &TransportConfig) -> Network {
    let links: Vec<&Link> = links.iter().collect();
    let end = || Beginning::new(config.clone().with_max_paths(links.len()));
    let mut network = Network::over(&links, end(), end(), seed()).unwrap();
    network.connect().unwrap();
    for link in 1..links.len() {
        assert_eq!(network.open_path(link).unwrap().get() as usize, link);
    }
    network
}

/// Transfers data from the server. Returns the duration, and the number of bytes that `end` sent on
/// each of two links during the transfer.
fn sent_by(network: &mut Network, end: End, bytes: u64) -> (Duration, [u64; 2]) {
    let before = [0, 1].map(|link| network.carried(end, link));
    let took = download(network, bytes);
    assert_none_failed(network);
    (took, [0, 1].map(|link| network.carried(end, link) - before[link]))
}

fn with(links: &[Link], end: End, plugin: Option<&Plugin>) -> Network {
    let mut network = over(links);
    if let Some(plugin) = plugin {
        attach(&mut network, end, plugin);
    }
    network
}

#[test]
fn ack_path_sends_acknowledgements_on_the_other_path() {
    // Most of the data uses the second path, because the first one is much slower.
    let links = [line(1, 5), line(20, 30)];
    let acks = |plugin: Option<&Plugin>| {
        let mut network = with(&links, End::Client, plugin);
        let (_, data) = sent_by(&mut network, End::Server, 3 * MEGABYTE);
        let (took, acks) = sent_by(&mut network, End::Client, 3 * MEGABYTE);
        println!("data {data:?}, acknowledgements {acks:?} in {took:?}");
        acks
    };
    let usual = acks(None);
    assert!(usual[1] > 2 * usual[0], "those of each path go there: {usual:?}");
    let other = acks(Some(&tree_plugin("ack-path")));
    assert!(other[0] > 2 * other[1], "crosswise: {other:?}");
    let source = Source::find("ack-path").unwrap();
    let first = acks(Some(&source.load_with(&[("ACK_PATH", "0")]).unwrap()));
    assert!(first[0] > 10 * first[1], "all on path 0: {first:?}");
}

#[test]
fn cap_path_limits_one_path_only() {
    let links = [line(20, 25), line(20, 25)];
    let rate = |setting: Option<&str>| {
        let plugin = setting
            .map(|rate| Source::find("cap-path").unwrap().load_with(&[("RATE", rate)]).unwrap());
        let mut network = with(&links, End::Server, plugin.as_ref());
        let (took, sent) = sent_by(&mut network, End::Server, 4 * MEGABYTE);
        sent.map(|bytes| bytes as f64 / took.as_secs_f64())
    };
    let usual = rate(None);
    assert!(usual[1] > 1.8e6, "{usual:.0?} bytes a second without a cap");
    for cap in [1_200_000.0, 400_000.0] {
        let capped = rate(Some(&format!("{cap}")));
        println!("{capped:.0?} bytes a second with a cap of {cap}");
        assert!((0.6 * cap..1.05 * cap).contains(&capped[1]), "{capped:.0?}");
        assert!(capped[0] > 0.9 * usual[0], "the other path is not held: {usual:.0?} {capped:.0?}");
    }
}

/// The plugin `cap-path` gets a new limit before each of three transfers. The last limit is for the
/// other path.
#[test]
fn cap_path_can_be_changed() {
    let links = [line(20, 25), line(20, 25)];
    let mut network = over(&links);
    let plugin = tree_plugin("cap-path");
    let hook = plugin.attach(network.connection(End::Server).unwrap()).unwrap();
    for (path, cap) in [(1, 1_200_000), (1, 400_000), (0, 800_000)] {
        let message: Vec<u8> = [path, cap].into_iter().flat_map(u64::to_le_bytes).collect();
        network.connection(End::Server).unwrap().tell_hook(hook, &message).unwrap();
        let (took, sent) = sent_by(&mut network, End::Server, 3 * MEGABYTE);
        let rates = sent.map(|bytes| bytes as f64 / took.as_secs_f64());
        let held = rates[path as usize];
        assert!((0.5 * cap as f64..1.05 * cap as f64).contains(&held), "{cap}: {rates:.0?}");
        assert!(rates[1 - path as usize] > 1.2e6, "{cap}: {rates:.0?}");
    }
}

/// If bytecode chooses a path that does not exist or cannot be used, the native scheduler must
/// choose instead, and the connection must report this.
#[test]
fn scheduler_choice_of_an_unusable_path_is_overruled() {
    for (named, words) in [("99", "chose a path that does not exist"), ("7", "does not exist")] {
        let code = format!(
            "equic_u64 run(struct equic_select_path *call) {{ call->out.path = {named}; return EQUIC_DONE; }}"
        );
        let manifest =
            common::at("capabilities = [\"observe\", \"choose\"]", "SelectPath", "replace");
        let plugin = of_text(&format!("wild-{named}"), &manifest, &code).unwrap();
        let mut network = with(&[line(20, 10), line(20, 20)], End::Server, Some(&plugin));
        let (_, sent) = sent_by(&mut network, End::Server, 2 * MEGABYTE);
        assert!(sent.iter().all(|bytes| *bytes > MEGABYTE / 4), "the native scheduler: {sent:?}");
        let told = network.overruled(End::Server);
        assert_eq!(told.len(), 1, "it is said once: {told:?}");
        assert!(told[0].1.to_string().contains(words), "{told:?}");
        let stats = network.connection(End::Server).unwrap().stats();
        assert!(stats.path_choices_refused > 100, "{}", stats.path_choices_refused);
    }
}

/// The plugin must make the same choices as the native lowest-latency scheduler, although another
/// scheduler is configured.
#[test]
fn scheduler_lowest_latency_matches_the_native_one() {
    let links = [line(20, 30), line(20, 5)];
    let plugin = tree_plugin("lowest-latency");
    let run = |scheduler, plugin: Option<&Plugin>| {
        let config = TransportConfig::default().with_scheduler(scheduler);
        let mut network = of_config(&links, &config);
        if let Some(plugin) = plugin {
            attach(&mut network, End::Server, plugin);
        }
        let mut all = [0, 0];
        // Each transfer fits into the congestion windows of both paths, so only the scheduler
        // decides.
        for _ in 0..40 {
            let (_, sent) = sent_by(&mut network, End::Server, 10_000);
            all = [all[0] + sent[0], all[1] + sent[1]];
        }
        assert!(network.overruled(End::Server).is_empty());
        all
    };
    let native = run(Scheduler::LowestRtt, None);
    let turns = run(Scheduler::RoundRobin, None);
    let bytecode = run(Scheduler::RoundRobin, Some(&plugin));
    println!("native {native:?}, bytecode {bytecode:?}, in turns {turns:?}");
    let apart = |one: [u64; 2]| one[0].abs_diff(native[0]);
    assert!(apart(bytecode) < 20_000, "{native:?} {bytecode:?}");
    assert!(apart(turns) > 100_000, "{native:?} {bytecode:?} {turns:?}");
}

#[test]
fn scheduler_redundant_sends_data_twice() {
    let links = [line(20, 10), line(20, 30)];
    let bytes = MEGABYTE;
    let run = |plugin: Option<&Plugin>| {
        sent_by(&mut with(&links, End::Server, plugin), End::Server, bytes).1
    };
    let usual = run(None);
    let twice = run(Some(&tree_plugin("redundant")));
    println!("{usual:?} without, {twice:?} with it");
    assert!(usual.iter().sum::<u64>() < bytes * 12 / 10, "{usual:?}");
    // Some data is acknowledged before the slower path could send it, so that path does not send
    // everything.
    assert!(twice.iter().sum::<u64>() > bytes * 16 / 10, "{twice:?}");
    // With this setting, the plugin must send bulk data only once.
    let source = Source::find("redundant").unwrap();
    let once = run(Some(&source.load_with(&[("MOST", "2000")]).unwrap()));
    assert!(once.iter().sum::<u64>() < bytes * 12 / 10, "{once:?}");
}

#[test]
fn scheduler_weighted_prefers_cheaper_paths() {
    let links = [line(20, 20), line(20, 10)];
    let run = |costs: Option<[u32; 2]>| {
        let plugin = costs.map(|_| tree_plugin("weighted"));
        let mut network = with(&links, End::Server, plugin.as_ref());
        for (id, cost) in costs.into_iter().flatten().enumerate() {
            let server = network.connection(End::Server).unwrap();
            server.set_path_cost(PathId::new(id as u32), cost).unwrap();
        }
        sent_by(&mut network, End::Server, 4 * MEGABYTE).1
    };
    let usual = run(None);
    assert!(2 * usual[1] > usual[0], "{usual:?}");
    for (costs, share) in [([0, 3], 4), ([1, 19], 10)] {
        let sent = run(Some(costs));
        println!("labels {costs:?}: {sent:?}");
        let most = (sent[0] + 20_000) / share;
        assert!((most * 8 / 10..most + 20_000).contains(&sent[1]), "{costs:?}: {sent:?}");
    }
}

/// The second path is a backup. It must carry only data that would otherwise be late.
#[test]
fn scheduler_deadline_uses_the_backup_for_late_data() {
    let links = [line(4, 20), line(20, 10)];
    let run = |plugin: bool| {
        let mut network = over(&links);
        let client = network.connection(End::Client).unwrap();
        client.set_path_status(PathId::new(1), PathStatus::Backup).unwrap();
        network.pass(ms(300)).unwrap();
        if plugin {
            attach(&mut network, End::Server, &tree_plugin("deadline"));
        }
        let mut small = [0, 0];
        for _ in 0..10 {
            let (_, sent) = sent_by(&mut network, End::Server, 5_000);
            small = [small[0] + sent[0], small[1] + sent[1]];
        }
        let (took, large) = sent_by(&mut network, End::Server, MEGABYTE);
        println!("plugin {plugin}: small {small:?}, large {large:?} in {took:?}");
        (small, large, took)
    };
    let (_, usual, slow) = run(false);
    assert!(usual[1] < 10_000 && slow > ms(2_000), "a backup carries nothing: {usual:?} {slow:?}");
    let (small, large, fast) = run(true);
    assert!(small[0] > 50_000 && small[1] < 5_000, "in time on the first: {small:?}");
    assert!(large[1] > MEGABYTE / 3 && 2 * fast < slow, "{large:?} {fast:?}");
}

/// The bytecode never chooses the second path, although that path has room and data waits. The path
/// must still get a datagram every second.
#[test]
fn scheduler_cannot_starve_a_path() {
    let code =
        "equic_u64 run(struct equic_select_path *call) { call->out.path = 0; return EQUIC_DONE; }";
    let manifest = common::at("capabilities = [\"observe\", \"choose\"]", "SelectPath", "replace");
    let plugin = of_text("first-only", &manifest, code).unwrap();
    for cost in [0, 1] {
        let mut network = with(&[line(4, 10), line(20, 20)], End::Server, Some(&plugin));
        let server = network.connection(End::Server).unwrap();
        server.set_path_cost(PathId::new(1), cost).unwrap();
        sent_by(&mut network, End::Server, 2 * MEGABYTE);
        let starved = network.connection(End::Server).unwrap().stats().paths_starved;
        let told = network.overruled(End::Server);
        if cost == 0 {
            assert!((2..=6).contains(&starved), "four seconds: {starved}");
            assert_eq!(told, [(Operation::SelectPath, Overruled::Starves)]);
        } else {
            assert_eq!((starved, told), (0, vec![]), "its owner wants it spared");
        }
    }
}
