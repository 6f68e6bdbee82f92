use std::time::Duration;

use super::*;

fn quota(config: QuotaConfig) -> UserSpaceQuota {
    UserSpaceQuota::new(config).unwrap()
}

fn peer(text: &str) -> SocketAddr {
    SocketAddr::new(text.parse().unwrap(), 4433)
}

#[test]
fn quota_counts_per_prefix_and_forgets_at_zero() {
    let quota = quota(QuotaConfig { max_connections: 2, ..QuotaConfig::default() });
    let first = quota.opened(peer("2001:db8::1")).unwrap();
    let second = quota.opened(peer("2001:db8::ffff")).unwrap();
    assert_eq!(quota.connections("2001:db8::abcd".parse().unwrap()), 2);
    assert_eq!(quota.incoming(peer("2001:db8::2")), Decision::Ignore);
    assert!(quota.opened(peer("2001:db8::2")).is_err(), "handshakes that raced are refused");
    assert_eq!(quota.over_quota(), 2);
    assert_eq!(quota.incoming(peer("2001:db8:0:1::2")), Decision::Accept);
    drop(first);
    assert_eq!(quota.incoming(peer("2001:db8::2")), Decision::Accept);
    drop(second);
    assert_eq!((quota.total(), quota.sources()), (0, 0));
}

#[test]
fn quota_treats_mapped_addresses_as_ipv4() {
    let quota =
        quota(QuotaConfig { max_connections: 1, at_limit: AtLimit::Refuse, ..Default::default() });
    let _held = quota.opened(peer("::ffff:192.0.2.1")).unwrap();
    assert_eq!(quota.incoming(peer("192.0.2.1")), Decision::Refuse);
    assert_eq!(quota.incoming(peer("::ffff:192.0.2.2")), Decision::Accept);
}

#[test]
fn quota_moves_with_a_migration_if_there_is_room() {
    let quota = quota(QuotaConfig { max_connections: 1, ..QuotaConfig::default() });
    let mut roaming = quota.opened(peer("192.0.2.1")).unwrap();
    let resident = quota.opened(peer("192.0.2.2")).unwrap();
    let counts = || ["192.0.2.1", "192.0.2.2"].map(|ip| quota.connections(ip.parse().unwrap()));
    assert!(roaming.moved(peer("192.0.2.2")).is_err());
    assert_eq!(counts(), [1, 1], "it counts where it did");
    assert!(roaming.moved(peer("192.0.2.1")).is_ok(), "it never left");
    drop(resident);
    assert!(roaming.moved(peer("192.0.2.2")).is_ok());
    assert_eq!(counts(), [0, 1]);
    drop(roaming);
    assert_eq!((quota.total(), quota.sources()), (0, 0));
}

#[test]
fn quota_rate_admits_a_burst_and_then_one_per_interval() {
    let quota = quota(QuotaConfig {
        new_per_source: Some(Rate { per_second: 10.0, burst: 3 }),
        ..QuotaConfig::default()
    });
    let start = Instant::now() + Duration::from_secs(1);
    let at = |ms| quota.incoming_at(peer("192.0.2.1"), start + Duration::from_millis(ms));
    for _ in 0..3 {
        assert_eq!(at(0), Decision::Accept);
    }
    assert_eq!(at(0), Decision::Ignore);
    assert_eq!(at(99), Decision::Ignore);
    assert_eq!(at(100), Decision::Accept);
    assert_eq!(at(100), Decision::Ignore);
    assert_eq!(quota.incoming_at(peer("192.0.2.2"), start), Decision::Accept);
    assert_eq!(quota.over_rate(), 3);
}

#[test]
fn quota_rate_table_does_not_grow_by_spoofed_sources() {
    let quota = quota(QuotaConfig {
        new_per_source: Some(Rate { per_second: 1.0, burst: 1 }),
        rate_sources: 100,
        ..QuotaConfig::default()
    });
    let now = Instant::now();
    for host in 0..10_000u32 {
        quota.incoming_at(SocketAddr::new(Ipv4Addr::from_bits(host).into(), 1), now);
    }
    let rates = lock(&quota.shared.rates);
    assert!(rates.young.len() + rates.old.len() <= 200);
}

#[test]
fn quota_settings_out_of_range_are_refused() {
    let bad = |config| UserSpaceQuota::new(config).err().unwrap();
    assert!(matches!(
        bad(QuotaConfig { v4_prefix: 33, ..Default::default() }),
        QuotaError::Prefix(33, ..)
    ));
    assert!(matches!(
        bad(QuotaConfig { v6_prefix: 129, ..Default::default() }),
        QuotaError::Prefix(129, ..)
    ));
    for (per_second, burst) in [(0.0, 1), (-1.0, 1), (f64::NAN, 1), (f64::INFINITY, 1), (1.0, 0)] {
        let new_per_source = Some(Rate { per_second, burst });
        assert!(matches!(
            bad(QuotaConfig { new_per_source, ..Default::default() }),
            QuotaError::Rate(..)
        ));
    }
}

#[test]
fn quota_prefix_of_zero_is_one_source() {
    let quota = quota(QuotaConfig { v4_prefix: 0, v6_prefix: 0, ..Default::default() });
    let _one = quota.opened(peer("192.0.2.1")).unwrap();
    let _two = quota.opened(peer("198.51.100.1")).unwrap();
    assert_eq!(quota.sources(), 1);
}
