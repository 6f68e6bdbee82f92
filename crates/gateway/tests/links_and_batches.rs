//! Tests packets that are not Ethernet frames with one datagram each: packets on an interface
//! without an Ethernet header, and batches of datagrams from a sender on this machine (UDP GSO).
//! Needs root.

mod support;

use std::fs::File;
use std::io::Write;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use equic_gateway::{Config, Error, Gateway, Mode, ObjectSource, Rate, Reason, parse_prefix};
use support::{await_some, config, in_namespace, ip};

const SERVICE_PORT: u16 = 4433;
const OTHER_PORT: u16 = 4434;

fn bind(at: &str) -> UdpSocket {
    let socket = UdpSocket::bind(at).expect("the address is there");
    socket.set_nonblocking(true).expect("a flag");
    socket
}

fn received(socket: &UdpSocket) -> usize {
    let mut buffer = [0; 2048];
    std::iter::from_fn(|| socket.recv(&mut buffer).ok()).count()
}

/// Waits until a socket has received `count` datagrams.
fn await_datagrams(socket: &UdpSocket, count: usize) {
    let mut got = 0;
    await_some("datagrams", || {
        got += received(socket);
        (got >= count).then_some(())
    });
    assert_eq!(got, count);
}

fn gateway(change: impl FnOnce(&mut Config)) -> Gateway {
    let mut config = config("links");
    change(&mut config);
    Gateway::load(&config, ObjectSource::Embedded).expect("it is loaded")
}

fn dropped(gateway: &Gateway, reason: Reason) -> u64 {
    let rows = gateway.control().counters().expect("counters");
    rows.iter().find(|row| row.reason == reason).map_or(0, |row| row.dropped)
}

/// Creates a tun interface with an address. Packets that are written to the file arrive on the
/// interface.
fn tun(name: &str, address: &str) -> File {
    let mut request = [0_u8; 40];
    request[..name.len()].copy_from_slice(name.as_bytes());
    // The flags are IFF_TUN and IFF_NO_PI.
    request[16..18].copy_from_slice(&0x1001_u16.to_ne_bytes());
    let file = File::options().read(true).write(true).open("/dev/net/tun").expect("tun");
    // SAFETY: TUNSETIFF reads and writes an `ifreq`, which has 40 bytes.
    let made = unsafe { libc::ioctl(file.as_raw_fd(), 0x4004_54ca, request.as_mut_ptr()) };
    assert_eq!(made, 0, "TUNSETIFF: {}", std::io::Error::last_os_error());
    ip(&["addr", "add", address, "dev", name]);
    ip(&["link", "set", name, "up"]);
    file
}

/// Returns an IPv4 packet from 10.8.0.2 to 10.8.0.1 with a QUIC short header.
fn packet(port: u16) -> Vec<u8> {
    let mut quic = vec![0x41];
    quic.resize(60, 0x11);
    let from: SocketAddr = "10.8.0.2:1000".parse().expect("an address");
    let to = SocketAddr::new("10.8.0.1".parse().expect("an address"), port);
    let mut packet = support::udp(from, to, &quic).split_off(14);
    let words = packet[..20].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum: u32 = words.sum();
    let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}

#[test]
fn link_without_an_ethernet_header_is_protected() {
    in_namespace(|| {
        let mut wire = tun("tun0", "10.8.0.1/24");
        let (server, other) =
            (bind(&format!("10.8.0.1:{SERVICE_PORT}")), bind(&format!("10.8.0.1:{OTHER_PORT}")));
        for mode in [Mode::Auto, Mode::Generic] {
            let gateway = gateway(|_| ());
            let attached = gateway.attach("tun0", mode).expect("it is attached");
            assert!(!attached.native, "the driver runs the program behind itself");
            wire.write_all(&packet(SERVICE_PORT)).expect("it arrives");
            await_datagrams(&server, 1);
            gateway.control().deny(parse_prefix("10.8.0.0/24").expect("a prefix"), None).unwrap();
            wire.write_all(&packet(SERVICE_PORT)).expect("it arrives");
            wire.write_all(&packet(OTHER_PORT)).expect("it arrives");
            await_datagrams(&other, 1);
            assert_eq!((received(&server), dropped(&gateway, Reason::Denied)), (0, 1));
        }
        let refused = gateway(|_| ()).attach("tun0", Mode::Native).unwrap_err();
        assert!(matches!(refused, Error::NativeRefused { .. }), "{refused}");
    });
}

/// Returns a socket in another network namespace. That namespace has veth1, the other end of veth0.
fn client() -> UdpSocket {
    let (to_parent, from_child) = std::sync::mpsc::channel();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let child = std::thread::spawn(move || {
        // SAFETY: the call moves only this thread into a new namespace.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
        // SAFETY: the call takes no pointers.
        to_parent.send(unsafe { libc::gettid() }).expect("the parent waits");
        wait.recv().expect("the parent moves the interface");
        ip(&["addr", "add", "10.9.0.2/24", "dev", "veth1"]);
        ip(&["link", "set", "veth1", "up"]);
        bind("10.9.0.2:1000")
    });
    let thread: i32 = from_child.recv().expect("it has a namespace");
    ip(&["link", "set", "veth1", "netns", &thread.to_string()]);
    go.send(()).expect("it waits");
    child.join().expect("it has a socket")
}

/// Sends datagrams of `segment` bytes each in a single call.
fn send_batch(socket: &UdpSocket, datagrams: &[Vec<u8>], segment: u16) {
    let all = datagrams.concat();
    let value = i32::from(segment);
    // SAFETY: the option's value is valid during the call.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_UDP,
            // UDP_SEGMENT
            103,
            (&raw const value).cast(),
            size_of_val(&value) as u32,
        )
    };
    assert_eq!(set, 0, "UDP_SEGMENT: {}", std::io::Error::last_os_error());
    let to = format!("10.9.0.1:{SERVICE_PORT}");
    assert_eq!(socket.send_to(&all, to).expect("it is sent"), all.len());
}

fn quic(first: u8, len: usize) -> Vec<u8> {
    let mut bytes = vec![first];
    bytes.resize(len, 0x11);
    bytes
}

/// Returns an Initial of version 1 in a datagram of 1,200 bytes. Each number is another attempt.
fn initial(number: u8) -> Vec<u8> {
    let mut bytes = vec![0xc0, 0, 0, 0, 1, 8];
    bytes.extend([number; 8]);
    bytes.extend([1, number, 0]);
    let length = 1200 - bytes.len() - 2;
    bytes.extend((0x4000 | length as u16).to_be_bytes());
    bytes.resize(1200, 0);
    bytes
}

#[test]
fn batch_datagrams_are_judged_one_by_one() {
    in_namespace(|| {
        ip(&["addr", "add", "10.9.0.1/24", "dev", "veth0"]);
        let server = bind(&format!("10.9.0.1:{SERVICE_PORT}"));
        let client = client();
        for mode in [Mode::Generic, Mode::Native] {
            let gateway = gateway(|config| {
                config.services[0].packets_per_source = Rate::per_second(1, 30);
            });
            gateway.attach("veth0", mode).expect("it is attached");
            send_batch(&client, &vec![quic(0x41, 100); 20], 100);
            await_datagrams(&server, 20);
            let passed = |reason| {
                let rows = gateway.control().counters().expect("counters");
                rows.iter().find(|row| row.reason == reason).map_or(0, |row| row.packets)
            };
            assert_eq!(passed(Reason::Established), 20, "{mode}");
            // The burst is 30, so ten more datagrams have room after these.
            send_batch(&client, &vec![quic(0x41, 100); 20], 100);
            await_some("a verdict on all", || (passed(Reason::RatePackets) >= 10).then_some(()));
            assert!(received(&server) <= 10, "{mode}");
        }
    });
}

#[test]
fn batch_cannot_hide_an_initial() {
    in_namespace(|| {
        ip(&["addr", "add", "10.9.0.1/24", "dev", "veth0"]);
        let server = bind(&format!("10.9.0.1:{SERVICE_PORT}"));
        let client = client();
        let gateway = gateway(|_| ());
        gateway.attach("veth0", Mode::Generic).expect("it is attached");
        send_batch(&client, &[quic(0x41, 1200), initial(1), initial(2)], 1200);
        await_some("a verdict", || (dropped(&gateway, Reason::Batch) == 3).then_some(()));
        send_batch(&client, &[initial(1), initial(2)], 1200);
        await_some("a verdict", || (dropped(&gateway, Reason::Batch) == 5).then_some(()));
        // The client sends two datagrams of one attempt, as in a long first flight.
        send_batch(&client, &[initial(3), initial(3)], 1200);
        await_datagrams(&server, 2);
    });
}

#[test]
fn link_of_an_unsupported_type_is_refused() {
    in_namespace(|| {
        let file = tun("tun0", "10.8.0.1/24");
        ip(&["link", "set", "tun0", "down"]);
        // TUNSETLINK turns this into an InfiniBand interface, whose packets begin with another
        // header. SAFETY: the call takes no pointers.
        let set = unsafe { libc::ioctl(file.as_raw_fd(), 0x4004_54cd, 32) };
        assert_eq!(set, 0, "TUNSETLINK: {}", std::io::Error::last_os_error());
        let refused = gateway(|_| ()).attach("tun0", Mode::Auto).unwrap_err();
        assert!(matches!(refused, Error::LinkRefused { .. }), "{refused}");
    });
}
