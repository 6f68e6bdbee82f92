//! Time series that a run records: queues and goodput, once per interval.

use std::time::Duration;

use crate::port::PortStats;
use crate::simulation::AgentId;
use crate::time::{Time, nanos};
use crate::topology::PortId;

/// Largest number of values that a run records. Recording stops there.
const MOST_VALUES: usize = 50_000_000;

/// Selects the time series that a run records. With the default, nothing is recorded and the run
/// has no overhead.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// Time between two records.
    pub interval: Duration,
    /// Ports whose queue length, drops and marks are recorded.
    pub ports: Vec<PortId>,
    /// Agents whose goodput is recorded.
    pub agents: Vec<AgentId>,
}

/// The reason why a [`Recording`] is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordError {
    /// The interval is zero.
    Interval,
    /// A port or an agent does not belong to this run.
    Unknown,
}

impl std::fmt::Display for RecordError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            RecordError::Interval => "the interval of a recording must be above zero",
            RecordError::Unknown => {
                "the recording names a port or an agent that does not belong to this run"
            }
        })
    }
}

impl std::error::Error for RecordError {}

/// Values at one time, in the order of the [`Recording`].
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Time of the record.
    pub at: Time,
    /// One entry for each recorded port.
    pub ports: Vec<PortRecord>,
    /// For each recorded agent: bits per second delivered to its application since the last record.
    pub goodput: Vec<f64>,
}

/// The state of a port at one time, and its activity since the last record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortRecord {
    /// Packets waiting in the queue.
    pub packets: usize,
    /// Bytes waiting in the queue, including the link's framing.
    pub bytes: u64,
    /// Packets that the queue dropped since the last record.
    pub dropped: u64,
    /// Packets that the queue marked since the last record.
    pub marked: u64,
    /// Bytes sent since the last record, including the link's framing.
    pub sent_bytes: u64,
}

/// The state of a [`Recording`] during a run.
pub(crate) struct Recorder {
    recording: Recording,
    records: Vec<Record>,
    ports_before: Vec<PortStats>,
    agents_before: Vec<u64>,
}

impl Recorder {
    /// Creates a recorder. `known` is true if all ports and agents of the recording exist.
    pub(crate) fn new(recording: Recording, known: bool) -> Result<Recorder, RecordError> {
        if recording.interval.is_zero() {
            return Err(RecordError::Interval);
        }
        if !known {
            return Err(RecordError::Unknown);
        }
        Ok(Recorder {
            records: Vec::new(),
            ports_before: vec![PortStats::default(); recording.ports.len()],
            agents_before: vec![0; recording.agents.len()],
            recording,
        })
    }

    pub(crate) fn interval(&self) -> Duration {
        self.recording.interval
    }

    pub(crate) fn records(&self) -> &[Record] {
        &self.records
    }

    /// Returns `true` if the largest number of values has been recorded.
    pub(crate) fn is_full(&self) -> bool {
        let each = 5 * self.recording.ports.len() + self.recording.agents.len() + 1;
        self.records.len() * each >= MOST_VALUES
    }

    pub(crate) fn write(
        &mut self,
        now: Time,
        port: impl Fn(PortId) -> (PortStats, (usize, u64)),
        goodput: impl Fn(AgentId) -> u64,
    ) {
        let ports = self.recording.ports.iter().zip(&mut self.ports_before).map(|(id, before)| {
            let (stats, (packets, bytes)) = port(*id);
            let dropped = |stats: &PortStats| stats.dropped_full + stats.dropped_early;
            let record = PortRecord {
                packets,
                bytes,
                dropped: dropped(&stats) - dropped(before),
                marked: stats.marked - before.marked,
                sent_bytes: stats.sent_bytes - before.sent_bytes,
            };
            *before = stats;
            record
        });
        let seconds = nanos(self.recording.interval) as f64 / 1e9;
        let agents = self.recording.agents.iter().zip(&mut self.agents_before);
        let goodput = agents.map(|(id, before)| {
            let bytes = goodput(*id);
            let rate = 8.0 * bytes.saturating_sub(*before) as f64 / seconds;
            *before = bytes;
            rate
        });
        let record = Record { at: now, ports: ports.collect(), goodput: goodput.collect() };
        self.records.push(record);
    }
}
