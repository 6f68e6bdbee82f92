//! Tests that traffic which has nothing to do with the protected service gets through while the
//! gateway drops a flood.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use equic_netns::Namespace;
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};

use crate::attack::{self, Attack, spoofed};
use crate::common::{eventually, finish};
use crate::stage::TestStage;

const PATIENCE: Option<Duration> = Some(Duration::from_millis(500));

/// The addresses of the client and the server, in one address family.
struct Pair<'a> {
    client: &'a Namespace,
    server: &'a Namespace,
    like: IpAddr,
}

impl Pair<'_> {
    fn at(&self, host: &Namespace, port: u16) -> SocketAddr {
        host.socket_address(self.like, port)
    }

    fn udp(&self, host: &Namespace, port: u16) -> UdpSocket {
        let socket = host.udp_socket(self.at(host, port)).expect("a socket");
        socket.set_read_timeout(PATIENCE).expect("a timeout");
        socket
    }

    /// Exchanges datagrams of this size with a service on another port of the server.
    fn other_port(&self, size: usize) {
        let (client, server) = (self.udp(self.client, 0), self.udp(self.server, 4433));
        request(&client, &server, size);
    }

    /// The server's host acts as a client: it sends from an ephemeral port to the ports 53 and 443
    /// of the other host, and must get the answers.
    fn replies_to_the_server(&self) {
        let (asking, answering) = (self.udp(self.server, 0), self.udp(self.client, 53));
        request(&asking, &answering, 512);
        let from_443 = self.udp(self.client, 443);
        request(&asking, &from_443, 512);
    }

    fn tcp(&self) {
        let address = self.at(self.server, 443);
        let listener = self.server.run(|| TcpListener::bind(address)).expect("inside");
        let listener = listener.expect("the port is free: it is TCP");
        let connect = || TcpStream::connect_timeout(&address, Duration::from_secs(20));
        let mut client = self.client.run(connect).expect("inside").expect("it connects");
        let (mut server, _) = listener.accept().expect("it connects");
        let sent: Vec<u8> = (0..100_000u32).map(|i| i as u8).collect();
        let mut received = vec![0; sent.len()];
        std::thread::scope(|scope| {
            scope.spawn(|| client.write_all(&sent).expect("it can be sent"));
            server.read_exact(&mut received).expect("it arrives");
        });
        assert_eq!(received, sent);
    }

    /// Sends an ICMP echo request of this size, which may be larger than a frame and then arrives
    /// in fragments.
    fn icmp(&self, size: usize) {
        let (domain, protocol, kind) = match self.like {
            IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4, 8),
            IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6, 128),
        };
        let open = || Socket::new(domain, Type::DGRAM, Some(protocol));
        let socket = self.client.run(open).expect("inside").expect("ping_group_range allows it");
        socket.set_read_timeout(PATIENCE).expect("a timeout");
        let mut echo = vec![0xa5; 8 + size];
        echo[..8].copy_from_slice(&[kind, 0, 0, 0, 0, 0, 0, 1]);
        let mut answer = vec![0; 65_536];
        eventually("an echo reply", || {
            let server = self.at(self.server, 0).into();
            socket.send_to(&echo, &server).expect("it can be sent");
            let length = (&socket).read(&mut answer).ok()?;
            assert_eq!((length, &answer[8..length]), (echo.len(), &echo[8..]));
            Some(())
        });
    }

    /// Sends to a port without a listener. The server's ICMP error must get back.
    fn unreachable(&self) {
        let client = self.udp(self.client, 0);
        client.connect(self.at(self.server, 4434)).expect("it can be connected");
        eventually("port unreachable", || {
            let sent = client.send(b"anybody?").and_then(|_| client.recv(&mut [0; 8]));
            let refused = |e: std::io::Error| e.kind() == std::io::ErrorKind::ConnectionRefused;
            sent.err().is_some_and(refused).then_some(())
        });
    }

    /// Checks ARP and neighbour discovery in both directions.
    fn resolution(&self) {
        for (host, other) in [(self.client, self.server), (self.server, self.client)] {
            let other = self.at(other, 0).ip();
            ip(host, &format!("neighbour del {other} dev eth0"));
            assert!(neighbour(host, other).is_none());
        }
        self.other_port(100);
        for (host, other) in [(self.client, self.server), (self.server, self.client)] {
            let found = neighbour(host, self.at(other, 0).ip()).expect("it was resolved");
            let mac = other.mac.map(|byte| format!("{byte:02x}")).join(":");
            assert_eq!(found["lladdr"], mac.as_str(), "{found}");
        }
    }

    fn all(&self) {
        self.resolution();
        self.other_port(1_000);
        // A datagram of this size is fragmented, and the later fragments contain no port.
        self.other_port(20_000);
        self.replies_to_the_server();
        self.tcp();
        self.icmp(56);
        self.icmp(5_000);
        self.unreachable();
    }
}

/// Sends a datagram of this size from one socket to the other, and one of the same size back.
fn request(asking: &UdpSocket, answering: &UdpSocket, size: usize) {
    let sent: Vec<u8> = (0..size).map(|i| (i / 7) as u8).collect();
    let mut buffer = vec![0; 65_536];
    eventually("an answer", || {
        let to = answering.local_addr().expect("it is bound");
        asking.send_to(&sent, to).expect("it can be sent");
        let (length, from) = answering.recv_from(&mut buffer).ok()?;
        assert!(buffer[..length] == sent);
        answering.send_to(&sent, from).expect("it can be sent");
        let (length, from) = asking.recv_from(&mut buffer).ok()?;
        assert!(buffer[..length] == sent && from == to);
        Some(())
    });
}

fn ip(host: &Namespace, args: &str) -> String {
    let mut ip = host.command("ip");
    ip.args(args.split_whitespace());
    finish(ip).ok()
}

/// Returns the host's entry for a neighbour's address, or `None` if the entry has no link-layer
/// address.
fn neighbour(host: &Namespace, address: IpAddr) -> Option<Value> {
    let text = ip(host, &format!("-j neighbour show {address} dev eth0"));
    let found: Value = serde_json::from_str(&text).expect("JSON");
    found.get(0).filter(|entry| entry.get("lladdr").is_some()).cloned()
}

#[test]
fn other_traffic_is_not_affected() {
    let Some(stage) = TestStage::new("other", 2) else { return };
    let _turn = attack::turn();
    // Use the strictest limits that exist.
    let limits = ["-o", "policy=strict", "--max-connections", "1", "--packets-per-source", "50/s"];
    let others = [
        "-o",
        "fragments=drop",
        "-o",
        "refuse_unknown_versions=true",
        "-o",
        "require_fixed_bit=true",
    ];
    let _gateway = stage.gateway(&[&limits[..], &others].concat());
    let _server = stage.serve(&[]);
    let (host, attacker) = (stage.host(0), stage.host(1));
    host.namespace.set_sysctl("net/ipv4/ping_group_range", "0 0").expect("it can be set");
    let (client, server) = (&host.namespace, stage.lab.server());
    let pairs = [host.v4(), host.v6()].map(|like| Pair { client, server, like });
    pairs.iter().for_each(Pair::all);
    let status = stage.status();
    assert_eq!(status["services"][0]["packets"], 0, "none of this was to the service: {status}");

    // Denying the client's own prefix must have no effect either, because the deny list only
    // applies to the protected service.
    stage.equic(&["deny", "198.18.0.0/15", "10.77.1.0/24", "fd65:7175:6963:1::/64"]).ok();
    let flood = Attack {
        target: stage.target(host.v4()),
        origin: spoofed("198.18.0.0/15"),
        payload: attack::initials(64),
        pps: 20_000,
    };
    let flood = flood.start(&attacker.namespace);
    let dropped = || stage.verdict("denied").dropped;
    let before = eventually("drops", || Some(dropped()).filter(|dropped| *dropped > 0));
    for pair in &pairs {
        pair.all();
        assert!(dropped() > before, "the flood goes on");
    }
    let report = flood.end();
    assert_eq!(report.errors, 0, "{report:?}");
    let denied = stage.verdict("denied");
    assert!(denied.packets == denied.dropped && denied.dropped <= report.sent, "{denied:?}");
    let status = stage.status();
    assert_eq!(status["services"][0]["packets"], denied.packets, "nothing else was counted");
}
