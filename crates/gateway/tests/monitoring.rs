//! Tests of readings for monitoring: samples of all sources, lists by prefix, and events with
//! several readers.

mod support;

use std::time::Duration;

use equic_gateway::{
    CaptureFilter, Error, Gateway, ListAction, LoadOptions, ObjectSource, Reason, SortBy,
};
use support::{Initial, SERVER_V4, await_that, config, in_namespace, udp};

/// Timeout for captures whose packets are already waiting, or never arrive.
const NO_TIME: Duration = Duration::ZERO;

#[test]
fn samples_match_the_list_of_sources() {
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
fn list_lookup_returns_the_longest_valid_entry() {
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
        // After an entry has expired, the shorter one must apply, even before the sweep.
        control.allow(net("192.0.2.7/32"), Some(Duration::from_nanos(1))).unwrap();
        assert_eq!(listed("192.0.2.7/32"), deny("192.0.2.0/24"));
    });
}

#[test]
fn event_observers_take_no_event_from_the_reader() {
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
        // A packet is dropped before any reader exists, so its event waits in the ring.
        drop_one();
        let mut reader = control.events().unwrap();
        let (mut one, mut other) = (control.observe().unwrap(), control.observe().unwrap());
        (1..DROPS).for_each(|_| drop_one());
        let seen = one.poll();
        let read = reader.poll(Duration::from_secs(5)).unwrap();
        // After the reader has consumed the events, an observer must still see them.
        let seen_late = other.poll();
        assert_eq!(read.len(), DROPS);
        assert!(seen == read && seen_late == read, "{} {}", seen.len(), seen_late.len());
        assert!(seen.iter().all(|event| event.reason == Reason::Denied && event.dropped));
        assert!(one.poll().is_empty());
        drop_one();
        assert_eq!((one.poll().len(), other.poll().len()), (1, 1));
        assert_eq!(reader.poll(Duration::from_secs(5)).unwrap().len(), 1);

        // The ring overtakes an observer that does not read. The observer must continue with newer
        // events.
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
fn event_ring_without_a_reader_does_not_stay_full() {
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
        // An observer that starts later makes room at its first call. If there were a reader, it
        // would have read the events by now.
        await_that("a later one makes room at once", || {
            let mut later = control.observe().unwrap();
            later.poll();
            gateway.test_run(&initial.next(), None).unwrap();
            later.poll().iter().any(|event| event.time_ns > last)
        });
        assert!(observer.poll().iter().any(|event| event.time_ns > last), "and the first sees it");
    });
}

/// Returns a gateway that denies 192.0.2.9 and 2001:db8:9::/48, drops packets of any source that
/// are too short, and reports every drop. The XDP program's clock does not advance, so that a
/// capture's lease does not expire during a slow test.
fn dropping(what: &str) -> Gateway {
    let options = LoadOptions { test_clock: true, ..LoadOptions::default() };
    let mut config = config(what);
    config.gateway.events = "1000000/s".parse().unwrap();
    let gateway = Gateway::load_with(&config, ObjectSource::Embedded, options).unwrap();
    for prefix in ["192.0.2.9/32", "2001:db8:9::/48"] {
        gateway.control().deny(prefix.parse().unwrap(), None).unwrap();
    }
    gateway
}

#[test]
fn capture_copies_dropped_packets_while_it_is_open() {
    in_namespace(|| {
        let gateway = dropping("captured");
        let control = gateway.control();
        let from = |from: &str| Initial::from(from).next();
        let tiny = udp("198.51.100.1:9".parse().unwrap(), SERVER_V4.parse().unwrap(), &[0x40; 5]);
        let (denied, denied6) = (from("192.0.2.9:4444"), from("[2001:db8:9::1]:4444"));
        let all = [&tiny, &denied, &denied6, &from("192.0.2.10:1")];
        let run = || all.map(|frame| gateway.test_run(frame, None).unwrap().action);
        // There is no capture yet, so these packets must not be copied.
        run();
        let capture = |filter: CaptureFilter| control.capture(&filter).unwrap();
        let mut any = capture(CaptureFilter::default());
        assert!(any.poll(NO_TIME).unwrap().is_empty(), "of the time before");
        let taken = control.capture(&CaptureFilter::default()).unwrap_err();
        assert!(matches!(taken, Error::CaptureTaken { pid } if pid == std::process::id()));
        run();
        let packets = any.poll(NO_TIME).unwrap();
        let reasons: Vec<Reason> = packets.iter().map(|packet| packet.event.reason).collect();
        assert_eq!(reasons, [Reason::TinyShort, Reason::Denied, Reason::Denied]);
        for (packet, frame) in packets.iter().zip(all) {
            assert_eq!(packet.frame_len as usize, frame.len());
            assert_eq!(packet.frame, frame[..frame.len().min(256)]);
            assert!(packet.event.dropped);
        }
        assert_eq!((any.lost(), packets[1].event.from.to_string()), (0, "192.0.2.9:4444".into()));
        drop(any);
        // The capture has ended, so these packets must not be copied.
        run();

        let mut tiny_only = capture(CaptureFilter {
            reasons: vec![Reason::TinyShort, Reason::Quota],
            ..CaptureFilter::default()
        });
        run();
        let packets = tiny_only.poll(NO_TIME).unwrap();
        assert_eq!((packets.len(), &packets[0].frame), (1, &tiny));
        drop(tiny_only);
        for (source, wanted) in [
            ("192.0.2.0/24", Some(&denied)),
            ("192.0.2.9/32", Some(&denied)),
            ("192.0.2.8/32", None),
            ("2001:db8:9::/64", Some(&denied6)),
            ("2001:db8:8::/64", None),
        ] {
            let (source, snap) = (Some(source.parse().unwrap()), 2048);
            let mut by_source = capture(CaptureFilter { source, snap, reasons: Vec::new() });
            run();
            let packets = by_source.poll(NO_TIME).unwrap();
            let frames: Vec<_> = packets.iter().map(|packet| &packet.frame).collect();
            assert_eq!(frames, wanted.into_iter().collect::<Vec<_>>(), "{source:?}");
        }
    });
}

#[test]
fn capture_of_a_flood_is_limited_by_the_rate() {
    in_namespace(|| {
        let gateway = dropping("sampled");
        let control = gateway.control();
        control.set("events", "10/s burst 5").unwrap();
        let denied = Initial::from("192.0.2.9:4444").next();
        let mut capture = control.capture(&CaptureFilter::default()).unwrap();
        let flood = || gateway.test_run_repeat(&denied, None, 5_000).unwrap();
        flood();
        // Each CPU must copy as many packets as its burst allows, and no more.
        let cpus = std::thread::available_parallelism().unwrap().get();
        let packets = capture.poll(NO_TIME).unwrap().len();
        assert!((5..=5 * cpus).contains(&packets), "{packets}");
        drop(capture);
        // If events are off, captures must use their own limit, and the flood must send no event.
        control.set("events", "off").unwrap();
        let mut events = control.events().unwrap();
        events.poll(NO_TIME).unwrap();
        let mut capture = control.capture(&CaptureFilter::default()).unwrap();
        flood();
        let packets = capture.poll(NO_TIME).unwrap().len();
        assert!((1..=100 * cpus).contains(&packets), "{packets}");
        assert_eq!(events.poll(NO_TIME).unwrap().len(), 0);
        assert_eq!(control.tallies().unwrap().events_lost, 0);
    });
}

/// Returns the time of the XDP program's clock.
fn monotonic() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid timespec, which the call writes.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    Duration::new(now.tv_sec.cast_unsigned(), now.tv_nsec as u32)
}

/// A process that was killed cannot end its capture, so the XDP program must stop copying when the
/// lease expires.
#[test]
fn capture_stops_when_its_lease_expires() {
    in_namespace(|| {
        let gateway = dropping("silent");
        let start = monotonic();
        let mut capture = gateway.control().capture(&CaptureFilter::default()).unwrap();
        let denied = Initial::from("192.0.2.9:4444").next();
        gateway.set_clock(start + Duration::from_secs(3600));
        gateway.test_run(&denied, None).unwrap();
        assert!(capture.poll(NO_TIME).unwrap().is_empty());
        gateway.set_clock(start);
        gateway.test_run(&denied, None).unwrap();
        assert_eq!(capture.poll(NO_TIME).unwrap().len(), 1);

        // Two seconds later, another process can capture, and the first capture must return an
        // error.
        let control = gateway.control();
        let mut other = support::await_some("the place is free", || {
            control.capture(&CaptureFilter::default()).ok()
        });
        assert!(matches!(capture.poll(NO_TIME), Err(Error::CaptureTaken { .. })));
        drop(capture);
        gateway.set_clock(start);
        gateway.test_run(&denied, None).unwrap();
        assert_eq!(other.poll(NO_TIME).unwrap().len(), 1, "the first took nothing with it");
    });
}
