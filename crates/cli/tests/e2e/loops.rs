//! Two gateways protect services that send to each other. Both have every kind of answer enabled.
//! Forged packets make one gateway answer to the other one's service. The answers must not cause
//! further answers.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::thread::JoinHandle;

use equic_gateway::{Control, ID_FORMAT};
use equic_netns::Namespace;
use equic_token::{IdFormat, IdGenerator};
use nix::sys::signal::Signal;

use crate::attack;
use crate::common::{EQUIC, Running, equic, eventually};
use crate::stage::TestStage;

/// Options that enable every kind of answer. On a veth interface, answers of an XDP program only
/// arrive in generic mode, or if the other end has a program, too.
const ALL_ANSWERS: [&str; 10] = [
    "-o",
    "retry=always",
    "-o",
    "version_negotiation=true",
    "-o",
    "stateless_reset=true",
    "-o",
    "check_ids=true",
    "--mode",
    "generic",
];
/// Number of packets that are sent in each direction after the forged one, to mark the end. If
/// there were a loop of answers, all its packets would be counted before the last marker.
const MARKERS: u64 = 20;

/// Number of packets for each reason, by the reason's name.
type Counts = BTreeMap<&'static str, u64>;

/// A host with a gateway that protects port 443, and the sockets on this port.
struct Side {
    name: String,
    host: Namespace,
    gateway: Running,
    control: Control,
    /// Sockets on the protected port, one for each address family.
    sockets: [UdpSocket; 2],
}

impl Side {
    /// Starts a gateway that answers for a service whose only server has died.
    fn new(name: String, host: &Namespace) -> Side {
        let gateway = Running::gateway(host, &name, &ALL_ANSWERS);
        gateway.event("ready");
        let args = ["serve", "--json", "--gateway", &name, "--listen", "[::]:443"];
        let mut server = Running::start(host.command(EQUIC), &args);
        server.event("ready");
        server.signal(Signal::SIGKILL);
        server.wait();
        let control = Control::open(Some(&name)).expect("root may look");
        // Bind only once. If a socket is closed and bound again, a child process of another test
        // may still hold the port for a moment.
        let families = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        let sockets = families.map(|like: IpAddr| {
            host.udp_socket(host.socket_address(like, 443)).expect("the port is free")
        });
        let side = Side { name, host: host.clone(), gateway, control, sockets };
        let id = hex(&side.id());
        eventually("its clients are sent resets", || {
            let asked = ["explain", "--json", "--src", "192.0.2.9", "--short", "--dcid", &id];
            (side.equic(&asked).json()["reason"] == "reset_sent").then_some(())
        });
        side
    }

    fn equic(&self, args: &[&str]) -> crate::common::Out {
        equic(&[&["gateway"], args, &["--gateway", &self.name]].concat())
    }

    /// Returns a connection ID that the dead server could have issued.
    fn id(&self) -> Vec<u8> {
        let format = IdFormat::new(ID_FORMAT.0, ID_FORMAT.1).expect("a format");
        let ring = self.control.key_ring().expect("keys");
        let ids = IdGenerator::new(format, &[0, 0], ring).expect("random numbers");
        ids.generate().as_bytes().to_vec()
    }

    fn counts(&self) -> Counts {
        let rows = self.control.counters().expect("root may look");
        rows.into_iter().map(|row| (row.reason.name(), row.packets)).collect()
    }

    /// Returns how many packets the gateway has counted for each reason since `before`.
    fn since(&self, before: &Counts) -> Counts {
        let more = |(reason, packets): (&'static str, u64)| {
            let more = packets - before.get(reason).copied().unwrap_or(0);
            (more > 0).then_some((reason, more))
        };
        self.counts().into_iter().filter_map(more).collect()
    }

    fn address(&self, like: IpAddr) -> SocketAddr {
        self.host.socket_address(like, 443)
    }

    /// Sends a packet from the protected port, as if an attacker had forged its source.
    fn send(&self, packet: &[u8], to: SocketAddr) {
        let socket = &self.sockets[usize::from(to.is_ipv6())];
        socket.send_to(packet, to).expect("it is sent");
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a packet of 1,200 bytes with a long header. It has a Destination Connection ID of 8
/// bytes, a Source Connection ID of 4 bytes, and no token.
fn long_header(first: u8, version: u32) -> Vec<u8> {
    let mut packet = vec![first];
    packet.extend(version.to_be_bytes());
    packet.extend([8, 1, 2, 3, 4, 5, 6, 7, 8, 4, 9, 9, 9, 9, 0]);
    let length = 1200 - packet.len() - 2;
    packet.extend((0x4000 | length as u16).to_be_bytes());
    packet.resize(1200, 0x55);
    packet
}

fn short_header(id: &[u8], length: usize) -> Vec<u8> {
    let mut packet = [&[0x41], id].concat();
    packet.resize(length, 0x77);
    packet
}

/// A forged packet, and the expected reasons: that of the first gateway for the packet, and that of
/// the second gateway for the answer, or `None` if there is no answer.
struct Case {
    packet: Vec<u8>,
    first: &'static str,
    second: Option<&'static str>,
}

fn cases(first: &Side) -> Vec<Case> {
    let case = |packet, first, second| Case { packet, first, second };
    let reset = |length| short_header(&first.id(), length);
    vec![
        case(long_header(0xc3, 1), "retry_sent", Some("retry")),
        case(long_header(0xd3, 0x6b33_43cf), "retry_sent", Some("retry")),
        case(
            long_header(0xc3, 0xff00_001d),
            "version_negotiation_sent",
            Some("version_negotiation"),
        ),
        case(reset(1_000), "reset_sent", Some("forged_id")),
        case(reset(44), "reset_sent", Some("forged_id")),
        // The shortest packet that a gateway answers. The answer is the shortest one, too.
        case(reset(22), "reset_sent", Some("forged_id")),
        case(reset(21), "established", None),
        // Packets that claim to be answers, although no request was sent.
        case(long_header(0xf3, 1), "retry", None),
        case(long_header(0xc3, 0), "version_negotiation", None),
    ]
}

/// Sends a forged packet to `first`, with the address of `second` as its source. Then sends
/// markers, and waits until they are counted. Returns how many packets each gateway judged, by
/// reason.
fn bounce(first: &Side, second: &Side, packet: &[u8], like: IpAddr) -> [Counts; 2] {
    let before = [first.counts(), second.counts()];
    second.send(packet, first.address(like));
    for _ in 0..MARKERS {
        // No gateway answers a packet with this version and length.
        let marker = || long_header(0xc3, 9)[..100].to_vec();
        second.send(&marker(), first.address(like));
        first.send(&marker(), second.address(like));
    }
    let marked = |counts: &Counts| counts.get("small_version") == Some(&MARKERS);
    let mut counts = eventually("the markers came", || {
        let counts = [first.since(&before[0]), second.since(&before[1])];
        counts.iter().all(marked).then_some(counts)
    });
    for counts in &mut counts {
        counts.remove("small_version");
    }
    counts
}

fn one(reason: Option<&'static str>) -> Counts {
    reason.into_iter().map(|reason| (reason, 1)).collect()
}

/// In both directions and both address families, each forged packet must get at most one answer,
/// and the answer must get none.
#[test]
fn answers_do_not_loop_between_gateways() {
    let Some(stage) = TestStage::new("loops", 1) else { return };
    // Wait for floods of other tests to end, because they could fill the queues of these packets.
    let _turn = attack::turn();
    let sides = [
        Side::new(format!("{}-a", stage.name), stage.lab.server()),
        Side::new(format!("{}-b", stage.name), &stage.host(0).namespace),
    ];
    for (check_ids, one_ring) in [(true, false), (false, false), (true, true)] {
        for side in &sides {
            side.equic(&["set", &format!("check_ids={check_ids}")]).ok();
        }
        if one_ring {
            // Both gateways get the same keys, as if they protected one service. Each then accepts
            // connection IDs and tokens of the other.
            sides[1].control.set_key_ring(&sides[0].control.key_ring().expect("keys"));
        }
        for (first, second) in [(&sides[0], &sides[1]), (&sides[1], &sides[0])] {
            for like in [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()] {
                for case in cases(first) {
                    let seen = bounce(first, second, &case.packet, like);
                    // Without ID checks, a stateless reset looks like a packet of an unknown
                    // connection, so the gateway passes it to its server.
                    let ends = match case.second {
                        Some("forged_id") if !check_ids => Some("established"),
                        other => other,
                    };
                    assert_eq!(seen, [one(Some(case.first)), one(ends)], "{like}: {}", case.first);
                }
            }
        }
    }
    for side in sides {
        assert!(side.gateway.terminate().success());
    }
}

/// A service that sends every datagram back to the address it came from.
struct Echo {
    socket: UdpSocket,
    thread: Option<JoinHandle<Vec<Vec<u8>>>>,
}

impl Echo {
    /// Starts the service on a free port, because a child process of another test may still hold
    /// the previous port for a moment.
    fn new(host: &Namespace, like: IpAddr) -> Echo {
        let socket = host.udp_socket(host.socket_address(like, 0)).expect("a socket");
        let back = socket.try_clone().expect("a descriptor");
        let work = move || {
            let (mut buffer, mut seen) = ([0; 2_000], Vec::new());
            loop {
                let (length, from) = back.recv_from(&mut buffer).expect("something comes");
                if length == 0 {
                    return seen;
                }
                seen.push(buffer[..length].to_vec());
                back.send_to(&buffer[..length], from).expect("it is sent back");
            }
        };
        Echo { socket, thread: Some(std::thread::spawn(work)) }
    }

    /// Ends the service, and returns the datagrams that it has sent back.
    fn end(mut self) -> Vec<Vec<u8>> {
        self.stop().expect("it runs").expect("it does not fail")
    }

    /// Ends the service's thread with an empty datagram, which nothing else in this test sends.
    /// Returns `None` if the thread has already ended.
    fn stop(&mut self) -> Option<std::thread::Result<Vec<Vec<u8>>>> {
        let thread = self.thread.take()?;
        let own = self.socket.local_addr().expect("it is bound");
        self.socket.send_to(&[], own).expect("it is sent");
        Some(thread.join())
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

/// A service that does not know QUIC echoes all packets. For one forged packet, the gateway must
/// send it only one answer.
#[test]
fn answers_do_not_loop_with_an_echo_service() {
    let Some(stage) = TestStage::new("echo", 1) else { return };
    let _turn = attack::turn();
    let side = Side::new(stage.name.clone(), stage.lab.server());
    let host = &stage.host(0).namespace;
    // The datagram that ends the echo service is sent over the namespace's loopback interface.
    stage.ip(host, "link set lo up");
    for like in [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()] {
        for case in cases(&side) {
            let (echo, before) = (Echo::new(host, like), side.counts());
            let to = side.address(like);
            echo.socket.send_to(&case.packet, to).expect("it is sent");
            let expected =
                one(Some(case.first)).into_iter().chain(one(case.second)).collect::<Counts>();
            eventually("the answer came back", || (side.since(&before) == expected).then_some(()));
            for number in 1..=MARKERS {
                echo.socket.send_to(&long_header(0xc3, 9)[..100], to).expect("it is sent");
                eventually("the marker came", || {
                    (side.since(&before).get("small_version") == Some(&number)).then_some(())
                });
            }
            let mut seen = side.since(&before);
            seen.remove("small_version");
            assert_eq!(seen, expected, "{like}");
            let answers = echo.end();
            assert_eq!(answers.len(), usize::from(case.second.is_some()), "{like}: {}", case.first);
            assert!(answers.iter().all(|answer| answer.len() < case.packet.len()));
        }
    }
}
