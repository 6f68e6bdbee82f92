//! Tests of arithmetic and of arbitrary bytes, which the packet tables in `tests/` cannot express.

use super::*;
use equic_gateway::Reason;
use std::net::{Ipv4Addr, Ipv6Addr};

const SECOND: u64 = 1_000_000_000;

#[test]
fn bucket_passes_its_burst_at_any_rate() {
    for rate in [1, 3, 7, 10, 999_983, 100_000_007] {
        for burst in [1, 2, 10, 1_000] {
            let bucket = Rate::per_second(rate, burst);
            let mut tat = 0;
            let passed = (0..burst + 1).filter(|_| bucket.charge(&mut tat, 1, SECOND)).count();
            // The cost of a unit is truncated to whole nanoseconds. If a unit costs about 10 ns,
            // the bucket therefore passes a few more units in a thousand.
            let exact = rate < SECOND / 1_000;
            assert!(passed as u64 >= burst, "rate {rate} burst {burst}: {passed}");
            assert!(!exact || passed as u64 == burst, "rate {rate} burst {burst}: {passed}");
        }
    }
}

#[test]
fn bucket_keeps_its_rate() {
    let bucket = Rate::per_second(7, 3);
    let mut tat = 0;
    let passed = (0..70_000).filter(|ms| bucket.charge(&mut tat, 1, SECOND + ms * 1_000_000));
    // The bucket passes 7 packets per second for 70 seconds, plus the burst at the beginning.
    let passed = passed.count();
    assert!((490..=493).contains(&passed), "{passed}");
}

#[test]
fn bucket_is_not_changed_by_a_refused_charge() {
    let bucket = Rate::per_second(10, 2);
    let mut tat = 0;
    assert!(!bucket.charge(&mut tat, 3, SECOND));
    assert_eq!(tat, 0);
    assert!(bucket.charge(&mut tat, 2, SECOND));
}

#[test]
fn bucket_refuses_a_huge_charge() {
    let bucket = Rate::per_second(1, 10);
    assert!(!bucket.charge(&mut 0, 65_527, SECOND));
    assert!(!bucket.charge(&mut 0, u64::MAX, SECOND));
}

#[test]
fn bucket_that_is_off_passes_everything() {
    assert_eq!(Rate::per_second(0, 5), Rate::OFF);
    assert!(Rate::OFF.charge(&mut 0, u64::MAX, 0));
}

fn deny(acl: &mut Acl, addr: IpAddr, len: u8) {
    acl.insert(addr, len, AclEntry { action: AclAction::Deny, expires_ns: 0 });
}

#[test]
fn acl_of_every_prefix_length_matches_its_addresses() {
    let v4 = Ipv4Addr::new(203, 0, 113, 77);
    for len in 0..=32 {
        let mut acl = Acl::default();
        deny(&mut acl, v4.into(), len);
        assert_eq!(acl.look_up(v4.into(), 0), Some(AclAction::Deny), "/{len}");
        assert_eq!(acl.look_up(Ipv6Addr::LOCALHOST.into(), 0), None, "/{len}");
        if len > 0 {
            let neighbour = Ipv4Addr::from_bits(v4.to_bits() ^ 1 << (32 - len));
            assert_eq!(acl.look_up(neighbour.into(), 0), None, "/{len}");
        }
    }
    let v6: Ipv6Addr = "2001:db8:1:2:3:4:5:6".parse().unwrap();
    for len in 0..=128 {
        let mut acl = Acl::default();
        deny(&mut acl, v6.into(), len);
        assert_eq!(acl.look_up(v6.into(), 0), Some(AclAction::Deny), "/{len}");
        if len > 0 {
            let neighbour = Ipv6Addr::from_bits(v6.to_bits() ^ 1 << (128 - u32::from(len)));
            assert_eq!(acl.look_up(neighbour.into(), 0), None, "/{len}");
        }
    }
}

#[test]
fn prefix_lengths_beyond_the_family_are_cut() {
    let mut acl = Acl::default();
    deny(&mut acl, Ipv4Addr::LOCALHOST.into(), 200);
    assert_eq!(acl.look_up(Ipv4Addr::LOCALHOST.into(), 0), Some(AclAction::Deny));
    assert!(acl.remove(Ipv4Addr::LOCALHOST.into(), 32));
    let config = Config { v4_prefix_len: 255, v6_prefix_len: 255, ..Config::default() };
    let model = Model::new(config);
    let addr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    assert_eq!(model.source_key(addr, 0).addr, address_bytes(addr));
}

/// Returns a model with a service that listens on one port of every address.
fn model() -> Model {
    let any4 = Listener { addr: Ipv4Addr::UNSPECIFIED.into(), port: 443 };
    Model::new(Config {
        services: vec![Service::default()],
        // The second listener refers to a service that does not exist.
        listeners: vec![(any4, 0), (Listener { port: 444, ..any4 }, 7)],
        ..Config::default()
    })
}

/// Returns IPv4 and UDP headers, followed by the first bytes of an Initial packet of version 1.
fn frame(port: u16, udp_len: u16) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([0x08, 0x00, 0x45, 0, 0x04, 0xcc, 0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend([192, 0, 2, 1, 10, 0, 0, 1, 0x30, 0x39]);
    frame.extend(port.to_be_bytes());
    frame.extend(udp_len.to_be_bytes());
    frame.extend([0, 0, 0xc0, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0x44, 0x9d]);
    frame.resize(14 + 20 + 8 + 1200, 0);
    frame
}

#[test]
fn initial_is_new_and_then_under_way() {
    let mut model = model();
    let reasons: Vec<Reason> = (0..2)
        .filter_map(|now| model.judge(&frame(443, 1208), now).verdict())
        .map(|verdict| verdict.reason)
        .collect();
    assert_eq!(reasons, [Reason::New, Reason::Underway]);
    assert_eq!(model.handshakes(), 1);
    assert_eq!(model.tallies().sources_created, 1);
}

#[test]
fn listener_without_a_service_makes_packets_foreign() {
    assert_eq!(model().judge(&frame(444, 1208), 0), Outcome::Foreign);
}

#[test]
fn frame_of_any_shorter_length_is_judged() {
    let mut model = model();
    let whole = frame(443, 1208);
    for len in 0..whole.len() {
        assert_eq!(model.judge(&whole[..len], 0), Outcome::Foreign, "{len} bytes");
    }
}

#[test]
fn frame_with_any_byte_changed_causes_no_panic() {
    let mut model = model();
    let whole = frame(443, 1208);
    for at in 0..80 {
        for byte in 0..=255 {
            let mut changed = whole.clone();
            changed[at] = byte;
            let outcome = model.judge(&changed, 0);
            assert!(outcome.verdict().is_some() || !outcome.dropped());
        }
    }
}
