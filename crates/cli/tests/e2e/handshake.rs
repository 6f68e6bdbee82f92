//! Tests of handshakes that are in progress when the quota is reached.
//!
//! A relay between client and server holds back the server's first flight until the quota is
//! reached. The client's next packet is an Initial, like the first packet of a connection. But its
//! Destination Connection ID is one that the server chose (RFC 9000 s.7.2), so the gateway must
//! pass it.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::common::{PATIENCE, eventually};
use crate::stage::{Attempt, Host, Peer, TestStage};

type Cid = Vec<u8>;

/// A relay that holds back the server's datagrams until it is opened.
struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    open: AtomicBool,
    /// Destination and Source Connection IDs of the client's Initials that were forwarded.
    initials: Mutex<Vec<(Cid, Cid)>>,
    /// Datagrams of the server that are held back.
    held: Mutex<Vec<Vec<u8>>>,
    client: Mutex<Option<SocketAddr>>,
}

impl Relay {
    /// Starts the relay on the client's host, so that the server sees the client's address.
    fn start(host: &Host, server: SocketAddr) -> Relay {
        let bind = |address: SocketAddr| {
            let socket = host.namespace.udp_socket(address).expect("a socket");
            socket.set_read_timeout(Some(Duration::from_millis(5))).expect("a timeout");
            Arc::new(socket)
        };
        let near = bind(([127, 0, 0, 1], 0).into());
        let far = bind(SocketAddr::new(host.v4(), 0));
        let address = near.local_addr().expect("it is bound");
        let shared = Arc::new(Shared::default());
        let up = (Arc::clone(&shared), Arc::clone(&near), Arc::clone(&far));
        let down = (Arc::clone(&shared), near, far);
        let threads = vec![
            std::thread::spawn(move || up.0.up(&up.1, &up.2, server)),
            std::thread::spawn(move || down.0.down(&down.1, &down.2)),
        ];
        Relay { address, shared, threads }
    }

    /// Returns a client that sends all its packets through this relay.
    fn peer<'a>(&self, host: &'a Host) -> Peer<'a> {
        let [local, server] = [[127, 0, 0, 1], [10, 77, 0, 1]].map(IpAddr::from);
        host.peer_via(local, server, Some(self.address))
    }

    fn release(&self) {
        self.shared.open.store(true, Ordering::SeqCst);
    }

    /// Returns whether the relay holds the server's first flight, or at least its Initial.
    fn holds(&self) -> bool {
        !self.shared.held.lock().expect("no panic").is_empty()
    }

    fn initials(&self) -> Vec<(Cid, Cid)> {
        self.shared.initials.lock().expect("no panic").clone()
    }
}

impl Shared {
    /// Forwards datagrams from the client to the server. While the relay is closed, forwards only
    /// the first one.
    fn up(&self, near: &UdpSocket, far: &UdpSocket, server: SocketAddr) {
        let mut buffer = [0; 2048];
        while !self.stop.load(Ordering::SeqCst) {
            let Ok((length, from)) = near.recv_from(&mut buffer) else { continue };
            let first = self.client.lock().expect("no panic").replace(from).is_none();
            if first || self.open.load(Ordering::SeqCst) {
                let datagram = &buffer[..length];
                self.initials.lock().expect("no panic").extend(initial(datagram));
                far.send_to(datagram, server).expect("it can be sent");
            }
        }
    }

    fn down(&self, near: &UdpSocket, far: &UdpSocket) {
        let mut buffer = [0; 2048];
        while !self.stop.load(Ordering::SeqCst) {
            if let Ok((length, _)) = far.recv_from(&mut buffer) {
                self.held.lock().expect("no panic").push(buffer[..length].to_vec());
            }
            if !self.open.load(Ordering::SeqCst) {
                continue;
            }
            let client = self.client.lock().expect("no panic").expect("the client spoke first");
            for datagram in self.held.lock().expect("no panic").drain(..) {
                near.send_to(&datagram, client).expect("it can be sent");
            }
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Returns the connection IDs if the datagram starts with an Initial of version 1 (RFC 9000
/// s.17.2.2).
fn initial(datagram: &[u8]) -> Option<(Cid, Cid)> {
    if datagram.first()? & 0xb0 != 0x80 || datagram.get(1..5)? != [0, 0, 0, 1] {
        return None;
    }
    let length = usize::from(*datagram.get(5)?);
    let dcid = datagram.get(6..6 + length)?;
    let rest = &datagram[6 + length..];
    let scid = rest.get(1..1 + usize::from(*rest.first()?))?;
    Some((dcid.to_vec(), scid.to_vec()))
}

#[test]
fn handshake_is_not_cut_off_by_the_quota() {
    let Some(stage) = TestStage::new("underway", 1) else { return };
    let _gateway = stage.gateway(&["--max-connections", "2"]);
    let _server = stage.serve(&[]);
    let host = stage.host(0);
    let peer = host.peer(host.v4());
    let first = peer.connect();
    stage.await_connections(host.v4(), 1);

    let relay = Relay::start(host, stage.target(host.v4()));
    let late = relay.peer(host);
    let (attempt, second) = std::thread::scope(|scope| {
        let attempt = scope.spawn(|| late.attempt_at(443, PATIENCE));
        eventually("the server's first flight", || relay.holds().then_some(()));
        // The second connection completes its handshake first, so the quota is reached.
        let second = peer.connect();
        stage.await_connections(host.v4(), 2);
        stage.assert_refused(&peer, "quota");
        let (before, refused) = (stage.verdict("underway"), stage.verdict("quota"));
        assert_eq!(relay.initials().len(), 1);
        relay.release();
        let attempt = attempt.join().expect("it ends");
        assert!(stage.verdict("underway").packets > before.packets);
        assert_eq!(stage.verdict("quota"), refused, "nothing of it was dropped");
        (attempt, second)
    });
    // The gateway lets the handshake through. The server must refuse the connection, because it
    // exceeds the quota.
    assert!(matches!(attempt, Attempt::Refused));
    let initials = relay.initials();
    let opening = &initials[0];
    // The client may have sent its first Initial again before it got the server's first flight.
    let answer = initials.iter().find(|next| next.0 != opening.0);
    let answer = answer.expect("an Initial to the connection ID that the server chose");
    assert_eq!(opening.1, answer.1);
    [&first, &second].iter().for_each(|link| link.fetch(10_000));
    assert_eq!(stage.connections(host.v4()), 2);
}

/// Like the test above, but the source is below its quota when the handshake completes. The
/// connection must be accepted.
#[test]
fn handshake_that_was_admitted_becomes_a_connection() {
    let Some(stage) = TestStage::new("let-in", 1) else { return };
    let _gateway = stage.gateway(&["--max-connections", "2"]);
    let _server = stage.serve(&[]);
    let host = stage.host(0);
    let peer = host.peer(host.v4());
    let first = peer.connect();
    stage.await_connections(host.v4(), 1);
    let relay = Relay::start(host, stage.target(host.v4()));
    let late = relay.peer(host);
    let attempt = std::thread::scope(|scope| {
        let attempt = scope.spawn(|| late.attempt_at(443, PATIENCE));
        eventually("the server's first flight", || relay.holds().then_some(()));
        let second = peer.connect();
        stage.await_connections(host.v4(), 2);
        stage.assert_refused(&peer, "quota");
        second.close();
        stage.await_connections(host.v4(), 1);
        relay.release();
        attempt.join().expect("it ends")
    });
    let Attempt::Open(link) = attempt else { panic!("not let in") };
    stage.await_connections(host.v4(), 2);
    [&first, &link].iter().for_each(|link| link.fetch(100_000));
    stage.assert_refused(&peer, "quota");
}
