//! Tests that floods arrive as requested, from the requested sources, and that they never leave a
//! lab.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common;
use equic_netns::flood::{
    DatagramPool, Flood, FloodError, FloodReport, InitialFactory, Limits, Origin, Payload,
    RawSender, frame,
};
use equic_netns::measure::{NetCounters, Sampler};
use equic_netns::{Lab, Namespace};
use ipnet::IpNet;
use nix::sys::socket::{setsockopt, sockopt};

const ANY4: IpAddr = IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);
const ANY6: IpAddr = IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED);

/// Returns a server socket with a large buffer.
fn sink(namespace: &Namespace, like: IpAddr) -> UdpSocket {
    let socket = namespace.udp_socket(namespace.socket_address(like, 4433)).unwrap();
    setsockopt(&socket, sockopt::RcvBufForce, &(64 << 20)).unwrap();
    socket.set_read_timeout(Some(common::PATIENCE)).unwrap();
    socket
}

fn receive(socket: &UdpSocket, count: u64) -> Vec<(Vec<u8>, SocketAddr)> {
    let mut buffer = [0; 2048];
    (0..count)
        .map(|_| {
            let (length, from) = socket.recv_from(&mut buffer).unwrap();
            (buffer[..length].to_vec(), from)
        })
        .collect()
}

fn limits(packets: u64) -> Limits {
    Limits { duration: Duration::from_secs(10), packets, pps: None }
}

fn garbage(seed: u64) -> Payload {
    Payload::Pool(Arc::new(DatagramPool::short_headers(100, 300, seed).unwrap()))
}

fn run(namespace: &Namespace, flood: &Flood) -> Result<FloodReport, FloodError> {
    namespace.run(|| flood.run(&AtomicBool::new(false), &mut |_| {})).unwrap()
}

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn flood_by_sockets_has_the_requested_content_and_sources() {
    let Some(lab) = common::lab("t-sock", 1) else { return };
    let seed = common::seed();
    for (like, addresses) in [
        (ANY4, ["10.77.1.1:0", "10.77.1.50:0", "10.77.1.200:7777"]),
        (
            ANY6,
            [
                "[fd65:7175:6963:1::1]:0",
                "[fd65:7175:6963:1::50]:0",
                "[fd65:7175:6963:1::dead]:7777",
            ],
        ),
    ] {
        let socket = sink(lab.server(), like);
        let sources: Vec<SocketAddr> = addresses.iter().map(|a| a.parse().unwrap()).collect();
        let payload = garbage(seed);
        let flood = Flood {
            target: socket.local_addr().unwrap(),
            origin: Origin::Sockets(sources.clone()),
            payload: payload.clone(),
            limits: limits(1000),
            seed,
        };
        let report = run(lab.client(0), &flood).unwrap();
        assert_eq!((report.sent, report.errors, report.last_error), (1000, 0, None));
        let Payload::Pool(pool) = payload else { unreachable!() };
        let known: HashSet<&Vec<u8>> = pool.datagrams().iter().collect();
        let mut seen: HashMap<IpAddr, u64> = HashMap::new();
        for (bytes, from) in receive(&socket, 1000) {
            assert!(known.contains(&bytes));
            *seen.entry(from.ip()).or_default() += 1;
        }
        for source in sources {
            assert!(seen[&source.ip()] > 200, "{source} sent too little: {seen:?}");
        }
        assert_eq!(seen.len(), 3);
    }
}

#[test]
fn flood_with_spoofed_sources_has_correct_checksums() {
    let Some(lab) = common::lab("t-spoof", 1) else { return };
    let seed = common::seed();
    let prefixes =
        nets(&["198.18.0.0/16", "203.0.113.0/24", "2001:db8:5::/48", "2001:db8:9::7/128"]);
    for like in [ANY4, ANY6] {
        let socket = sink(lab.server(), like);
        let before = NetCounters::of(lab.server()).unwrap();
        let flood = Flood {
            target: socket.local_addr().unwrap(),
            origin: Origin::spoofed(prefixes.clone()),
            payload: garbage(seed),
            limits: limits(2000),
            seed,
        };
        // Other tests share the kernel's queue of received packets on this CPU, so some packets may
        // be lost.
        let limits = Limits { pps: NonZeroU64::new(20_000), ..flood.limits };
        let report = run(lab.client(0), &Flood { limits, ..flood }).unwrap();
        assert_eq!((report.sent, report.errors), (2000, 0));
        let received = receive(&socket, 1900);
        let mine: Vec<&IpNet> =
            prefixes.iter().filter(|prefix| prefix.addr().is_ipv4() == like.is_ipv4()).collect();
        for prefix in &mine {
            let hits = received.iter().filter(|(_, from)| prefix.contains(&from.ip())).count();
            assert!(hits > 600, "{hits} from {prefix}");
        }
        assert!(received.iter().all(|(_, from)| mine.iter().any(|net| net.contains(&from.ip()))));
        assert!(received.iter().all(|(_, from)| from.port() >= 1024));
        let sources: HashSet<SocketAddr> = received.iter().map(|(_, from)| *from).collect();
        assert!(sources.len() > 1800, "{} sources", sources.len());
        let after = NetCounters::of(lab.server()).unwrap();
        assert_eq!(after.udp4.csum_errors, before.udp4.csum_errors);
        assert_eq!(after.udp6.csum_errors, before.udp6.csum_errors);
        assert!(after.interfaces["eth0"].rx_packets >= before.interfaces["eth0"].rx_packets + 1900);
    }
}

#[test]
fn flood_with_the_same_seed_is_the_same() {
    let Some(lab) = common::lab("t-seed", 1) else { return };
    let socket = sink(lab.server(), ANY4);
    let seed = common::seed();
    let mut flood = Flood {
        target: socket.local_addr().unwrap(),
        origin: Origin::spoofed(nets(&["198.18.0.0/16"])),
        payload: garbage(seed),
        limits: limits(40),
        seed,
    };
    let mut once = || {
        assert_eq!(run(lab.client(0), &flood).unwrap().sent, 40);
        let received = receive(&socket, 40);
        flood.seed = seed;
        received
    };
    assert_eq!(once(), once());
    flood.seed = seed.wrapping_add(1);
    let first = run(lab.client(0), &flood).map(|_| receive(&socket, 40)).unwrap();
    flood.seed = seed;
    let second = run(lab.client(0), &flood).map(|_| receive(&socket, 40)).unwrap();
    assert_ne!(first, second);
}

#[test]
fn flood_of_initials_never_repeats_a_connection_id() {
    let Some(lab) = common::lab("t-init", 1) else { return };
    let socket = sink(lab.server(), ANY6);
    let seed = common::seed();
    let factory = Arc::new(InitialFactory::new("localhost", &["h3"]).unwrap());
    let pool = DatagramPool::initials(&factory, 300, seed).unwrap();
    for payload in [Payload::Pool(Arc::new(pool)), Payload::FreshInitials(factory)] {
        let flood = Flood {
            target: socket.local_addr().unwrap(),
            origin: Origin::ports_of(lab.client(0).ipv6.into(), 4),
            payload,
            limits: limits(300),
            seed,
        };
        assert_eq!(run(lab.client(0), &flood).unwrap().sent, 300);
        let received = receive(&socket, 300);
        // The version, and then the length of the Destination Connection ID (RFC 9000 s.17.2).
        assert!(received.iter().all(|(d, _)| d.len() == 1200 && d[1..6] == [0, 0, 0, 1, 8]));
        let ids: HashSet<&[u8]> = received.iter().map(|(d, _)| &d[6..14]).collect();
        let ports: HashSet<u16> = received.iter().map(|(_, from)| from.port()).collect();
        assert_eq!((ids.len(), ports.len()), (300, 4));
    }
}

#[test]
fn flood_reports_progress_and_stops_on_request() {
    let Some(lab) = common::lab("t-stop", 1) else { return };
    let stop = AtomicBool::new(false);
    let mut told = Vec::new();
    let flood = Flood {
        target: lab.server().socket_address(ANY4, 4433),
        origin: Origin::ports_of(lab.client(0).ipv4.into(), 1),
        payload: garbage(1),
        limits: Limits {
            duration: Duration::from_secs(60),
            packets: u64::MAX,
            pps: NonZeroU64::new(500),
        },
        seed: 1,
    };
    let sampler = Sampler::start(Duration::from_millis(100), &[lab.server().clone()]).unwrap();
    let mut progress = |now: &equic_netns::flood::Progress| {
        told.push(*now);
        stop.store(told.len() == 3, Ordering::Relaxed);
    };
    let report = lab.client(0).run(|| flood.run(&stop, &mut progress)).unwrap().unwrap();
    // Progress must be reported at the start, and then once per second.
    assert_eq!(told.len(), 3);
    assert!(told[0].sent > 0 && told[1].seconds >= 1.0 && told[2].seconds >= 2.0, "{told:?}");
    assert!(
        told[0].sent < told[1].sent && told[1].sent < told[2].sent && told[2].sent <= report.sent
    );
    // The flood must never be faster than requested, whatever the load of the machine.
    assert!(report.sent as f64 <= 500.0 * report.seconds + 64.0, "{report:?}");
    let series = sampler.stop();
    let growth = series.samples.last().unwrap().since(&series.samples[0]);
    let server = &growth.namespaces[&lab.server().name];
    assert_eq!(server.udp4.no_ports, report.sent);
    assert!(server.interfaces["eth0"].rx_packets >= report.sent);
}

#[test]
fn flood_losses_at_a_full_socket_are_counted() {
    let Some(lab) = common::lab("t-full", 1) else { return };
    let socket = lab.server().udp_socket(lab.server().socket_address(ANY6, 0)).unwrap();
    let flood = Flood {
        target: socket.local_addr().unwrap(),
        origin: Origin::ports_of(lab.client(0).ipv6.into(), 1),
        payload: garbage(1),
        limits: limits(5000),
        seed: 1,
    };
    let sent = run(lab.client(0), &flood).unwrap().sent;
    common::eventually("all datagrams are accounted for", || {
        let udp = NetCounters::of(lab.server()).unwrap().udp6;
        udp.rcvbuf_errors > 0 && udp.rcvbuf_errors + udp.in_datagrams >= sent - 500
    });
}

#[test]
fn raw_frames_are_sent_unchanged() {
    let Some(lab) = common::lab("t-raw", 1) else { return };
    let socket = sink(lab.server(), ANY4);
    let sender = lab.client(0).run(|| RawSender::open("eth0")).unwrap().unwrap();
    assert_eq!(sender.mac().unwrap(), lab.client(0).mac);
    let source: SocketAddr = "192.0.2.9:99".parse().unwrap();
    let target = socket.local_addr().unwrap();
    let frame =
        frame::udp_frame(lab.client(0).mac, lab.server().mac, source, target, b"odd").unwrap();
    sender.send(&frame).unwrap();
    assert_eq!(receive(&socket, 1), [(b"odd".to_vec(), source)]);
    for bad in [&frame[..10], &[0; 1600]] {
        let error = sender.send(bad).unwrap_err();
        assert!(error.to_string().contains(&format!("a frame of {} bytes", bad.len())), "{error}");
    }
}

/// Returns a flood that would work if it were permitted.
fn plausible(lab: &Lab) -> Flood {
    Flood {
        target: lab.server().socket_address(ANY4, 4433),
        origin: Origin::spoofed(nets(&["198.18.0.0/16"])),
        payload: garbage(1),
        limits: limits(10),
        seed: 1,
    }
}

#[test]
fn flood_refuses_to_run_outside_a_lab() {
    let Some(lab) = common::lab("t-refuse", 1) else { return };
    let flood = plausible(&lab);
    let never = AtomicBool::new(false);
    assert!(matches!(
        flood.run(&never, &mut |_| {}),
        Err(FloodError::InitNamespace | FloodError::NotInLab)
    ));
    assert!(matches!(RawSender::open("lo"), Err(FloodError::InitNamespace | FloodError::NotInLab)));
    // The namespace does not belong to a lab.
    let elsewhere = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            (flood.run(&never, &mut |_| {}), RawSender::open("lo").map(|_| ()))
        });
        thread.join().unwrap()
    });
    assert!(matches!(elsewhere.0, Err(FloodError::NotInLab)), "{elsewhere:?}");
    assert!(matches!(elsewhere.1, Err(FloodError::NotInLab)), "{elsewhere:?}");
    // After a lab was removed, its namespace is no longer in a lab, even if an open descriptor
    // keeps it alive.
    let client = lab.client(0).clone();
    assert_eq!(run(&client, &flood).unwrap().sent, 10);
    drop(lab);
    assert!(matches!(run(&client, &flood), Err(FloodError::NotInLab)));
}

#[test]
fn flood_refuses_foreign_targets_and_interfaces() {
    let Some(lab) = common::lab("t-foreign", 1) else { return };
    let good = plausible(&lab);
    let refusal = |flood: Flood| run(lab.client(0), &flood).unwrap_err();
    for target in ["198.18.0.1:443", "127.0.0.1:443", "[2001:db8::1]:443", "[::1]:443"] {
        let flood = Flood { target: target.parse().unwrap(), ..good.clone() };
        assert!(matches!(refusal(flood), FloodError::ForeignDestination(_)), "{target}");
    }
    let spoofed = |interface: &str, prefixes: &[&str], ports| Flood {
        origin: Origin::Spoofed { interface: interface.into(), prefixes: nets(prefixes), ports },
        ..good.clone()
    };
    let made = lab
        .client(0)
        .command("ip")
        .args(["link", "add", "br9", "type", "bridge"])
        .status()
        .unwrap();
    assert!(made.success());
    let v4 = &["198.18.0.0/16"][..];
    for interface in ["lo", "br9"] {
        let error = refusal(spoofed(interface, v4, 1..=2));
        assert!(matches!(error, FloodError::NotVeth { .. }), "{interface}: {error}");
        let raw = lab.client(0).run(|| RawSender::open(interface)).unwrap().unwrap_err();
        assert!(matches!(raw, FloodError::NotVeth { .. }), "{interface}: {raw}");
    }
    for (flood, expected) in [
        (spoofed("nope0", v4, 1..=2), "find interface \"nope0\""),
        (spoofed("eth0", &["2001:db8::/64"], 1..=2), "no IPv4 prefix"),
        (spoofed("eth0", &[], 1..=2), "no IPv4 prefix"),
        #[allow(clippy::reversed_empty_ranges, reason = "that is the point")]
        (spoofed("eth0", v4, 2..=1), "no port"),
        (
            Flood { target: "10.77.0.9:443".parse().unwrap(), ..good.clone() },
            "no host of a lab has the address 10.77.0.9",
        ),
        (Flood { origin: Origin::Sockets(Vec::new()), ..good.clone() }, "no address to send from"),
        (Flood { origin: Origin::ports_of(ANY6, 1), ..good.clone() }, "cannot send to"),
        (
            Flood { origin: Origin::ports_of("9.9.9.9".parse().unwrap(), 1), ..good.clone() },
            "open a socket on 9.9.9.9",
        ),
        (Flood { limits: Limits { packets: 0, ..good.limits }, ..good.clone() }, "must be above 0"),
        (
            Flood { limits: Limits { duration: Duration::MAX, ..good.limits }, ..good.clone() },
            "duration",
        ),
    ] {
        let error = refusal(flood).to_string();
        assert!(error.contains(expected), "{error:?} does not contain {expected:?}");
    }
    // The packets are too large for the link, so every packet fails. The flood must report the
    // reason instead of continuing.
    let big = Payload::Pool(Arc::new(DatagramPool::short_headers(1, 1473, 1).unwrap()));
    let error = refusal(Flood { payload: big, limits: limits(10_000), ..good.clone() }).to_string();
    assert!(error.contains("Message too long"), "{error}");
}
