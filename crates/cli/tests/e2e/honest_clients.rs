//! Honest clients connect continuously, validate their addresses and use verifiable connection IDs.
//! Meanwhile, gateways are killed, other gateways take over, and keys change. No client may be
//! refused.

use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use equic_gateway::Control;
use nix::sys::signal::Signal;
use tokio::time::timeout;

use crate::common::{PATIENCE, eventually};
use crate::handover::{BpfFs, Done, other_object};
use crate::resets::{quinns, tls, with_certificate};
use crate::stage::{Host, TestStage};

/// Number of gateways that are killed during the test.
const ROUNDS: usize = 6;

/// Runs a client with eQUIC's own stack: it connects, fetches 10,000 bytes and closes the
/// connection.
fn by_ours(host: &Host, address: IpAddr) {
    let link = host.peer(address).connect();
    link.fetch(10_000);
    link.close();
}

/// Runs a client with quinn: it connects, and closes the connection when it has received data from
/// the server. The server opens a stream once the handshake is complete.
fn by_quinn(stage: &TestStage, host: &Host, address: IpAddr, folder: &Path) {
    let (endpoint, connection) = quinns(host, address, stage.target(address), tls(folder));
    host.run(async move {
        let opened = timeout(PATIENCE, connection.accept_uni()).await.expect("it is heard");
        opened.expect("the connection is open");
        connection.close(0u32.into(), b"");
        endpoint.wait_idle().await;
    });
}

/// A kind of client. Clients of the kind run one after the other, and successful runs are counted.
struct Clients<'a> {
    served: AtomicU64,
    one: Box<dyn Fn() + Sync + 'a>,
}

impl<'a> Clients<'a> {
    fn new(one: impl Fn() + Sync + 'a) -> Clients<'a> {
        Clients { served: AtomicU64::new(0), one: Box::new(one) }
    }

    fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }
}

/// Waits until at least one client of each kind has started and ended after this call. With such a
/// call between two changes of the gateway, no handshake overlaps with more than two changes.
fn await_clients(clients: &[Clients]) {
    let before: Vec<u64> = clients.iter().map(Clients::served).collect();
    eventually("clients of all kinds are served", || {
        let mut all = clients.iter().zip(&before);
        all.all(|(clients, before)| clients.served() > before + 1).then_some(())
    });
}

#[test]
fn honest_handshakes_succeed_while_gateways_die_and_keys_change() {
    let Some(stage) = TestStage::new("honest", 2) else { return };
    let fs = BpfFs::mount();
    let folder = tempfile::tempdir().expect("a directory");
    let object = folder.path().join("other.o");
    other_object(&object);
    let (pin, object) = (fs.dir(), object.to_str().expect("UTF-8").to_owned());
    // On a veth interface, answers of an XDP program only arrive in generic mode, or if the other
    // end has a program, too.
    let args = ["-o", "retry=always", "-o", "check_ids=true", "--mode", "generic", "--pin", &pin];
    let args = [&["-i", "eth0", "-p", "443"], &args[..]].concat();
    let (mut gateway, _) = stage.gateway_with(&args);
    let _server = stage.serve(&with_certificate(folder.path()));
    let (host, other) = (stage.host(0), stage.host(1));
    // This connection must survive all changes of the gateway.
    let link = host.peer(host.v4()).connect();
    let clients = [
        Clients::new(|| by_ours(host, host.v4())),
        Clients::new(|| by_ours(host, host.v6())),
        Clients::new(|| by_quinn(&stage, other, other.v4(), folder.path())),
        Clients::new(|| by_quinn(&stage, other, other.v6(), folder.path())),
        Clients::new(|| link.fetch(10_000)),
    ];
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ended = Done(&done);
        for clients in &clients {
            let done = &done;
            // A failed client panics, and the thread scope passes the panic on.
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    (clients.one)();
                    clients.served.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let rotate = || {
            let control = Control::open(Some(&stage.name)).expect("root may look");
            // The first key rotation announces a key, and the second one starts to use it. Clients
            // connect in between.
            for _ in 0..2 {
                control.rotate_keys().expect("keys");
                await_clients(&clients);
            }
        };
        await_clients(&clients);
        for round in 0..ROUNDS {
            gateway.signal(Signal::SIGKILL);
            gateway.wait();
            await_clients(&clients);
            // The gateway's process is dead. The XDP program must continue with its keys, and
            // accept new ones.
            rotate();
            // Switch to another XDP program in one round, and back in the next.
            let upgrade: &[&str] = if round % 2 == 0 { &["--object", &object] } else { &[] };
            let (next, ready) = stage.gateway_with(&[&args[..], upgrade].concat());
            let taken = &ready["taken_over"];
            assert_eq!(taken["owner"]["pid"], gateway.pid(), "{ready}");
            assert_eq!((&taken["servers"], &taken["replaced"]), (&1.into(), &true.into()));
            gateway = next;
            await_clients(&clients);
            rotate();
        }
        drop(ended);
    });
    let served: u64 = clients[..4].iter().map(Clients::served).sum();
    let count = |reason| stage.verdict(reason).packets;
    eprintln!(
        "{served} handshakes; bad_token {}, forged_id {}",
        count("bad_token"),
        count("forged_id")
    );
    // Every client must have received a Retry packet and validated its address.
    assert!(count("retry_sent") >= served && count("proved") >= served, "{}", stage.status());
    assert!(gateway.terminate().success());
}
