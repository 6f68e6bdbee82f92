//! Tests that the numbers of list entries match the entries, whichever process changed the lists
//! and how. Needs root.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use equic_gateway::{
    Action, Control, Error, Gateway, IpNet, ListAction, ListCounts, ListEvent, LoadOptions,
    ObjectSource, Origin, parse_prefix,
};
use support::{Initial, config, in_namespace};

fn net(text: &str) -> IpNet {
    parse_prefix(text).unwrap()
}

/// Returns the numbers that a walk through the lists finds.
fn walked(control: &Control) -> ListCounts {
    let lists = control.lists().unwrap();
    let count = |action, v4| {
        let such = lists.iter().filter(|e| e.action == action && e.prefix.addr().is_ipv4() == v4);
        such.count() as u64
    };
    ListCounts {
        deny_v4: count(ListAction::Deny, true),
        allow_v4: count(ListAction::Allow, true),
        deny_v6: count(ListAction::Deny, false),
        allow_v6: count(ListAction::Allow, false),
        bans: lists.iter().filter(|entry| entry.origin == Origin::Ban).count() as u64,
    }
}

#[test]
fn list_counts_follow_every_way_to_change_a_list() {
    in_namespace(|| {
        let mut config = config("numbers");
        config.deny = vec![net("198.51.100.0/24"), net("2001:db8::/32")];
        config.gateway.acl_entries = 4;
        let gateway = Gateway::load(&config, ObjectSource::Embedded).unwrap();
        // This handle works like that of another process.
        let other = Control::open(Some(&config.gateway.name)).unwrap();
        let control = gateway.control();
        let mut mark = control.list_mark();
        let same = |deny_v4, allow_v4, deny_v6, allow_v6, bans| {
            let wanted = ListCounts { deny_v4, allow_v4, deny_v6, allow_v6, bans };
            assert_eq!((control.list_counts().unwrap(), walked(&other)), (wanted, wanted));
        };
        same(1, 0, 1, 0, 0);
        other.deny(net("192.0.2.1"), None).unwrap();
        other.deny(net("192.0.2.1"), Some(Duration::from_secs(900))).unwrap();
        control.allow(net("192.0.2.1"), None).unwrap();
        control.allow(net("::ffff:192.0.2.9"), None).unwrap();
        same(1, 2, 1, 0, 0);
        assert!(control.ban(net("192.0.2.7"), Duration::from_secs(900), 1).unwrap());
        assert!(control.ban(net("192.0.2.7"), Duration::from_secs(900), 2).unwrap());
        same(2, 2, 1, 0, 1);
        // An entry that the kernel refuses must not be counted.
        let full = other.deny(net("192.0.2.99"), None).unwrap_err();
        assert!(matches!(full, Error::ListFull { .. }), "{full}");
        same(2, 2, 1, 0, 1);
        assert!(other.forget(net("192.0.2.9")).unwrap());
        assert!(!other.forget(net("192.0.2.9")).unwrap());
        let changes = other.list_changes(&mut mark);
        assert_eq!(
            changes.each,
            [
                (net("192.0.2.1"), ListEvent::Denied),
                (net("192.0.2.1"), ListEvent::Allowed),
                (net("192.0.2.9"), ListEvent::Allowed),
                (net("192.0.2.9"), ListEvent::Forgotten),
            ],
            "bans are not told of, nor what stays as it is"
        );
        assert_eq!(other.list_changes(&mut mark), Default::default());

        // Replacing a list must remove bans of its prefixes, but keep entries of other origins.
        let wanted = [(net("192.0.2.7"), ListAction::Deny), (net("192.0.2.1"), ListAction::Deny)];
        other.replace(Origin::File, &[ListAction::Deny], &wanted).unwrap();
        same(2, 1, 1, 0, 0);
        other.replace(Origin::File, &[ListAction::Deny], &[]).unwrap();
        other.replace(Origin::Config, &[ListAction::Deny], &[]).unwrap();
        same(0, 1, 0, 0, 0);
        let changes = control.list_changes(&mut mark);
        assert_eq!((changes.numbers, changes.each.len()), ([1, 0, 0, 3], 4));

        // The sweep must remove an expired entry and report that.
        control.deny(net("203.0.113.0/24"), Some(Duration::from_millis(1))).unwrap();
        support::await_that("it is swept", || control.list_counts().unwrap().deny_v4 == 0);
        same(0, 1, 0, 0, 0);
        let events: Vec<_> = control.list_changes(&mut mark).each;
        assert_eq!(
            events,
            [
                (net("203.0.113.0/24"), ListEvent::Denied),
                (net("203.0.113.0/24"), ListEvent::Expired)
            ]
        );
    });
}

#[test]
fn list_changes_that_are_many_are_reported_as_numbers() {
    in_namespace(|| {
        let gateway = Gateway::load(&config("many-told"), ObjectSource::Embedded).unwrap();
        let control = gateway.control();
        let mut mark = control.list_mark();
        let wanted: Vec<_> =
            (0..200).map(|n| (net(&format!("10.0.0.{n}")), ListAction::Deny)).collect();
        control.replace(Origin::File, &[ListAction::Deny], &wanted).unwrap();
        control.forget(net("10.0.0.7")).unwrap();
        let changes = control.list_changes(&mut mark);
        assert_eq!((changes.numbers, changes.each), ([200, 0, 0, 1], Vec::new()));
    });
}

/// Several processes change the same entry at the same time. After that, the owner must count
/// again.
#[test]
fn list_counts_are_exact_after_concurrent_changes() {
    in_namespace(|| {
        let config = config("at-once");
        let gateway = Gateway::load(&config, ObjectSource::Embedded).unwrap();
        let (control, done) = (gateway.control(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let own = Control::open(Some(&config.gateway.name)).unwrap();
                    while !done.load(Ordering::Relaxed) {
                        own.deny(net("192.0.2.1"), None).unwrap();
                        own.allow(net("192.0.2.1"), None).unwrap();
                        own.forget(net("192.0.2.1")).unwrap();
                    }
                });
            }
            for _ in 0..300 {
                control.deny(net("192.0.2.1"), None).unwrap();
                control.forget(net("192.0.2.1")).unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        control.deny(net("192.0.2.2"), None).unwrap();
        support::await_that("the numbers are those of the entries", || {
            control.list_counts().unwrap() == walked(control)
        });
    });
}

/// A copy for trying out packets must read the gateway's lists, but must not be able to change
/// them.
#[test]
fn list_is_read_only_in_a_snapshot() {
    in_namespace(|| {
        let gateway = Gateway::load(&config("shared"), ObjectSource::Embedded).unwrap();
        let control = gateway.control();
        control.deny(net("203.0.113.0/24"), None).unwrap();
        let copy = control.snapshot(ObjectSource::Embedded).unwrap();
        let denied = |from: &str| copy.judge(&Initial::from(from).next()).unwrap().verdict;
        let reason = |from: &str| denied(from).map(|verdict| verdict.reason.name());
        assert_eq!(reason("203.0.113.5:1"), Some("denied"));
        control.deny(net("192.0.2.0/24"), None).unwrap();
        assert_eq!(reason("192.0.2.5:1"), Some("denied"));
        assert!(copy.control().deny(net("198.51.100.0/24"), None).is_err());
        assert!(copy.control().forget(net("203.0.113.0/24")).is_err());
        assert_eq!(control.lists().unwrap().len(), 2);
        assert_eq!(control.list_counts().unwrap().deny_v4, 2);
    });
}

/// The process that changes a list also updates the numbers, but no process changes a list when an
/// entry expires. As documented, an expired entry has no effect and is not shown, but is counted
/// until the sweep.
#[test]
fn list_entry_that_expired_is_counted_until_the_sweep() {
    in_namespace(|| {
        let options = LoadOptions { test_clock: true, unswept: true, ..LoadOptions::default() };
        let config = config("expired");
        let gateway = Gateway::load_with(&config, ObjectSource::Embedded, options).unwrap();
        let control = gateway.control();
        let second = Duration::from_secs(1);
        gateway.set_clock(second);
        control.deny(net("192.0.2.1"), Some(second)).unwrap();
        assert_eq!((control.list_counts().unwrap().deny_v4, walked(control).deny_v4), (1, 1));
        gateway.set_clock(second * 2);
        let mut initial = Initial::from("192.0.2.1:4000");
        assert_eq!(gateway.test_run(&initial.next(), None).unwrap().action, Action::Pass);
        assert_eq!((control.list_counts().unwrap().deny_v4, walked(control).deny_v4), (1, 0));
        assert_eq!(control.sweep().unwrap().list_entries, 1);
        assert_eq!(control.list_counts().unwrap(), ListCounts::default());
    });
}
