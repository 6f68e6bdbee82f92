//! Connections of a run, whatever their protocol: how they are configured, and what they say of themselves.

use std::time::Duration;

use equic_sim::quic::{Bulk, BulkReceiver, BulkSender, Logs};
use equic_sim::tcp::{TcpBulk, TcpBulkReceiver, TcpBulkSender, TcpConfig};
use equic_sim::{NodeId, Simulation, Time};

use crate::build::Place;
use crate::model::{Flow, Protocol};

/// Bytes of flows that have no size: more than any run can carry.
const WITHOUT_END: u64 = 1 << 60;

pub(super) use equic_sim::quic::{BulkIds, Outcome};

/// State and counters of a sender.
#[derive(Clone, Copy, Default)]
pub(super) struct Sender {
    pub(super) packets_sent: u64,
    pub(super) packets_lost: u64,
    pub(super) spurious: u64,
    pub(super) timeouts: u64,
    pub(super) window: u64,
    pub(super) slow_start_threshold: Option<u64>,
    pub(super) in_flight: u64,
    pub(super) rtt: Duration,
    pub(super) min_rtt: Duration,
    /// Bytes per second.
    pub(super) pacing_rate: f64,
}

/// Attaches both ends of a connection to their nodes.
pub(super) fn attach(
    run: &mut Simulation,
    flow: &Flow,
    place: &Place,
    (from, to): (NodeId, NodeId),
    start: Duration,
    logs: Option<Logs>,
) -> Result<BulkIds, String> {
    let bytes = flow.size.unwrap_or(WITHOUT_END);
    let start = Time::START + start;
    match flow.protocol {
        Protocol::Quic => {
            let bulk = Bulk { bytes, start, transport: place.quic(flow), logs };
            equic_sim::quic::bulk(run, from, to, &bulk).map_err(|error| error.to_string())
        }
        Protocol::Tcp => {
            let bulk = TcpBulk { start, config: tcp(flow, place), ..TcpBulk::new(bytes) };
            equic_sim::tcp::bulk(run, from, to, &bulk).map_err(|error| error.to_string())
        }
    }
}

/// Result at the receiver, or at the sender if that knows of a failure alone.
pub(super) fn outcome(run: &Simulation, protocol: Protocol, ids: BulkIds) -> Outcome {
    let mut outcome = match protocol {
        Protocol::Quic => run.agent::<BulkReceiver>(ids.receiver).map(|one| one.outcome().clone()),
        Protocol::Tcp => {
            run.agent::<TcpBulkReceiver>(ids.receiver).map(|one| one.outcome().clone())
        }
    }
    .unwrap_or_default();
    if outcome.completed.is_none() && outcome.failure.is_none() {
        let sender = run.agent::<BulkSender>(ids.sender);
        outcome.failure = sender.and_then(BulkSender::failure).map(str::to_owned);
    }
    outcome
}

pub(super) fn sender(run: &Simulation, protocol: Protocol, ids: BulkIds) -> Sender {
    match protocol {
        Protocol::Quic => {
            let stats = run.agent::<BulkSender>(ids.sender).map(BulkSender::stats);
            let stats = stats.unwrap_or_default();
            Sender {
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
            }
        }
        Protocol::Tcp => {
            let stats = run.agent::<TcpBulkSender>(ids.sender).map(TcpBulkSender::stats);
            let stats = stats.unwrap_or_default();
            Sender {
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
            }
        }
    }
}

fn tcp(flow: &Flow, place: &Place) -> TcpConfig {
    let (options, usual) = (&flow.tcp, TcpConfig::default());
    let window = options.window.unwrap_or_else(|| place.window());
    TcpConfig {
        congestion: flow.controller.factory(),
        mss: options.mss.unwrap_or(place.mss),
        initial_window: options.initial_window.unwrap_or(usual.initial_window),
        sack: options.sack.unwrap_or(usual.sack),
        timestamps: options.timestamps.unwrap_or(usual.timestamps),
        window_scaling: options.window_scaling.unwrap_or(usual.window_scaling),
        ecn: options.ecn.unwrap_or(usual.ecn),
        pacing: options.pacing.unwrap_or(usual.pacing),
        receive_buffer: window,
        send_buffer: window,
        min_rto: options.min_rto.unwrap_or(usual.min_rto),
        delayed_ack: options.delayed_ack.unwrap_or(usual.delayed_ack),
        tail_loss_probe: options.tail_loss_probe.unwrap_or(usual.tail_loss_probe),
        ..usual
    }
}
