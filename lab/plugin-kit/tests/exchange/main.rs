//! Tests plugins that one end of a connection in memory pushes to the other: plugins of this source
//! tree, links that lose packets, and peers that break the rules.

mod calls;
#[path = "../common/mod.rs"]
mod common;
mod hostile;
mod party;
mod types;

use std::sync::Arc;
use std::time::Duration;

use common::{bottleneck, link, object, plugins, seed};
use equic_plugin::exchange::{ExchangeConfig, MemoryCache, PluginId, Progress, Push, Status};
use equic_plugin::{Origin, Policy, pack};
use equic_plugin_kit::{Beginning, End, Network};
use equic_transport::{Connection, TransportConfig};
use hostile::rudely;
use party::{Party, big, built, lossy, policy, push, pushing, settle};

#[test]
fn exchange_pushes_ack_delay_from_server_to_client() {
    let seed = seed();
    let acks = |plugin: bool| {
        let pushes = |config: &mut ExchangeConfig| {
            config.push = if plugin { vec![push("ack-delay")] } else { Vec::new() };
        };
        let (mut network, server, client) = pushing(&lossy(0.0), seed, pushes, |_| {});
        if plugin {
            settle(&mut network, &server);
            assert_eq!(server.progress(), [Progress::Offered, Progress::Active]);
            let all = [Progress::Offered, Progress::Fetched, Progress::Active];
            assert_eq!(client.progress(), all);
        }
        network.transfer(End::Server, 3_000_000, Duration::from_secs(60)).unwrap();
        assert_eq!(network.failures(End::Client).len(), 0);
        network.connection(End::Client).unwrap().stats().acks_sent
    };
    let (usual, seldom) = (acks(false), acks(true));
    assert!(2 * seldom < usual, "{usual} without, {seldom} with it");
}

#[test]
fn exchange_pushes_a_cap_from_client_to_server() {
    let seed = seed();
    let (server, server_end) = Party::new(|config| config.policy = Some(policy()));
    let (client, client_end) = Party::new(|config| config.push = vec![push("cap")]);
    let mut network = Network::between(&link(), client_end, server_end, seed).unwrap();
    network.connect().unwrap();
    settle(&mut network, &client);
    assert!(server.has(&Progress::Active));
    let capped = network.transfer(End::Server, 2_000_000, Duration::from_secs(60)).unwrap();
    let least = Duration::from_millis(3_900);
    assert!(capped > least, "{capped:?}");
    // The same transfer is repeated without the plugin, on the same connection.
    let own = PluginId { by: Origin::Own, number: 0 };
    client.ask(&mut network, End::Client, |handle| assert!(handle.detach(own)));
    network.pass(Duration::from_millis(200)).unwrap();
    assert!(matches!(client.progress().last(), Some(Progress::Over(Status::Detached, _))));
    let usual = network.transfer(End::Server, 2_000_000, Duration::from_secs(60)).unwrap();
    assert!(2 * usual < capped, "{usual:?} without, {capped:?} with it");
}

#[test]
fn exchange_completes_during_a_transfer_with_5_percent_loss() {
    let seed = seed();
    for seed in seed..seed + 10 {
        let large = |config: &mut ExchangeConfig| config.push = vec![push("cap"), big(1), big(2)];
        let (mut network, server, client) = pushing(&lossy(5.0), seed, large, |config| {
            config.window = 10_000;
        });
        network.transfer(End::Server, 1_000_000, Duration::from_secs(120)).unwrap();
        let all = |_: &mut Network| {
            server.progress().iter().filter(|one| **one == Progress::Active).count() == 3
        };
        let limit = Duration::from_secs(60);
        network.run_until(limit, &format!("not all run; seed {seed}"), all).unwrap();
        assert!(client.has(&Progress::Fetched));
        assert_eq!(network.failures(End::Client).len(), 0);
    }
}

#[test]
fn exchange_leaves_application_data_its_share() {
    let seed = seed();
    let link = bottleneck(4_000_000, 100);
    let time = |push: Vec<Arc<Push>>| {
        let pushes = |config: &mut ExchangeConfig| config.push = push;
        let (mut network, server, _) = pushing(&link, seed, pushes, |_| {});
        let took = network.transfer(End::Server, 100_000, Duration::from_secs(60)).unwrap();
        (took, server.has(&Progress::Active))
    };
    let (alone, _) = time(Vec::new());
    let (beside, active) = time(vec![big(1), big(2), big(3)]);
    // Bundles may use at most a quarter of each packet, so the transfer takes up to 4/3 of the
    // time. The remaining tolerance covers data that was sent before the transfer began.
    assert!(beside < alone * 15 / 10, "{alone:?} alone, {beside:?} beside plugins");
    assert!(active, "and the plugins came, too");
}

#[test]
fn cache_saves_the_fetch_on_a_second_connection() {
    let seed = seed();
    let cache = Arc::new(MemoryCache::new(1 << 20));
    let visit = |seed| {
        let push = |config: &mut ExchangeConfig| config.push = vec![big(1)];
        let (mut network, server, client) =
            pushing(&link(), seed, push, |config| config.cache = Some(cache.clone()));
        settle(&mut network, &server);
        let sent = network.connection(End::Server).unwrap().stats().bytes_sent;
        (sent, client.progress())
    };
    let (first, _) = visit(seed);
    let (second, progress) = visit(seed + 1);
    assert_eq!(progress, [Progress::Offered, Progress::Cached, Progress::Active]);
    assert!(second + 20_000 < first, "{first} bytes, then {second}");
}

/// The client's policy refuses a plugin of 20,000 bytes because of its manifest. The client must
/// not request the code. This must hold if the offer carries the manifest, and if the client has a
/// cache and requests the manifest separately.
#[test]
fn policy_refusal_costs_a_manifest_but_no_code() {
    let seed = seed();
    let policies = [
        "anyone = [\"tune\"]",
        "anyone = [\"observe\"]\n[limits]\ncode = 10000",
        "anyone = [\"observe\"]\n[limits]\nsteps = 10",
    ];
    let sent = |policy: &str, cached: bool| {
        let policy = Policy::parse(policy).unwrap();
        let (mut network, server, client) = pushing(
            &link(),
            seed,
            |config| config.push = vec![big(1)],
            |config| {
                config.policy = Some(policy);
                config.cache =
                    if cached { Some(Arc::new(MemoryCache::new(1 << 20))) } else { None };
            },
        );
        settle(&mut network, &server);
        let sent = network.connection(End::Server).unwrap().stats().bytes_sent;
        network.transfer(End::Server, 100_000, Duration::from_secs(60)).unwrap();
        (sent, server.progress(), client.progress())
    };
    for (policy, cached) in policies[1..].iter().flat_map(|one| [(one, false), (one, true)]) {
        let (bytes, server, client) = sent(policy, cached);
        // Most of these bytes belong to the handshake, so the code cannot have been sent.
        assert!(bytes < 8_000, "{bytes} bytes: {policy}");
        for progress in [server, client] {
            let [Progress::Offered, Progress::Over(Status::TooLarge, _)] = &progress[..] else {
                panic!("{policy}: {progress:?}")
            };
        }
    }
    // The client's transport parameter says that it grants this class to no plugin, so the server
    // must not offer the plugin.
    let (server, server_end) = Party::new(|config| config.push = vec![big(1)]);
    let none = Policy::parse(policies[0]).unwrap();
    let (_, client_end) = Party::new(|config| config.policy = Some(none));
    let mut network = Network::between(&link(), client_end, server_end, seed).unwrap();
    network.connect().unwrap();
    assert!(matches!(server.progress()[..], [Progress::NotOffered(_)]));
}

/// Returns whether the plugin already ran at the client when the server's first data arrived, and
/// when that data arrived.
fn first_data(seed: u64, hold: Duration, answers: bool) -> (bool, Duration) {
    let (server, server_end) = Party::new(|config| {
        (config.push, config.hold) = (vec![big(1)], hold);
    });
    let (client, mut client_end) = Party::new(|config| config.policy = Some(policy()));
    if !answers {
        // This client declares that it accepts plugins, but it never answers exchange frames.
        client_end.prepare = Some(Box::new(|connection: &mut Connection| {
            rudely(connection, Vec::new());
        }));
    }
    let mut network = Network::between(&link(), client_end, server_end, seed).unwrap();
    network.connect().unwrap();
    network.transfer(End::Server, 100, Duration::from_secs(10)).unwrap();
    assert!(server.has(&Progress::Offered));
    (client.has(&Progress::Active), network.elapsed())
}

#[test]
fn application_data_waits_a_limited_time_for_plugins() {
    let seed = seed();
    let (active, usual) = first_data(seed, Duration::ZERO, true);
    assert!(!active, "a bundle of 20,000 bytes takes longer than 100");
    let (active, held) = first_data(seed, Duration::from_secs(1), true);
    assert!(active && held > usual && held < Duration::from_secs(1), "{held:?}");
    let (active, silent) = first_data(seed, Duration::from_millis(500), false);
    assert!(!active && silent > Duration::from_millis(500), "{silent:?}");
}

#[test]
fn plugin_is_replaced_on_a_running_connection() {
    let seed = seed();
    let (mut network, server, client) =
        pushing(&link(), seed, |config| config.push = vec![push("cap")], |_| {});
    settle(&mut network, &server);
    let first = PluginId { by: Origin::Own, number: 0 };
    let next = push("ack-delay");
    server.ask(&mut network, End::Server, |handle| handle.offer(next, Some(first)));
    network.pass(Duration::from_millis(500)).unwrap();
    let over = Progress::Over(Status::Detached, "another plugin replaces it".to_owned());
    assert!(client.has(&over) && server.has(&over), "{:?}", server.progress());
    assert_eq!(client.progress().last(), Some(&Progress::Active));
    network.transfer(End::Server, 100_000, Duration::from_secs(60)).unwrap();
}

/// Returns the plugin `plugins/cap` with this name and this rate limit, in bytes per second.
fn cap_of(name: &str, rate: &str) -> Arc<Push> {
    built(name, || {
        let folder = plugins().join("cap");
        let read = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap();
        let text = read("cap.c").replace("= 30000;", "= 400000;").replace("= 500000;", rate);
        let source = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.c"));
        std::fs::write(&source, text).unwrap();
        let manifest = read("plugin.toml").replace("\"cap\"", &format!("\"{name}\""));
        pack(&manifest, &object(&source, name), None).unwrap()
    })
}

/// While a connection is in use, a plugin that limits the sending rate is pushed, replaced twice
/// and detached. Each time, the client must send at the rate of the plugin that is attached.
#[test]
fn cap_is_pushed_replaced_twice_and_detached() {
    let seed = seed();
    let wide = bottleneck(40_000_000, 100);
    let (mut network, server, client) = pushing(&wide, seed, |_| {}, |_| {});
    let rate = |network: &mut Network, bytes: u64| {
        let took = network.transfer(End::Client, bytes, Duration::from_secs(60)).unwrap();
        bytes as f64 / took.as_secs_f64()
    };
    let mut rates = vec![rate(&mut network, 4_000_000)];
    let mut before = None;
    for (number, cap) in [("cap-a", "= 500000;"), ("cap-b", "= 1500000;"), ("cap-c", "= 200000;")]
        .into_iter()
        .enumerate()
    {
        let next = cap_of(cap.0, cap.1);
        server.ask(&mut network, End::Server, |handle| handle.offer(next, before));
        network.pass(Duration::from_millis(500)).unwrap();
        assert_eq!(client.progress().last(), Some(&Progress::Active), "{}", cap.0);
        before = Some(PluginId { by: Origin::Own, number: number as u64 });
        rates.push(rate(&mut network, 800_000));
    }
    let last = before.unwrap();
    server.ask(&mut network, End::Server, |handle| assert!(handle.detach(last)));
    network.pass(Duration::from_millis(500)).unwrap();
    rates.push(rate(&mut network, 4_000_000));
    println!("{rates:.0?} bytes a second");
    for (rate, most) in rates[1..4].iter().zip([500_000.0, 1_500_000.0, 200_000.0]) {
        assert!((0.5 * most..1.05 * most).contains(rate), "{rates:?}");
    }
    assert!(rates[0] > 2_000_000.0 && rates[4] > 2_000_000.0, "without it: {rates:?}");
    assert!(network.failures(End::Client).is_empty());
}

#[test]
fn plugin_that_fails_is_detached_and_reported_to_the_server() {
    let seed = seed();
    let text = "#include <equic_plugin.h>\nequic_u64 run(struct equic_update_rtt *call)\n\
        { (void)call; for (volatile int at = 0;; at++) {} return EQUIC_DONE; }";
    let source = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("endless.c");
    std::fs::write(&source, text).unwrap();
    let manifest = "name = \"endless\"\nversion = \"1.0.0\"\nauthor = \"A test\"\nabi = 2\nsteps = 1000\n\
        capabilities = [\"observe\"]\n[[operations]]\noperation = \"UpdateRtt\"\nanchor = \"after\"\nfunction = \"run\"\n";
    let bytes = pack(manifest, &object(&source, "endless"), None).unwrap();
    let push = Arc::new(Push::new(&bytes).unwrap());
    let (mut network, server, client) =
        pushing(&link(), seed, |config| config.push = vec![push], |_| {});
    network.transfer(End::Client, 200_000, Duration::from_secs(60)).unwrap();
    network.pass(Duration::from_millis(200)).unwrap();
    let Some(Progress::Over(Status::Failed, why)) = server.progress().pop() else {
        panic!("{:?}", server.progress())
    };
    assert!(why.contains("UpdateRtt"), "{why}");
    assert!(matches!(client.progress().last(), Some(Progress::Over(Status::Failed, _))));
    network.transfer(End::Server, 200_000, Duration::from_secs(60)).unwrap();
}

/// Every single call stays within its budget of steps, but all calls together exceed the steps per
/// second that the policy permits. The plugin must fail.
#[test]
fn steps_per_second_are_shared_by_a_peers_plugins() {
    let seed = seed();
    let text = "#include <equic_plugin.h>\nequic_u64 run(struct equic_update_rtt *call)\n\
        { (void)call; for (volatile int at = 0; at < 5000; at++) {} return EQUIC_DONE; }";
    let source = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("busy.c");
    std::fs::write(&source, text).unwrap();
    let manifest = "name = \"busy\"\nversion = \"1.0.0\"\nauthor = \"A test\"\nabi = 2\nsteps = 100000\n\
        capabilities = [\"observe\"]\n[[operations]]\noperation = \"UpdateRtt\"\nanchor = \"after\"\nfunction = \"run\"\n";
    let bytes = pack(manifest, &object(&source, "busy"), None).unwrap();
    let push = Arc::new(Push::new(&bytes).unwrap());
    let run = |per_second: &str| {
        let text = format!("anyone = [\"observe\"]\n[limits]\nsteps_per_second = {per_second}");
        let policy = Policy::parse(&text).unwrap();
        let pushes = |config: &mut ExchangeConfig| config.push = vec![push.clone()];
        let takes = |config: &mut ExchangeConfig| config.policy = Some(policy);
        let (mut network, server, _) = pushing(&link(), seed, pushes, takes);
        network.transfer(End::Client, 300_000, Duration::from_secs(60)).unwrap();
        network.pass(Duration::from_millis(200)).unwrap();
        server.progress().pop()
    };
    assert_eq!(run("1000000000"), Some(Progress::Active));
    let Some(Progress::Over(Status::Failed, why)) = run("200000") else { panic!("it still runs") };
    assert!(why.contains("used up their steps"), "{why}");
}

#[test]
fn peer_without_plugin_support_gets_no_offer() {
    let seed = seed();
    let (server, server_end) = Party::new(|config| config.push = vec![push("cap")]);
    let client_end = Beginning::new(TransportConfig::default());
    let mut network = Network::between(&link(), client_end, server_end, seed).unwrap();
    network.connect().unwrap();
    network.transfer(End::Server, 100_000, Duration::from_secs(60)).unwrap();
    let nothing = Progress::NotOffered("the peer does not support plugins".to_owned());
    assert_eq!(server.progress(), [nothing]);
}
