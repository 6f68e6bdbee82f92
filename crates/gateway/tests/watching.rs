//! Readings for those who watch: samples of all sources, lists by prefix, events seen by several.

mod support;

use std::time::Duration;

use equic_gateway::{Gateway, ListAction, ObjectSource, Reason, SortBy};
use support::{Initial, await_that, config, in_namespace};

#[test]
fn samples_say_what_sources_says() {
    in_namespace(|| {
        let mut config = config("samples");
        config.services[0].max_connections = 5;
        let gateway = Gateway::load(&config, ObjectSource::Embedded).unwrap();
        let control = gateway.control();
        let ledger = control.join("server").unwrap();
        let service = ledger.service_at(0).unwrap();
        let _talks = service.opened("192.0.2.7:1".parse().unwrap());
        let _silent: Vec<_> =
            (0..2).map(|_| service.opened("[2001:db8:7::1]:1".parse().unwrap())).collect();
        for (from, packets) in [("192.0.2.7:4000", 3), ("[2001:db8:8::9]:4000", 2)] {
            let mut initial = Initial::from(from);
            for _ in 0..packets {
                gateway.test_run(&initial.next(), None).unwrap();
            }
        }
        let mut samples = control.source_samples().unwrap();
        samples.sort_by_key(|sample| sample.key.label());
        let rows = control.sources(10, SortBy::Packets).unwrap();
        assert_eq!((samples.len(), rows.len()), (3, 3), "{samples:?} {rows:?}");
        for sample in &samples {
            let row = rows.iter().find(|row| row.source == sample.key.label()).unwrap();
            let of_row = (row.connections, row.limit, row.packets, row.bytes, row.drops);
            let of_sample =
                (sample.connections, sample.limit, sample.packets, sample.bytes, sample.drops);
            assert_eq!((of_sample, sample.last_reason), (of_row, row.last_reason));
            assert_eq!(sample.key.service.is_some(), row.first_seen_ms.is_some());
        }
        assert_eq!(samples[0].key.label(), "192.0.2.7");
        assert_eq!((samples[0].packets, samples[0].connections), (3, 1));
        assert_eq!(
            (samples[1].key.label().as_str(), samples[1].connections),
            ("2001:db8:7::/64", 2)
        );

        let overview = control.overview();
        assert_eq!((overview.name, overview.dry_run), (control.name(), false));
        assert!(overview.owner.pid == std::process::id() && control.is_loaded().unwrap());
        let control = control.clone();
        drop((_talks, _silent, ledger));
        drop(gateway);
        await_that("the program is gone", || !control.is_loaded().unwrap());
    });
}

#[test]
fn the_longest_entry_that_holds_decides() {
    in_namespace(|| {
        let gateway = Gateway::load(&config("listed"), ObjectSource::Embedded).unwrap();
        let control = gateway.control();
        let net = |text: &str| text.parse().unwrap();
        let listed = |text: &str| {
            let entry = control.listed(net(text)).unwrap();
            entry.map(|entry| (entry.prefix.to_string(), entry.action, entry.expires_in.is_some()))
        };
        let deny = |prefix: &str| Some((prefix.to_owned(), ListAction::Deny, false));
        assert_eq!(listed("192.0.2.7/32"), None);
        control.deny(net("192.0.2.0/24"), None).unwrap();
        control.deny(net("2001:db8::/32"), None).unwrap();
        control.allow(net("192.0.2.7/32"), Some(Duration::from_secs(600))).unwrap();
        assert_eq!(listed("192.0.2.7/32"), Some(("192.0.2.7/32".into(), ListAction::Allow, true)));
        assert_eq!(listed("192.0.2.8/32"), deny("192.0.2.0/24"));
        assert_eq!(listed("192.0.3.8/32"), None);
        assert_eq!(listed("2001:db8:1:2::/64"), deny("2001:db8::/32"));
        assert_eq!(listed("2001:db9:1:2::/64"), None);
        assert_eq!(
            control.source_of("2001:db8:1:2:3::4".parse().unwrap()),
            net("2001:db8:1:2::/64")
        );
        // An entry that has run out gives way to the shorter one, swept or not.
        control.allow(net("192.0.2.7/32"), Some(Duration::from_nanos(1))).unwrap();
        assert_eq!(listed("192.0.2.7/32"), deny("192.0.2.0/24"));
    });
}

#[test]
fn many_look_on_and_the_reader_misses_nothing() {
    const DROPS: usize = 50;
    in_namespace(|| {
        let mut config = config("observed");
        config.gateway.events = "1000000/s".parse().unwrap();
        let gateway = Gateway::load(&config, ObjectSource::Embedded).unwrap();
        let control = gateway.control();
        control.deny("192.0.2.9/32".parse().unwrap(), None).unwrap();
        let mut initial = Initial::from("192.0.2.9:4444");
        let mut drop_one = || {
            gateway.test_run(&initial.next(), None).unwrap();
        };
        // Before anybody looks: it waits in the ring.
        drop_one();
        let mut reader = control.events().unwrap();
        let (mut one, mut other) = (control.observe().unwrap(), control.observe().unwrap());
        (1..DROPS).for_each(|_| drop_one());
        let seen = one.poll();
        let read = reader.poll(Duration::from_secs(5)).unwrap();
        // After the reader took them they are still there.
        let seen_late = other.poll();
        assert_eq!(read.len(), DROPS);
        assert!(seen == read && seen_late == read, "{} {}", seen.len(), seen_late.len());
        assert!(seen.iter().all(|event| event.reason == Reason::Denied && event.dropped));
        assert!(one.poll().is_empty());
        drop_one();
        assert_eq!((one.poll().len(), other.poll().len()), (1, 1));
        assert_eq!(reader.poll(Duration::from_secs(5)).unwrap().len(), 1);

        // One that looked away while the ring went round begins where it can.
        for _ in 0..8_000 {
            drop_one();
            reader.poll(Duration::ZERO).unwrap();
        }
        other.poll();
        drop_one();
        assert_eq!(other.poll().len(), 1);
    });
}

#[test]
fn where_nobody_reads_the_ring_does_not_stay_full() {
    in_namespace(|| {
        let mut config = config("unread");
        config.gateway.events = "1000000/s".parse().unwrap();
        let gateway = Gateway::load(&config, ObjectSource::Embedded).unwrap();
        let control = gateway.control();
        control.deny("192.0.2.9/32".parse().unwrap(), None).unwrap();
        let mut initial = Initial::from("192.0.2.9:4444");
        while control.tallies().unwrap().events_lost == 0 {
            gateway.test_run_repeat(&initial.next(), None, 1_000).unwrap();
        }
        let mut observer = control.observe().unwrap();
        let full = observer.poll();
        assert!(full.len() > 2_000, "{}", full.len());
        let last = full.last().unwrap().time_ns;
        // Whoever comes later makes room at the first look, once a reader would have come.
        await_that("a later one makes room at once", || {
            let mut later = control.observe().unwrap();
            later.poll();
            gateway.test_run(&initial.next(), None).unwrap();
            later.poll().iter().any(|event| event.time_ns > last)
        });
        assert!(observer.poll().iter().any(|event| event.time_ns > last), "and the first sees it");
    });
}
