//! A transfer of bytes from a client to a server, whatever the protocol.

use std::time::Duration;

use crate::app::Application;
use crate::packet::FlowId;
use crate::simulation::AgentId;
use crate::time::Time;

/// Agents and flows of a transfer.
#[derive(Clone, Copy, Debug)]
pub struct BulkIds {
    /// The end that sends: of a bulk transfer the client.
    pub sender: AgentId,
    /// The end that receives, and for which the run waits: of a bulk transfer the server.
    pub receiver: AgentId,
    /// Packets from the sender to the receiver.
    pub there: FlowId,
    /// Packets from the receiver to the sender.
    pub back: FlowId,
}

impl BulkIds {
    /// Those of a connection that carries an application: agent, and flow of the packets that it sends, of client and
    /// server.
    pub(crate) fn of(
        application: &Application,
        client: (AgentId, FlowId),
        server: (AgentId, FlowId),
    ) -> BulkIds {
        let (sender, receiver) =
            if application.is_download() { (server, client) } else { (client, server) };
        BulkIds { sender: sender.0, receiver: receiver.0, there: sender.1, back: receiver.1 }
    }
}

/// Result of a transfer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Time at which the server's application had the last byte; none: it did not get that far.
    pub completed: Option<Time>,
    /// Bytes that the server's application has read.
    pub bytes: u64,
    /// Reason for which the transfer failed, if it did.
    pub failure: Option<String>,
}

/// State and counters of an end that sends, whatever the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SenderState {
    /// Packets of QUIC, or segments of TCP, that it sent.
    pub packets_sent: u64,
    /// Packets that it gave up as lost.
    pub packets_lost: u64,
    /// QUIC: of those, acknowledged after all. TCP: recoveries that turned out to be for nothing.
    pub spurious: u64,
    /// Probe timeouts of QUIC, expiries of the retransmission timer of TCP.
    pub timeouts: u64,
    /// Congestion window in bytes.
    pub window: u64,
    /// Slow start threshold in bytes; none before the first loss, or where the controller has none.
    pub slow_start_threshold: Option<u64>,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Least round-trip time; zero before the first sample.
    pub min_rtt: Duration,
    /// Rate at which packets may leave, in bytes per second.
    pub pacing_rate: f64,
    /// Time in which the window limited it: flow control, or the most that it keeps until it is acknowledged.
    pub window_limited: Duration,
}

/// The time in which a condition held, whose state is noted now and then.
#[cfg(feature = "tcp")]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TimeOf {
    since: Option<Time>,
    total: Duration,
}

#[cfg(feature = "tcp")]
impl TimeOf {
    /// Notes that the condition holds from now on, or that it does not.
    pub(crate) fn note(&mut self, now: Time, holds: bool) {
        if let Some(since) = self.since.take() {
            self.total += now.since(since);
        }
        self.since = holds.then_some(now);
    }

    /// Time until the last note.
    pub(crate) fn total(&self) -> Duration {
        self.total
    }
}

#[cfg(feature = "quic")]
impl From<equic_transport::Stats> for SenderState {
    fn from(stats: equic_transport::Stats) -> SenderState {
        SenderState {
            packets_sent: stats.packets_sent,
            packets_lost: stats.packets_lost,
            spurious: stats.spurious_losses,
            timeouts: stats.probe_timeouts,
            window: stats.path.congestion_window,
            slow_start_threshold: stats.path.slow_start_threshold,
            in_flight: stats.path.bytes_in_flight,
            rtt: stats.path.rtt,
            min_rtt: stats.path.min_rtt,
            pacing_rate: stats.path.pacing_rate as f64,
            window_limited: Duration::ZERO,
        }
    }
}

#[cfg(feature = "tcp")]
impl From<equic_tcp::Stats> for SenderState {
    fn from(stats: equic_tcp::Stats) -> SenderState {
        SenderState {
            packets_sent: stats.segments_sent,
            packets_lost: stats.lost,
            spurious: stats.spurious,
            timeouts: stats.timeouts,
            window: stats.window,
            slow_start_threshold: stats.slow_start_threshold,
            in_flight: stats.in_flight,
            rtt: stats.smoothed_rtt,
            min_rtt: stats.min_rtt,
            pacing_rate: stats.pacing_rate,
            window_limited: Duration::ZERO,
        }
    }
}
