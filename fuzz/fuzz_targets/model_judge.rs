//! Fuzzes the reference model of the gateway with any sequence of frames. The model must not panic.
//! If it drops a frame, its reason must be one that the gateway uses for drops.
#![no_main]

use equic_gateway_model::{
    Config, FragmentPolicy, Listener, Model, Payload, Rate, Rules, Service, classify, parse_frame,
};
use libfuzzer_sys::fuzz_target;
use std::net::{Ipv4Addr, Ipv6Addr};

fn model() -> Model {
    let service = Service {
        fragments: FragmentPolicy::Follow,
        new_per_source: Rate::per_second(10, 2),
        bytes_per_source: Rate::per_second(1_000, 5_000),
        ..Service::default()
    };
    let any4 = Listener { addr: Ipv4Addr::UNSPECIFIED.into(), port: 443 };
    let any6 = Listener { addr: Ipv6Addr::UNSPECIFIED.into(), port: 443 };
    Model::new(Config {
        services: vec![service],
        listeners: vec![(any4, 0), (any6, 0)],
        ..Config::default()
    })
}

/// Splits the input into frames. Each frame is preceded by its length in two bytes.
fn frames(mut data: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (head, rest) = data.split_first_chunk::<2>()?;
        let (frame, rest) = rest.split_at(usize::from(u16::from_le_bytes(*head)).min(rest.len()));
        data = rest;
        Some(frame)
    })
}

fuzz_target!(|data: &[u8]| {
    let _ = parse_frame(data);
    let _ = classify(Payload::whole(data), &Rules::default());
    let mut model = model();
    for (frame, now) in frames(data).zip((0..).step_by(1_000_000)) {
        let outcome = model.judge(frame, now);
        let may_drop = outcome.verdict().is_some_and(|verdict| verdict.reason.drops());
        assert_eq!(outcome.dropped(), may_drop, "{outcome:?}");
    }
    let (packets, dropped) = model
        .counters()
        .values()
        .fold((0, 0), |(packets, dropped), c| (packets + c.packets, dropped + c.dropped));
    assert!(dropped <= packets);
});
