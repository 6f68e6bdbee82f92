//! Sends frames in unusual forms that Linux would deliver to a server. The gateway on the interface
//! denies every source, so none of the frames must arrive. Needs root.

mod support;

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use equic_gateway::{Config, Gateway, Mode, ObjectSource, Reason, parse_prefix};
use equic_testing::frame::{DESTINATION_OPTIONS, HOP_BY_HOP, Packet, TPID_8021AD, TPID_8021Q, udp};
use support::{await_some, in_namespace, ip, unique};

const ETHERNET: usize = 14;
const SERVICE_PORT: u16 = 4433;
const OTHER_PORT: u16 = 4434;
const V4: &str = "10.0.0.1:4433";
const V6: &str = "[fd00::1]:4433";

/// The network of these tests: the gateway's interface, a socket that puts frames on its wire, and
/// the servers behind the gateway.
struct Network {
    wire: OwnedFd,
    servers: Vec<UdpSocket>,
    other: UdpSocket,
}

impl Network {
    fn new() -> Network {
        // The tests send their frames to this link-layer address.
        ip(&["link", "set", "veth0", "address", "02:00:00:00:00:01"]);
        ip(&["addr", "add", "10.0.0.1/24", "dev", "veth0"]);
        ip(&["addr", "add", "fd00::1/64", "dev", "veth0", "nodad"]);
        let bind = |at: SocketAddr| {
            let socket = UdpSocket::bind(at).expect("the address is there");
            socket.set_nonblocking(true).expect("a flag");
            socket
        };
        let servers = [V4, V6].map(|at| bind(at.parse().expect("an address")));
        let other = bind(SocketAddr::new(servers[0].local_addr().expect("bound").ip(), OTHER_PORT));
        // SAFETY: the call takes no pointers, and this function owns the descriptor.
        let wire = unsafe {
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
            assert!(fd >= 0, "socket: {}", std::io::Error::last_os_error());
            OwnedFd::from_raw_fd(fd)
        };
        Network { wire, servers: servers.into(), other }
    }

    /// Puts a frame on the wire to veth0.
    fn send(&self, frame: &[u8]) {
        // SAFETY: the name is a NUL-terminated C string.
        let index = unsafe { libc::if_nametoindex(c"veth1".as_ptr()) };
        let to = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: u16::from_be_bytes([frame[12], frame[13]]).to_be(),
            sll_ifindex: index.cast_signed(),
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 6,
            sll_addr: [0; 8],
        };
        // SAFETY: the frame and the address have these sizes and are valid during the call.
        let sent = unsafe {
            libc::sendto(
                self.wire.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
                (&raw const to).cast(),
                size_of_val(&to) as u32,
            )
        };
        assert_eq!(sent, frame.len() as isize, "send: {}", std::io::Error::last_os_error());
    }

    /// Returns true if the frame reaches one of the servers. It sends another packet, to another
    /// port, after the frame. When that packet arrives, the frame has been processed.
    fn delivers(&self, frame: &[u8]) -> bool {
        let mut buffer = [0; 4096];
        self.send(frame);
        self.send(&checked(&udp("10.0.0.9:1000", "10.0.0.1:4434", b"behind it".to_vec()), 0));
        await_some("the packet behind it", || self.other.recv(&mut buffer).ok());
        let mut received = 0;
        for server in &self.servers {
            while server.recv(&mut buffer).is_ok() {
                received += 1;
            }
        }
        assert!(received < 2, "one frame is delivered {received} times");
        received == 1
    }
}

/// Returns the frame with valid checksums, and with VLAN ID 0 in its tags.
fn checked(packet: &Packet, tags: usize) -> Vec<u8> {
    let mut frame = packet.build();
    let start = ETHERNET + 4 * tags;
    for tag in 0..tags {
        frame[ETHERNET + 4 * tag + 1] = 0;
    }
    if packet.src.is_ipv4() {
        let checksum = checksum(&frame[start..start + 20]);
        frame[start + 10..start + 12].copy_from_slice(&checksum.to_be_bytes());
        return frame;
    }
    let ports = [packet.src.port().to_be_bytes(), packet.dst.port().to_be_bytes()].concat();
    let at = frame.windows(4).position(|bytes| bytes == ports).expect("it has a UDP header");
    let mut pseudo = frame[start + 8..start + 40].to_vec();
    pseudo.extend([0, 0, frame[at + 4], frame[at + 5], 0, 0, 0, 17]);
    pseudo.extend(&frame[at..]);
    let checksum = checksum(&pseudo);
    frame[at + 6..at + 8].copy_from_slice(&checksum.to_be_bytes());
    frame
}

/// Returns the checksum of RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Returns a short header packet, which no limit refuses.
fn payload() -> Vec<u8> {
    [vec![0x41], vec![0x11; 59]].concat()
}

fn from4() -> Packet {
    udp("10.0.0.9:1000", V4, payload())
}

fn from6(source: &str) -> Packet {
    udp(&format!("[{source}]:1000"), V6, payload())
}

/// Returns frames with more headers than the XDP program parses, each with a name.
fn deep() -> Vec<(&'static str, Vec<u8>)> {
    let tagged = |tags: [u16; 3]| tags.into_iter().fold(from4(), Packet::vlan);
    let options = |n| from6("fd00::9").extension(DESTINATION_OPTIONS, 0, n);
    vec![
        ("three tags of VLAN 0", checked(&tagged([TPID_8021Q; 3]), 3)),
        ("three tags of VLAN 0, 802.1ad", checked(&tagged([TPID_8021AD; 3]), 3)),
        ("17 extension headers", checked(&options(17), 0)),
        ("50 extension headers", checked(&options(50), 0)),
        (
            "Payload Length 0 and Hop-by-Hop",
            checked(&from6("fd00::9").extension(HOP_BY_HOP, 0, 1).ip_len(0), 0),
        ),
    ]
}

/// Returns other unusual frames that Linux might deliver, each with a name.
fn odd() -> Vec<(&'static str, Vec<u8>)> {
    let mapped = from6("::ffff:10.0.0.9");
    vec![
        ("IPv4", checked(&from4(), 0)),
        ("IPv6", checked(&from6("fd00::9"), 0)),
        ("a tag of VLAN 0", checked(&from4().vlan(TPID_8021Q), 1)),
        ("two tags of VLAN 0", checked(&from4().vlan(TPID_8021AD).vlan(TPID_8021Q), 2)),
        (
            "16 extension headers",
            checked(&from6("fd00::9").extension(DESTINATION_OPTIONS, 0, 16), 0),
        ),
        ("from a mapped address", checked(&mapped, 0)),
        ("from ::", checked(&from6("::"), 0)),
        ("from ::1", checked(&from6("::1"), 0)),
        ("from a multicast address", checked(&from6("ff02::9"), 0)),
    ]
}

fn names(network: &Network, frames: &[(&'static str, Vec<u8>)]) -> Vec<&'static str> {
    frames.iter().filter(|(_, frame)| network.delivers(frame)).map(|(name, _)| *name).collect()
}

fn denying_everybody() -> Config {
    let mut config = Config::for_port(SERVICE_PORT);
    config.gateway.name = unique("unusual");
    config.deny = ["0.0.0.0/0", "::/0"].map(|text| parse_prefix(text).expect("a prefix")).to_vec();
    config
}

#[test]
fn deny_list_cannot_be_evaded_by_unusual_frames() {
    in_namespace(|| {
        let network = Network::new();
        let (deep, odd) = (deep(), odd());
        // The kernel takes some time to detect the carrier, and IPv6 does not work before that.
        let plain = checked(&from6("fd00::9"), 0);
        await_some("IPv6 to be ready", || network.delivers(&plain).then_some(()));
        let reached = (names(&network, &deep), names(&network, &odd));
        println!("without a gateway Linux delivers {reached:?}");
        assert!(reached.1.starts_with(&["IPv4", "IPv6"]), "the plain ones arrive: {reached:?}");

        let gateway = Gateway::load(&denying_everybody(), ObjectSource::Embedded).unwrap();
        gateway.attach("veth0", Mode::Auto).unwrap();
        assert_eq!(names(&network, &deep), [""; 0]);
        assert_eq!(names(&network, &odd), [""; 0]);
        assert_eq!(gateway.control().tallies().unwrap().deep_headers, deep.len() as u64);
        let rows = gateway.control().counters().unwrap();
        let count =
            |reason| rows.iter().find(|row| row.reason == reason).map_or(0, |row| row.dropped);
        assert_eq!((count(Reason::BadSource), count(Reason::Denied)), (4, 5));
        drop(gateway);

        // If deep headers pass, Linux must deliver the same frames as without a gateway.
        let mut config = denying_everybody();
        config.gateway.drop_deep_headers = false;
        let gateway = Gateway::load(&config, ObjectSource::Embedded).unwrap();
        gateway.attach("veth0", Mode::Auto).unwrap();
        assert_eq!(names(&network, &deep), reached.0);
        assert_eq!(gateway.control().tallies().unwrap().deep_headers, deep.len() as u64);
    });
}

/// Sends packets from and to loopback addresses on the loopback interface, where these addresses
/// are legitimate. They must pass.
#[test]
fn loopback_traffic_is_not_forged() {
    in_namespace(|| {
        let mut config = Config::for_port(SERVICE_PORT);
        config.gateway.name = unique("loopback");
        let gateway = Gateway::load(&config, ObjectSource::Embedded).unwrap();
        gateway.attach("lo", Mode::Auto).unwrap();
        let mut buffer = [0; 4096];
        for address in ["127.0.0.1", "::1"] {
            let at = SocketAddr::new(address.parse().expect("an address"), SERVICE_PORT);
            let server = UdpSocket::bind(at).expect("the address is there");
            server.set_nonblocking(true).expect("a flag");
            let client =
                UdpSocket::bind(SocketAddr::new(at.ip(), 0)).expect("the address is there");
            client.send_to(&payload(), at).expect("it is sent");
            await_some("the packet", || server.recv(&mut buffer).ok());
        }
        let copy = gateway.control().snapshot(ObjectSource::Embedded).unwrap();
        let reason = |gateway: &Gateway, packet: &Packet| {
            gateway.judge(&packet.build()).unwrap().verdict.expect("it is to the service").reason
        };
        let (ours, theirs) = (udp("127.0.0.1:1000", V4, payload()), from6("::ffff:127.0.0.1"));
        assert_eq!(reason(&copy, &ours), Reason::Established);
        assert_eq!(reason(&copy, &theirs), Reason::BadSource);
        gateway.attach("veth0", Mode::Auto).unwrap();
        let copy = gateway.control().snapshot(ObjectSource::Embedded).unwrap();
        assert_eq!(reason(&copy, &ours), Reason::BadSource);
    });
}
