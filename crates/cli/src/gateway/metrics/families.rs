//! Metrics of a gateway, as metric families in Prometheus's text format.
//!
//! Names follow <https://prometheus.io/docs/practices/naming/>: prefix `equic_`, base units, and
//! `_total` for counters. Every reason has a series from the start, with the value zero, so that
//! Prometheus sees the first packet as an increase. The operator chooses the values of labels,
//! except for a limited number of server names. No label contains a source address.

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use equic_gateway::{
    Control, Interface, LedgerStatus, Reason, SERVICE_SETTINGS, ServiceStatus, Status,
};
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{Encoder as _, TextEncoder};

use crate::failure::Result;

/// State that is kept from one read of the gateway to the next.
#[derive(Default)]
pub(super) struct Memory {
    program: u32,
    /// Numbers of evictions from the tables `sources`, `handshakes` and `prefixes`. Each is
    /// computed from two counters that are read one after the other, so it may be slightly smaller
    /// than before. The largest value is kept, because Prometheus treats a decreasing counter as a
    /// restart.
    evicted: [u64; 3],
    /// Names of servers that have their own series. Servers choose their names, so there are at
    /// most [`NAMES`] of them.
    names: BTreeSet<String>,
}

/// Maximum number of server names with their own series. Servers with further names share the label
/// [`OTHER`].
const NAMES: usize = 64;
/// Label of servers that come after the limit [`NAMES`].
const OTHER: &str = "(other)";

impl Memory {
    /// Returns the label for the server with this name.
    fn server(&mut self, name: &str) -> String {
        if self.names.len() < NAMES {
            self.names.insert(name.to_owned());
        }
        self.names.get(name).cloned().unwrap_or_else(|| OTHER.to_owned())
    }
}

/// Returns the metrics as text. If there is no gateway, they contain only `equic_up 0`.
pub(super) fn text(memory: &mut Memory, control: Option<&Control>) -> Result<String> {
    let started = Instant::now();
    let mut all = Families::default();
    all.gauge("equic_build_info", "Version of the equic command that serves these metrics, as a label; the value is always 1.")
        .add(&[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    let status = control.map(Control::status).transpose()?;
    all.gauge("equic_up", "1 if a gateway runs, otherwise 0.").add(&[], flag(status.is_some()));
    if let (Some(control), Some(status)) = (control, status) {
        gateway(&mut all, &status, control)?;
        services(&mut all, &status.services);
        servers(&mut all, &status, memory);
        tables(&mut all, &status, memory);
        lists(&mut all, control)?;
        tallies(&mut all, &status);
    }
    all.gauge(
        "equic_read_duration_seconds",
        "Time that was needed to read these metrics from the kernel.",
    )
    .add(&[], started.elapsed().as_secs_f64());
    let mut text = Vec::new();
    TextEncoder::new().encode(&all.finish(), &mut text)?;
    Ok(String::from_utf8(text)?)
}

fn gateway(all: &mut Families, status: &Status, control: &Control) -> Result {
    all.gauge(
        "equic_gateway_info",
        "Name and interface version of the gateway, as labels; the value is always 1.",
    )
    .add(&[("name", &status.name), ("abi", &status.abi_version.to_string())], 1.0);
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let start = since_epoch.saturating_sub(Duration::from_secs_f64(status.uptime_s));
    all.gauge(
        "equic_start_time_seconds",
        "Time at which the gateway was loaded, since the Unix epoch.",
    )
    // Round to a tenth of a second: the value is the difference of two clocks, and further
    // digits would be noise.
    .add(&[], (start.as_secs_f64() * 10.0).round() / 10.0);
    all.gauge(
        "equic_dry_run",
        "1 if the whole gateway is in a dry run and drops nothing, otherwise 0.",
    )
    .add(&[], flag(status.dry_run));
    all.gauge(
        "equic_lease_seconds",
        "Time after a server's last heartbeat until its connections no longer count.",
    )
    .add(&[], equic_gateway::parse_duration(&status.lease).unwrap_or_default().as_secs_f64());
    let attached = all.gauge(
        "equic_interface_attached",
        "Mode in which the gateway is attached to the interface: 1 for this mode, 0 for the other modes.",
    );
    for interface in &status.interfaces {
        for (mode, native) in [("native", Some(true)), ("generic", Some(false)), ("unknown", None)]
        {
            let label = Interface::label(interface);
            attached
                .add(&[("interface", &label), ("mode", mode)], flag(interface.native == native));
        }
    }
    if let Some(stats) = control.run_stats()? {
        all.counter(
            "equic_program_runs_total",
            "Packets that the XDP program processed while kernel.bpf_stats_enabled was 1.",
        )
        .add(&[], stats.runs as f64);
        all.counter(
            "equic_program_run_time_seconds_total",
            "Run time of the XDP program while kernel.bpf_stats_enabled was 1.",
        )
        .add(&[], stats.time.as_secs_f64());
    }
    let swept = control.swept();
    let removed = all.counter(
        "equic_swept_total",
        "Ledgers of ended servers, and expired list entries, that this process removed.",
    );
    removed.add(&[("what", "ledgers")], swept.ledgers.into());
    removed.add(&[("what", "list_entries")], swept.list_entries.into());
    Ok(())
}

fn services(all: &mut Families, services: &[ServiceStatus]) {
    let judged = |service: &ServiceStatus, reason: Reason| {
        let row = service.verdicts.iter().find(|row| row.reason == reason);
        row.map_or((0, 0, 0), |row| (row.packets, row.bytes, row.dropped))
    };
    let mut of_reasons = |name, help, value: fn((u64, u64, u64)) -> u64, drops_only: bool| {
        let family = all.counter(name, help);
        for service in services {
            for reason in Reason::all().filter(|reason| reason.drops() || !drops_only) {
                let verdict = reason.verdict();
                let service_and_reason = [
                    ("service", service.config.name.as_str()),
                    ("reason", reason.name()),
                    ("verdict", verdict),
                ];
                let labels = if drops_only { 2 } else { 3 };
                family.add(&service_and_reason[..labels], value(judged(service, reason)) as f64);
            }
        }
    };
    of_reasons(
        "equic_packets_total",
        "Packets judged, by reason. The verdict is that of the reason, even if a dry run let the packet pass.",
        |(packets, ..)| packets,
        false,
    );
    of_reasons(
        "equic_bytes_total",
        "UDP payload of the judged packets, in bytes.",
        |(_, bytes, _)| bytes,
        false,
    );
    of_reasons(
        "equic_dropped_packets_total",
        "Packets that were actually dropped. A dry run drops none, so the value can be less than equic_packets_total.",
        |(.., dropped)| dropped,
        true,
    );
    let mut per_service = |name, help, value: fn(&ServiceStatus) -> f64| {
        let family = all.gauge(name, help);
        for service in services {
            family.add(&[("service", &service.config.name)], value(service));
        }
    };
    per_service(
        "equic_service_enabled",
        "1 if the gateway judges packets to the service, otherwise 0.",
        |service| flag(service.config.enabled),
    );
    per_service(
        "equic_service_dry_run",
        "1 if the service is in a dry run and drops nothing, otherwise 0.",
        |service| flag(service.config.dry_run),
    );
    per_service(
        "equic_service_connections_limit",
        "Maximum number of simultaneous connections per source (max_connections); 0 if there is no quota.",
        |service| service.config.max_connections.into(),
    );
    limits(all, services);
    adaptive(all, services);
}

fn adaptive(all: &mut Families, services: &[ServiceStatus]) {
    let adapting = || {
        let state =
            |service: &ServiceStatus| Some((service.config.name.clone(), service.adaptive?));
        services.iter().filter_map(state)
    };
    let asking = all.gauge(
        "equic_service_asking",
        "1 if a service with adaptive Retry requires address validation at present, otherwise 0.",
    );
    for (name, state) in adapting() {
        asking.add(&[("service", &name)], flag(state.asking));
    }
    let began = all.counter(
        "equic_service_asking_began_total",
        "Number of times that a service with adaptive Retry began to require address validation.",
    );
    for (name, state) in adapting() {
        began.add(&[("service", &name)], state.began as f64);
    }
}

fn limits(all: &mut Families, services: &[ServiceStatus]) {
    let limits = |service: &ServiceStatus| {
        let settings = SERVICE_SETTINGS.iter().filter(|setting| setting.is_rate_limit());
        settings
            .filter_map(|setting| Some((setting.name, setting.value_of(&service.config).rate()?)))
            .filter(|(_, rate)| !rate.is_off())
            .collect::<Vec<_>>()
    };
    let mut family = |name, help, value: fn(equic_gateway::Rate) -> f64| {
        let family = all.gauge(name, help);
        for service in services {
            for (limit, rate) in limits(service) {
                family.add(&[("service", &service.config.name), ("limit", limit)], value(rate));
            }
        }
    };
    family(
        "equic_service_rate_limit",
        "Rate limits, in units (connections, packets, bytes) per second.",
        equic_gateway::Rate::units_per_second,
    );
    family(
        "equic_service_rate_burst",
        "Burst of each rate limit, in units (connections, packets, bytes).",
        |rate| rate.burst() as f64,
    );
}

fn servers(all: &mut Families, status: &Status, memory: &mut Memory) {
    let ledgers = &status.ledgers;
    let states = all.gauge(
        "equic_servers",
        "Servers that report connections to the gateway, by state: counting; silent (running, but without a heartbeat within the lease, so its connections do not count); ended (but not yet removed); unreadable (its connections count, but this process may not read them, so all other metrics lack them).",
    );
    let count = |wanted: fn(&LedgerStatus) -> bool| {
        ledgers.iter().filter(|ledger| wanted(ledger)).count() as f64
    };
    states.add(&[("state", "counting")], count(|ledger| ledger.alive && ledger.counts));
    states.add(&[("state", "silent")], count(|ledger| ledger.alive && !ledger.counts));
    states.add(&[("state", "ended")], count(|ledger| !ledger.alive));
    states.add(&[("state", "unreadable")], status.unreadable.len() as f64);
    all.gauge(
        "equic_connections",
        "Connections that count towards quotas, of all servers together.",
    )
    .add(&[], ledgers.iter().filter(|l| l.counts).map(|l| l.connections).sum::<u64>() as f64);
    let names: Vec<String> = ledgers.iter().map(|ledger| memory.server(&ledger.name)).collect();
    let mut per_server = |counter: bool, name, help, value: fn(&LedgerStatus) -> f64| {
        let family = if counter { all.counter(name, help) } else { all.gauge(name, help) };
        for (ledger, name) in ledgers.iter().zip(&names) {
            // Use the slot as a label, because servers may share a name, but each has its own slot.
            let slot = ledger.slot.to_string();
            family.add(&[("server", name), ("slot", &slot)], value(ledger));
        }
    };
    per_server(false, "equic_server_connections", "Connections open.", |l| l.connections as f64);
    per_server(
        false,
        "equic_server_sources",
        "Sources that hold connections at the server.",
        |l| l.sources as f64,
    );
    per_server(
        false,
        "equic_server_heartbeat_age_seconds",
        "Time since the server's last heartbeat.",
        |ledger| ledger.heartbeat_age_ms as f64 / 1000.0,
    );
    per_server(
        true,
        "equic_server_connections_opened_total",
        "Connections opened at the server since it joined the gateway.",
        |ledger| ledger.opened as f64,
    );
    per_server(
        true,
        "equic_server_connections_overflow_total",
        "Connections that count towards no quota, because the server's ledger was full.",
        |ledger| ledger.overflow as f64,
    );
}

fn tables(all: &mut Families, status: &Status, memory: &mut Memory) {
    // Use only the first word as the label, without a remark in brackets.
    let word = |name: &'static str| name.split(' ').next().unwrap_or(name);
    let entries = all.gauge(
        "equic_table_entries",
        "Entries in the table. For ledgers, the number of entries in the fullest ledger.",
    );
    for table in &status.tables {
        entries.add(&[("table", word(table.name))], table.entries as f64);
    }
    let capacity = all.gauge("equic_table_capacity", "Maximum number of entries in the table.");
    for table in &status.tables {
        capacity.add(&[("table", word(table.name))], table.capacity as f64);
    }
    if memory.program != status.program_id {
        let names = std::mem::take(&mut memory.names);
        *memory = Memory { program: status.program_id, names, ..Memory::default() };
    }
    let tallies = &status.tallies;
    let evicted = [tallies.sources_evicted, tallies.handshakes_evicted, tallies.prefixes_evicted];
    for (kept, now) in memory.evicted.iter_mut().zip(evicted) {
        *kept = (*kept).max(now);
    }
    let evictions = all.counter(
        "equic_table_evictions_total",
        "Table entries that were evicted by newer entries, or replaced by a later attempt of the same client.",
    );
    evictions.add(&[("table", "sources")], memory.evicted[0] as f64);
    evictions.add(&[("table", "handshakes")], memory.evicted[1] as f64);
    evictions.add(&[("table", "prefixes")], memory.evicted[2] as f64);
    let created = all.counter("equic_table_created_total", "Entries added to the table.");
    created.add(&[("table", "sources")], tallies.sources_created as f64);
    created.add(&[("table", "handshakes")], tallies.handshakes_created as f64);
    created.add(&[("table", "prefixes")], tallies.prefixes_created as f64);
}

fn lists(all: &mut Families, control: &Control) -> Result {
    let counts = control.list_counts()?;
    let family = all.gauge(
        "equic_list_entries",
        "Entries of the deny and allow lists. An expired entry counts until it is removed, which takes a second, or longer if the lists are long.",
    );
    for (list, name, count) in [
        ("deny", "ipv4", counts.deny_v4),
        ("deny", "ipv6", counts.deny_v6),
        ("allow", "ipv4", counts.allow_v4),
        ("allow", "ipv6", counts.allow_v6),
    ] {
        family.add(&[("list", list), ("family", name)], count as f64);
    }
    Ok(())
}

fn tallies(all: &mut Families, status: &Status) {
    let tallies = &status.tallies;
    for (name, help, value) in [
        (
            "equic_events_lost_total",
            "Drop events that were lost because no reader emptied the ring fast enough.",
            tallies.events_lost,
        ),
        (
            "equic_deep_headers_packets_total",
            "Packets whose UDP header the gateway cannot find, but the host may (deep or fragmented headers). Dropped unless drop_deep_headers is off.",
            tallies.deep_headers,
        ),
        (
            "equic_stale_ledger_lookups_total",
            "Look-ups of connection counts that ignored a server because its lease had expired.",
            tallies.stale_ledger,
        ),
        (
            "equic_contended_packets_total",
            "Packets refused because several CPUs updated the same rate limit at once.",
            tallies.contended,
        ),
    ] {
        all.counter(name, help).add(&[], value as f64);
    }
}

fn flag(set: bool) -> f64 {
    f64::from(u8::from(set))
}

/// Metric families in the order in which they were started.
#[derive(Default)]
struct Families(Vec<Family>);

struct Family {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    metrics: Vec<Metric>,
}

impl Families {
    fn gauge(&mut self, name: &'static str, help: &'static str) -> &mut Family {
        self.begin(name, help, MetricType::GAUGE)
    }

    fn counter(&mut self, name: &'static str, help: &'static str) -> &mut Family {
        self.begin(name, help, MetricType::COUNTER)
    }

    fn begin(&mut self, name: &'static str, help: &'static str, kind: MetricType) -> &mut Family {
        self.0.push(Family { name, help, kind, metrics: Vec::new() });
        let last = self.0.len() - 1;
        &mut self.0[last]
    }

    /// Returns the families that have at least one series.
    fn finish(self) -> Vec<MetricFamily> {
        let with_series = self.0.into_iter().filter(|family| !family.metrics.is_empty());
        with_series.map(Family::finish).collect()
    }
}

impl Family {
    fn add(&mut self, labels: &[(&str, &str)], value: f64) {
        let pair = |(name, value): &(&str, &str)| {
            let mut pair = LabelPair::default();
            pair.set_name((*name).to_owned());
            pair.set_value((*value).to_owned());
            pair
        };
        let mut metric = Metric::from_label(labels.iter().map(pair).collect());
        if self.kind == MetricType::COUNTER {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        } else {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
        self.metrics.push(metric);
    }

    fn finish(self) -> MetricFamily {
        let mut family = MetricFamily::default();
        family.set_name(self.name.to_owned());
        family.set_help(self.help.to_owned());
        family.set_field_type(self.kind);
        family.set_metric(self.metrics);
        family
    }
}

#[cfg(test)]
mod tests {
    use super::{Memory, NAMES, OTHER};

    #[test]
    fn metrics_series_are_bounded_for_ever_new_server_names() {
        let mut memory = Memory::default();
        let labels: Vec<String> = (0..1000).map(|n| memory.server(&format!("s{n}"))).collect();
        let distinct: std::collections::BTreeSet<&String> = labels.iter().collect();
        assert_eq!(distinct.len(), NAMES + 1);
        assert_eq!((labels[3].as_str(), labels[999].as_str()), ("s3", OTHER));
        assert_eq!(memory.server("s3"), "s3", "who has series keeps them");
    }
}
