//! Tests of XDP modes, of several interfaces, services and servers, and of other XDP programs on
//! the interface.

use std::net::IpAddr;

use equic_netns::Namespace;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::common::{EQUIC, config_of_own_gateway, equic, equic_in};
use crate::foreign;
use crate::stage::TestStage;

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn config(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), text).expect("it can be written");
    file
}

fn path(file: &tempfile::NamedTempFile) -> &str {
    file.path().to_str().expect("a path")
}

#[test]
fn generic_mode_enforces_the_quota() {
    let Some(stage) = TestStage::new("generic", 1) else { return };
    let _gateway = stage.gateway(&["--max-connections", "2", "--mode", "generic"]);
    let _server = stage.serve(&[]);
    let host = stage.host(0);
    for (address, source) in
        [(host.v4(), host.v4().to_string()), (host.v6(), "fd65:7175:6963:1::/64".to_owned())]
    {
        let peer = host.peer(address);
        let [first, second] = [peer.connect(), peer.connect()];
        stage.await_connections(&source, 2);
        stage.assert_refused(&peer, "quota");
        first.fetch(100_000);
        second.close();
        stage.await_connections(&source, 1);
        peer.connect().fetch(100_000);
    }
}

/// Adds a second veth link between the server and the first client. Returns both addresses.
fn second_interface(stage: &TestStage) -> (IpAddr, IpAddr) {
    let (server, client) = (stage.lab.server(), &stage.host(0).namespace);
    let pair = format!("link add eth1 type veth peer name eth1 netns {}", client.name);
    stage.ip(server, &pair);
    for (host, address) in [(server, "192.0.2.1/24"), (client, "192.0.2.2/24")] {
        stage.ip(host, &format!("address add {address} dev eth1"));
        stage.ip(host, "link set eth1 up");
    }
    (address("192.0.2.1"), address("192.0.2.2"))
}

#[test]
fn gateway_protects_two_interfaces_and_two_services() {
    let Some(stage) = TestStage::new("two", 1) else { return };
    let (server, client) = second_interface(&stage);
    let text = "[gateway]\ninterfaces = [\"eth0\", \"eth1\"]\n\
                [[service]]\nname = \"web\"\nlisten = [\"443\"]\nmax_connections = 1\n\
                [[service]]\nname = \"alt\"\nlisten = [\"8443\"]\nmax_connections = 2\n";
    let file = config(text);
    let (gateway, ready) = stage.gateway_with(&["--config", path(&file)]);
    assert_eq!(ready["interfaces"].as_array().map(Vec::len), Some(2), "{ready}");
    let program = stage.program_on("eth0");
    assert!(program.is_some() && program == stage.program_on("eth1"));
    let _servers = [stage.serve_on(443, &[]), stage.serve_on(8443, &[])];
    let host = stage.host(0);
    let near = host.peer(host.v4());
    let far = host.peer_of(client, server);
    for peer in [&near, &far] {
        let web = peer.connect_at(443);
        let source = if std::ptr::eq(peer, &near) { host.v4() } else { client };
        stage.await_connections(source, 1);
        stage.assert_refused_by(peer, 0, 443, "quota");
        // The other service must have its own count.
        let alt = [peer.connect_at(8443), peer.connect_at(8443)];
        stage.await_connections(source, 2);
        stage.assert_refused_by(peer, 1, 8443, "quota");
        alt.iter().chain([&web]).for_each(|link| link.fetch(10_000));
        let rows = stage.source(source);
        let row = |row: &Value| (row["services"][0].clone(), row["connections"].clone());
        let seen: Vec<_> = rows.iter().map(row).collect();
        assert_eq!(seen, [("alt".into(), 2.into()), ("web".into(), 1.into())], "{rows:?}");
    }
    // After it was detached from one interface, the gateway must continue on the other one.
    stage.equic(&["status"]).ok();
    let detached = equic_in(stage.lab.server(), &["gateway", "detach", &stage.name, "-i", "eth1"]);
    assert!(detached.ok().contains("eth1"));
    assert_eq!((stage.program_on("eth0"), stage.program_on("eth1")), (program, None));
    let web = near.connect_at(443);
    stage.assert_refused_by(&near, 0, 443, "quota");
    web.fetch(10_000);
    assert!(gateway.terminate().success());
    assert_eq!((stage.program_on("eth0"), stage.program_on("eth1")), (None, None));
}

/// Two services of a group have one server each. The connections of a source to both must be added
/// up.
#[test]
fn counts_of_two_servers_add_up_until_one_dies() {
    let Some(stage) = TestStage::new("servers", 1) else { return };
    let text = "[gateway]\ninterfaces = [\"eth0\"]\n\
                [[service]]\nname = \"web\"\nlisten = [\"443\"]\nmax_connections = 3\n\
                group = \"all\"\n\
                [[service]]\nname = \"alt\"\nlisten = [\"8443\"]\nmax_connections = 3\n\
                group = \"all\"\n";
    let file = config(text);
    let _gateway = stage.gateway_with(&["--config", path(&file)]).0;
    let web = stage.serve_on(443, &[]);
    let mut alt = stage.serve_on(8443, &[]);
    let host = stage.host(0);
    let peer = host.peer(host.v4());
    let first = peer.connect_at(443);
    let _others = [peer.connect_at(8443), peer.connect_at(8443)];
    stage.await_connections(host.v4(), 3);
    stage.assert_refused_by(&peer, 0, 443, "quota");
    stage.assert_refused_by(&peer, 1, 8443, "quota");
    let status = stage.status();
    let ledgers = status["ledgers"].as_array().expect("ledgers");
    let count = |pid: u32| {
        ledgers.iter().find(|ledger| ledger["pid"] == pid).map(|l| l["connections"].clone())
    };
    assert_eq!((count(web.pid()), count(alt.pid())), (Some(1.into()), Some(2.into())));

    alt.signal(Signal::SIGKILL);
    alt.wait();
    stage.await_connections(host.v4(), 1);
    stage.await_servers(1);
    let more = [peer.connect_at(443), peer.connect_at(443)];
    stage.await_connections(host.v4(), 3);
    stage.assert_refused_by(&peer, 0, 443, "quota");
    more.iter().chain([&first]).for_each(|link| link.fetch(10_000));
    drop(web);
    stage.await_connections(host.v4(), 0);
}

fn run(host: &Namespace, name: &str, mode: &str) -> crate::common::Out {
    let place = ["-i", "eth0", "-p", "443", "--name", name, "--mode", mode];
    equic_in(host, &[&["gateway", "run"], &place[..]].concat())
}

#[test]
fn foreign_program_on_the_interface_is_left_alone() {
    let Some(stage) = TestStage::new("foreign", 1) else { return };
    let server = stage.lab.server();
    let program = foreign::attach(server, "eth0");
    assert_eq!(stage.program_on("eth0"), Some(program));
    for mode in ["auto", "native", "generic"] {
        let refused = run(server, &stage.name, mode);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        for said in ["`eth0` already has an XDP program", "somebody_elses", &program.to_string()] {
            assert!(refused.stderr.contains(said), "{mode}: {said}: {refused:?}");
        }
        assert_eq!(stage.program_on("eth0"), Some(program), "{mode}");
    }
    let mut serve = server.command(EQUIC);
    let folder = tempfile::tempdir().unwrap();
    let own = config_of_own_gateway(folder.path(), "eth0", &stage.name, 443);
    serve.args(["serve", "--listen", "[::]:443", "--gateway-config", &own]);
    assert_eq!(crate::common::finish(serve).code, Some(1));
    // `detach` must not remove a program that is not the gateway's, neither by interface nor by
    // program ID.
    for selector in ["eth0", &program.to_string()] {
        let detached = equic_in(server, &["gateway", "detach", selector]);
        assert_eq!(detached.code, Some(1), "{detached:?}");
        assert_eq!(stage.program_on("eth0"), Some(program));
    }
    // A gateway that is attached to another interface, or to none, must not remove that program
    // either.
    second_interface(&stage);
    let place = ["-i", "eth1", "-p", "443"];
    let (gateway, _) = stage.gateway_with(&place);
    let detached = equic_in(server, &["gateway", "detach", &stage.name, "-i", "eth0"]);
    assert_eq!(detached.code, Some(1), "{detached:?}");
    // If one of the interfaces already has another program, the gateway must not stay attached to
    // the others.
    let both = ["-i", "eth1", "-i", "eth0", "-p", "443", "--name", "never"];
    equic(&["gateway", "detach", &stage.name]).ok();
    let mut gateway = gateway;
    assert!(gateway.wait().success(), "it ends when it is on no interface any more");
    assert_eq!(stage.program_on("eth1"), None);
    let refused = equic_in(server, &[&["gateway", "run"], &both[..]].concat());
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert_eq!((stage.program_on("eth0"), stage.program_on("eth1")), (Some(program), None));
    // After the owner has removed the other program, the gateway must be able to attach.
    stage.ip(server, "link set dev eth0 xdp off");
    let gateway = stage.gateway(&[]);
    let own = stage.program_on("eth0");
    assert!(own.is_some_and(|id| id != program));
    // A second gateway on the same interface must be refused.
    let second = run(server, "second", "auto");
    assert!(second.code == Some(1) && second.stderr.contains("equic gateway detach"), "{second:?}");
    assert_eq!(stage.program_on("eth0"), own);
    assert!(gateway.terminate().success());
}
