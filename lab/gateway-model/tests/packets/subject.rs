//! The two subjects that can run a script: the reference model and the real XDP program.

use super::script::{LEDGERS, Step, hexdump, ring};
use equic_gateway::reason::Reason;
use equic_gateway_model::{Arrival, Config, Counter, Ledger, Model, Outcome, SourceKey, Tallies};
use std::collections::BTreeMap;
use std::fmt;

/// Observed outcome of one packet.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// True if the packet does not reach the server, because it was dropped or answered.
    pub dropped: bool,
    /// The frame that answers the packet, or `None` if the packet is not answered.
    pub answer: Option<Vec<u8>>,
    /// Index of the service and verdict reason, or `None` if the packet was not for a service.
    pub verdict: Option<(usize, Reason)>,
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, {}", self.verdict, if self.dropped { "dropped" } else { "passed" })?;
        match &self.answer {
            Some(answer) => write!(f, ", answered with\n{}", hexdump(answer)),
            None => Ok(()),
        }
    }
}

/// The statistics about a source, without the state of its buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SourceReport {
    pub packets: u64,
    pub bytes: u64,
    pub drops: u64,
    pub first_ns: u64,
    pub last_ns: u64,
    pub last_reason: Reason,
}

/// Counters and tables after a script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    pub counters: BTreeMap<(usize, Reason), Counter>,
    pub sources: BTreeMap<SourceKey, SourceReport>,
    pub tallies: Tallies,
    /// State of adaptive Retry for each service: how many times it has begun to require tokens, and
    /// the time in nanoseconds until which it requires them.
    pub asking: Vec<(u64, u64)>,
}

pub(crate) trait Subject {
    /// Discards all state and starts with this configuration.
    fn reset(&mut self, config: &Config);
    /// Takes one step. Returns the outcome if the step is a packet.
    fn step(&mut self, step: &Step, now: u64) -> Option<Seen>;
    fn report(&mut self) -> Report;
}

impl Subject for Model {
    fn reset(&mut self, config: &Config) {
        *self = Model::new(config.clone());
        self.cell = Some(super::program::cell);
        self.stranger = Some(super::program::stranger);
        self.ring = Some(ring());
        self.seed = super::program::LEDGER_SEED;
        self.ledgers.resize_with(LEDGERS, Ledger::default);
    }

    fn step(&mut self, step: &Step, now: u64) -> Option<Seen> {
        match step {
            Step::Packet(_) | Step::Arrival(..) => {
                let (frame, arrival) = match step {
                    Step::Arrival(packet, arrival) => (packet, *arrival),
                    Step::Packet(frame) => (frame, Arrival::default()),
                    _ => unreachable!("matched above"),
                };
                let outcome: Outcome = self.judge_as(frame, arrival, now);
                let verdict = outcome.verdict().map(|v| (v.service, v.reason));
                let answer = self.answer().map(<[u8]>::to_vec);
                return Some(Seen { dropped: outcome.dropped(), answer, verdict });
            }
            Step::Wait(_) => {}
            Step::List { addr, prefix_len, entry: Some(entry) } => {
                self.acl.insert(*addr, *prefix_len, *entry);
            }
            Step::List { addr, prefix_len, entry: None } => {
                self.acl.remove(*addr, *prefix_len);
            }
            Step::Connections { ledger, source, group, count } => {
                let key = self.source_key(*source, *group);
                let ledger = &mut self.ledgers[*ledger];
                ledger.heartbeat_ns = now;
                ledger.connections.insert(key, *count);
            }
            Step::Opened { ledger, source, group, more } => {
                let source = self.source_key(*source, *group);
                let ledger = &mut self.ledgers[*ledger];
                ledger.heartbeat_ns = now;
                let opened = ledger.opened.entry(super::program::cell(&source)).or_default();
                *opened = opened.wrapping_add(*more);
            }
            Step::Heartbeat { ledger, ahead } => {
                self.ledgers[*ledger].heartbeat_ns = now + ahead;
            }
            Step::Service { number, service } => {
                self.config.services[*number] = (**service).clone();
            }
            Step::DryRun(dry_run) => self.config.dry_run = *dry_run,
            Step::ForgetHandshakes => self.forget_handshakes(),
            Step::Place { ledger, taken, barred } => {
                let ledger = &mut self.ledgers[*ledger];
                (ledger.taken_out, ledger.barred) = (!taken, *barred);
            }
            Step::Own(own) => self.own.clone_from(own),
            Step::Dead { place, groups } => self.dead[*place] = *groups,
        }
        None
    }

    fn report(&mut self) -> Report {
        let source = |s: &equic_gateway_model::SourceState| SourceReport {
            packets: s.packets,
            bytes: s.bytes,
            drops: s.drops,
            first_ns: s.first_ns,
            last_ns: s.last_ns,
            last_reason: s.last_reason,
        };
        Report {
            counters: self.counters().iter().map(|(key, counter)| (*key, *counter)).collect(),
            sources: self.sources().iter().map(|(key, state)| (*key, source(state))).collect(),
            tallies: self.tallies(),
            asking: (0..super::program::SERVICES).map(|service| self.asking(service)).collect(),
        }
    }
}
