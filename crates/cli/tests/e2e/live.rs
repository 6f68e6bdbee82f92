//! Tests of changes to a running gateway, of the dry run, and of the policy `strict`.

use std::time::Duration;

use crate::attack::{self, Attack};
use crate::common::eventually;
use crate::stage::{Attempt, Link, TestStage};

#[test]
fn limit_changes_in_both_directions_at_once() {
    let Some(stage) = TestStage::new("limits", 1) else { return };
    let _gateway = stage.gateway(&["--max-connections", "2"]);
    let _server = stage.serve(&[]);
    let host = stage.host(0);
    let peer = host.peer(host.v4());
    let program = stage.program_on("eth0");
    let mut links = vec![peer.connect(), peer.connect()];
    stage.await_connections(host.v4(), 2);
    stage.assert_refused(&peer, "quota");
    stage.set("max_connections=4");
    links.extend([peer.connect(), peer.connect()]);
    stage.await_connections(host.v4(), 4);
    stage.assert_refused(&peer, "quota");

    // The new quota is below the number of open connections. They must stay open, but new ones must
    // be refused until there is room.
    stage.set("max_connections=1");
    links.iter().for_each(|link| link.fetch(10_000));
    for left in [3, 2, 1] {
        links.pop().expect("one more than are left").close();
        stage.await_connections(host.v4(), left);
        stage.assert_refused(&peer, "quota");
    }
    links.pop().expect("the last").close();
    stage.await_connections(host.v4(), 0);
    links.push(peer.connect());
    stage.await_connections(host.v4(), 1);
    stage.set("max_connections=0");
    links.extend((0..5).map(|_| peer.connect()));
    stage.await_connections(host.v4(), 6);

    // Add a rate limit that was not configured before.
    stage.set("new_per_source=1/h burst 1");
    let within_the_burst = peer.connect();
    stage.assert_refused(&peer, "rate_new_source");
    stage.set("new_per_source=off");
    let unlimited = peer.connect();
    links.extend([within_the_burst, unlimited]);
    links.iter().for_each(|link| link.fetch(10_000));
    assert_eq!(stage.program_on("eth0"), program, "it was never reloaded");
}

#[test]
fn list_entries_take_effect_and_expire() {
    let Some(stage) = TestStage::new("lists", 2) else { return };
    let _gateway = stage.gateway(&["--max-connections", "1"]);
    let _server = stage.serve(&[]);
    let (host, other) = (stage.host(0), stage.host(1));
    let peer = host.peer(host.v4());
    let link = peer.connect();
    let bystander = other.peer(other.v4()).connect();
    stage.await_connections(host.v4(), 1);
    let source = host.v4().to_string();

    stage.equic(&["deny", &source]).ok();
    assert!(!link.answers());
    assert!(stage.verdict("denied").dropped > 0);
    bystander.fetch(10_000);
    stage.equic(&["forget", &source]).ok();
    link.fetch(10_000);

    // Deny a prefix for a limited time.
    let denied = stage.verdict("denied").dropped;
    stage.equic(&["deny", "10.77.1.0/24", "--for", "3s"]).ok();
    assert!(!link.answers());
    eventually("the entry expires", || link.answers().then_some(()));
    assert!(stage.verdict("denied").dropped > denied);
    eventually("the entry is gone", || {
        let lists = stage.equic(&["lists", "--json"]).json();
        lists["entries"].as_array().is_some_and(Vec::is_empty).then_some(())
    });

    // The source must be exempt from the quota: in the kernel at once, and in the server within a
    // moment.
    stage.assert_refused(&peer, "quota");
    stage.equic(&["allow", &source]).ok();
    let exempt = eventually("a connection beyond the quota", || {
        match peer.attempt_at(443, Duration::from_secs(2)) {
            Attempt::Open(link) => Some(link),
            _ => None,
        }
    });
    stage.await_connections(host.v4(), 2);
    assert!(stage.verdict("allowed").packets > 0);
    stage.equic(&["forget", &source]).ok();
    exempt.fetch(10_000);
    stage.assert_refused(&peer, "quota");
}

#[test]
fn dry_run_counts_and_drops_nothing() {
    let Some(stage) = TestStage::new("dry", 2) else { return };
    let _turn = attack::turn();
    let limits = ["--max-connections", "1", "--packets-per-source", "2000/s burst 500"];
    let _gateway = stage.gateway(&[&limits[..], &["--dry-run"]].concat());
    let _server = stage.serve(&[]);
    let (host, attacker) = (stage.host(0), stage.host(1));
    let peer = host.peer(host.v4());
    let links: Vec<Link> = (0..3).map(|_| peer.connect()).collect();
    stage.await_connections(host.v4(), 3);
    let delivered = || {
        let udp = equic_netns::measure::NetCounters::of(stage.lab.server()).expect("counters").udp4;
        udp.in_datagrams + udp.in_errors
    };
    let before = delivered();
    let target = stage.target(attacker.v4());
    Attack::from(attacker.v4(), target, attack::garbage(), 10_000).send(&attacker.namespace, 5_000);
    eventually("all of it gets to the socket", || (delivered() >= before + 5_000).then_some(()));
    for reason in ["quota", "rate_packets"] {
        let verdict = stage.verdict(reason);
        assert!(verdict.packets > 0 && verdict.dropped == 0, "{reason}: {verdict:?}");
    }
    let status = stage.status();
    let service = &status["services"][0];
    assert_eq!((&status["dry_run"], &service["dropped"]), (&true.into(), &0.into()));
    assert!(service["would_drop"].as_u64() > Some(1_000), "{service}");
    links.iter().for_each(|link| link.fetch(10_000));

    // End the dry run, and then enable it again.
    stage.set("dry_run=off");
    stage.assert_refused(&peer, "quota");
    links.iter().for_each(|link| link.fetch(10_000));
    stage.set("dry_run=true");
    eventually("a connection beyond the quota", || {
        matches!(peer.attempt_at(443, Duration::from_secs(2)), Attempt::Open(_)).then_some(())
    });
}

/// Algorithm 1 of the eQUIC paper: all packets of a source over its limit are dropped, even
/// CONNECTION_CLOSE. The source can only recover when the server's idle timeout expires.
#[test]
fn strict_policy_drops_everything_of_a_source_over_its_limit() {
    let Some(stage) = TestStage::new("strict", 2) else { return };
    let _gateway = stage.gateway(&["--max-connections", "2", "-o", "policy=strict"]);
    let _server = stage.serve(&["--idle-timeout", "6s"]);
    let (host, other) = (stage.host(0), stage.host(1));
    let peer = host.peer(host.v4());
    let links = [peer.connect(), peer.connect()];
    stage.await_connections(host.v4(), 2);
    links.iter().for_each(|link| link.fetch(10_000));
    assert_eq!(stage.verdict("quota_strict").packets, 0, "at the limit is not over it");

    // When this handshake completes, the source is over its limit. A request that arrives together
    // with the end of the handshake is still answered.
    let third = peer.start(443, 1);
    stage.await_connections(host.v4(), 3);
    let refused = third.stop().iter().any(|attempt| matches!(attempt, Attempt::Refused));
    assert!(!refused, "the server refused what strict lets in");
    assert!(links.iter().all(|link| !link.answers()));
    assert!(stage.verdict("quota_strict").dropped > 0);
    assert_eq!(stage.verdict("quota").packets, 0);
    let elsewhere = other.peer(other.v4());
    elsewhere.connect().fetch(10_000);

    let [first, second] = links;
    first.close();
    second.close();
    stage.await_connections(host.v4(), 0);
    peer.connect().fetch(10_000);
}
