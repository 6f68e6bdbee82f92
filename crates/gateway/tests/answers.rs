//! Tests which packets a gateway answers in its servers' name (docs/policy.md s.8). It must answer
//! those that a server on this host would receive.

mod support;

use std::net::{IpAddr, SocketAddr};

use equic_gateway::{Action, Config, Gateway, Listen, Mode, ObjectSource, Reason, Retry, Setting};

use crate::support::{await_that, config, in_namespace, ip};

/// Link-layer address of the server's interface. The next constant is the address of the other end.
const OWN_MAC: [u8; 6] = [2, 0, 0, 0, 9, 1];
const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 9, 2];
const OWN: &str = "10.9.0.1";

/// Gives `veth0` an IPv4 and an IPv6 address.
fn addresses() {
    let mac = |mac: [u8; 6]| mac.map(|byte| format!("{byte:02x}")).join(":");
    ip(&["link", "set", "veth0", "address", &mac(OWN_MAC)]);
    ip(&["link", "set", "veth1", "address", &mac(PEER_MAC)]);
    ip(&["address", "add", "10.9.0.1/24", "brd", "10.9.0.255", "dev", "veth0"]);
    ip(&["address", "add", "fd09::1/64", "dev", "veth0", "nodad"]);
}

/// Returns a gateway on `veth0` that answers Initials with Retry or Version Negotiation.
fn answering(what: &str, change: impl FnOnce(&mut Config)) -> Gateway {
    let mut config = config(what);
    config.services[0].retry = Retry::Always;
    config.services[0].version_negotiation = true;
    change(&mut config);
    let gateway = Gateway::load(&config, ObjectSource::Embedded).unwrap();
    gateway.attach("veth0", Mode::Generic).unwrap();
    gateway.control().refresh_addresses().unwrap();
    assert!(gateway.control().knows_addresses());
    gateway
}

/// A packet that the gateway may answer: an Initial from the other end of the veth pair.
#[derive(Clone, Copy)]
struct Question {
    to: IpAddr,
    to_mac: [u8; 6],
    from_mac: [u8; 6],
    version: u32,
}

fn to(address: &str) -> Question {
    let to = address.parse().unwrap();
    Question { to, to_mac: OWN_MAC, from_mac: PEER_MAC, version: 1 }
}

impl Question {
    fn mac(self, to_mac: [u8; 6]) -> Question {
        Question { to_mac, ..self }
    }

    fn frame(self) -> Vec<u8> {
        let from: SocketAddr =
            if self.to.is_ipv4() { "198.51.100.7:999" } else { "[2001:db8:7::7]:999" }
                .parse()
                .unwrap();
        let mut quic = vec![0xc3];
        quic.extend(self.version.to_be_bytes());
        quic.extend([8, 1, 2, 3, 4, 5, 6, 7, 8, 4, 9, 9, 9, 9, 0]);
        let length = 1200 - quic.len() - 2;
        quic.extend((0x4000 | length as u16).to_be_bytes());
        quic.resize(1200, 0);
        let mut frame = support::udp(from, SocketAddr::new(self.to, 4433), &quic);
        frame[..6].copy_from_slice(&self.to_mac);
        frame[6..12].copy_from_slice(&self.from_mac);
        frame
    }

    fn action(self, gateway: &Gateway) -> Action {
        gateway.test_run(&self.frame(), None).unwrap().action
    }

    #[track_caller]
    fn is_answered(self, gateway: &Gateway) {
        for version in [1, 0xbad_c0de] {
            assert_eq!(
                Question { version, ..self }.action(gateway),
                Action::Answer,
                "{version:#x}"
            );
        }
    }

    /// Asserts that the gateway judges, counts and drops the packet.
    #[track_caller]
    fn is_not_answered(self, gateway: &Gateway) {
        for (version, reason) in [(1, Reason::Unproved), (0xbad_c0de, Reason::UnknownVersion)] {
            let before = packets(gateway, reason);
            assert_eq!(Question { version, ..self }.action(gateway), Action::Drop, "{version:#x}");
            assert_eq!(packets(gateway, reason), before + 1, "{reason:?}");
        }
    }

    /// Asserts that the packet passes and is not counted.
    #[track_caller]
    fn passes_through(self, gateway: &Gateway) {
        let before = gateway.control().counters().unwrap();
        assert_eq!(self.action(gateway), Action::Pass);
        let sum =
            |rows: &[equic_gateway::CounterRow]| rows.iter().map(|row| row.packets).sum::<u64>();
        assert_eq!(sum(&gateway.control().counters().unwrap()), sum(&before));
    }
}

fn packets(gateway: &Gateway, reason: Reason) -> u64 {
    let counters = gateway.control().counters().unwrap();
    counters.iter().find(|row| row.reason == reason).map_or(0, |row| row.packets)
}

fn write(path: &str, text: &str) {
    std::fs::write(path, text).unwrap_or_else(|error| panic!("{path}: {error}"));
}

#[test]
fn answers_are_for_addresses_of_this_host() {
    in_namespace(|| {
        addresses();
        let gateway = answering("own", |_| {});
        to(OWN).is_answered(&gateway);
        to("fd09::1").is_answered(&gateway);
        to("127.0.0.1").mac([0; 6]).is_answered(&gateway);
        // PEER_MAC is the link-layer address of another interface of this host.
        to(OWN).mac(PEER_MAC).is_answered(&gateway);

        to(OWN).mac([0xff; 6]).is_not_answered(&gateway);
        to("fd09::1").mac([0x33, 0x33, 0, 0, 0, 1]).is_not_answered(&gateway);
        to(OWN).mac([1, 0, 0x5e, 0, 0, 1]).is_not_answered(&gateway);
        to(OWN).mac([2, 0, 0, 0, 9, 3]).is_not_answered(&gateway);
        Question { from_mac: [0xff; 6], ..to(OWN) }.is_not_answered(&gateway);
        Question { from_mac: [3, 0, 0, 0, 9, 2], ..to(OWN) }.is_not_answered(&gateway);
        for other in
            ["8.8.8.8", "10.9.0.2", "10.9.0.255", "255.255.255.255", "224.0.0.1", "0.0.0.0"]
        {
            to(other).is_not_answered(&gateway);
            to(other).mac([0xff; 6]).is_not_answered(&gateway);
        }
        for other in ["2001:4860:4860::8888", "fd09::2", "ff02::1", "::"] {
            to(other).is_not_answered(&gateway);
        }
    });
}

#[test]
fn answers_are_not_counted_as_drops() {
    in_namespace(|| {
        addresses();
        let gateway = answering("counts", |_| {});
        to(OWN).is_answered(&gateway);
        to("8.8.8.8").is_not_answered(&gateway);
        gateway.control().apply(&Setting::parse_pair("dry_run=on").unwrap()).unwrap();
        assert_eq!(to(OWN).action(&gateway), Action::Pass);
        let service = gateway.control().status().unwrap().services.remove(0);
        let counts = |reason| {
            let mut rows = service.verdicts.iter().filter(|row| row.reason == reason);
            rows.next().map(|row| (row.packets, row.dropped, row.answered))
        };
        // One packet was answered. The other one came during the dry run and was only counted.
        assert_eq!(counts(Reason::RetrySent), Some((2, 0, 1)));
        assert_eq!(counts(Reason::VersionNegotiationSent), Some((1, 0, 1)));
        assert_eq!(counts(Reason::Unproved), Some((1, 1, 0)));
        assert_eq!((service.dropped, service.answered, service.would_drop), (2, 2, 2));
    });
}

#[test]
fn answers_follow_addresses_that_change() {
    in_namespace(|| {
        addresses();
        let gateway = answering("change", |_| {});
        let answers = |question: Question| question.action(&gateway) == Action::Answer;
        to("10.9.0.7").is_not_answered(&gateway);
        ip(&["address", "add", "10.9.0.7/24", "dev", "veth0"]);
        await_that("a new address", || answers(to("10.9.0.7")));
        ip(&["address", "del", "10.9.0.7/24", "dev", "veth0"]);
        await_that("it is gone", || !answers(to("10.9.0.7")));
        // A route makes this whole prefix local.
        let anywhere = to("203.0.113.99").mac([0; 6]);
        anywhere.is_not_answered(&gateway);
        ip(&["route", "add", "local", "203.0.113.0/24", "dev", "lo"]);
        await_that("a local route", || answers(anywhere));

        let [new, child] = [[2, 0, 0, 0, 9, 5], [2, 0, 0, 0, 9, 6]];
        ip(&["link", "set", "veth0", "address", "02:00:00:00:09:05"]);
        await_that("another link-layer address", || answers(to(OWN).mac(new)));
        to(OWN).is_not_answered(&gateway);
        // A macvlan interface has another link-layer address, but frames to it arrive on this
        // interface.
        ip(&[
            "link",
            "add",
            "vrrp",
            "link",
            "veth0",
            "address",
            "02:00:00:00:09:06",
            "type",
            "macvlan",
        ]);
        ip(&["link", "set", "vrrp", "up"]);
        await_that("one more link-layer address", || answers(to(OWN).mac(child)));
    });
}

#[test]
fn answers_for_a_server_behind_this_host_need_its_address() {
    in_namespace(|| {
        addresses();
        let behind = "192.0.2.80";
        let gateway = answering("behind", |config| {
            let listen = |text: &str| Listen::Addr(text.parse().unwrap());
            config.services[0].listen = vec![listen("192.0.2.80:4433"), listen("10.9.0.1:4433")];
        });
        // A router sends its frames to the gateway's link-layer address. A bridge forwards frames
        // to the server's address.
        to(behind).is_answered(&gateway);
        to(behind).mac([2, 0, 0, 0, 9, 9]).is_answered(&gateway);
        to(behind).mac([0xff; 6]).is_not_answered(&gateway);
        to(OWN).is_answered(&gateway);
        to(OWN).mac([2, 0, 0, 0, 9, 9]).is_not_answered(&gateway);
        write("/proc/sys/net/ipv4/ip_forward", "1");
        ip(&["route", "add", "default", "via", "10.9.0.2"]);
        await_that("it is known to forward", || {
            gateway.control().refresh_addresses().unwrap();
            gateway.control().forwards()
        });
        to(behind).is_answered(&gateway);
    });
}

#[test]
fn transit_packets_pass_through_a_router() {
    in_namespace(|| {
        addresses();
        let gateway = answering("router", |_| {});
        ip(&["route", "add", "default", "via", "10.9.0.2"]);
        ip(&["-6", "route", "add", "default", "via", "fd09::2"]);
        to("8.8.8.8").is_not_answered(&gateway);
        write("/proc/sys/net/ipv4/ip_forward", "1");
        write("/proc/sys/net/ipv6/conf/all/forwarding", "1");
        await_that("they pass", || to("8.8.8.8").action(&gateway) == Action::Pass);
        to("8.8.8.8").passes_through(&gateway);
        to("2001:4860:4860::8888").passes_through(&gateway);
        // Packets to this host must still be judged.
        to(OWN).is_answered(&gateway);
        to("fd09::1").is_answered(&gateway);
        for own in ["10.9.0.255", "255.255.255.255", "224.0.0.1"] {
            to(own).is_not_answered(&gateway);
        }
        to("ff02::1").is_not_answered(&gateway);
        // A blackhole route drops packets and does not forward them, so the packet must be judged.
        ip(&["route", "add", "blackhole", "203.0.113.0/24"]);
        to("203.0.113.1").is_not_answered(&gateway);
        // A packet to a new address must be judged even before the gateway knows the address.
        ip(&["address", "add", "10.99.0.1/32", "dev", "veth0"]);
        assert_ne!(to("10.99.0.1").action(&gateway), Action::Pass);
    });
}

#[test]
fn transit_packets_pass_through_a_bridge() {
    in_namespace(|| {
        addresses();
        let gateway = answering("bridge", |_| {});
        let guest = to("10.9.0.80").mac([2, 0, 0, 0, 9, 9]);
        guest.is_not_answered(&gateway);
        ip(&["link", "add", "br0", "address", "02:00:00:00:09:07", "type", "bridge"]);
        ip(&["link", "set", "veth0", "master", "br0"]);
        ip(&["address", "add", "10.9.1.1/24", "dev", "br0"]);
        ip(&["link", "set", "br0", "up"]);
        await_that("it passes", || guest.action(&gateway) == Action::Pass);
        guest.passes_through(&gateway);
        // The packet is for the bridge's own address.
        let own = to("10.9.1.1").mac([2, 0, 0, 0, 9, 7]);
        await_that("the bridge's address", || own.action(&gateway) == Action::Answer);
        own.is_answered(&gateway);
        to("10.9.1.1").mac([2, 0, 0, 0, 9, 9]).is_not_answered(&gateway);
        guest.mac([0xff; 6]).is_not_answered(&gateway);
    });
}
