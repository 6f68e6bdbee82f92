//! Tests of the operator's tools: replacing lists, bans as list entries, exact counts of refusals,
//! and the report. Needs root.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use equic_gateway::{
    BanConfig, Condition, Config, Control, Error, Gateway, IpNet, Level, ListAction, ListEntry,
    LoadOptions, ObjectSource, Origin, Reason, Report, Retry, parse_prefix,
};
use support::{Initial, SERVER_V4, config, in_namespace, udp};

const BOTH: [ListAction; 2] = [ListAction::Deny, ListAction::Allow];

fn net(text: &str) -> IpNet {
    parse_prefix(text).unwrap()
}

fn denied(range: std::ops::Range<u32>) -> Vec<(IpNet, ListAction)> {
    let address = |index| std::net::IpAddr::from(std::net::Ipv4Addr::from(0x0a00_0000 + index));
    range.map(|index| (IpNet::from(address(index)), ListAction::Deny)).collect()
}

fn load(config: &Config) -> Gateway {
    Gateway::load(config, ObjectSource::Embedded).unwrap()
}

#[test]
fn list_replacement_never_removes_an_entry_that_stays() {
    in_namespace(|| {
        let mut config = config("replace");
        config.gateway.acl_entries = 3_000;
        let gateway = load(&config);
        let (control, done) = (gateway.control(), AtomicBool::new(false));
        let replace = |wanted: &[_]| control.replace(Origin::Config, &BOTH, wanted);
        replace(&denied(0..1_000)).unwrap();
        std::thread::scope(|scope| {
            let watch = || {
                let mut looks = 0;
                while !done.load(Ordering::Relaxed) {
                    for (prefix, _) in denied(400..600).iter().step_by(40) {
                        assert!(control.entry(*prefix).unwrap().is_some(), "{prefix} is off");
                        looks += 1;
                    }
                }
                looks
            };
            let watcher = scope.spawn(watch);
            for turn in 0..50 {
                // In every third turn, there is only room for the additions after the removals.
                let range = [0..1_000, 400..1_400, 400..2_600][turn % 3].clone();
                replace(&denied(range)).unwrap();
            }
            done.store(true, Ordering::Relaxed);
            assert!(watcher.join().unwrap() > 0);
        });
        let change = replace(&denied(500..600)).unwrap();
        assert_eq!((change.added, change.removed, change.kept), (0, 900, 100));
        // If there is not enough room, nothing must change, and the error must contain the numbers.
        let error = replace(&denied(0..3_001)).unwrap_err();
        assert!(matches!(error, Error::ListTooLong { family: 4, needed: 3_001, entries: 3_000 }));
        assert!(error.to_string().contains("`acl_entries` of 3001 or more"), "{error}");
        assert_eq!(control.lists().unwrap().len(), 100);
        // A prefix that changes from denied to allowed must be changed in place. IPv6 has its own
        // table.
        let wanted =
            [(net("10.0.1.244"), ListAction::Allow), (net("2001:db8::/32"), ListAction::Deny)];
        let change = replace(&wanted).unwrap();
        assert_eq!((change.added, change.removed, change.kept), (2, 99, 0));
    });
}

#[test]
fn list_entries_of_each_origin_are_separate() {
    in_namespace(|| {
        let gateway = load(&config("origins"));
        let control = gateway.control();
        let origin = |text: &str| {
            control.entry(net(text)).unwrap().map(|e: ListEntry| (e.action, e.origin, e.bans))
        };
        control.allow(net("10.0.0.1"), None).unwrap();
        let wanted = [(net("10.0.0.1"), ListAction::Deny), (net("10.0.0.2"), ListAction::Deny)];
        let change = control.replace(Origin::File, &[ListAction::Deny], &wanted).unwrap();
        assert_eq!((change.added, change.left), (1, 1));
        assert_eq!(origin("10.0.0.1"), Some((ListAction::Allow, Origin::Command, 0)));
        assert_eq!(origin("10.0.0.2"), Some((ListAction::Deny, Origin::File, 0)));
        control.replace(Origin::Config, &BOTH, &[]).unwrap();
        assert_eq!(control.lists().unwrap().len(), 2, "none of those is the configuration's");

        // A ban must never replace an operator's entry, but an operator's entry must replace a ban.
        let long = Duration::from_secs(60);
        assert!(!control.ban(net("10.0.0.1"), long, 1).unwrap(), "allowed");
        assert!(!control.ban(net("10.0.0.2"), long, 1).unwrap(), "denied for good");
        assert!(control.ban(net("10.0.0.3"), long, 1).unwrap());
        assert!(control.ban(net("10.0.0.3"), long, 2).unwrap(), "again");
        assert_eq!(origin("10.0.0.3"), Some((ListAction::Deny, Origin::Ban, 2)));
        control.allow(net("10.1.0.0/16"), None).unwrap();
        control.deny(net("10.1.1.0/24"), None).unwrap();
        assert!(!control.ban(net("10.1.1.1"), long, 1).unwrap(), "inside an allowed prefix");
        assert!(control.allowed(net("10.1.1.1")).unwrap());
        assert!(!control.allowed(net("10.2.0.0/16")).unwrap());
        assert!(!control.allowed(net("10.0.0.0/8")).unwrap(), "only part of it");
        control.allow(net("2001:db8::/32"), Some(Duration::from_millis(1))).unwrap();
        support::await_that("it expires", || !control.allowed(net("2001:db8::/64")).unwrap());
        assert!(control.ban(net("2001:db8::/64"), long, 1).unwrap());
        let wanted = [(net("10.0.0.3"), ListAction::Allow)];
        control.replace(Origin::Config, &BOTH, &wanted).unwrap();
        assert_eq!(origin("10.0.0.3"), Some((ListAction::Allow, Origin::Config, 0)));
    });
}

#[test]
fn refusals_are_counted_exactly() {
    in_namespace(|| {
        let mut config = config("refusals");
        config.services[0].new_per_source = "1/h burst 3".parse().unwrap();
        config.services[0].packets_per_source = "1/h burst 10".parse().unwrap();
        let reasons = vec![Reason::Quota, Reason::RateNewSource];
        config.ban = Some(BanConfig { reasons: reasons.clone(), ..BanConfig::default() });
        let gateway =
            Gateway::load_with(&config, ObjectSource::Embedded, LoadOptions::explain()).unwrap();
        let control = gateway.control();
        assert_eq!(control.counted_reasons(), reasons);
        assert_eq!(
            (control.refused_in_all().unwrap(), control.refusals().unwrap().entries),
            (0, 0)
        );
        let mut initial = Initial::from("192.0.2.1:4000");
        // Three packets are admitted, seven are refused for a counted reason, and ten for another
        // reason.
        (0..20).for_each(|_| drop(gateway.judge(&initial.next()).unwrap()));
        drop(gateway.judge(&Initial::from("192.0.2.2:4000").next()).unwrap());
        assert_eq!(control.refused_in_all().unwrap(), 7);
        let seen = control.refusals().unwrap();
        assert_eq!((seen.sources.len(), seen.entries, seen.created), (1, 2, 2), "{seen:?}");
        let one = seen.sources[0];
        assert_eq!((one.prefix, one.refused, one.connected), (net("192.0.2.1"), 7, false));
        let service = gateway.ledger().unwrap().service_at(0).unwrap();
        let _guard = service.opened("192.0.2.1:4000".parse().unwrap());
        assert!(control.refusals().unwrap().sources[0].connected);
    });
}

/// If a service uses Retry, refused packets without a valid token must not count towards a ban.
#[test]
fn refusals_without_proof_do_not_count_if_retry_is_on() {
    in_namespace(|| {
        for retry in [Retry::Never, Retry::Always, Retry::Adaptive] {
            let mut config = config("proved");
            config.services[0].retry = retry;
            config.services[0].packets_per_source = "1/h burst 2".parse().unwrap();
            let reasons = vec![Reason::Quota, Reason::RatePackets];
            config.ban = Some(BanConfig { reasons, ..BanConfig::default() });
            let gateway =
                Gateway::load_with(&config, ObjectSource::Embedded, LoadOptions::explain())
                    .unwrap();
            let short = [0x40; 60];
            let packet = udp("192.0.2.1:4000".parse().unwrap(), SERVER_V4.parse().unwrap(), &short);
            (0..9).for_each(|_| drop(gateway.judge(&packet).unwrap()));
            let control = gateway.control();
            assert_eq!(control.refused_in_all().unwrap(), 7);
            let counted: u32 = control.refusals().unwrap().sources.iter().map(|s| s.refused).sum();
            assert_eq!(counted, if retry == Retry::Never { 7 } else { 0 }, "{retry:?}");
        }
    });
}

fn report(number: usize) -> Report {
    let condition = |index: usize| Condition {
        about: format!("{number} {index}"),
        level: Level::Warning,
        message: "x".repeat(number % 100),
        since_ms: number as u64,
    };
    let conditions = (0..number % 50).map(condition).collect();
    Report { written_ms: number as u64, conditions, ..Report::default() }
}

#[test]
fn report_is_read_whole_by_other_processes() {
    in_namespace(|| {
        let config = config("report");
        let gateway = load(&config);
        let other = Control::open(Some(&config.gateway.name)).unwrap();
        assert_eq!(other.report(), None);
        gateway.control().publish(&report(7)).unwrap();
        let read = other.report().unwrap();
        assert!(read.is_alive() && read.pid == std::process::id());
        assert!(!Report { start_ticks: 1, ..read }.is_alive(), "another process of this number");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut seen = 0;
                while !done.load(Ordering::Relaxed) {
                    if let Some(read) = other.report() {
                        let wanted = report(read.written_ms as usize);
                        assert_eq!(read.conditions, wanted.conditions);
                        seen += 1;
                    }
                }
                seen
            });
            (0..2_000).for_each(|number| gateway.control().publish(&report(number)).unwrap());
            done.store(true, Ordering::Relaxed);
            assert!(reader.join().unwrap() > 0);
        });
        // If a report is too long, its lists must be cut at the end.
        let mut long = report(49);
        long.conditions = long.conditions.into_iter().cycle().take(10_000).collect();
        gateway.control().publish(&long).unwrap();
        let read = other.status().unwrap().report.unwrap();
        assert!(read.conditions.len() > 100 && long.conditions.starts_with(&read.conditions));
    });
}

/// Prints the time that a list of 100,000 entries takes. It asserts nothing about that time.
#[test]
fn list_of_100_000_entries_is_replaced() {
    in_namespace(|| {
        let mut config = config("many");
        config.gateway.acl_entries = 200_000;
        let gateway = load(&config);
        let (list, began) = (denied(0..100_000), Instant::now());
        gateway.control().replace(Origin::File, &[ListAction::Deny], &list).unwrap();
        let (added, began) = (began.elapsed(), Instant::now());
        gateway.control().replace(Origin::File, &[ListAction::Deny], &list[1..]).unwrap();
        println!("100,000 entries: added in {added:?}, compared in {:?}", began.elapsed());
        assert_eq!(gateway.control().lists().unwrap().len(), 99_999);
    });
}
