//! Sets up the QUIC and TCP connections of a run, and reads their results.

use std::time::Duration;

use equic_sim::quic::{
    Bulk, BulkReceiver, BulkSender, Carrier, HooksOfEnds, Logs, Party, PathState, Resumption,
};
use equic_sim::tcp::{TcpBulk, TcpBulkReceiver, TcpBulkSender, TcpCarrier, TcpConfig, TlsConfig};
use equic_sim::{NodeId, Report, Simulation, Time};

use crate::build::Place;
use crate::model::{Flow, Protection, Protocol, Tls, TlsVersion};

/// Number of bytes to send for a flow without a size. No run can transfer that many.
const WITHOUT_END: u64 = 1 << 60;

pub(super) use equic_sim::quic::{BulkIds, Outcome, SenderState};

/// Attaches both ends of a connection to their nodes.
pub(super) fn attach(
    run: &mut Simulation,
    flow: &Flow,
    place: &Place,
    (from, to): (NodeId, NodeId),
    start: Duration,
    (logs, hooks): (Option<Logs>, HooksOfEnds),
) -> Result<BulkIds, String> {
    let bytes = flow.size.unwrap_or(WITHOUT_END);
    let start = Time::START + start;
    match flow.protocol {
        Protocol::Quic => {
            let transport = place.quic(flow);
            let resumption = match (flow.quic.resumption, flow.quic.early_data) {
                (false, _) => Resumption::None,
                (true, false) => Resumption::Session,
                (true, true) => Resumption::EarlyData,
            };
            let protection = match flow.quic.protection {
                Protection::None => equic_sim::quic::Protection::None,
                Protection::Tls => equic_sim::quic::Protection::Tls,
            };
            let made = match &flow.application {
                None => {
                    let bulk =
                        Bulk { bytes, start, transport, protection, resumption, logs, hooks };
                    equic_sim::quic::bulk(run, from, to, &bulk)
                }
                Some(application) => {
                    let carrier = Carrier { start, transport, protection, resumption, logs, hooks };
                    equic_sim::quic::attach(run, from, to, application, &carrier)
                }
            };
            made.map_err(|error| error.to_string())
        }
        Protocol::Tcp => {
            let (config, tls) = (tcp(flow, place), flow.tcp.tls.map(tls));
            let made = match &flow.application {
                None => {
                    let bulk = TcpBulk { bytes, start, config, tls };
                    equic_sim::tcp::bulk(run, from, to, &bulk)
                }
                Some(application) => {
                    let carrier = TcpCarrier { start, config, tls };
                    equic_sim::tcp::attach(run, from, to, application, &carrier)
                }
            };
            made.map_err(|error| error.to_string())
        }
    }
}

/// Returns the result of a connection as its receiver sees it. Adds the failure if only the sender
/// has noticed that the connection failed.
pub(super) fn outcome(run: &Simulation, flow: &Flow, ids: BulkIds) -> Outcome {
    if let Some(Report { completed, bytes, failure, .. }) = report(run, flow, ids) {
        return Outcome { completed, bytes, failure };
    }
    let mut outcome = match flow.protocol {
        Protocol::Quic => run.agent::<BulkReceiver>(ids.receiver).map(|one| one.outcome().clone()),
        Protocol::Tcp => {
            run.agent::<TcpBulkReceiver>(ids.receiver).map(|one| one.outcome().clone())
        }
    }
    .unwrap_or_default();
    if outcome.completed.is_none() && outcome.failure.is_none() {
        let failure = match flow.protocol {
            Protocol::Quic => run.agent::<BulkSender>(ids.sender).and_then(BulkSender::failure),
            Protocol::Tcp => {
                run.agent::<TcpBulkSender>(ids.sender).and_then(TcpBulkSender::failure)
            }
        };
        outcome.failure = failure.map(str::to_owned);
    }
    outcome
}

/// Returns the reason why a hook of either end was detached, or `None` if all hooks are attached.
pub(super) fn failed_hook(run: &Simulation, flow: &Flow, ids: BulkIds) -> Option<String> {
    if flow.protocol == Protocol::Tcp {
        return None;
    }
    let failed = |end: Option<&str>| end.map(str::to_owned);
    if flow.application.is_some() {
        let of = |end| failed(run.agent::<Party>(end).and_then(Party::failed_hook));
        return of(ids.sender).or_else(|| of(ids.receiver));
    }
    let sender = run.agent::<BulkSender>(ids.sender).and_then(BulkSender::failed_hook);
    let receiver = run.agent::<BulkReceiver>(ids.receiver).and_then(BulkReceiver::failed_hook);
    failed(sender.or(receiver))
}

/// Returns the state of the end of a connection that sends most of the data.
pub(super) fn sender(run: &Simulation, flow: &Flow, ids: BulkIds) -> SenderState {
    if flow.application.is_some() {
        return run.agent::<Party>(ids.sender).map(Party::state).unwrap_or_default();
    }
    match flow.protocol {
        Protocol::Quic => run.agent::<BulkSender>(ids.sender).map(BulkSender::state),
        Protocol::Tcp => run.agent::<TcpBulkSender>(ids.sender).map(TcpBulkSender::state),
    }
    .unwrap_or_default()
}

/// Returns the state of each path, as the end that sends most of the data sees it. The list is
/// empty without multipath.
pub(super) fn paths(run: &Simulation, flow: &Flow, ids: BulkIds) -> Vec<PathState> {
    if flow.quic.paths < 2 {
        return Vec::new();
    }
    let paths = match flow.application {
        Some(_) => run.agent::<Party>(ids.sender).map(Party::paths),
        None => run.agent::<BulkSender>(ids.sender).map(BulkSender::paths),
    };
    paths.unwrap_or_default()
}

/// Returns the results of a flow's application, or `None` for a single transfer.
pub(super) fn report(run: &Simulation, flow: &Flow, ids: BulkIds) -> Option<Report> {
    flow.application.as_ref()?;
    let mut report = run.agent::<Party>(ids.receiver)?.report(run.now());
    if report.completed.is_none() && report.failure.is_none() {
        let other = run.agent::<Party>(ids.sender).and_then(Party::failure);
        report.failure = other.map(str::to_owned);
    }
    Some(report)
}

fn tls(options: Tls) -> TlsConfig {
    let Tls { version, resumption, early_data, false_start, certificates } = options;
    let version = match version {
        TlsVersion::Tls12 => equic_sim::tcp::TlsVersion::Tls12,
        TlsVersion::Tls13 => equic_sim::tcp::TlsVersion::Tls13,
    };
    TlsConfig { version, resumption, early_data, false_start, certificates }
}

fn tcp(flow: &Flow, place: &Place) -> TcpConfig {
    let (options, usual) = (&flow.tcp, TcpConfig::default());
    let window = place.window_of(flow);
    TcpConfig {
        congestion: flow.controller.factory(),
        mss: options.mss.unwrap_or(place.mss),
        initial_window: options.initial_window.unwrap_or(usual.initial_window),
        sack: options.sack.unwrap_or(usual.sack),
        timestamps: options.timestamps.unwrap_or(usual.timestamps),
        window_scaling: options.window_scaling.unwrap_or(usual.window_scaling),
        ecn: options.ecn,
        pacing: options.pacing.unwrap_or(usual.pacing),
        receive_buffer: window,
        send_buffer: window,
        min_rto: options.min_rto.unwrap_or(usual.min_rto),
        delayed_ack: options.delayed_ack.unwrap_or(usual.delayed_ack),
        tail_loss_probe: options.tail_loss_probe.unwrap_or(usual.tail_loss_probe),
        fast_open: options.fast_open,
        ..usual
    }
}
