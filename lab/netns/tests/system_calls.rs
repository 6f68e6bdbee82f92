//! Tests that the number of system calls does not depend on the amount of data. Reading a gateway
//! takes the same number with short and with long lists. Querying a copy of the gateway about a
//! packet takes the same number with empty and with full tables. This is the only test of its
//! program, because it counts the calls of the whole process. Needs root.

#[path = "common/mod.rs"]
mod common;

use std::net::{Ipv4Addr, SocketAddr};

use equic_gateway::{
    Config, Control, Gateway, IpNet, ListAction, LoadOptions, ObjectSource, Origin, SortBy,
};
use equic_netns::flood::frame::udp_frame;
use equic_netns::measure::SyscallCounter;
use nix::unistd::Uid;

const LONG: u32 = 40_000;
/// Number of sources that send packets.
const SENDERS: u32 = 20_000;
/// Offset of the flags field in an Ethernet frame with an IPv4 header.
const IPV4_FLAGS: usize = 20;
const MORE_FRAGMENTS: u8 = 0x20;

type Reading = (&'static str, fn(&Control));

/// The readings of `status`, a scrape of the metrics, `watch`, `sources` and `explain`.
const READINGS: [Reading; 6] = [
    ("status", |control| drop(control.status().unwrap())),
    ("numbers of the lists", |control| assert!(control.list_counts().is_ok())),
    ("changes of the lists", |control| drop(control.list_changes(&mut control.list_mark()))),
    ("top sources", |control| drop(control.sources(20, SortBy::Packets).unwrap())),
    ("who is listed", |control| assert!(control.listed(address(1)).is_ok())),
    ("a copy to try packets on", |control| {
        drop(control.snapshot(ObjectSource::Embedded).unwrap());
    }),
];

fn address(number: u32) -> IpNet {
    IpNet::from(std::net::IpAddr::from(Ipv4Addr::from_bits(0x0a00_0000 + number)))
}

/// Counts the calls of bpf(2) that a function makes.
fn calls_of(counter: &SyscallCounter, read: impl FnOnce()) -> u64 {
    let count = || counter.read().unwrap().get("bpf").map_or(0, |calls| calls.calls);
    // Reading the counter makes calls of bpf(2), too, but the same number each time.
    let (first, second) = (count(), count());
    read();
    count() - second - (second - first)
}

/// Counts the calls of bpf(2) that each kind of reading makes.
fn calls(control: &Control, counter: &SyscallCounter) -> Vec<u64> {
    READINGS.iter().map(|(_, read)| calls_of(counter, || read(control))).collect()
}

/// Returns an Initial packet (RFC 9000 s.17.2.2) from the sender with this number. The gateway adds
/// an entry for it to each of its tables.
fn opening(number: u32) -> Vec<u8> {
    const HEADER: [u8; 26] = [
        0xc0, 0, 0, 0, 1, // Initial, version 1
        8, 1, 1, 1, 1, 1, 1, 1, 1, // Destination Connection ID
        8, 2, 2, 2, 2, 2, 2, 2, 2, // Source Connection ID
        0, // no token
        0x44, 0x96, // the rest of the datagram
    ];
    let mut payload = HEADER.to_vec();
    payload.resize(1200, 0);
    let source = SocketAddr::from((Ipv4Addr::from_bits(0xc612_0000 + number), 50_000));
    let target = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 443));
    udp_frame([2; 6], [4; 6], source, target, &payload).expect("one family, 1200 bytes")
}

#[test]
fn system_calls_do_not_depend_on_list_and_table_sizes() {
    if !Uid::effective().is_root() {
        assert!(!common::ci::in_ci(), "SKIPPED: a gateway needs root");
        eprintln!("*** SKIPPED: a gateway needs root ***");
        return;
    }
    let mut config = Config::for_port(443);
    config.gateway.name = format!("long-{}", std::process::id());
    config.gateway.acl_entries = LONG;
    let options = LoadOptions { unswept: true, ..LoadOptions::default() };
    let gateway = Gateway::load_with(&config, ObjectSource::Embedded, options).unwrap();
    let control = gateway.control();
    let counter = SyscallCounter::start(std::process::id()).unwrap();
    let list = |length: u32| {
        let wanted: Vec<_> = (0..length).map(|n| (address(n), ListAction::Deny)).collect();
        control.replace(Origin::Config, &[ListAction::Deny], &wanted).unwrap();
        assert_eq!(control.list_counts().unwrap().deny_v4, u64::from(length));
    };
    list(10);
    // Read once before counting, because some things are looked up only once, such as the features
    // of the kernel.
    calls(control, &counter);
    let short = calls(control, &counter);
    list(LONG);
    let long = calls(control, &counter);
    for ((what, _), (short, long)) in READINGS.iter().zip(short.into_iter().zip(long)) {
        assert!(long <= short + 2, "{what}: {long} calls, {short} with a short list");
    }
    // Check that the test can fail: reading a whole list takes many calls.
    let before = counter.read().unwrap()["bpf"].calls;
    assert_eq!(control.lists().unwrap().len(), LONG as usize);
    let own = {
        let (first, second) = (counter.read().unwrap(), counter.read().unwrap());
        second["bpf"].calls - first["bpf"].calls
    };
    assert!(counter.read().unwrap()["bpf"].calls - before > 3 * own + 20);
    check_calls_of_a_snapshot(&gateway, &counter);
}

fn check_calls_of_a_snapshot(gateway: &Gateway, counter: &SyscallCounter) {
    let ask = |frame: &[u8]| {
        calls_of(counter, || {
            let copy = gateway.control().snapshot(ObjectSource::Embedded).unwrap();
            assert!(copy.judge(frame).unwrap().verdict.is_some());
        })
    };
    let empty = ask(&opening(SENDERS));
    for number in 0..SENDERS {
        gateway.test_run(&opening(number), None).unwrap();
    }
    // For a known sender, only its own entries are stored in the copy: its source, its attempt, and
    // at most two prefixes.
    let full = ask(&opening(0));
    assert!(full <= empty + 4, "{full} calls with full tables, {empty} with empty ones");
    // Check that the test can fail: for an incomplete packet, the whole tables are copied, with at
    // most 4096 entries per call.
    let mut fragment = opening(0);
    fragment[IPV4_FLAGS] |= MORE_FRAGMENTS;
    let copied = ask(&fragment);
    assert!(copied > full + u64::from(SENDERS / 4096), "{copied} calls to copy, {full} without");
}
