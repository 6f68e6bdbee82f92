//! Carries out one run of a scenario in real time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use equic_experiments::identity::Identity;
use equic_netns::emulation::{Emulation, Lateness, Live, Settings};
use equic_netns::{Lab, Namespace, TcpSettings};
use equic_scenario::results::{FlowOutcome, PortOutcome, RunOutcome, TrafficOutcome};
use equic_scenario::{Flow, Place, Protocol, Scenario};
use equic_sim::{FlowId, NodeId, Simulation};
use tokio::sync::Notify;

use super::plugins::Plugins;
use super::quic::Quic;
use super::refuse::{kernel_name, mtu};
use super::tcp::Tcp;
use super::transfer::{Sender, Transfer};
use crate::failure::{Failure, Result};
use crate::signals::runtime;

/// Number of threads that run both endpoints of all connections.
const THREADS: usize = 2;
/// Interval at which the progress of the run is checked.
const LOOK: Duration = Duration::from_millis(100);
/// Time to send CONNECTION_CLOSE frames before the hosts are removed. All results were read before,
/// so none depends on this time.
const FAREWELL: Duration = Duration::from_millis(50);

/// A finished run, with additional results that exist only in real time.
pub(super) struct Played {
    pub(super) outcome: RunOutcome,
    /// For each connection, the keys of results that the kernel does not report.
    pub(super) untold: Vec<Vec<&'static str>>,
    pub(super) late: Lateness,
}

/// A connection of the run.
struct Connection<'a> {
    flow: &'a Flow,
    copy: usize,
    start: Duration,
    transfer: Arc<Transfer>,
    ends: Ends,
}

enum Ends {
    Quic(Quic),
    Tcp(Tcp),
}

/// Runs a scenario with one seed. Calls `progress` with the completed share of the run, from 0 to
/// 1.
pub(super) fn play(
    scenario: &Scenario,
    place: &Place,
    seed: u64,
    progress: &dyn Fn(f64),
) -> Result<Played> {
    let nodes: Vec<(NodeId, NodeId)> = place.flows.iter().flatten().copied().collect();
    let lab = Lab::builder("run").clients(Emulation::hosts_for(&nodes) - 1).build()?;
    let tcp = scenario.flows.iter().find(|flow| flow.protocol == Protocol::Tcp);
    let settings = Settings {
        mtu: mtu(place),
        initial_window: tcp.and_then(|flow| flow.tcp.initial_window),
        min_rto: tcp.and_then(|flow| flow.tcp.min_rto),
        // A flow with one path uses the first interface, which is also the one that the host's
        // routes select.
        interfaces: scenario.flows.iter().map(|flow| flow.quic.paths as u16).max().unwrap_or(1),
    };
    let run = Simulation::new(place.topology.clone(), seed)?;
    let mut emulation = Emulation::prepare(&lab, run, &nodes, &settings)?;
    // Attach background traffic after the connections, as the simulator does in virtual time, so
    // that the traffic gets the same random numbers.
    let traffic = place.attach_traffic(emulation.network(), scenario).map_err(Failure::new)?;
    if let Some(flow) = tcp {
        emulation.hosts().iter().try_for_each(|host| set_up(host, flow, place))?;
    }
    let played = runtime(Some(THREADS))?.block_on(async {
        let over = Arc::new(Notify::new());
        let connections = connect(scenario, place, &emulation, &over)?;
        let live = emulation.begin()?;
        let started = live.start();
        for one in &connections {
            let at = (started + one.start).into();
            match &one.ends {
                Ends::Quic(quic) => quic.spawn(at, &one.transfer),
                Ends::Tcp(tcp) => tcp.spawn(at, &one.transfer),
            }
        }
        wait(scenario, &connections, &live, &over, progress).await;
        let ended = Instant::now();
        let senders: Vec<Sender> = connections.iter().map(|one| one.ends.sender()).collect();
        for one in &connections {
            if let Ends::Quic(quic) = &one.ends {
                quic.close();
            }
        }
        tokio::time::sleep(FAREWELL).await;
        let report = live.stop()?;
        let flow = |index: usize, (there, _): (FlowId, FlowId)| {
            let (one, sender) = (&connections[index], &senders[index]);
            outcome(one, sender, &report.run, (there, place.window_of(one.flow)), ended)
        };
        let outcome = RunOutcome {
            seed,
            ended: ended.duration_since(started).as_secs_f64(),
            events: report.run.events(),
            flows: report.flows.iter().enumerate().map(|(at, ids)| flow(at, *ids)).collect(),
            traffic: TrafficOutcome::of_all(&report.run, scenario, &traffic),
            ports: PortOutcome::of_all(&report.run, &place.ports()),
        };
        let untold = senders.iter().map(untold).collect();
        Ok::<_, Failure>(Played { outcome, untold, late: report.lateness })
    })?;
    lab.close()?;
    Ok(played)
}

/// Sets those kernel parameters of a host that the scenario's TCP flows need.
fn set_up(host: &Namespace, flow: &Flow, place: &Place) -> Result {
    let options = &flow.tcp;
    let window = options.window.unwrap_or_else(|| place.window());
    // In a receive buffer, the kernel also counts its own data about each payload, so only half of
    // the buffer is available as window.
    let bytes = |times: u64| (times * window).min(i32::MAX as u64);
    let onoff = |on: bool| if on { "1" } else { "0" }.to_owned();
    let parameters = [
        ("tcp_rmem", Some(format!("4096 131072 {}", bytes(2).max(131_072)))),
        ("tcp_wmem", Some(format!("4096 16384 {}", bytes(4).max(16_384)))),
        ("tcp_sack", options.sack.map(onoff)),
        ("tcp_timestamps", options.timestamps.map(onoff)),
        ("tcp_window_scaling", options.window_scaling.map(onoff)),
        // With the value 2, a host uses ECN only if its peer requests it.
        ("tcp_ecn", Some(if options.ecn { "1" } else { "2" }.to_owned())),
        (
            "tcp_early_retrans",
            options.tail_loss_probe.map(|on| if on { "3" } else { "0" }.to_owned()),
        ),
    ];
    for (name, value) in parameters {
        if let Some(value) = value {
            host.set_sysctl(&format!("net/ipv4/{name}"), &value)?;
        }
    }
    Ok(())
}

/// Creates the endpoints of all connections. Must be called inside a tokio runtime.
fn connect<'a>(
    scenario: &'a Scenario,
    place: &Place,
    emulation: &Emulation,
    over: &Arc<Notify>,
) -> Result<Vec<Connection<'a>>> {
    let identity = Identity::new()?;
    let mut connections = Vec::new();
    for flow in &scenario.flows {
        let plugins = Plugins::load(&flow.quic)?;
        for copy in 0..flow.count {
            let index = connections.len();
            let ((client, from), (server, at)) = (emulation.client(index), emulation.server(index));
            let ends = match flow.protocol {
                Protocol::Quic => {
                    let sockets =
                        (client.udp_socket_nonblocking(from)?, server.udp_socket_nonblocking(at)?);
                    let quic = Quic::prepare(sockets, place.quic(flow), &identity, &plugins)?;
                    let further = 1..flow.quic.paths as u16;
                    let addresses = further.map(|at| emulation.client_address(index, at));
                    Ends::Quic(quic.with_paths(client, addresses)?)
                }
                Protocol::Tcp => {
                    let settings = TcpSettings {
                        congestion: Some(kernel_name(flow.controller).to_owned()),
                        mss: flow.tcp.mss,
                        pacing: flow.tcp.pacing.unwrap_or(false),
                    };
                    let listener = server.tcp_listener(at, &settings)?;
                    Ends::Tcp(Tcp::prepare(client.tcp_socket(from, &settings)?, listener)?)
                }
            };
            connections.push(Connection {
                flow,
                copy: copy + 1,
                start: flow.start + flow.stagger * copy as u32,
                transfer: Arc::new(Transfer::new(flow.size, Arc::clone(over))),
                ends,
            });
        }
    }
    Ok(connections)
}

/// Waits until all transfers have ended, the time limit is reached, or the network has failed.
async fn wait(
    scenario: &Scenario,
    connections: &[Connection<'_>],
    live: &Live,
    over: &Notify,
    progress: &dyn Fn(f64),
) {
    while !connections.iter().all(|one| one.transfer.is_over()) {
        let left = scenario.limit.saturating_sub(live.start().elapsed());
        if left.is_zero() || live.is_over() {
            return;
        }
        // The result does not matter, because the loop checks the state after any wake-up or
        // timeout.
        let _ = tokio::time::timeout(left.min(LOOK), over.notified()).await;
        let shares: Option<Vec<f64>> = connections.iter().map(|one| one.transfer.share()).collect();
        progress(match shares {
            Some(shares) => shares.iter().sum::<f64>() / shares.len() as f64,
            None => live.start().elapsed().as_secs_f64() / scenario.limit.as_secs_f64(),
        });
    }
}

impl Ends {
    /// Returns why a plugin of either endpoint was detached, or `None` if no plugin failed.
    fn failed_plugin(&self) -> Option<String> {
        match self {
            Ends::Quic(quic) => quic.failed_plugin(),
            Ends::Tcp(_) => None,
        }
    }

    fn sender(&self) -> Sender {
        match self {
            Ends::Quic(quic) => quic.sender(),
            Ends::Tcp(tcp) => tcp.sender(),
        }
    }
}

fn outcome(
    one: &Connection<'_>,
    sender: &Sender,
    run: &Simulation,
    (there, window): (FlowId, u64),
    ended: Instant,
) -> FlowOutcome {
    let (transfer, packets) = (&one.transfer, run.flow_stats(there));
    let since_begun = |end: Instant| Some(end.duration_since(transfer.begun()?).as_secs_f64());
    let completion = transfer.completed().and_then(since_begun);
    let seconds = completion.or_else(|| since_begun(ended)).unwrap_or(0.0);
    let bytes = transfer.bytes();
    FlowOutcome {
        name: one.flow.name.clone(),
        copy: one.copy,
        completion,
        bytes,
        goodput: if seconds > 0.0 { 8.0 * bytes as f64 / seconds } else { 0.0 },
        packets_sent: sender.packets_sent,
        packets_lost: sender.packets_lost,
        spurious_losses: sender.spurious.unwrap_or(0),
        timeouts: sender.timeouts.unwrap_or(0),
        min_rtt: sender.min_rtt.map(|rtt| rtt.as_secs_f64()),
        dropped: packets.dropped,
        lost: packets.lost,
        marked: packets.marked,
        window,
        window_limited: None,
        failure: transfer.failure().or_else(|| one.ends.failed_plugin()),
        application: None,
    }
}

fn untold(sender: &Sender) -> Vec<&'static str> {
    let told = [("spurious_losses", sender.spurious), ("timeouts", sender.timeouts)];
    told.into_iter().filter(|(_, told)| told.is_none()).map(|(key, _)| key).collect()
}
