//! Tests of the library with the kernel: loading, attaching, counting, detaching. Needs root.
//!
//! Every test has its own network namespace, which ends with its thread. Its gateway has a unique
//! name, because other gateways may run on this machine.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use equic_gateway::{
    Action, CaptureFilter, Config, Control, Error, Gateway, LedgerStatus, ListAction, LoadOptions,
    Mode, ObjectSource, OverrideConfig, Rate, Reason, SortBy, Status,
};
use support::{Child, Initial, await_that, config, in_namespace, ip, root};

const A: &str = "192.0.2.1:4000";

#[test]
fn attach_is_native_and_ends_with_the_gateway() {
    in_namespace(|| {
        let gateway = Gateway::load(&config("native"), ObjectSource::Embedded).unwrap();
        let attached = gateway.attach("veth0", Mode::Auto).unwrap();
        assert!(attached.native && attached.notice.is_none(), "{attached:?}");
        let again = gateway.attach("veth0", Mode::Auto).unwrap_err();
        assert!(matches!(again, Error::AlreadyAttached { .. }), "{again}");
        assert_eq!(gateway.attached().len(), 1);
        let second = gateway.attach("veth1", Mode::Generic).unwrap();
        assert!(!second.native && second.notice.is_none());
        gateway.detach("veth0").unwrap();
        assert!(matches!(gateway.detach("veth0"), Err(Error::NotAttached { .. })));
        gateway.attach("veth0", Mode::Native).unwrap();
        drop(gateway);
        assert!(!ip(&["link", "show"]).contains("xdp"), "nothing is left attached");
    });
}

#[test]
fn attach_falls_back_to_generic_with_a_notice() {
    in_namespace(|| {
        let gateway = Gateway::load(&config("generic"), ObjectSource::Embedded).unwrap();
        let refused = gateway.attach("lo", Mode::Native).unwrap_err();
        assert!(matches!(refused, Error::NativeRefused { .. }), "{refused}");
        let attached = gateway.attach("lo", Mode::Auto).unwrap();
        assert!(!attached.native && attached.notice.unwrap().contains("generic mode"));
    });
}

#[test]
fn attach_leaves_other_programs_alone() {
    in_namespace(|| {
        let first = Gateway::load(&config("first"), ObjectSource::Embedded).unwrap();
        first.attach("veth0", Mode::Native).unwrap();
        let second = Gateway::load(&config("second"), ObjectSource::Embedded).unwrap();
        for mode in [Mode::Auto, Mode::Native, Mode::Generic] {
            match second.attach("veth0", mode).unwrap_err() {
                Error::InterfaceBusy { interface, program_id, program_name } => {
                    assert_eq!(interface, "veth0");
                    assert_eq!(program_id, Some(first.program_id()));
                    assert_eq!(program_name.as_deref(), Some("equic_gateway"));
                }
                other => panic!("{mode}: {other}"),
            }
        }
        let name = second.control().name();
        drop(second);
        assert!(ip(&["link", "show", "veth0"]).contains("xdp"), "the first is still there");
        assert!(matches!(Control::open(Some(&name)), Err(Error::NoSuchGateway { .. })));
    });
}

/// Captures parts of a jumbo frame. The kernel splits it over several buffers, and the XDP program
/// can access only the first one directly.
#[test]
fn capture_has_as_many_bytes_as_requested() {
    in_namespace(|| {
        // The XDP program's clock does not advance, so the capture's lease cannot expire.
        let options = LoadOptions { test_clock: true, ..LoadOptions::default() };
        let gateway = Gateway::load_with(&config("snap"), ObjectSource::Embedded, options).unwrap();
        gateway.control().deny("192.0.2.9/32".parse().unwrap(), None).unwrap();
        let mut payload: Vec<u8> = (0..8_000u32).map(|at| at as u8).collect();
        payload[0] = 0x40;
        let from = "192.0.2.9:4444".parse().unwrap();
        let frame = support::udp(from, support::SERVER_V4.parse().unwrap(), &payload);
        for snap in [14, 64, 1000, 2048, 9_999] {
            let filter = CaptureFilter { snap, ..CaptureFilter::default() };
            let mut capture = gateway.control().capture(&filter).unwrap();
            gateway.test_run(&frame, None).unwrap();
            let packets = capture.poll(Duration::ZERO).unwrap();
            assert_eq!(packets[0].frame, frame[..snap.min(2048) as usize]);
            assert_eq!(packets[0].frame_len as usize, frame.len());
        }
    });
}

#[test]
fn error_explains_a_bad_interface_or_object() {
    in_namespace(|| {
        let config = config("bad");
        let gateway = Gateway::load(&config, ObjectSource::Embedded).unwrap();
        let error = gateway.attach("veth9", Mode::Auto).unwrap_err().to_string();
        assert!(
            error.contains("no network interface `veth9`") && error.contains("veth0"),
            "{error}"
        );

        let load = |source| Gateway::load(&config, source).unwrap_err();
        let text = load(ObjectSource::Bytes(b"#!/bin/sh".to_vec())).to_string();
        assert!(text.contains("not an ELF file"), "{text}");
        let text = load(ObjectSource::Path("/nonexistent/equic_kern.o".into())).to_string();
        assert!(
            text.contains("`/nonexistent/equic_kern.o`") && text.contains("cannot be read"),
            "{text}"
        );
        let text = load(ObjectSource::Path(std::env::current_exe().unwrap())).to_string();
        assert!(text.contains("is not the gateway's program"), "{text}");
        let whole = equic_gateway::embedded_object();
        let text = load(ObjectSource::Bytes(whole[..whole.len() / 2].to_vec())).to_string();
        assert!(text.contains("is not the gateway's program"), "{text}");

        let mut bad = config.clone();
        bad.services[0].listen.clear();
        assert!(matches!(Gateway::load(&bad, ObjectSource::Embedded), Err(Error::Config(_))));
    });
}

#[test]
fn object_of_another_abi_version_is_refused() {
    in_namespace(|| {
        let mut bytes = equic_gateway::embedded_object().to_vec();
        let mut magic_and_version = [b'Q', b'U', b'I', b'C', 0, 0, 0, 0];
        magic_and_version[4..]
            .copy_from_slice(&equic_gateway::abi::EQUIC_ABI_VERSION.to_le_bytes());
        let at = bytes
            .windows(8)
            .position(|window| window == magic_and_version)
            .expect("control is in it");
        bytes[at + 4] = 99;
        match Gateway::load(&config("version"), ObjectSource::Bytes(bytes)).unwrap_err() {
            Error::AbiVersion { found: 99, .. } => {}
            other => panic!("{other}"),
        }
    });
}

#[test]
fn object_that_the_verifier_rejects_reports_its_log() {
    in_namespace(|| {
        // The first instruction of the XDP program is replaced with a read through an uninitialised
        // register.
        let mut bytes = equic_gateway::embedded_object().to_vec();
        let section = support::section(&bytes, "xdp.frags");
        bytes[section..section + 8].copy_from_slice(&[0x61, 0x70, 0, 0, 0, 0, 0, 0]);
        match Gateway::load(&config("verifier"), ObjectSource::Bytes(bytes)).unwrap_err() {
            Error::Verifier { line, log } => {
                assert!(line.contains("!read_ok"), "{line}");
                assert!(log.len() > line.len());
            }
            other => panic!("{other}"),
        }
    });
}

#[test]
fn load_without_privileges_names_the_missing_ones() {
    in_namespace(|| {
        let child = Child::start("unprivileged_load", "");
        let said = child.output();
        assert!(said.contains("not permitted"), "{said}");
        assert!(said.contains("no CAP_NET_ADMIN") && said.contains("sudo"), "{said}");
    });
}

#[test]
fn quota_follows_the_ledger() {
    in_namespace(|| {
        let mut config = config("quota");
        config.services[0].max_connections = 2;
        let options = LoadOptions { explain: true, ..LoadOptions::default() };
        let gateway = Gateway::load_with(&config, ObjectSource::Embedded, options).unwrap();
        let service = gateway.ledger().unwrap().service("quic").unwrap();
        let mut initial = Initial::from(A);
        let judge = |initial: &mut Initial| {
            let verdict =
                gateway.judge(&initial.next()).unwrap().verdict.expect("it is to the service");
            (verdict.reason, verdict.connections)
        };
        assert_eq!(judge(&mut initial), (Reason::New, 0));
        let one = service.opened(A.parse().unwrap());
        assert_eq!(judge(&mut initial), (Reason::New, 1));
        let mut two = service.opened(A.parse().unwrap());
        assert_eq!(judge(&mut initial), (Reason::Quota, 2));
        assert_eq!(judge(&mut Initial::from("192.0.2.2:4000")), (Reason::New, 0));
        two.moved("[2001:db8::1]:9".parse().unwrap());
        assert_eq!(judge(&mut initial), (Reason::New, 1));
        assert_eq!(judge(&mut Initial::from("[2001:db8::2]:5")), (Reason::New, 1), "the same /64");
        gateway.control().set("max_connections", "1").unwrap();
        assert_eq!(judge(&mut initial), (Reason::Quota, 1));
        drop(one);
        assert_eq!(judge(&mut initial), (Reason::New, 0));
        drop(two);
    });
}

/// The XDP program keeps a packet's fields in per-CPU memory. The verdict on the next packet must
/// not contain fields of an earlier one.
#[test]
fn verdict_has_no_field_of_an_earlier_packet() {
    in_namespace(|| {
        let gateway =
            Gateway::load_with(&config("before"), ObjectSource::Embedded, LoadOptions::explain())
                .unwrap();
        let mut initial = Initial::from(A);
        let judge = |frame: &[u8]| {
            let verdict = gateway.judge(frame).unwrap().verdict.expect("it is to the service");
            (verdict.reason, verdict.version, verdict.dcid.len(), verdict.scid.len())
        };
        // This is repeated, because the thread may move to another CPU between two packets.
        for _ in 0..50 {
            let long = initial.next();
            assert_eq!(judge(&long), (Reason::New, Some(1), 16, 16));
            let (mut short, mut cut) = (long.clone(), long.clone());
            short[42] = 0x40;
            assert_eq!(judge(&short), (Reason::Established, None, 0, 0));
            assert_eq!(judge(&long), (Reason::Underway, Some(1), 16, 16));
            // The payload is cut, so that it ends before the Source Connection ID.
            cut.truncate(42 + 15);
            cut[16..18].copy_from_slice(&(20 + 8 + 15_u16).to_be_bytes());
            cut[38..40].copy_from_slice(&(8 + 15_u16).to_be_bytes());
            assert_eq!(judge(&cut), (Reason::Truncated, Some(1), 16, 0));
        }
    });
}

#[test]
fn listener_with_an_address_precedes_a_port() {
    in_namespace(|| {
        let mut config = config("listen");
        let mut exact = config.services[0].clone();
        exact.name = "exact".to_owned();
        exact.listen =
            vec![support::SERVER_V4.parse().unwrap(), "[2001:db8:9::1]:4433".parse().unwrap()];
        config.services.push(exact);
        let gateway =
            Gateway::load_with(&config, ObjectSource::Embedded, LoadOptions::explain()).unwrap();
        let service = |from: &str, to: &str| {
            let frame = support::udp(from.parse().unwrap(), to.parse().unwrap(), &[0x40; 60]);
            gateway.judge(&frame).unwrap().verdict.map(|verdict| verdict.service)
        };
        assert_eq!(service(A, support::SERVER_V4).as_deref(), Some("exact"));
        assert_eq!(service(A, "192.0.2.201:4433").as_deref(), Some("quic"));
        assert_eq!(service("[2001:db8::1]:1", "[2001:db8:9::1]:4433").as_deref(), Some("exact"));
        assert_eq!(service("[2001:db8::1]:1", "[2001:db8:9::2]:4433").as_deref(), Some("quic"));
        assert_eq!(service(A, "192.0.2.200:4434"), None);
        let services = gateway.control().services().unwrap();
        assert_eq!(services[0].listen, config.services[0].listen);
        assert_eq!(services[1].listen, config.services[1].listen);
    });
}

#[test]
fn ledger_of_a_killed_server_expires() {
    in_namespace(|| {
        const LEASE: Duration = Duration::from_millis(400);
        let mut config = config("lease");
        config.services[0].max_connections = 1;
        config.gateway.lease = LEASE;
        let gateway = Gateway::load(&config, ObjectSource::Embedded).unwrap();
        let mut initial = Initial::from(A);
        let mut action = || gateway.test_run(&initial.next(), None).unwrap().action;
        assert_eq!(action(), Action::Pass);
        let child = Child::start("server", &config.gateway.name);
        child.ready();
        // On a busy machine, the server's lease may expire until its next heartbeat.
        await_that("its connections count", || action() == Action::Drop);
        let ledgers = gateway.control().ledgers().unwrap();
        assert_eq!((ledgers.len(), ledgers[0].pid, ledgers[0].connections), (1, child.id(), 3));
        assert!(ledgers[0].alive && ledgers[0].name == "child");
        // The heartbeat of a process without privileges must continue. The first heartbeat was
        // before `started`. The counts must be valid as long as the last one is younger than a
        // lease.
        let age = |ledger: &LedgerStatus| Duration::from_millis(ledger.heartbeat_age_ms);
        let started = Instant::now();
        await_that("a heartbeat is more than a lease after the first one", || {
            let before = Instant::now();
            let now = gateway.control().ledgers().unwrap()[0].clone();
            assert_eq!(now.counts, age(&now) < LEASE, "{now:?}");
            now.counts && before > started + LEASE + age(&now) + Duration::from_millis(1)
        });
        await_that("the source is at its limit", || {
            let sources = gateway.control().sources(10, SortBy::Connections).unwrap();
            sources.first().is_some_and(|first| {
                (first.source.as_str(), first.connections, first.state())
                    == ("192.0.2.1", 3, "at limit")
            })
        });
        child.kill();
        await_that("the counts are gone", || action() == Action::Pass);
        await_that("the ledger is gone", || gateway.control().ledgers().unwrap().is_empty());
    });
}

#[test]
fn ledger_of_a_dead_server_can_be_removed_by_pid() {
    in_namespace(|| {
        let mut config = config("reap");
        config.gateway.lease = Duration::from_secs(60);
        let gateway = Gateway::load(&config, ObjectSource::Embedded).unwrap();
        let child = Child::start("server", &config.gateway.name);
        child.ready();
        let pid = child.id();
        assert_eq!(gateway.control().remove_ledgers_of(pid).unwrap(), 0, "it runs");
        child.kill();
        assert_eq!(gateway.control().ledgers().unwrap().len(), 1, "the lease is long");
        assert_eq!(gateway.control().remove_ledgers_of(pid).unwrap(), 1);
        assert!(gateway.control().ledgers().unwrap().is_empty());
    });
}

#[test]
fn gateway_that_is_killed_leaves_nothing() {
    in_namespace(|| {
        let child = Child::start("gateway", &support::unique("killed"));
        child.ready();
        assert!(ip(&["link", "show", "veth0"]).contains("xdp"));
        let found = Control::survey()
            .unwrap()
            .gateways
            .into_iter()
            .find(|found| found.owner_pid == child.id());
        let found = found.expect("it is found");
        assert_eq!(found.interfaces[0].name.as_deref(), Some("veth0"));
        assert_eq!(found.interfaces[0].native, Some(true));
        assert!(found.owner_alive);
        child.kill();
        await_that("the program is off the interface", || {
            !ip(&["link", "show", "veth0"]).contains("xdp")
        });
        await_that("the program is gone", || {
            Control::survey()
                .unwrap()
                .gateways
                .iter()
                .all(|other| other.program_id != found.program_id)
        });
    });
}

#[test]
fn control_changes_the_gateway_of_another_process() {
    in_namespace(|| {
        let name = support::unique("remote");
        let child = Child::start("gateway", &name);
        child.ready();
        let control = Control::open(Some(&name)).unwrap();
        let id = control.program_id().to_string();
        assert_eq!(Control::open(Some(&id)).unwrap().name(), name, "by program id");
        assert_eq!(Control::open(Some("veth0")).unwrap().name(), name, "by interface");
        let error = Control::open(Some("nonesuch")).unwrap_err().to_string();
        assert!(
            error.contains("nonesuch") && error.contains(&name) && error.contains("veth0"),
            "{error}"
        );

        let changes = control.set("quic.max_connections", "7").unwrap();
        assert_eq!(
            (changes.len(), changes[0].old.as_str(), changes[0].new.as_str()),
            (1, "0", "7")
        );
        control.set("dry_run", "on").unwrap();
        control.set("new_per_source", "20/s burst 40").unwrap();
        control.set("new_per_v6_48", "100/min").unwrap();
        control.set("unproven_per_service", "1000/s").unwrap();
        let status = control.status().unwrap();
        assert_eq!(status.services[0].config.max_connections, 7);
        assert_eq!(status.services[0].config.new_per_source, Rate::per_second(20, 40));
        assert_eq!(status.services[0].config.new_per_v6_48.to_string(), "100/min");
        assert_eq!(status.services[0].config.unproven_per_service.to_string(), "1000/s");
        assert_eq!(status.services[0].config.listen, Config::for_port(4433).services[0].listen);
        assert!(status.dry_run && status.owner.alive && status.owner.pid == child.id());
        assert!(serde_json::to_string(&status).unwrap().contains("\"max_connections\":7"));
        let error = control.set("web.policy", "new").unwrap_err().to_string();
        assert!(error.contains("no service `web`") && error.contains("quic"), "{error}");

        let ledger = control.join("test").unwrap();
        let guard = ledger.service("quic").unwrap().opened(A.parse().unwrap());
        assert!(ledger.gateway_alive() && ledger.slot() == Some(0));
        assert_eq!(control.ledgers().unwrap()[0].connections, 1);
        assert_eq!(control.sources(1, SortBy::Connections).unwrap()[0].connections, 1);
        drop((guard, ledger));
        assert!(control.ledgers().unwrap().is_empty(), "left in good order");

        let other = control.detach(Some("veth1")).unwrap_err();
        assert!(matches!(other, Error::NotAttached { .. }), "{other}");
        assert_eq!(control.detach(None).unwrap()[0].name.as_deref(), Some("veth0"));
        assert!(!ip(&["link", "show", "veth0"]).contains("xdp"));
        assert!(child.runs(), "the owner keeps running");
    });
}

#[test]
fn ledger_slots_can_each_be_taken_once() {
    in_namespace(|| {
        let gateway = Gateway::load(&config("places"), ObjectSource::Embedded).unwrap();
        let control = gateway.control();
        let mut ledgers: Vec<_> =
            (0..16).map(|n| control.join(format!("server {n}")).unwrap()).collect();
        let mut slots: Vec<_> = ledgers.iter().map(|ledger| ledger.slot().unwrap()).collect();
        slots.sort_unstable();
        assert_eq!(slots, (0..16).collect::<Vec<_>>());
        let error = control.join("one more").unwrap_err();
        assert!(matches!(error, Error::NoFreeLedger { slots: 16 }), "{error}");
        drop(ledgers.remove(5));
        assert!(control.join("one more").is_ok());
        let from = A.parse().unwrap();
        let guards: Vec<_> =
            ledgers.iter().map(|l| l.service_at(0).unwrap().opened(from)).collect();
        let rows = control.sources(1, SortBy::Connections).unwrap();
        assert_eq!(rows[0].connections as usize, guards.len(), "all ledgers count");
    });
}

#[test]
fn list_entries_hold_and_expire() {
    in_namespace(|| {
        let mut config = config("lists");
        config.gateway.acl_entries = 2;
        config.deny.push("198.51.100.0/24".parse().unwrap());
        let gateway =
            Gateway::load_with(&config, ObjectSource::Embedded, LoadOptions::explain()).unwrap();
        let control = gateway.control();
        let now = Duration::from_secs(1_000_000);
        gateway.set_clock(now);
        let reason = |from: &str| {
            let judged = gateway.judge(&Initial::from(from).next()).unwrap();
            judged.verdict.expect("it is to the service").reason
        };
        assert_eq!(reason("198.51.100.9:1"), Reason::Denied);
        control.allow("198.51.100.9/32".parse().unwrap(), Some(Duration::from_secs(10))).unwrap();
        assert_eq!(reason("198.51.100.9:1"), Reason::Allowed);
        let full = control.deny("203.0.113.0/24".parse().unwrap(), None).unwrap_err();
        assert!(matches!(full, Error::ListFull { family: 4, entries: 2 }), "{full}");
        control.deny("2001:db8::/32".parse().unwrap(), None).unwrap();
        assert_eq!(reason("[2001:db8::7]:1"), Reason::Denied);
        let lists = control.lists().unwrap();
        let shown: Vec<_> =
            lists.iter().map(|e| (e.prefix.to_string(), e.action, e.expires_in)).collect();
        assert_eq!(
            shown,
            [
                ("198.51.100.0/24".to_owned(), ListAction::Deny, None),
                ("198.51.100.9/32".to_owned(), ListAction::Allow, Some(Duration::from_secs(10))),
                ("2001:db8::/32".to_owned(), ListAction::Deny, None),
            ]
        );
        gateway.set_clock(now + Duration::from_secs(11));
        assert_eq!(reason("198.51.100.9:2"), Reason::Denied, "the expired entry gives way");
        assert_eq!(control.lists().unwrap().len(), 2);
        control
            .deny("203.0.113.0/24".parse().unwrap(), None)
            .expect("the expired entry makes room");
        assert!(control.forget("198.51.100.0/24".parse().unwrap()).unwrap());
        assert!(!control.forget("198.51.100.0/24".parse().unwrap()).unwrap());
        assert_ne!(reason("198.51.100.9:3"), Reason::Denied);
    });
}

/// Offset of the flags in a frame with an IPv4 header after the Ethernet header.
const IPV4_FLAGS: usize = 20;
const MORE_FRAGMENTS: u8 = 0x20;

#[test]
fn snapshot_has_the_state_of_its_gateway() {
    in_namespace(|| {
        let mut config = config("snapshot");
        config.services[0].max_connections = 2;
        // Loading the copy may take some time on a busy machine, and the handshake must still be in
        // progress then.
        config.services[0].handshake_timeout = Duration::from_secs(600);
        config.services[0].new_per_v4_24 = "1/h burst 1".parse().unwrap();
        config.services[0].new_per_source = "1/h burst 1".parse().unwrap();
        let gateway = Gateway::load(&config, ObjectSource::Embedded).unwrap();
        gateway.control().deny("203.0.113.0/24".parse().unwrap(), None).unwrap();
        let mut initial = Initial::from("192.0.2.50:77");
        let under_way = initial.next();
        assert_eq!(gateway.test_run(&under_way, None).unwrap().action, Action::Pass);
        let service = gateway.ledger().unwrap().service_at(0).unwrap();
        let guards: Vec<_> = (0..2).map(|_| service.opened(A.parse().unwrap())).collect();
        let second = gateway.control().join("second").unwrap();
        let third = second.service_at(0).unwrap().opened(A.parse().unwrap());

        let copy = gateway.control().snapshot(ObjectSource::Embedded).unwrap();
        drop((guards, third, second));
        let before = gateway.control().counters().unwrap();
        let judge = |frame: &[u8]| {
            copy.judge(frame).unwrap().verdict.map(|v| (v.reason, v.connections, v.source))
        };
        let verdict = |reason, n, source: &str| Some((reason, n, source.to_owned()));
        assert_eq!(judge(&Initial::from(A).next()), verdict(Reason::Quota, 3, "192.0.2.1"));
        assert_eq!(judge(&under_way), verdict(Reason::Underway, 0, "192.0.2.50"));
        let again = Initial::from("192.0.2.50:78").next();
        assert_eq!(judge(&again), verdict(Reason::RateNewSource, 0, "192.0.2.50"));
        // A copy does not parse the headers of a first fragment, so it must copy all entries.
        let (mut fragment, all) = (again, gateway.control().snapshot(ObjectSource::Embedded));
        fragment[IPV4_FLAGS] |= MORE_FRAGMENTS;
        let judged = all.unwrap().judge(&fragment).unwrap();
        assert_eq!(judged.verdict.map(|v| v.reason), Some(Reason::FirstFragment));
        assert_eq!(
            judge(&Initial::from("192.0.2.60:1").next()),
            verdict(Reason::RateNewPrefix, 0, "192.0.2.60")
        );
        assert_eq!(
            judge(&Initial::from("203.0.113.5:1").next()),
            verdict(Reason::Denied, 0, "203.0.113.5")
        );
        assert_eq!(judge(&[0; 60]), None, "not to a service");
        assert_eq!(judge(&[0; 5]), None, "not even Ethernet");
        assert_eq!(gateway.control().counters().unwrap(), before, "the original saw none of it");
        let copied = copy.program_id();
        assert!(
            Control::survey().unwrap().gateways.iter().all(|found| found.program_id != copied),
            "no gateway"
        );
        assert!(matches!(copy.test_run(&[0; 5], None), Err(Error::BadPacket { length: 5, .. })));
        assert!(matches!(
            copy.test_run(&[0; 60], Some(u32::MAX >> 1)),
            Err(Error::NoSuchInterface { .. })
        ));
    });
}

/// The XDP program charges at the time of the kernel's tick if the bucket has room at that time.
/// The packets that pass must not exceed the rate.
#[test]
fn rate_holds_by_the_real_clock() {
    const PACKETS: u32 = 200_000;
    const BURST: u64 = 20;
    const EACH_MS: u64 = 10;
    // Length of a tick with CONFIG_HZ=100, the lowest value of common kernels.
    const TICK_MS: u64 = 10;
    in_namespace(|| {
        let mut config = config("clock");
        config.services[0].packets_per_source = "10000/s burst 20".parse().unwrap();
        let gateway = Gateway::load(&config, ObjectSource::Embedded).unwrap();
        let begun = Instant::now();
        gateway.test_run_repeat(&Initial::from(A).next(), None, PACKETS).unwrap();
        let elapsed = begun.elapsed().as_millis() as u64 + 1;
        let counters = gateway.control().counters().unwrap();
        let refused = counters.iter().find(|row| row.reason == Reason::RatePackets);
        let passed = u64::from(PACKETS) - refused.map_or(0, |row| row.packets);
        let most = BURST + (elapsed + TICK_MS) * EACH_MS;
        assert!(
            (BURST..=most).contains(&passed),
            "{passed} packets in {elapsed} ms, at most {most}"
        );
    });
}

#[test]
fn rate_limits_of_prefixes_and_services_change_live() {
    in_namespace(|| {
        let gateway = Gateway::load(&config("wide"), ObjectSource::Embedded).unwrap();
        let control = gateway.control();
        let from =
            |source: &str| gateway.test_run(&Initial::from(source).next(), None).unwrap().action;
        let set = |key: &str, value: &str| drop(control.set(key, value).unwrap());
        set("new_per_v4_24", "1/h burst 1");
        assert_eq!(from("198.51.100.1:1"), Action::Pass);
        assert_eq!(from("198.51.100.2:1"), Action::Drop);
        assert_eq!(from("198.51.101.2:1"), Action::Pass);
        let prefixes = |status: Status| {
            let table =
                status.tables.iter().find(|table| table.name == "prefixes").unwrap().clone();
            (table.entries, status.tallies.prefixes_created, status.tallies.prefixes_evicted)
        };
        assert_eq!(prefixes(control.status().unwrap()), (2, 2, 0));
        set("new_per_v4_24", "off");
        assert_eq!(from("198.51.100.3:1"), Action::Pass);

        set("packets_per_service", "1/h burst 1");
        assert_eq!(from("198.51.100.4:1"), Action::Pass);
        assert_eq!(from("203.0.113.5:1"), Action::Drop);
        set("packets_per_service", "off");
        assert_eq!(from("203.0.113.6:1"), Action::Pass);
        let verdicts = &control.status().unwrap().services[0].verdicts;
        let counted =
            |reason| verdicts.iter().find(|row| row.reason == reason).map_or(0, |row| row.dropped);
        let refused = [Reason::RateNewPrefix, Reason::RatePacketsService].map(counted);
        assert_eq!(refused, [1, 1]);
    });
}

#[test]
fn override_limits_apply_in_the_program_and_in_servers() {
    in_namespace(|| {
        let own = |prefix: &str, max| OverrideConfig {
            prefixes: vec![prefix.parse().unwrap()],
            max_connections: Some(max),
            ..OverrideConfig::default()
        };
        let mut config = config("own");
        config.services[0].max_connections = 1;
        config.services[0].overrides = vec![own("198.51.100.0/24", 2), own("2001:db8::/32", 3)];
        let gateway = Gateway::load(&config, ObjectSource::Embedded).unwrap();
        let control = gateway.control();
        let service = gateway.ledger().unwrap().service_at(0).unwrap();
        let mut initial = Initial::from("198.51.100.1:1");
        let mut action = || gateway.test_run(&initial.next(), None).unwrap().action;
        let guard = service.opened("198.51.100.1:1".parse().unwrap());
        assert_eq!(action(), Action::Pass);
        let second = service.opened("198.51.100.1:2".parse().unwrap());
        assert_eq!(action(), Action::Drop);
        assert!(!second.over_limit() && service.full("198.51.100.1:3".parse().unwrap()));
        assert_eq!(control.services().unwrap()[0].overrides, config.services[0].overrides);
        assert_eq!(control.sources(1, SortBy::Connections).unwrap()[0].limit, 2);
        let copy = control.snapshot(ObjectSource::Embedded).unwrap();
        assert_eq!(
            copy.test_run(&Initial::from("198.51.100.1:9").next(), None).unwrap().action,
            Action::Drop
        );

        // One override is removed, one stays, one is added, and one gets another limit.
        let mut services = config.services.clone();
        services[0].overrides = vec![own("203.0.113.0/24", 5), own("198.51.100.0/24", 3)];
        control.set_overrides(&services).unwrap();
        assert_eq!(action(), Action::Pass);
        assert!(!service.full("198.51.100.1:3".parse().unwrap()));
        assert_eq!(service.limit_for("203.0.113.1:1".parse().unwrap()), 5);
        assert_eq!(service.limit_for("[2001:db8::1]:1".parse().unwrap()), 1);
        services[0].overrides.clear();
        control.set_overrides(&services).unwrap();
        assert_eq!(action(), Action::Drop);
        assert!(second.over_limit());
        assert_eq!(control.services().unwrap()[0].overrides, []);
        drop((guard, second));
    });
}

#[test]
fn counters_and_events_report_verdicts() {
    in_namespace(|| {
        let gateway = Gateway::load(&config("events"), ObjectSource::Embedded).unwrap();
        let control = gateway.control();
        control.deny("192.0.2.9/32".parse().unwrap(), None).unwrap();
        let mut events = control.events().unwrap();
        let frame = Initial::from("192.0.2.9:4444").next();
        for _ in 0..3 {
            gateway.test_run(&frame, None).unwrap();
        }
        gateway.test_run(&Initial::from(A).next(), None).unwrap();
        let heard = events.poll(Duration::from_secs(5)).unwrap();
        assert_eq!(heard.len(), 3);
        assert_eq!(heard[0].from, "192.0.2.9:4444".parse().unwrap());
        assert_eq!(heard[0].to, support::SERVER_V4.parse().unwrap());
        assert_eq!(
            (heard[0].reason, heard[0].service.as_str(), heard[0].dropped),
            (Reason::Denied, "quic", true)
        );
        assert_eq!(heard[0].length, 1200);
        assert!(events.poll(Duration::ZERO).unwrap().is_empty());
        let rows: Vec<_> = control
            .counters()
            .unwrap()
            .into_iter()
            .map(|row| (row.reason, row.packets, row.bytes, row.dropped))
            .collect();
        assert_eq!(rows, [(Reason::New, 1, 1200, 0), (Reason::Denied, 3, 3600, 3)]);
        let tallies = control.tallies().unwrap();
        assert_eq!(
            (tallies.sources_created, tallies.sources_evicted, tallies.handshakes_created),
            (1, 0, 1)
        );
        assert_eq!(control.sources(9, SortBy::Packets).unwrap()[0].last_reason, Some(Reason::New));
    });
}

/// Entry point of the child processes that other tests start. In a normal test run, it does
/// nothing.
#[test]
fn child() {
    let Some((role, name)) = support::role() else { return };
    assert!(root());
    match role.as_str() {
        "gateway" => {
            let mut config = Config::for_port(4433);
            config.gateway.name = name;
            let gateway = Gateway::load(&config, ObjectSource::Embedded).unwrap();
            gateway.attach("veth0", Mode::Native).unwrap();
            support::say_ready_and_wait();
        }
        "server" => {
            let ledger = Control::open(Some(&name)).unwrap().join("child").unwrap();
            support::drop_privileges();
            let service = ledger.service("quic").unwrap();
            let _guards: Vec<_> = (0..3).map(|_| service.opened(A.parse().unwrap())).collect();
            support::say_ready_and_wait();
        }
        "unprivileged_load" => {
            support::drop_privileges();
            let error = Gateway::load(&Config::for_port(1), ObjectSource::Embedded).unwrap_err();
            println!("{error}");
        }
        other => panic!("no role {other}"),
    }
}

/// Links and programs that appear and disappear during a search must not cause an error.
#[test]
fn control_finds_a_gateway_while_others_attach_and_detach() {
    in_namespace(|| {
        let gateway = Gateway::load(&config("found"), ObjectSource::Embedded).unwrap();
        gateway.attach("veth0", Mode::Auto).unwrap();
        let other = Gateway::load(&config("restless"), ObjectSource::Embedded).unwrap();
        let (id, done) = (gateway.program_id().to_string(), AtomicBool::new(false));
        struct Done<'a>(&'a AtomicBool);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        std::thread::scope(|scope| {
            // This also sets the flag if the thread panics, because the scope waits for the other
            // thread.
            let _done = Done(&done);
            let looker = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    Control::open(Some(&id)).unwrap().interfaces().unwrap();
                }
            });
            for _ in 0..100 {
                other.attach("veth1", Mode::Generic).unwrap();
                other.detach("veth1").unwrap();
                assert!(!looker.is_finished(), "the looker found an error");
            }
        });
    });
}
