//! Logging of changes to paths.

use equic_wire::ConnectionId;

use super::Log;
use crate::connection::Connection;
use crate::connection::path::Path;
use crate::connection::paths::PathKey;
use crate::path::EcnState;
use crate::qlog::{EventKind, Metrics};

/// State of a path as last logged.
pub(super) struct KnownPath {
    pub key: PathKey,
    validated: bool,
    metrics: Metrics,
    congestion: Option<&'static str>,
    ecn: Option<EcnState>,
    mtu: u16,
    /// The peer's connection ID to which we send.
    pub remote_id: Option<ConnectionId>,
}

pub(super) fn all(connection: &Connection, log: &mut Log) {
    let active = connection.path().key();
    let mut gone = Vec::new();
    log.known.paths.retain(|known| {
        let there = connection.paths.get(known.key).is_some();
        if !there {
            gone.push((known.key, known.validated));
        }
        there
    });
    for (key, validated) in gone {
        if !validated && log.known.active != Some(key) {
            log.emit(key, EventKind::MigrationStateUpdated { old: None, new: "probing_abandoned" });
        }
        log.emit(key, EventKind::TupleAssigned(None));
    }
    for path in connection.paths.iter() {
        one_path(connection, log, path, path.key() == active);
    }
    migration(connection, log, active);
}

fn one_path(connection: &Connection, log: &mut Log, path: &Path, active: bool) {
    let key = path.key();
    let known = log
        .known
        .path(key)
        .map(|known| std::mem::replace(&mut known.validated, path.is_validated()));
    match known {
        None => {
            log.known.paths.push(KnownPath {
                key,
                validated: path.is_validated(),
                metrics: Metrics::default(),
                congestion: None,
                ecn: None,
                mtu: path.mtu(),
                remote_id: None,
            });
            log.emit(key, EventKind::TupleAssigned(Some((path.local(), path.remote()))));
            if !active {
                let new = "probing_started";
                log.emit(key, EventKind::MigrationStateUpdated { old: None, new });
            }
        }
        Some(false) if path.is_validated() && !active => {
            let (old, new) = (Some("probing_started"), "probing_successful");
            log.emit(key, EventKind::MigrationStateUpdated { old, new });
        }
        Some(_) => {}
    }
    metrics(log, path);
    congestion(connection, log, key, None);
    let Some(known) = log.known.path(key) else { return };
    let (ecn, mtu) = (path.ecn_state(), path.mtu());
    let (old_ecn, old_mtu) = (known.ecn.replace(ecn), std::mem::replace(&mut known.mtu, mtu));
    if old_ecn != Some(ecn) {
        log.emit(key, EventKind::EcnStateUpdated { old: old_ecn, new: ecn });
    }
    if old_mtu != mtu {
        log.emit(key, EventKind::MtuUpdated { old: old_mtu, new: mtu });
    }
}

fn migration(connection: &Connection, log: &mut Log, active: PathKey) {
    let validated = connection.path().is_validated();
    let before = log.known.active.replace(active);
    // A path with another path ID is not the result of a migration.
    let id = connection.path().id();
    let moved = |before| connection.paths.get(before).is_none_or(|path| path.id() == id);
    if let Some(before) = before
        && before != active
        && moved(before)
    {
        let old = log.known.migration.take();
        if old == Some("migration_started") {
            let new = "migration_abandoned";
            log.emit(before, EventKind::MigrationStateUpdated { old, new });
        }
        let new = "migration_started";
        log.known.migration = Some(new);
        log.emit(active, EventKind::MigrationStateUpdated { old: None, new });
    }
    if validated && log.known.migration == Some("migration_started") {
        let new = "migration_complete";
        let old = log.known.migration.replace(new);
        log.emit(active, EventKind::MigrationStateUpdated { old, new });
    }
}

fn metrics(log: &mut Log, path: &Path) {
    let sampled = path.rtt().first_sample().is_some();
    let rate = path.pacing_rate().as_bytes_per_second() * 8.0;
    let now = Metrics {
        min_rtt: sampled.then(|| path.rtt().min()),
        smoothed_rtt: Some(path.rtt().smoothed()),
        latest_rtt: sampled.then(|| path.rtt().latest()),
        rtt_variance: Some(path.rtt().variation()),
        pto_count: Some(path.backoff().count()),
        congestion_window: Some(path.window()),
        bytes_in_flight: Some(path.in_flight()),
        ssthresh: path.controller().slow_start_threshold(),
        pacing_rate: Some(rate as u64),
    };
    fn changed<T: PartialEq>(new: Option<T>, old: Option<T>) -> Option<T> {
        if new == old { None } else { new }
    }
    let Some(known) = log.known.path(path.key()) else { return };
    let old = std::mem::replace(&mut known.metrics, now);
    let news = Metrics {
        min_rtt: changed(now.min_rtt, old.min_rtt),
        smoothed_rtt: changed(now.smoothed_rtt, old.smoothed_rtt),
        latest_rtt: changed(now.latest_rtt, old.latest_rtt),
        rtt_variance: changed(now.rtt_variance, old.rtt_variance),
        pto_count: changed(now.pto_count, old.pto_count),
        congestion_window: changed(now.congestion_window, old.congestion_window),
        bytes_in_flight: changed(now.bytes_in_flight, old.bytes_in_flight),
        ssthresh: changed(now.ssthresh, old.ssthresh),
        pacing_rate: changed(now.pacing_rate, old.pacing_rate),
    };
    if news != Metrics::default() {
        log.emit(path.key(), EventKind::RecoveryMetricsUpdated(news));
    }
}

pub(super) fn congestion(
    connection: &Connection,
    log: &mut Log,
    key: PathKey,
    trigger: Option<&'static str>,
) {
    let Some(path) = connection.paths.get(key) else { return };
    let new = path.controller().state();
    let Some(known) = log.known.path(key) else { return };
    let old = known.congestion.replace(new);
    if old != Some(new) {
        log.emit(key, EventKind::CongestionStateUpdated { old, new, trigger });
    }
}
