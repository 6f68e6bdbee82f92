//! Tests of the ledger without a kernel: counting, limits, full tables, and many threads whose
//! counts are compared with an oracle.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Mutex;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::abi;
use crate::config::Policy;
use crate::config::{Config, ServiceConfig};

fn config(services: usize) -> Config {
    let mut config = Config::for_port(4433);
    config.gateway.ledger_sources = 4096;
    for index in 1..services {
        config.services.push(ServiceConfig {
            name: format!("s{index}"),
            listen: vec![format!("{}", 5000 + index).parse().expect("a port")],
            ..ServiceConfig::default()
        });
    }
    config
}

fn peer(text: &str) -> SocketAddr {
    text.parse().unwrap_or_else(|_| panic!("{text}"))
}

/// Returns a random generator. Its seed comes from EQUIC_SEED or is random. It is printed, so that
/// a failure can be replayed.
fn seeded() -> StdRng {
    let seed = match std::env::var("EQUIC_SEED") {
        Ok(seed) => seed.parse().expect("EQUIC_SEED is a number"),
        Err(_) => rand::random(),
    };
    println!("EQUIC_SEED={seed}");
    StdRng::seed_from_u64(seed)
}

fn all_free(ledger: &Ledger) {
    let binding = ledger.binding();
    let memory = binding.table.memory();
    assert_eq!(memory.entries().count(), 0, "no source is left");
    assert!(memory.all_free(), "no slot is being claimed");
    assert_eq!(ledger.connections(), 0);
}

#[test]
fn ledger_guards_count_up_and_down() {
    let ledger = Ledger::in_memory(&config(1)).unwrap();
    let service = ledger.service("quic").unwrap();
    let first = service.opened(peer("192.0.2.1:1000"));
    let second = service.opened(peer("192.0.2.1:2000"));
    let other = service.opened(peer("192.0.2.2:1000"));
    assert_eq!((first.count(), second.count(), other.count()), (1, 2, 1));
    assert_eq!((first.current(), service.count(peer("192.0.2.1:9"))), (2, 2));
    assert_eq!((ledger.connections(), ledger.opened_total()), (3, 3));
    drop(first);
    assert_eq!(service.count(peer("192.0.2.1:9")), 1);
    drop((second, other));
    all_free(&ledger);
    assert_eq!((ledger.opened_total(), ledger.overflow()), (3, 0));
    assert_eq!(ledger.slot(), None);
}

#[test]
fn ledger_sources_are_prefixes() {
    let mut config = config(1);
    (config.gateway.source_prefix_v4, config.gateway.source_prefix_v6) = (24, 56);
    let ledger = Ledger::in_memory(&config).unwrap();
    let service = ledger.service_at(0).unwrap();
    let cases = [
        ("192.0.2.1:1", "192.0.2.255:1", true),
        ("192.0.2.1:1", "192.0.3.1:1", false),
        ("192.0.2.1:1", "[::ffff:192.0.2.7]:1", true),
        ("[2001:db8:0:aa00::1]:1", "[2001:db8:0:aaff:ffff::2]:1", true),
        ("[2001:db8:0:aa00::1]:1", "[2001:db8:0:ab00::1]:1", false),
    ];
    for (one, two, same) in cases {
        let _guard = service.opened(peer(one));
        assert_eq!(service.count(peer(two)), u32::from(same), "{one} {two}");
    }
    all_free(&ledger);
}

#[test]
fn ledger_count_moves_with_the_connection() {
    let ledger = Ledger::in_memory(&config(1)).unwrap();
    let service = ledger.service_at(0).unwrap();
    let (old, new) = (peer("192.0.2.1:1"), peer("[2001:db8::1]:1"));
    let _there = service.opened(new);
    let mut guard = service.opened(old);
    guard.moved(peer("192.0.2.1:7777"));
    assert_eq!((guard.count(), service.count(old)), (1, 1), "another port is the same source");
    guard.moved(new);
    assert_eq!((guard.count(), service.count(old), service.count(new)), (2, 0, 2));
    assert_eq!((ledger.connections(), ledger.opened_total()), (2, 2));
    drop(guard);
    assert_eq!(service.count(new), 1);
}

#[test]
fn ledger_try_moved_refuses_a_full_source_and_moved_does_not() {
    let mut config = config(1);
    config.services[0].max_connections = 2;
    let ledger = Ledger::in_memory(&config).unwrap();
    let service = ledger.service_at(0).unwrap();
    let (home, full) = (peer("192.0.2.1:1"), peer("[2001:db8::1]:1"));
    let counts = || (service.count(home), service.count(full));
    let mut residents = vec![service.opened(full), service.opened(full)];
    let mut movers = vec![service.opened(home), service.opened(home)];
    for mover in &mut movers {
        assert!(!mover.try_moved(full));
        assert!(!mover.over_limit() && mover.count() > 0 && !mover.untracked());
    }
    assert_eq!((counts(), ledger.connections(), ledger.opened_total()), ((2, 2), 4, 4));
    // A connection whose peer changes only its port must stay counted at its source.
    assert!(movers[0].try_moved(peer("192.0.2.1:99")));
    residents.pop();
    assert!(movers[0].try_moved(full) && !movers[1].try_moved(full));
    assert_eq!((counts(), movers[0].count()), ((1, 2), 2));
    movers[1].moved(full);
    assert!(movers[1].over_limit() && !movers[0].over_limit());
    assert_eq!(counts(), (0, 3));
    // In a dry run, no limit is enforced, so there must be room.
    config.services[0].dry_run = true;
    ledger.binding().services.write(&services_of(&config));
    let mut guest = service.opened(home);
    assert!(guest.try_moved(full));
    drop((residents, movers, guest));
    all_free(&ledger);
}

#[test]
fn ledger_limit_follows_a_live_change() {
    let mut config = config(1);
    config.services[0].max_connections = 2;
    let ledger = Ledger::in_memory(&config).unwrap();
    let service = ledger.service_at(0).unwrap();
    let from = peer("192.0.2.1:1");
    let guards: Vec<Guard> = (0..3).map(|_| service.opened(from)).collect();
    assert_eq!(guards.iter().map(Guard::over_limit).collect::<Vec<_>>(), [false, false, true]);
    for (dry_run, policy, over) in
        [(true, Policy::New, false), (false, Policy::Strict, false), (false, Policy::New, true)]
    {
        (config.services[0].dry_run, config.services[0].policy) = (dry_run, policy);
        ledger.binding().services.write(&services_of(&config));
        assert_eq!(guards[2].over_limit(), over, "dry run {dry_run}, policy {policy}");
        assert_eq!(service.full(from), over, "dry run {dry_run}, policy {policy}");
    }
    config.services[0].max_connections = 3;
    ledger.binding().services.write(&services_of(&config));
    assert_eq!(service.limit(), 3);
    assert!(!guards[2].over_limit());
    assert!(service.full(from), "one more would be");
    assert!(!service.full(peer("192.0.2.2:1")));
    config.services[0].max_connections = 0;
    ledger.binding().services.write(&services_of(&config));
    assert!(guards.iter().all(|guard| !guard.over_limit()), "0 is no limit");
    assert!(!service.full(from));
}

#[test]
fn ledger_limit_can_differ_by_prefix() {
    let mut config = config(1);
    config.services[0].max_connections = 1;
    let own = crate::OverrideConfig {
        prefixes: vec!["192.0.2.0/24".parse().unwrap()],
        max_connections: Some(2),
        ..Default::default()
    };
    config.services[0].overrides = vec![own];
    let ledger = Ledger::in_memory(&config).unwrap();
    let service = ledger.service_at(0).unwrap();
    let (inside, outside) = (peer("192.0.2.1:1"), peer("192.0.3.1:1"));
    assert_eq!((service.limit_for(inside), service.limit_for(outside), service.limit()), (2, 1, 1));
    let guards: Vec<Guard> = (0..3).map(|_| service.opened(inside)).collect();
    assert_eq!(guards.iter().map(Guard::over_limit).collect::<Vec<_>>(), [false, false, true]);
    let guards: Vec<Guard> = (0..2).map(|_| service.opened(outside)).collect();
    assert_eq!(guards.iter().map(Guard::over_limit).collect::<Vec<_>>(), [false, true]);
    assert!(service.full(inside) && service.increment(inside).over_limit);
}

#[test]
fn ledger_counts_services_apart_unless_in_a_group() {
    let mut config = config(3);
    config.services[0].group = Some("g".to_owned());
    config.services[2].group = Some("g".to_owned());
    let ledger = Ledger::in_memory(&config).unwrap();
    let from = peer("192.0.2.1:1");
    let services: Vec<Service> = (0..3).map(|index| ledger.service_at(index).unwrap()).collect();
    let _guard = services[0].opened(from);
    assert_eq!(services.iter().map(|s| s.count(from)).collect::<Vec<_>>(), [1, 0, 1]);
    let error = ledger.service("s3").unwrap_err().to_string();
    assert!(error.contains("did you mean s1 or s2") && error.contains("quic, s1, s2"), "{error}");
    assert!(ledger.service_at(3).is_err() && ledger.service_at(99).is_err());
}

#[test]
fn ledger_counts_without_guards() {
    let ledger = Ledger::in_memory(&config(1)).unwrap();
    let service = ledger.service_at(0).unwrap();
    let from = peer("[2001:db8::5]:1");
    assert_eq!(service.decrement(from), None);
    assert_eq!(service.increment(from).count, 1);
    assert_eq!(service.increment(from).count, 2);
    assert_eq!(service.decrement(from), Some(1));
    assert_eq!(service.decrement(from), Some(0));
    assert_eq!(service.decrement(from), None);
    all_free(&ledger);
}

#[test]
fn ledger_that_is_full_reports_overflow() {
    let mut config = config(1);
    config.gateway.ledger_sources = 16;
    let ledger = Ledger::in_memory(&config).unwrap();
    let service = ledger.service_at(0).unwrap();
    let capacity = ledger.binding().header().buckets * abi::EQUIC_SLOTS;
    let from = |n: u32| SocketAddr::from((Ipv4Addr::from(0x0a00_0000 + n), 1));
    let mut guards: Vec<Guard> = (0..1000).map(|n| service.opened(from(n))).collect();
    let tracked = guards.iter().filter(|guard| !guard.untracked()).count() as u32;
    assert_eq!(tracked, capacity, "a thousand sources fill every slot");
    assert_eq!(ledger.overflow(), 1000 - u64::from(capacity));
    assert_eq!(ledger.connections(), 1000);
    assert!(service.increment(from(5000)).untracked);
    assert_eq!((ledger.connections(), service.decrement(from(5000))), (1000, None));

    // A connection that moves to a source for which there is no slot must not be counted. When it
    // moves back, it must be counted again.
    let first = guards[0].ip;
    assert!(!guards[0].untracked());
    let mut mover = guards.swap_remove(0);
    mover.moved(from(6000));
    assert!(mover.untracked() && mover.count() == 0 && !mover.over_limit());
    mover.moved(SocketAddr::new(first, 1));
    assert_eq!((mover.untracked(), mover.count()), (false, 1));
    drop((mover, guards));
    all_free(&ledger);
}

#[test]
fn ledger_holds_the_configured_number_of_sources() {
    let config = config(1);
    let ledger = Ledger::in_memory(&config).unwrap();
    let service = ledger.service_at(0).unwrap();
    let from = |n: u32| SocketAddr::from((Ipv4Addr::from(0x0a00_0000 + n), 1));
    let guards: Vec<Guard> =
        (0..config.gateway.ledger_sources).map(|n| service.opened(from(n))).collect();
    assert_eq!(ledger.overflow(), 0);
    assert_eq!(ledger.binding().table.memory().entries().count(), guards.len());
}

#[test]
fn ledger_hash_matches_the_specification() {
    // These values were computed from docs/policy.md with another implementation (Python integers).
    let load = abi::equic_load {
        seed: 0x0123_4567_89ab_cdef,
        v4_mask: u32::MAX,
        v6_mask: [u64::MAX, 0],
        ledger_mask: 0x3fff,
        ..abi::equic_load::default()
    };
    let keying = Keying::new(&load);
    let v4 = keying.place(&keying.source("192.0.2.1".parse().unwrap(), 0));
    assert_eq!((v4.tag, v4.first, v4.second), V4_PLACE);
    let v6 = keying.place(&keying.source("2001:db8::1".parse().unwrap(), 7));
    assert_eq!((v6.tag, v6.first, v6.second), V6_PLACE);
}

const V4_PLACE: (u32, u32, u32) = (0xe729fbd9, 0x3bf5, 0xcbd);
const V6_PLACE: (u32, u32, u32) = (0x9a5cd223, 0xbd2, 0x2a6b);

/// A guard of the stress test, and its source as the oracle counts it.
struct Held {
    guard: Guard,
    peer: IpAddr,
}

#[test]
fn ledger_threads_agree_with_an_oracle() {
    const THREADS: usize = 4;
    const STEPS: usize = 40_000;
    let ledger = Ledger::in_memory(&config(1)).unwrap();
    let oracle: Mutex<HashMap<IpAddr, u32>> = Mutex::default();
    let mut seeds = seeded();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            let service = ledger.service_at(0).unwrap();
            let (mut random, oracle) = (StdRng::seed_from_u64(seeds.random()), &oracle);
            scope.spawn(move || {
                let mut held: Vec<Held> = Vec::new();
                for _ in 0..STEPS {
                    step(&service, &mut random, &mut held);
                }
                let mut oracle = oracle.lock().unwrap();
                held.into_iter().for_each(|one| {
                    *oracle.entry(one.peer).or_default() += 1;
                    std::mem::forget(one.guard); // still open when the counts are compared
                });
            });
        }
    });
    let oracle = oracle.into_inner().unwrap();
    let service = ledger.service_at(0).unwrap();
    for (peer, count) in &oracle {
        assert_eq!(service.count(SocketAddr::new(*peer, 1)), *count, "{peer}");
    }
    assert_eq!(ledger.binding().table.memory().entries().count(), oracle.len());
    assert_eq!(ledger.connections(), oracle.values().map(|n| u64::from(*n)).sum::<u64>());
    assert_eq!(ledger.overflow(), 0);
    for (peer, count) in &oracle {
        for left in (0..*count).rev() {
            assert_eq!(service.decrement(SocketAddr::new(*peer, 1)), Some(left));
        }
    }
    all_free(&ledger);
}

/// Opens, closes or moves a connection. There are only a few sources, so that threads compete.
fn step(service: &Service, random: &mut StdRng, held: &mut Vec<Held>) {
    let peer: IpAddr = if random.random() {
        Ipv4Addr::from(0x0a00_0000 + random.random_range(0..300u32)).into()
    } else {
        Ipv6Addr::from(
            0x2001_0db8_0000_0000_0000_0000_0000_0001 + (random.random_range(0..300u128) << 64),
        )
        .into()
    };
    let addr = SocketAddr::new(peer, random.random());
    match random.random_range(0..10) {
        0..4 => held.push(Held { guard: service.opened(addr), peer }),
        4..8 if !held.is_empty() => drop(held.swap_remove(random.random_range(0..held.len()))),
        _ if !held.is_empty() => {
            let index = random.random_range(0..held.len());
            let one = &mut held[index];
            one.guard.moved(addr);
            one.peer = peer;
            assert!(one.guard.current() >= 1);
        }
        _ => {}
    }
}
