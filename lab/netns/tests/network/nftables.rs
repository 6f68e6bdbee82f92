//! Tests that the packet filter that the gateway is compared with does what its rules say, and
//! nothing else.

use std::net::{IpAddr, Ipv4Addr};

use crate::common;
use equic_netns::nftables::Rules;

const ANY4: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
const INITIAL: u8 = 0xc3;
const SHORT: u8 = 0x43;

#[test]
fn nftables_limits_initials_and_drops_denied_sources_only() {
    let Some(lab) = common::lab("t-nft", 2) else { return };
    let rules = Rules {
        port: 4433,
        initials_per_second: 1,
        burst: 5,
        in_all: None,
        deny: vec![format!("{}/32", lab.client(1).ipv4).parse().unwrap()],
    };
    let filter = rules.apply(lab.server()).unwrap();
    let server = lab.server().socket_address(ANY4, 4433);
    let sink = lab.server().udp_socket(server).unwrap();
    sink.set_read_timeout(Some(common::PATIENCE)).unwrap();
    let elsewhere = lab.server().udp_socket(lab.server().socket_address(ANY4, 53)).unwrap();
    elsewhere.set_read_timeout(Some(common::PATIENCE)).unwrap();
    let send = |client: usize, port: u16, byte: u8, count: usize| {
        let from = lab.client(client).udp_socket((ANY4, 0).into()).unwrap();
        for _ in 0..count {
            from.send_to(&[byte; 1200], (server.ip(), port)).unwrap();
        }
    };

    send(1, 4433, SHORT, 10);
    send(0, 4433, INITIAL, 100);
    send(0, 53, INITIAL, 20);
    // Packets are not reordered. When these have arrived, everything that the rules passed has
    // arrived.
    send(0, 4433, SHORT, 20);
    let mut buffer = [0; 1500];
    let (mut initials, mut short) = (0, 0);
    while short < 20 {
        let (_, from) = sink.recv_from(&mut buffer).unwrap();
        assert_eq!(from.ip(), IpAddr::from(lab.client(0).ipv4), "the denied source is heard of");
        match buffer[0] {
            INITIAL => initials += 1,
            _ => short += 1,
        }
    }
    // On a busy machine, a second may pass between two packets, and then the rate permits more of
    // them.
    assert!((5..50).contains(&initials), "{initials} of 100 Initials came through");
    for _ in 0..20 {
        elsewhere.recv_from(&mut buffer).unwrap();
    }
    assert_eq!(filter.dropped().unwrap(), 10 + 100 - initials);

    drop(filter);
    send(1, 4433, INITIAL, 1);
    assert_eq!(sink.recv_from(&mut buffer).unwrap().1.ip(), IpAddr::from(lab.client(1).ipv4));
}

#[test]
fn nftables_limits_the_initials_of_all_sources_together() {
    let Some(lab) = common::lab("t-nft-all", 1) else { return };
    let rules = Rules {
        port: 4433,
        initials_per_second: 1,
        burst: 5,
        in_all: Some((1, 20)),
        deny: Vec::new(),
    };
    let filter = rules.apply(lab.server()).unwrap();
    let server = lab.server().socket_address(ANY4, 4433);
    let sink = lab.server().udp_socket(server).unwrap();
    sink.set_read_timeout(Some(common::PATIENCE)).unwrap();
    let [a, b, c, _] = lab.client(0).ipv4.octets();
    let send = |last: u8, byte: u8| {
        let from = IpAddr::from([a, b, c, last]);
        let socket = lab.client(0).udp_socket((from, 0).into()).unwrap();
        socket.send_to(&[byte; 1200], (server.ip(), 4433)).unwrap();
    };
    // Send each packet from another address, so that no source exceeds its own limit.
    for last in 1..=200 {
        send(last, INITIAL);
    }
    send(1, SHORT);
    let (mut buffer, mut initials) = ([0; 1500], 0);
    while sink.recv_from(&mut buffer).is_ok() && buffer[0] == INITIAL {
        initials += 1;
    }
    assert!((20..100).contains(&initials), "{initials} of 200 Initials came through");
    assert_eq!(filter.dropped().unwrap(), 200 - initials);
}
