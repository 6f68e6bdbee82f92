//! Tests of crashes of the server and of the gateway, and of a server that is only suspended.

use nix::sys::signal::Signal;

use crate::common::{PATIENCE, Running, config_of_own_gateway, eventually};
use crate::stage::{Attempt, TestStage};

fn kill(running: &mut Running) {
    running.signal(Signal::SIGKILL);
    running.wait();
}

#[test]
fn crashed_server_holds_no_quota() {
    let Some(stage) = TestStage::new("dead-server", 1) else { return };
    let gateway = stage.gateway(&["--max-connections", "2"]);
    let mut server = stage.serve(&[]);
    let host = stage.host(0);
    let peer = host.peer(host.v4());
    let _links = [peer.connect(), peer.connect()];
    stage.await_connections(host.v4(), 2);
    stage.assert_refused(&peer, "quota");
    let program = stage.program_on("eth0");
    assert!(program.is_some());

    kill(&mut server);
    // The killed server never closed these connections. They must stop counting when its lease
    // expires.
    stage.await_connections(host.v4(), 0);
    stage.await_servers(0);
    assert_eq!(stage.program_on("eth0"), program, "the gateway goes on");

    let _server = stage.serve(&[]);
    let links = [peer.connect(), peer.connect()];
    stage.await_connections(host.v4(), 2);
    stage.assert_refused(&peer, "quota");
    links.iter().for_each(|link| link.fetch(10_000));
    assert!(gateway.terminate().success());
    assert_eq!(stage.program_on("eth0"), None);
}

#[test]
fn stopped_server_does_not_count_until_it_continues() {
    let Some(stage) = TestStage::new("stopped", 1) else { return };
    let _gateway = stage.gateway(&["--max-connections", "1"]);
    let server = stage.serve(&[]);
    let host = stage.host(0);
    let peer = host.peer(host.v4());
    let link = peer.connect();
    stage.await_connections(host.v4(), 1);
    server.signal(Signal::SIGSTOP);
    stage.await_connections(host.v4(), 0);
    let ledgers = stage.status()["ledgers"].clone();
    assert_eq!((&ledgers[0]["alive"], &ledgers[0]["counts"]), (&true.into(), &false.into()));
    // The suspended server is alive, but its lease has expired, so its connections do not count.
    // The gateway must let an Initial through to it.
    let (before, refused) = (stage.verdict("new"), stage.verdict("quota"));
    let passed = || stage.verdict("new").packets > before.packets;
    peer.start(443, 1).assert_in_vain("an Initial passes", passed);
    assert_eq!(stage.verdict("quota"), refused);
    assert!(stage.status()["tallies"]["stale_ledger"].as_u64() > Some(0));
    server.signal(Signal::SIGCONT);
    stage.await_connections(host.v4(), 1);
    link.fetch(10_000);
    stage.assert_refused(&peer, "quota");
}

/// A server whose gateway has died must keep serving and report the loss. It must then join the
/// next gateway by itself, and all its open connections must count there at once.
#[test]
fn crashed_gateway_leaves_the_interface_and_the_server_alone() {
    let Some(stage) = TestStage::new("dead-gateway", 1) else { return };
    let mut gateway = stage.gateway(&["--max-connections", "2"]);
    let server = stage.serve(&[]);
    let host = stage.host(0);
    let peer = host.peer(host.v4());
    let mut links = vec![peer.connect(), peer.connect()];
    stage.await_connections(host.v4(), 2);
    stage.assert_refused(&peer, "quota");

    let mut download = links[0].download();
    download.read(100_000);
    kill(&mut gateway);
    eventually("the interface is free", || stage.program_on("eth0").is_none().then_some(()));
    let gone = stage.equic(&["status", "--json"]);
    assert_eq!(gone.code, Some(1), "{gone:?}");
    let lost = server.event("gateway_lost");
    assert_eq!(lost["gateway"], stage.name.as_str(), "{lost}");
    // Open connections continue, and their guards (which count them) still work. Without a gateway,
    // only the server refuses connections over the limit, and it does so after the handshake.
    download.read(100_000);
    drop(download);
    assert!(matches!(peer.attempt_at(443, PATIENCE), Attempt::Refused));
    links.pop().expect("two").close();
    // The server may complete the next handshake before it stops counting the closed connection.
    links.push(eventually("the server has room for a connection", || {
        match peer.attempt_at(443, PATIENCE) {
            Attempt::Open(link) => Some(link),
            Attempt::Refused => None,
            Attempt::Silence => panic!("no answer"),
        }
    }));
    links.iter().for_each(|link| link.fetch(10_000));

    // The next gateway starts immediately, on the same interface and with the same name.
    let next = stage.gateway(&["--max-connections", "2"]);
    assert!(stage.program_on("eth0").is_some());
    let joined = server.event("gateway_joined");
    assert_eq!((&joined["connections"], &joined["carried"]), (&2.into(), &true.into()), "{joined}");
    assert!(joined["unheard_ms"].as_f64() > Some(0.0), "{joined}");
    stage.await_connections(host.v4(), 2);
    stage.assert_refused(&peer, "quota");
    links.iter().for_each(|link| link.fetch(10_000));
    // The guards must count in the new gateway: after one connection closes, one can open.
    links.pop().expect("two").close();
    stage.await_connections(host.v4(), 1);
    links.push(peer.connect());
    stage.await_connections(host.v4(), 2);
    stage.assert_refused(&peer, "quota");
    assert!(server.terminate().success(), "the old server ends as it should");
    links.iter().for_each(|link| link.await_closed());
    let _server = stage.serve(&[]);
    let _links = [peer.connect(), peer.connect()];
    stage.await_connections(host.v4(), 2);
    stage.assert_refused(&peer, "quota");
    assert!(next.terminate().success());
    assert_eq!(stage.program_on("eth0"), None);
}

/// When the gateway's process dies, the XDP program must disappear with it, even during a flood.
#[test]
fn crashed_server_ends_its_own_gateway() {
    let Some(stage) = TestStage::new("own", 1) else { return };
    let folder = tempfile::tempdir().unwrap();
    let own = config_of_own_gateway(folder.path(), "eth0", &stage.name, 443);
    let args = ["serve", "--json", "--listen", "[::]:443", "--gateway-config", &own];
    let mut server = Running::start(stage.lab.server().command(crate::common::EQUIC), &args);
    server.event("ready");
    let host = stage.host(0);
    let peer = host.peer(host.v6());
    let _links = [peer.connect(), peer.connect(), peer.connect()];
    stage.await_connections("fd65:7175:6963:1::/64", 3);
    stage.assert_refused(&peer, "quota");
    kill(&mut server);
    eventually("the interface is free", || stage.program_on("eth0").is_none().then_some(()));
    let server = Running::start(stage.lab.server().command(crate::common::EQUIC), &args);
    server.event("ready");
    peer.connect().fetch(10_000);
}
