//! The test that every example server with a quota must pass.

use std::net::IpAddr;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::client::{Clients, Open};
use crate::common::eventually;
use crate::example::Example;
use crate::stage::TestStage;

/// Timeout of each attempt of a burst. If the kernel drops the attempt's Initials, there is no
/// answer.
const BURST: Duration = Duration::from_secs(3);

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Opens `count` connections, and waits for an answer of the server on each.
fn fill<'a>(clients: &'a Clients<'a>, from: IpAddr, count: usize) -> Vec<Open<'a>> {
    (0..count).map(|_| clients.open(from)).collect()
}

/// Checks that the kernel drops one more connection attempt because of the quota.
fn assert_refused(stage: &TestStage, clients: &Clients<'_>, from: IpAddr) {
    let dropped = || stage.verdict("quota").dropped;
    let before = dropped();
    clients.attempt_in_vain(from, "dropped by the quota", || dropped() > before);
}

/// Opens connections from an address up to its quota. The kernel must drop the next attempt, and
/// other sources must not be affected. Then closes one and opens another.
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
        // The test does not know a name of the example's gateway, so use the program's ID.
        stage.name = stage.program_on("eth0").expect("it is attached").to_string();
    }
    let (clients, others) = (Clients::new(&stage, 0, example), Clients::new(&stage, 1, example));
    let (here, there) = (address("10.77.1.1"), address("10.77.1.99"));

    let mut open = to_the_limit(&stage, &clients, &others, here, limit);

    open[0].migrate(there);
    if example.follows() {
        // The connection must count at the client's new address.
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

    // The gateway is killed and started again. The server must join it with its open connections.
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

    // Connections of a killed server must no longer count.
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

/// Parallel handshakes pass the kernel before any of them counts. The server must close the
/// connections that exceed the quota.
fn race(stage: &TestStage, clients: &Clients<'_>, from: IpAddr, limit: usize) {
    let attempts = clients.attempt(from, 3 * limit, Duration::from_secs(6));
    let open: Vec<_> = attempts.into_iter().flatten().collect();
    assert_eq!(open.len(), limit, "{}", stage.status());
    stage.await_connections(from, limit as u64);
    open.iter().for_each(Open::assert_alive);
    open.into_iter().for_each(Open::close);
    stage.await_connections(from, 0);
}

/// Tests an example behind a gateway that sends Retry packets. The handshake completes only if the
/// server's transport parameters match the token (RFC 9000 s.7.3), so an open connection shows that
/// the server has checked its token. This must also work when the gateway is replaced, and for
/// clients without a token when Retry is disabled.
fn behind_retry(example: Example) {
    let Some(stage) = TestStage::new(&format!("retry-{}", example.name()), 1) else { return };
    let setting = example.limit().to_string();
    // On a veth interface, answers of an XDP program only arrive in generic mode.
    let options = ["--mode", "generic", "--max-connections", &setting, "-o", "retry=always"];
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

    // The next gateway has other keys. The server must get them when it joins.
    gateway.signal(Signal::SIGKILL);
    gateway.wait();
    let _gateway = stage.gateway(&options);
    stage.await_connections(host.v4(), 1);
    let second = clients.open(host.v4());
    assert_eq!(counts(), (1, 0), "{}", stage.status());

    // Without Retry, the same server must accept clients that have no token.
    stage.set("retry=never");
    let third = clients.open(host.v4());
    assert_eq!(counts(), (1, 1), "{}", stage.status());
    stage.await_connections(host.v4(), 3);
    [first, second, third].iter().for_each(Open::assert_alive);
}

#[test]
fn s2n_quic_works_behind_retry() {
    behind_retry(Example::S2nQuic);
}

#[test]
fn quiche_works_behind_retry() {
    behind_retry(Example::Quiche);
}

#[test]
fn aioquic_works_behind_retry() {
    behind_retry(Example::Aioquic);
}

#[test]
fn ngtcp2_works_behind_retry() {
    behind_retry(Example::Ngtcp2);
}

/// quic-go checks its own tokens and has no hook for others. So Retry must not be enabled for this
/// server, unless the operator forces it.
#[test]
fn quic_go_cannot_be_put_behind_retry() {
    let example = Example::QuicGo;
    let Some(stage) = TestStage::new("retry-quic-go", 1) else { return };
    let _gateway = stage.gateway(&["--mode", "generic"]);
    let _server = example.start(&stage);
    let refused = stage.equic(&["set", "retry=always"]);
    assert!(refused.stderr.contains("quic-go"), "{}", refused.stderr);
    assert_eq!(stage.status()["services"][0]["retry"], "never");
}

#[test]
fn quinn_enforces_its_quota() {
    scenario(Example::Quinn);
}

#[test]
fn s2n_quic_enforces_its_quota() {
    scenario(Example::S2nQuic);
}

#[test]
fn quiche_enforces_its_quota() {
    scenario(Example::Quiche);
}

#[test]
fn quic_go_enforces_its_quota() {
    scenario(Example::QuicGo);
}

/// Runs bursts of connection attempts. The source has no connections, or one or two free slots, or
/// its connections are just being closed. In the end, the source must hold exactly the connections
/// that were answered, and never more than its quota.
#[test]
fn quic_go_enforces_its_quota_under_bursts() {
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
        // Attempts that were refused or timed out must not count.
        stage.await_connections(from, open.len() as u64);
        open.iter().for_each(Open::assert_alive);
    }
    open.into_iter().for_each(Open::close);
    stage.await_connections(from, 0);
}

#[test]
fn aioquic_enforces_its_quota() {
    scenario(Example::Aioquic);
}

#[test]
fn ngtcp2_enforces_its_quota() {
    scenario(Example::Ngtcp2);
}

#[test]
fn picoquic_enforces_its_quota() {
    scenario(Example::Picoquic);
}

/// The eQUIC paper's API does not report whether a connection exceeds the quota. So only the
/// gateway can limit parallel handshakes.
#[test]
fn ngtcp2_enforces_its_quota_by_the_papers_api() {
    let example = Example::Ngtcp2Paper;
    let Some(mut stage) = TestStage::new(example.name(), 2) else { return };
    let server = example.start(&stage);
    stage.name = stage.program_on("eth0").expect("it is attached").to_string();
    let (clients, others) = (Clients::new(&stage, 0, example), Clients::new(&stage, 1, example));
    let (here, there) = (address("10.77.1.1"), address("10.77.1.99"));
    let limit = example.limit();
    let open = to_the_limit(&stage, &clients, &others, here, limit);

    // With this API, a migrated connection must count at its old address until it is closed.
    open[0].migrate(there);
    stage.await_connections(here, limit as u64);
    open.into_iter().for_each(Open::close);
    stage.await_connections(here, 0);
    stage.await_connections(there, 0);
    fill(&clients, here, limit).iter().for_each(Open::assert_alive);

    server.kill();
    eventually("the interface is free", || stage.program_on("eth0").is_none().then_some(()));
}
