//! The result of a transfer between a client and a server, over QUIC or TCP.

use std::time::Duration;

use crate::app::Application;
use crate::packet::FlowId;
use crate::simulation::AgentId;
use crate::time::Time;

/// The agents at both ends of a transfer, and the flows between them.
#[derive(Clone, Copy, Debug)]
pub struct BulkIds {
    /// The sending end. It is the client in a bulk transfer.
    pub sender: AgentId,
    /// The receiving end. The run waits for it. It is the server in a bulk transfer.
    pub receiver: AgentId,
    /// Flow from the sender to the receiver.
    pub there: FlowId,
    /// Flow from the receiver to the sender.
    pub back: FlowId,
}

impl BulkIds {
    /// Returns the IDs of a connection that carries an application. `client` and `server` are
    /// pairs: an agent, and the flow of the packets that it sends.
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

/// The result of a transfer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Time at which the receiver's application had the last byte, or `None` if that did not
    /// happen.
    pub completed: Option<Time>,
    /// Number of bytes that the receiver's application has read.
    pub bytes: u64,
    /// Reason why the transfer failed, or `None` if it did not fail.
    pub failure: Option<String>,
}

/// The state and the counters of a sending end, for QUIC and TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SenderState {
    /// Number of packets (QUIC) or segments (TCP) sent.
    pub packets_sent: u64,
    /// Number of packets declared lost.
    pub packets_lost: u64,
    /// QUIC: packets declared lost and acknowledged later. TCP: spurious loss recoveries.
    pub spurious: u64,
    /// QUIC: probe timeouts. TCP: expiries of the retransmission timer.
    pub timeouts: u64,
    /// Congestion window in bytes.
    pub window: u64,
    /// Slow start threshold in bytes. `None` before the first loss, or if the controller has none.
    pub slow_start_threshold: Option<u64>,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Smallest round-trip time. Zero before the first sample.
    pub min_rtt: Duration,
    /// Pacing rate in bytes per second.
    pub pacing_rate: f64,
    /// Total time in which flow control, or the sender's own limit on unacknowledged data, held
    /// back data.
    pub window_limited: Duration,
}

/// Measures the total time in which a condition holds. The caller reports each change of the
/// condition.
#[cfg(feature = "tcp")]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TimeOf {
    since: Option<Time>,
    total: Duration,
}

#[cfg(feature = "tcp")]
impl TimeOf {
    /// Records whether the condition holds from `now` on.
    pub(crate) fn note(&mut self, now: Time, holds: bool) {
        if let Some(since) = self.since.take() {
            self.total += now.since(since);
        }
        self.since = holds.then_some(now);
    }

    /// Returns the total time until the last call of `note`.
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
