//! Scenario that a server with a quota has to play, whatever it is made of.

use std::net::IpAddr;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::client::{Clients, Open};
use crate::common::eventually;
use crate::example::Example;
use crate::stage::TestStage;

/// Time for which an attempt tries that the kernel is to drop: a few Initials.
const IN_VAIN: Duration = Duration::from_millis(900);

/// Time for which each attempt of a burst tries: whose Initial the kernel drops is never answered.
const BURST: Duration = Duration::from_secs(3);

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// So many connections, each of which was answered on.
fn fill<'a>(clients: &'a Clients<'a>, from: IpAddr, count: usize) -> Vec<Open<'a>> {
    (0..count).map(|_| clients.open(from)).collect()
}

/// One more is dropped in the kernel, for the quota.
fn assert_refused(stage: &TestStage, clients: &Clients<'_>, from: IpAddr) {
    let before = stage.verdict("quota");
    let attempt = clients.attempt(from, 1, IN_VAIN).pop().flatten();
    assert!(attempt.is_none(), "{from} got in: {}", stage.status());
    let after = stage.verdict("quota");
    assert!(after.dropped > before.dropped, "not by the quota: {}", stage.status());
}

/// Connections from an address, as many as it may hold; the next one dies in the kernel, and nobody else notices.
/// Then one closes, and one more is let in.
fn to_the_limit<'a>(
    stage: &TestStage,
    clients: &'a Clients<'a>,
    others: &Clients<'_>,
    from: IpAddr,
    limit: usize,
) -> Vec<Open<'a>> {
    let mut open = fill(clients, from, limit);
    stage.await_connections(from, limit as u64);
    assert_refused(stage, clients, from);
    others.open(stage.host(1).v4()).assert_alive();
    open.iter().for_each(Open::assert_alive);
    open.pop().expect("some").close();
    stage.await_connections(from, limit as u64 - 1);
    open.push(clients.open(from));
    stage.await_connections(from, limit as u64);
    assert_refused(stage, clients, from);
    open
}

fn scenario(example: Example) {
    let Some(mut stage) = TestStage::new(example.name(), 2) else { return };
    let limit = example.limit();
    let setting = limit.to_string();
    let gateway = (!example.own_gateway()).then(|| stage.gateway(&["--max-connections", &setting]));
    let server = example.start(&stage);
    if example.own_gateway() {
        // Of which nobody here chose the name.
        stage.name = stage.program_on("eth0").expect("it is attached").to_string();
    }
    let (clients, others) = (Clients::new(&stage, 0, example), Clients::new(&stage, 1, example));
    let (here, there) = (address("10.77.1.1"), address("10.77.1.99"));

    let mut open = to_the_limit(&stage, &clients, &others, here, limit);

    open[0].migrate(there);
    if example.follows() {
        // The count goes where the client goes.
        stage.await_connections(there, 1);
        stage.await_connections(here, limit as u64 - 1);
        open.push(clients.open(here));
    } else {
        open.iter().for_each(Open::assert_alive);
        assert_eq!(stage.connections(there), 0);
    }
    stage.await_connections(here, limit as u64);
    assert_refused(&stage, &clients, here);
    open.iter().for_each(Open::assert_alive);

    race(&stage, &clients, address("10.77.1.7"), limit);

    // The gateway is killed and started again: the server joins it with what is open.
    let gateway = gateway.map(|mut killed| {
        killed.signal(Signal::SIGKILL);
        killed.wait();
        let next = stage.gateway(&["--max-connections", &setting]);
        stage.await_connections(here, limit as u64);
        stage.await_connections(there, 1);
        assert_refused(&stage, &clients, here);
        open.iter().for_each(Open::assert_alive);
        next
    });

    // Whoever is killed holds nothing.
    server.kill();
    if gateway.is_none() {
        eventually("the interface is free", || stage.program_on("eth0").is_none().then_some(()));
        return;
    }
    stage.await_servers(0);
    stage.await_connections(here, 0);
    let _server = example.start(&stage);
    let open = fill(&clients, here, limit);
    stage.await_connections(here, limit as u64);
    assert_refused(&stage, &clients, here);
    open.iter().for_each(Open::assert_alive);
}

/// Handshakes side by side pass the kernel before any of them counts: the server turns away what is
/// too much.
fn race(stage: &TestStage, clients: &Clients<'_>, from: IpAddr, limit: usize) {
    let attempts = clients.attempt(from, 3 * limit, Duration::from_secs(6));
    let open: Vec<_> = attempts.into_iter().flatten().collect();
    assert_eq!(open.len(), limit, "{}", stage.status());
    stage.await_connections(from, limit as u64);
    open.iter().for_each(Open::assert_alive);
    open.into_iter().for_each(Open::close);
    stage.await_connections(from, 0);
}

/// Behind a gateway that has every client prove its address: the handshake is complete only if the server's
/// transport parameters say what the token says (RFC 9000 s.7.3), so who opens a connection shows that its token was
/// checked. With the keys of whichever gateway there is, and for clients that bring no token, too.
fn behind_retry(example: Example) {
    let Some(stage) = TestStage::new(&format!("retry-{}", example.name()), 1) else { return };
    let setting = example.limit().to_string();
    // What a program behind a veth sends back arrives in this mode.
    let options = ["--mode", "generic", "--max-connections", &setting, "--retry", "always"];
    let mut gateway = stage.gateway(&options);
    let _server = example.start(&stage);
    let ledgers = stage.status()["ledgers"].clone();
    assert_eq!(ledgers[0]["keys"], true, "the server says that it checks tokens: {ledgers}");
    let (clients, host) = (Clients::new(&stage, 0, example), stage.host(0));
    let counts = || (stage.verdict("proved").packets, stage.verdict("new").packets);

    let first = clients.open(host.v4());
    first.assert_alive();
    stage.await_connections(host.v4(), 1);
    assert_eq!(counts(), (1, 0), "{}", stage.status());
    assert!(stage.verdict("retry_sent").packets >= 1);

    // The next gateway has other keys, and the server takes them as it joins.
    gateway.signal(Signal::SIGKILL);
    gateway.wait();
    let _gateway = stage.gateway(&options);
    stage.await_connections(host.v4(), 1);
    let second = clients.open(host.v4());
    assert_eq!(counts(), (1, 0), "{}", stage.status());

    // Nobody has to prove anything: the same server takes who brings no token.
    stage.set("retry=never");
    let third = clients.open(host.v4());
    assert_eq!(counts(), (1, 1), "{}", stage.status());
    stage.await_connections(host.v4(), 3);
    [first, second, third].iter().for_each(Open::assert_alive);
}

#[test]
fn s2n_quic_behind_retry() {
    behind_retry(Example::S2nQuic);
}

#[test]
fn quiche_behind_retry() {
    behind_retry(Example::Quiche);
}

#[test]
fn aioquic_behind_retry() {
    behind_retry(Example::Aioquic);
}

#[test]
fn ngtcp2_behind_retry() {
    behind_retry(Example::Ngtcp2);
}

/// quic-go opens tokens itself and lets nobody else: nobody may ask its clients for one without saying that this
/// is meant.
#[test]
fn quic_go_is_not_put_behind_retry() {
    let example = Example::QuicGo;
    let Some(stage) = TestStage::new("retry-quic-go", 1) else { return };
    let _gateway = stage.gateway(&["--mode", "generic"]);
    let _server = example.start(&stage);
    let refused = stage.equic(&["set", "retry=always"]);
    assert!(refused.stderr.contains("quic-go"), "{}", refused.stderr);
    assert_eq!(stage.status()["services"][0]["retry"], "never");
}

#[test]
fn quinn() {
    scenario(Example::Quinn);
}

#[test]
fn s2n_quic() {
    scenario(Example::S2nQuic);
}

#[test]
fn quiche() {
    scenario(Example::Quiche);
}

#[test]
fn quic_go() {
    scenario(Example::QuicGo);
}

/// Bursts on a source that is empty, or has room for one or two, or whose connections are just being closed: what
/// it holds in the end is what was answered, and never more than its quota.
#[test]
fn quic_go_under_bursts() {
    let example = Example::QuicGo;
    let Some(stage) = TestStage::new("go-bursts", 1) else { return };
    let limit = example.limit();
    let _gateway = stage.gateway(&["--max-connections", &limit.to_string()]);
    let _server = example.start(&stage);
    let clients = Clients::new(&stage, 0, example);
    let from = address("10.77.1.7");

    let mut open: Vec<Open<'_>> = Vec::new();
    for room in (1..=limit).cycle().take(2 * limit) {
        open.drain(..room.min(open.len())).for_each(Open::close);
        let attempts = clients.attempt(from, 4 * limit, BURST);
        open.extend(attempts.into_iter().flatten());
        assert!(open.len() <= limit, "{} were answered: {}", open.len(), stage.status());
        // Who was turned away, or gave up, leaves nothing behind.
        stage.await_connections(from, open.len() as u64);
        open.iter().for_each(Open::assert_alive);
    }
    open.into_iter().for_each(Open::close);
    stage.await_connections(from, 0);
}

#[test]
fn aioquic() {
    scenario(Example::Aioquic);
}

#[test]
fn ngtcp2() {
    scenario(Example::Ngtcp2);
}

#[test]
fn picoquic() {
    scenario(Example::Picoquic);
}

/// By the paper's API, which does not say whether a connection is one too many: handshakes side by side
/// are the gateway's alone to judge.
#[test]
fn ngtcp2_by_the_papers_api() {
    let example = Example::Ngtcp2Paper;
    let Some(mut stage) = TestStage::new(example.name(), 2) else { return };
    let server = example.start(&stage);
    stage.name = stage.program_on("eth0").expect("it is attached").to_string();
    let (clients, others) = (Clients::new(&stage, 0, example), Clients::new(&stage, 1, example));
    let (here, there) = (address("10.77.1.1"), address("10.77.1.99"));
    let limit = example.limit();
    let open = to_the_limit(&stage, &clients, &others, here, limit);

    // Who has moved counts where it was, and no longer when it is closed: nothing is left behind.
    open[0].migrate(there);
    stage.await_connections(here, limit as u64);
    open.into_iter().for_each(Open::close);
    stage.await_connections(here, 0);
    stage.await_connections(there, 0);
    fill(&clients, here, limit).iter().for_each(Open::assert_alive);

    server.kill();
    eventually("the interface is free", || stage.program_on("eth0").is_none().then_some(()));
}
