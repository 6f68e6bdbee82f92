use std::time::Duration;

use equic_gateway::{Adaptive, CounterRow, Interface, Overview, Owner, ServiceConfig, SourceKey};

use super::super::sample::Sample;
use super::*;

/// Returns a sample of a gateway with one service, taken at the second `at` after boot.
pub(crate) fn sample(at: u64) -> Sample {
    let service = ServiceConfig { name: "web".to_owned(), ..ServiceConfig::default() };
    let listen = vec!["443".parse().unwrap()];
    Sample {
        at: Duration::from_secs(at),
        overview: Overview {
            name: "edge".to_owned(),
            program_id: 7,
            owner: Owner { pid: 1, alive: true },
            uptime_s: at as f64,
            dry_run: false,
        },
        interfaces: vec![Interface {
            ifindex: 2,
            name: Some("eth0".to_owned()),
            native: Some(true),
        }],
        services: vec![ServiceConfig { listen, max_connections: 10, ..service }],
        adaptive: Vec::new(),
        ledgers: Vec::new(),
        counters: Vec::new(),
        sources: Vec::new(),
        events: Vec::new(),
        cost: Duration::from_millis(3),
    }
}

pub(crate) fn counter(reason: Reason, packets: u64) -> CounterRow {
    let dropped = if reason.drops() { packets } else { 0 };
    let answered = if reason.answers() { packets } else { 0 };
    let (service, bytes) = ("web".to_owned(), packets * 100);
    CounterRow { service, service_index: 0, reason, packets, bytes, dropped, answered }
}

pub(crate) fn source(address: &str, since_ns: u64, packets: u64, drops: u64) -> SourceSample {
    let key = SourceKey { prefix: address.parse().unwrap(), service: Some(0) };
    SourceSample {
        key,
        since_ns,
        connections: 0,
        limit: 10,
        packets,
        bytes: packets * 100,
        drops,
        last_reason: Some(if drops > 0 { Reason::Quota } else { Reason::Established }),
    }
}

pub(crate) fn drop_of(from: &str, reason: Reason, at: u64) -> Event {
    Event {
        time_ns: at * 1_000_000_000,
        ifindex: 2,
        from: from.parse().unwrap(),
        to: "192.0.2.1:443".parse().unwrap(),
        service: "web".to_owned(),
        reason,
        dropped: true,
        length: 1200,
        first_byte: 0xc0,
        version: Some(1),
        dcid: "0011".to_owned(),
    }
}

#[test]
fn watch_model_has_no_rates_after_one_sample() {
    let mut model = Model::default();
    assert_eq!(model.picture(Sort::Packets), Picture::default());
    model.push(Sample {
        counters: vec![counter(Reason::New, 500)],
        sources: vec![source("192.0.2.9/32", 5, 500, 0)],
        ..sample(100)
    });
    let picture = model.picture(Sort::Packets);
    assert!(!picture.measured && picture.passed_history.is_empty());
    assert_eq!((picture.reasons[0].packets, picture.reasons[0].packets_per_s), (500, 0.0));
    assert_eq!((picture.sources[0].packets, picture.sources[0].packets_per_s), (500, 0.0));
    assert_eq!(picture.interfaces, ["eth0 native"]);
    assert_eq!(picture.services, ["web on 443: 10 connections per source"]);
}

#[test]
fn watch_model_rates_are_differences_divided_by_time() {
    let mut model = Model::default();
    let counters = |new, quota| vec![counter(Reason::New, new), counter(Reason::Quota, quota)];
    model.push(Sample { counters: counters(100, 10), ..sample(100) });
    // The counts of one reason must be added up over all services.
    let mut both = counters(150, 310);
    both.push(CounterRow { service_index: 1, ..counter(Reason::Quota, 100) });
    model.push(Sample { counters: both, ..sample(102) });
    let picture = model.picture(Sort::Packets);
    assert!(picture.measured);
    assert_eq!((picture.passed_per_s, picture.dropped_per_s), (25.0, 200.0));
    let lines: Vec<_> =
        picture.reasons.iter().map(|line| (line.reason, line.packets_per_s, line.share)).collect();
    assert_eq!(lines, [(Reason::Quota, 200.0, 200.0 / 225.0), (Reason::New, 25.0, 25.0 / 225.0)]);
    model.push(Sample { counters: counters(150, 410), ..sample(103) });
    let picture = model.picture(Sort::Packets);
    assert_eq!(picture.dropped_history, [200.0, 0.0]);
    assert_eq!((picture.passed_per_s, picture.dropped_per_s), (0.0, 0.0));
}

#[test]
fn watch_model_counts_a_new_entry_of_a_source_from_zero() {
    let mut model = Model::default();
    model.push(Sample { sources: vec![source("192.0.2.9/32", 5, 900, 0)], ..sample(100) });
    model.push(Sample { sources: vec![source("192.0.2.9/32", 6, 30, 10)], ..sample(101) });
    let line = &model.picture(Sort::Packets).sources[0];
    assert_eq!((line.packets_per_s, line.drops_per_s), (30.0, 10.0));
    // The entry of the source is still the same, so its counts continue.
    model.push(Sample { sources: vec![source("192.0.2.9/32", 6, 50, 10)], ..sample(102) });
    let line = &model.picture(Sort::Packets).sources[0];
    assert_eq!((line.packets_per_s, line.drops_per_s, line.bytes_per_s), (20.0, 0.0, 2000.0));
}

#[test]
fn watch_model_restarts_for_another_gateway() {
    let mut model = Model::default();
    model.push(Sample { counters: vec![counter(Reason::New, 100)], ..sample(100) });
    model.push(Sample { counters: vec![counter(Reason::New, 200)], ..sample(101) });
    let mut other = Sample { counters: vec![counter(Reason::New, 5000)], ..sample(102) };
    other.overview.program_id = 8;
    model.push(other);
    let picture = model.picture(Sort::Packets);
    assert!(!picture.measured && picture.passed_per_s == 0.0);
    assert_eq!(picture.passed_history, [100.0], "the curve so far stays");
}

#[test]
fn watch_model_sorts_by_every_order() {
    let mut model = Model::default();
    model.push(sample(100));
    let mut big = source("192.0.2.2/32", 5, 50, 0);
    big.bytes = 1_000_000;
    let mut held = source("192.0.2.3/32", 5, 1, 0);
    held.connections = 10;
    model.push(Sample {
        sources: vec![
            source("192.0.2.5/32", 5, 100, 1),
            big,
            held,
            source("192.0.2.4/32", 5, 60, 60),
            source("192.0.2.1/32", 5, 0, 0),
        ],
        ..sample(101)
    });
    for (sort, first) in [
        (Sort::Packets, "192.0.2.5"),
        (Sort::Bytes, "192.0.2.2"),
        (Sort::Drops, "192.0.2.4"),
        (Sort::Connections, "192.0.2.3"),
        (Sort::Address, "192.0.2.1"),
    ] {
        let picture = model.picture(sort);
        assert_eq!((picture.sources[0].source.as_str(), picture.sort), (first, sort));
        assert_eq!(picture.sources.len(), 5);
    }
    let held = &model.picture(Sort::Connections).sources[0];
    assert_eq!((held.state(), held.held().as_str()), ("at limit", "10 of 10"));
    // Repeated calls of `next` must visit every sort order once and return to the first.
    let all = std::iter::successors(Some(Sort::Packets), |sort| Some(sort.next()));
    assert_eq!(all.take(6).last(), Some(Sort::Packets));
}

#[test]
fn watch_model_keeps_the_top_of_a_full_table() {
    let mut model = Model::default();
    let many = |factor: u64| -> Vec<SourceSample> {
        (0..65_536u64)
            .map(|n| {
                let address = format!("10.0.{}.{}/32", n >> 8, n & 255);
                source(&address, 5, n * factor, 0)
            })
            .collect()
    };
    model.push(Sample { sources: many(1), ..sample(100) });
    model.push(Sample { sources: many(2), ..sample(101) });
    let picture = model.picture(Sort::Packets);
    assert_eq!((picture.sources.len(), picture.sources_total), (SOURCES, 65_536));
    assert_eq!(picture.sources[0].source, "10.0.255.255");
    assert_eq!(picture.sources[0].packets_per_s, 65_535.0);
    assert!(picture.sources.is_sorted_by(|a, b| a.packets_per_s >= b.packets_per_s));
}

#[test]
fn watch_model_merges_similar_drops_into_one_line() {
    let mut model = Model::default();
    let flood =
        (0..500).map(|port| drop_of(&format!("192.0.2.9:{}", 1000 + port), Reason::Quota, 99));
    let mut events = vec![drop_of("192.0.2.8:1", Reason::Quota, 98)];
    events.extend(flood);
    events.push(drop_of("192.0.2.9:7", Reason::SmallInitial, 100));
    model.push(Sample { events, ..sample(100) });
    let picture = model.picture(Sort::Packets);
    let lines: Vec<_> = picture
        .events
        .iter()
        .map(|line| (line.event.from.to_string(), line.event.reason, line.heard, line.age_s))
        .collect();
    assert_eq!(
        lines,
        [
            ("192.0.2.9:7".to_owned(), Reason::SmallInitial, 1, 0.0),
            ("192.0.2.9:1499".to_owned(), Reason::Quota, 500, 1.0),
            ("192.0.2.8:1".to_owned(), Reason::Quota, 1, 2.0),
        ]
    );
    // Events from 1,000 sources must not produce more lines than the limit.
    let events = (0..1000u32)
        .map(|n| drop_of(&format!("10.0.{}.{}:1", n >> 8, n & 255), Reason::Quota, 101))
        .collect();
    model.push(Sample { events, ..sample(101) });
    assert_eq!(model.picture(Sort::Packets).events.len(), EVENTS);
}

#[test]
fn watch_model_shows_whether_retry_is_active_and_why() {
    let with = |state: Option<Adaptive>| {
        let mut model = Model::default();
        model.push(Sample { adaptive: vec![state], ..sample(100) });
        model.picture(Sort::Packets).services.concat()
    };
    let asking = Adaptive { asking: true, asking_for_ms: 12_000, calm_in_ms: 30_000, began: 1 };
    let calm = Adaptive { asking: false, asking_for_ms: 0, calm_in_ms: 0, began: 1 };
    assert!(with(Some(asking)).contains("because more than 500/s new connections came without"));
    assert!(with(Some(calm)).contains("Retry is inactive"));
    assert!(!with(None).contains("Retry is inactive"));
}
