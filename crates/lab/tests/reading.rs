//! Looking at a gateway takes as many system calls with long lists as with short ones. Alone in its
//! program, because it counts the calls of the whole process. Needs root.

#[path = "common/mod.rs"]
mod common;

use std::net::Ipv4Addr;

use equic_gateway::{
    Config, Control, Gateway, IpNet, ListAction, LoadOptions, ObjectSource, Origin, SortBy,
};
use equic_lab::measure::SyscallCounter;
use nix::unistd::Uid;

const LONG: u32 = 40_000;

type Reading = (&'static str, fn(&Control));

/// What `status`, a scrape, `watch`, `sources` and `explain` are made of.
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

/// Calls of bpf(2) that each reading makes.
fn calls(control: &Control, counter: &SyscallCounter) -> Vec<u64> {
    let count = || counter.read().unwrap().get("bpf").map_or(0, |calls| calls.calls);
    READINGS
        .iter()
        .map(|(_, read)| {
            // Reading the counter calls bpf, too: as often before and after.
            let (first, second) = (count(), count());
            read(control);
            count() - second - (second - first)
        })
        .collect()
}

#[test]
fn long_lists_take_no_more_system_calls_to_look_at() {
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
    // What is looked up only once, such as what the kernel can do.
    calls(control, &counter);
    let short = calls(control, &counter);
    list(LONG);
    let long = calls(control, &counter);
    for ((what, _), (short, long)) in READINGS.iter().zip(short.into_iter().zip(long)) {
        assert!(long <= short + 2, "{what}: {long} calls, {short} with a short list");
    }
    // It would have been seen: a list that is asked for is walked, so many entries a call.
    let before = counter.read().unwrap()["bpf"].calls;
    assert_eq!(control.lists().unwrap().len(), LONG as usize);
    let own = {
        let (first, second) = (counter.read().unwrap(), counter.read().unwrap());
        second["bpf"].calls - first["bpf"].calls
    };
    assert!(counter.read().unwrap()["bpf"].calls - before > 3 * own + 20);
}
