//! Turns samples of a gateway into a picture for the dashboard: rates, their history, and the most
//! active sources. The code is pure, because all times come with the samples.

use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use equic_gateway::{Adaptive, Event, ListAction, Reason, ServiceConfig, SourceKey, SourceSample};
use equic_report::number;
use serde::Serialize;

use super::sample::Sample;
use crate::gateway::limits::{describe, describe_adaptive};

/// Number of past rates that are kept, one per sample. It exceeds the width of any terminal.
const HISTORY: usize = 512;
/// Maximum number of lines about drops that are kept.
const EVENTS: usize = 200;
/// Maximum number of sources in a picture. `equic gateway sources` can list more.
pub(super) const SOURCES: usize = 200;

/// Sort order of the sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(super) enum Sort {
    /// Packets per second
    #[default]
    Packets,
    /// Drops per second
    Drops,
    /// Payload bytes per second
    Bytes,
    /// Open connections
    Connections,
    /// Address of the source
    Address,
}

/// Rates and state of a source of packets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct SourceLine {
    #[serde(skip)]
    pub key: SourceKey,
    pub source: String,
    pub service: String,
    pub packets_per_s: f64,
    pub bytes_per_s: f64,
    pub drops_per_s: f64,
    pub packets: u64,
    pub drops: u64,
    pub connections: u32,
    /// The source's quota of connections, or 0 for no quota.
    pub limit: u32,
    pub last_reason: Option<Reason>,
    /// The deny or allow list that the source is on, or `None`. Samples do not contain it;
    /// `picture` in the parent module sets it.
    pub listed: Option<ListAction>,
}

/// Rate of packets whose verdict has a given reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct ReasonLine {
    pub reason: Reason,
    pub packets_per_s: f64,
    /// Share of all packets between the last two samples, from 0 to 1.
    pub share: f64,
    pub packets: u64,
    pub dropped: u64,
}

/// Drops from one address for one reason: the number of events, and the latest event.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct EventLine {
    pub age_s: f64,
    pub heard: u64,
    #[serde(flatten)]
    pub event: Event,
}

/// A server that reports its connections to the gateway.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct ServerLine {
    pub name: String,
    pub connections: u64,
    pub alive: bool,
    pub counts: bool,
}

/// Contents of the dashboard at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Picture {
    pub name: String,
    pub program_id: u32,
    pub uptime_s: f64,
    pub dry_run: bool,
    /// Interfaces that the gateway is attached to, such as `eth0 native`.
    pub interfaces: Vec<String>,
    /// Services that the gateway protects: name, addresses and limits.
    pub services: Vec<String>,
    pub servers: Vec<ServerLine>,
    /// True if there were at least two samples. Otherwise, there are no rates.
    pub measured: bool,
    /// Packets per second that passed.
    pub passed_per_s: f64,
    /// Packets per second whose verdict was a drop. Includes those that passed because of a dry
    /// run.
    pub dropped_per_s: f64,
    /// Past values of `passed_per_s`, the oldest first.
    #[serde(skip)]
    pub passed_history: Vec<f64>,
    /// Past values of `dropped_per_s`, the oldest first.
    #[serde(skip)]
    pub dropped_history: Vec<f64>,
    pub reasons: Vec<ReasonLine>,
    pub sort: Sort,
    pub sources: Vec<SourceLine>,
    /// Total number of sources. The picture may show fewer.
    pub sources_total: usize,
    /// Drops, the latest first.
    pub events: Vec<EventLine>,
    /// Time that reading the last sample took, in seconds.
    pub read_s: f64,
}

/// Earlier counts of a source: creation time of its entry, packets, bytes, drops.
type Before = (u64, u64, u64, u64);

/// State that is kept from earlier samples.
#[derive(Default)]
pub(super) struct Model {
    last: Option<Sample>,
    /// Seconds between the last two samples.
    elapsed: Option<f64>,
    reasons: HashMap<Reason, (u64, u64)>,
    reason_lines: Vec<ReasonLine>,
    sources: HashMap<SourceKey, Before>,
    rates: Vec<[f64; 3]>,
    passed: VecDeque<f64>,
    dropped: VecDeque<f64>,
    /// Drops of each kind: the number of events, and the latest event. The kind with the latest
    /// event comes first.
    events: VecDeque<(u64, Event)>,
}

impl Model {
    /// Adds the next sample.
    pub(super) fn push(&mut self, mut sample: Sample) {
        let program = |sample: &Sample| sample.overview.program_id;
        if self.last.as_ref().is_some_and(|last| program(last) != program(&sample)) {
            // If the gateway was replaced, its counts cannot be compared with the old ones. Keep
            // only the history of the rates.
            let (passed, dropped) =
                (std::mem::take(&mut self.passed), std::mem::take(&mut self.dropped));
            *self = Model { passed, dropped, ..Model::default() };
        }
        self.elapsed = self
            .last
            .as_ref()
            .map(|last| sample.at.saturating_sub(last.at).as_secs_f64())
            .filter(|elapsed| *elapsed > 0.0);
        self.take_reasons(&sample);
        self.take_sources(&sample.sources);
        for event in sample.events.drain(..) {
            self.hear(event);
        }
        self.last = Some(sample);
    }

    /// Adds a drop event. Drops of the same kind share a line, so that one flood does not push all
    /// others off the screen.
    fn hear(&mut self, event: Event) {
        let kind = |event: &Event| (event.from.ip(), event.reason, event.ifindex);
        let same = self.events.iter().position(|(_, other)| kind(other) == kind(&event));
        let heard = match same.and_then(|index| self.events.remove(index)) {
            Some((heard, _)) => heard + 1,
            None => 1,
        };
        self.events.push_front((heard, event));
        self.events.truncate(EVENTS);
    }

    /// Returns the increase from `before` to `now` per second, or 0 if there was no earlier sample.
    fn rate(&self, now: u64, before: u64) -> f64 {
        self.elapsed.map_or(0.0, |elapsed| now.saturating_sub(before) as f64 / elapsed)
    }

    fn take_reasons(&mut self, sample: &Sample) {
        let mut now: HashMap<Reason, (u64, u64)> = HashMap::new();
        for row in &sample.counters {
            let sums = now.entry(row.reason).or_default();
            *sums = (sums.0 + row.packets, sums.1 + row.dropped);
        }
        let (mut passed, mut refused) = (0.0, 0.0);
        let mut lines: Vec<ReasonLine> = Reason::all()
            .filter_map(|reason| Some((reason, *now.get(&reason)?)))
            .map(|(reason, (packets, dropped))| {
                let before = self.reasons.get(&reason).map_or(0, |(packets, _)| *packets);
                let packets_per_s = self.rate(packets, before);
                *(if reason.drops() { &mut refused } else { &mut passed }) += packets_per_s;
                ReasonLine { reason, packets_per_s, share: 0.0, packets, dropped }
            })
            .collect();
        let all = passed + refused;
        for line in &mut lines {
            line.share = if all > 0.0 { line.packets_per_s / all } else { 0.0 };
        }
        lines.sort_by(|a, b| {
            b.packets_per_s.total_cmp(&a.packets_per_s).then(b.packets.cmp(&a.packets))
        });
        (self.reason_lines, self.reasons) = (lines, now);
        if self.elapsed.is_some() {
            for (history, rate) in [(&mut self.passed, passed), (&mut self.dropped, refused)] {
                if history.len() == HISTORY {
                    history.pop_front();
                }
                history.push_back(rate);
            }
        }
    }

    fn take_sources(&mut self, sources: &[SourceSample]) {
        let mut now = HashMap::with_capacity(sources.len());
        let mut rates = Vec::with_capacity(sources.len());
        for source in sources {
            let counted = (source.since_ns, source.packets, source.bytes, source.drops);
            // If a source was evicted from the table and has come back, its counts start from 0
            // again.
            let before = self.sources.get(&source.key).filter(|before| before.0 == counted.0);
            let (_, packets, bytes, drops) = before.copied().unwrap_or_default();
            rates.push([
                self.rate(source.packets, packets),
                self.rate(source.bytes, bytes),
                self.rate(source.drops, drops),
            ]);
            now.insert(source.key, counted);
        }
        (self.sources, self.rates) = (now, rates);
    }

    /// Returns the picture after the last sample.
    pub(super) fn picture(&self, sort: Sort) -> Picture {
        let Some(last) = &self.last else { return Picture::default() };
        let rate_of = |history: &VecDeque<f64>| match self.elapsed {
            Some(_) => history.back().copied().unwrap_or(0.0),
            None => 0.0,
        };
        Picture {
            name: last.overview.name.clone(),
            program_id: last.overview.program_id,
            uptime_s: last.overview.uptime_s,
            dry_run: last.overview.dry_run || last.services.iter().all(|service| service.dry_run),
            interfaces: last.interfaces.iter().map(interface).collect(),
            services: last
                .services
                .iter()
                .enumerate()
                .map(|(index, one)| service(one, last.adaptive.get(index).and_then(Option::as_ref)))
                .collect(),
            servers: last
                .ledgers
                .iter()
                .map(|ledger| ServerLine {
                    name: ledger.name.clone(),
                    connections: ledger.connections,
                    alive: ledger.alive,
                    counts: ledger.counts,
                })
                .collect(),
            measured: self.elapsed.is_some(),
            passed_per_s: rate_of(&self.passed),
            dropped_per_s: rate_of(&self.dropped),
            passed_history: self.passed.iter().copied().collect(),
            dropped_history: self.dropped.iter().copied().collect(),
            reasons: self.reason_lines.clone(),
            sort,
            sources: self.top(last, sort),
            sources_total: last.sources.len(),
            events: self
                .events
                .iter()
                .map(|(heard, event)| EventLine {
                    age_s: age(last.at, event),
                    heard: *heard,
                    event: event.clone(),
                })
                .collect(),
            read_s: last.cost.as_secs_f64(),
        }
    }

    fn top(&self, last: &Sample, sort: Sort) -> Vec<SourceLine> {
        let mut order: Vec<usize> = (0..last.sources.len()).collect();
        let compare = |a: &usize, b: &usize| {
            let ((left, of_left), (right, of_right)) =
                ((&last.sources[*a], self.rates[*a]), (&last.sources[*b], self.rates[*b]));
            let by = |column: usize| of_right[column].total_cmp(&of_left[column]);
            let first = match sort {
                Sort::Packets => by(0).then(right.packets.cmp(&left.packets)),
                Sort::Bytes => by(1).then(right.bytes.cmp(&left.bytes)),
                Sort::Drops => by(2).then(right.drops.cmp(&left.drops)),
                Sort::Connections => right.connections.cmp(&left.connections),
                Sort::Address => Ordering::Equal,
            };
            first.then(left.key.cmp(&right.key))
        };
        if order.len() > SOURCES {
            order.select_nth_unstable_by(SOURCES, compare);
            order.truncate(SOURCES);
        }
        order.sort_unstable_by(compare);
        order
            .into_iter()
            .map(|index| {
                let (source, [packets_per_s, bytes_per_s, drops_per_s]) =
                    (&last.sources[index], self.rates[index]);
                let service =
                    source.key.service.and_then(|index| last.services.get(index as usize));
                SourceLine {
                    key: source.key,
                    source: source.key.label(),
                    service: service.map_or_else(String::new, |service| service.name.clone()),
                    packets_per_s,
                    bytes_per_s,
                    drops_per_s,
                    packets: source.packets,
                    drops: source.drops,
                    connections: source.connections,
                    limit: source.limit,
                    last_reason: source.last_reason,
                    listed: None,
                }
            })
            .collect()
    }
}

fn age(now: Duration, event: &Event) -> f64 {
    now.saturating_sub(Duration::from_nanos(event.time_ns)).as_secs_f64()
}

fn interface(interface: &equic_gateway::Interface) -> String {
    let mode = match interface.native {
        Some(true) => "native",
        Some(false) => "generic",
        None => "(other netns)",
    };
    format!("{} {mode}", interface.label())
}

fn service(service: &ServiceConfig, adaptive: Option<&Adaptive>) -> String {
    let listen: Vec<String> = service.listen.iter().map(ToString::to_string).collect();
    let limits = describe(service);
    let state = adaptive.map(|state| describe_adaptive(state, service.retry_above));
    let state = state.map_or_else(String::new, |state| format!("; {state}"));
    format!("{} on {}: {limits}{state}", service.name, listen.join(", "))
}

impl Sort {
    const ALL: [Sort; 5] =
        [Sort::Packets, Sort::Drops, Sort::Bytes, Sort::Connections, Sort::Address];

    /// Returns the sort order that follows this one.
    pub(super) fn next(self) -> Sort {
        let at = Sort::ALL.iter().position(|sort| *sort == self).unwrap_or(0);
        Sort::ALL[(at + 1) % Sort::ALL.len()]
    }

    pub(super) fn label(self) -> &'static str {
        match self {
            Sort::Packets => "packets/s",
            Sort::Drops => "drops/s",
            Sort::Bytes => "payload/s",
            Sort::Connections => "connections",
            Sort::Address => "address",
        }
    }
}

impl SourceLine {
    /// Returns one word that says how the gateway will treat the source's next connection.
    pub(super) fn state(&self) -> &'static str {
        match self.listed {
            Some(ListAction::Deny) => "denied",
            Some(ListAction::Allow) => "allowed",
            None if self.limit != 0 && self.connections >= self.limit => "at limit",
            None => "",
        }
    }

    /// Returns the source's number of connections and its quota as text.
    pub(super) fn held(&self) -> String {
        match self.limit {
            0 => number::count(self.connections.into()),
            limit => format!("{} of {limit}", self.connections),
        }
    }
}

#[cfg(test)]
#[path = "model_tests.rs"]
pub(super) mod tests;
