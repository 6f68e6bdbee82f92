use super::*;
use crate::control::{Refusals, RefusedSource};
use crate::parse_prefix;
use crate::reason::Reason;

const S: u64 = 1_000_000_000;

fn net(text: &str) -> IpNet {
    parse_prefix(text).unwrap()
}

fn policy() -> BanConfig {
    BanConfig {
        times: 10,
        within: Duration::from_secs(16),
        first: Duration::from_secs(60),
        growth: 3.0,
        max: Duration::from_secs(600),
        forgive_after: Duration::from_secs(3_600),
        sources: 64,
        ..BanConfig::default()
    }
}

#[test]
fn ban_begins_only_at_the_limit_within_the_window() {
    let (mut bans, a) = (Bans::new(&policy()), net("192.0.2.1"));
    // Nine refusals in each window, one fewer than the limit, must never lead to a ban.
    for second in 0..1_000 {
        if second % 20 < 9 {
            assert_eq!(bans.refused(a, 1, second * S), None, "{second}");
        }
    }
    // Refusals that are spread over more than the window must not lead to a ban, either.
    for turn in 0..100 {
        assert_eq!(bans.refused(a, 5, (2_000 + turn * 17) * S), None);
    }
    let mut bans = Bans::new(&policy());
    assert_eq!(bans.refused(a, 9, 100 * S), None);
    let ban = bans.refused(a, 1, 110 * S).unwrap();
    assert_eq!(ban, Ban { prefix: a, lasts: Duration::from_secs(60), count: 1, refusals: 10 });
    assert!(bans.is_active(a) && bans.active_count() == 1);
    // Refusals during the ban must not extend the ban, and must not count towards the next one.
    assert_eq!(bans.refused(a, 1_000, 111 * S), None);
    assert_eq!(bans.ended(169 * S), []);
    assert_eq!(bans.ended(170 * S), [a]);
    assert_eq!(bans.refused(a, 9, 171 * S), None);
}

#[test]
fn ban_length_grows_and_is_forgiven() {
    let (mut bans, a) = (Bans::new(&policy()), net("2001:db8::/64"));
    let mut now = 0;
    let mut lengths = Vec::new();
    for _ in 0..6 {
        let ban = bans.refused(a, 10, now).unwrap();
        lengths.push(ban.lasts.as_secs());
        now += ban.lasts.as_nanos() as u64;
        assert_eq!(bans.ended(now), [a]);
        now += 3_000 * S;
        bans.ended(now);
    }
    assert_eq!(lengths, [60, 180, 540, 600, 600, 600]);
    now += 601 * S;
    bans.ended(now);
    assert_eq!(bans.watched(), 0, "forgiven");
    assert_eq!(bans.refused(a, 10, now).unwrap().count, 1);
    // This policy has the most extreme values that a configuration may have.
    let wild = BanConfig { growth: 100.0, max: Duration::from_secs(365 * 86_400), ..policy() };
    assert_eq!(wild.lasts(u16::MAX), wild.max);
    assert_eq!(wild.lasts(0), wild.first);
}

#[test]
fn ban_history_is_kept_while_refusals_continue() {
    // Occasional refusals must keep a banned source from being forgiven.
    let (mut bans, a) = (Bans::new(&policy()), net("192.0.2.1"));
    bans.refused(a, 10, 0).unwrap();
    let mut now = 60 * S;
    assert_eq!(bans.ended(now), [a]);
    for _ in 0..10 {
        now += 3_000 * S;
        assert_eq!(bans.refused(a, 1, now), None);
        bans.ended(now);
    }
    assert_eq!(bans.refused(a, 9, now + S).unwrap().count, 2);
}

#[test]
fn ban_can_be_pardoned_spared_and_restored() {
    let (mut bans, a, b) = (Bans::new(&policy()), net("192.0.2.1"), net("192.0.2.2"));
    bans.refused(a, 10, 0).unwrap();
    assert!(bans.pardon(a) && !bans.pardon(a));
    assert_eq!(bans.refused(a, 10, S).unwrap().count, 1, "a pardon forgives");
    bans.refused(b, 10, S).unwrap();
    bans.spare(b, S);
    assert!(!bans.is_active(b));
    assert_eq!(bans.active().collect::<Vec<_>>(), [(a, 61 * S, 1)]);
    assert_eq!(bans.refused(b, 10, 2 * S).unwrap().count, 1);

    let mut bans = Bans::new(&policy());
    bans.restore(a, 3, 100 * S, 50 * S);
    bans.restore(b, 2, 40 * S, 50 * S);
    assert_eq!(bans.active().collect::<Vec<_>>(), [(a, 100 * S, 3)]);
    assert_eq!(bans.refused(b, 10, 51 * S).unwrap().count, 3, "it goes on where it was");
    assert_eq!(bans.ended(100 * S), [a]);
    assert_eq!(bans.banned().count(), 2);
}

/// Sends refusals of 10^7 forged sources (10^6 in an unoptimized build). They must not fill the
/// memory, hide a source that is refused continuously, or evict the state of sources that were
/// banned before.
#[test]
fn ban_table_withstands_ten_million_sources() {
    // Builds of `make test` are optimized although debug assertions are enabled.
    let optimized = !cfg!(debug_assertions) || option_env!("EQUIC_ASSERTIONS").is_some();
    let count: u32 = if optimized { 10_000_000 } else { 1_000_000 };
    let (mut bans, offender, known) =
        (Bans::new(&policy()), net("203.0.113.1"), net("203.0.113.2"));
    bans.refused(known, 10, 0).unwrap();
    bans.ended(60 * S);
    let mut caught = 0u32;
    for index in 0..count {
        // All these refusals arrive within ten seconds.
        let now = 60 * S + u64::from(index) * (10 * S / u64::from(count));
        assert_eq!(
            bans.refused(IpNet::from(std::net::IpAddr::from(index.to_be_bytes())), 1, now),
            None
        );
        if index % 60 == 0 && bans.refused(offender, 1, now).is_some() {
            caught += 1;
        }
        assert!(bans.watched() <= 64 && bans.order.len() == bans.watched.len());
    }
    assert_eq!(caught, 1);
    assert!(bans.evicted() > u64::from(count) - 100);
    assert_eq!(bans.refused(known, 10, 71 * S).unwrap().count, 2);
}

#[test]
fn ban_in_force_is_never_evicted() {
    let mut bans = Bans::new(&policy());
    for index in 0..100u8 {
        bans.refused(IpNet::from(std::net::IpAddr::from([10, 0, 0, index])), 10, S);
    }
    assert_eq!((bans.active_count(), bans.watched(), bans.evicted()), (64, 64, 36));
    bans.set_policy(&BanConfig { sources: 16, ..policy() });
    assert_eq!(bans.active_count(), 64, "they end by themselves");
    assert_eq!(bans.ended(100 * S).len(), 64);
}

fn seen(list: &[(&str, u32, u64, u32, bool)], entries: u64, created: u64) -> Refusals {
    let sources =
        list.iter().map(|(prefix, service, entry_ns, refused, connected)| RefusedSource {
            prefix: net(prefix),
            service: *service,
            entry_ns: *entry_ns,
            refused: *refused,
            connected: *connected,
        });
    Refusals { sources: sources.collect(), entries, created }
}

#[test]
fn ban_evidence_counts_only_new_refusals() {
    let (mut evidence, policy) = (Evidence::default(), policy());
    let a = "192.0.2.1";
    let mut look = |list: &[(&str, u32, u64, u32, bool)], entries, created| {
        let (fresh, evicted) = evidence.new_refusals(&seen(list, entries, created), &policy);
        (fresh.get(&net(a)).copied(), evicted)
    };
    assert_eq!(look(&[(a, 0, 7, 100, true)], 5, 50), (None, 0), "the first look learns");
    assert_eq!(look(&[(a, 0, 7, 103, true)], 5, 50), (Some(3), 0));
    assert_eq!(look(&[(a, 0, 7, 103, true)], 5, 50), (None, 0));
    // The counters of several services are added, the counter of a new entry begins at 0, and
    // counters may wrap.
    assert_eq!(look(&[(a, 0, 7, 104, true), (a, 1, 9, 5, true)], 6, 51), (Some(6), 0));
    assert_eq!(look(&[(a, 0, 8, 2, true), (a, 1, 9, u32::MAX, true)], 6, 53).1, 2);
    assert_eq!(look(&[(a, 1, 9, 4, true)], 6, 53), (Some(5), 0));
}

#[test]
fn ban_evidence_excludes_refusals_that_can_be_forged() {
    let without = [("192.0.2.1", 0, 7, 0, false)];
    let after = [("192.0.2.1", 0, 7, 50, false)];
    let count = |policy: &BanConfig, connected: bool| {
        let mut evidence = Evidence::default();
        evidence.new_refusals(&seen(&without, 1, 1), policy);
        let mut after = after;
        after[0].4 = connected;
        evidence.new_refusals(&seen(&after, 1, 1), policy).0.values().sum::<u32>()
    };
    let rate = BanConfig { reasons: vec![Reason::Quota, Reason::RateNewSource], ..policy() };
    assert_eq!(count(&rate, false), 0, "a source without a connection may be anybody's");
    assert_eq!(count(&rate, true), 50);
    let trusting = BanConfig { proof: crate::Proof::None, ..rate };
    assert_eq!(count(&trusting, false), 50);
    // A source that reached its quota has held connections, even if they are closed by now.
    assert_eq!(count(&policy(), false), 50);
}

#[test]
fn ban_file_round_trips_and_unreadable_files_are_set_aside() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bans.json");
    assert_eq!(load(&path).unwrap(), []);
    let bans = vec![
        Kept { prefix: net("192.0.2.1"), until_ms: 5, count: 2 },
        Kept { prefix: net("2001:db8::/64"), until_ms: u64::MAX, count: u16::MAX },
    ];
    save(&path, bans.clone()).unwrap();
    assert_eq!(load(&path).unwrap(), bans);
    for bad in ["", "[]", "{", r#"{"schema":"x/1","bans":[]}"#, r#"{"schema":"equic.bans/1"}"#] {
        std::fs::write(&path, bad).unwrap();
        let error = load(&path).unwrap_err().to_string();
        assert!(error.contains("cannot read") && error.contains("bans.json"), "{error}");
    }
    // Each unreadable file must be kept under another name.
    for (number, content) in [(1, "first"), (2, "second")] {
        std::fs::write(&path, content).unwrap();
        let aside = set_aside(&path).unwrap();
        assert_eq!(aside, folder.path().join(format!("bans.json.unread-{number}")));
        assert_eq!(
            (std::fs::read_to_string(&aside).unwrap(), path.exists()),
            (content.into(), false)
        );
    }
    (1..=2).for_each(|n| {
        std::fs::remove_file(folder.path().join(format!("bans.json.unread-{n}"))).unwrap();
    });
    save(&path, bans.clone()).unwrap();
    let error = save(&folder.path().join("no/such/folder"), bans).unwrap_err().to_string();
    assert!(error.contains("cannot write"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left behind");
}

#[test]
fn ban_file_is_private_and_its_writer_follows_no_link() {
    use std::os::unix::fs::{MetadataExt as _, symlink};
    let folder = tempfile::tempdir().unwrap();
    let (path, precious) = (folder.path().join("bans.json"), folder.path().join("precious"));
    std::fs::write(&precious, "precious").unwrap();
    symlink(&precious, folder.path().join("bans.json.new")).unwrap();
    let bans = vec![Kept { prefix: net("192.0.2.1"), until_ms: 5, count: 2 }];
    save(&path, bans.clone()).unwrap();
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "precious");
    assert_eq!(load(&path).unwrap(), bans);
    let there = std::fs::symlink_metadata(&path).unwrap();
    assert!(there.is_file());
    assert_eq!(there.mode() & 0o777, 0o600, "for its owner alone");
}
