//! Measures one point of each figure in real time. Client and server run in separate network
//! namespaces, with the kernel's sockets, TLS and the real clock. The network between them is the
//! simulator's.
//!
//! * `stage`: hosts, network and endpoints. `session`: a connection between the endpoints.

mod session;
mod stage;

use std::sync::Arc;
use std::time::{Duration, Instant};

use equic_netns::emulation::Lateness;
use equic_plugin_kit::paper::{AckPath, Marking, Timer, cap};
use equic_quic::{StreamConfig, TransportConfig};
use equic_sim::{Direction, Limit, Queue, Red};

use super::data::{AckArm, AckPaths, Caps, DownloadArm, Downloads, RealTime, RequestArm, Requests};
use super::part::{ASYMMETRIC, ASYMMETRIC_RTT, DOWNLOAD_RTT, RATE, REQUEST_RTT, failed, rounded};
use crate::failure::Result;
use crate::signals::runtime;
use session::Session;
use stage::{Both, LiveNetwork};

/// Number of threads that client and server share.
const THREADS: usize = 2;
/// Maximum time for a download.
const PATIENCE: Duration = Duration::from_secs(120);
/// Maximum delay of acknowledgements when requests are measured, in milliseconds.
const ACK_DELAY: u64 = 10;
/// Limit on unsent and unacknowledged data with two paths, in bytes. It is the same as in virtual
/// time.
const WINDOW: u64 = 16 << 20;

/// Measures one point of each figure. All of them take about two minutes.
pub(super) fn play(quick: bool) -> Result<RealTime> {
    runtime(Some(THREADS))?.block_on(async {
        let (figure3, first) = requests(if quick { 2 } else { 20 }).await?;
        let (figure4, second) = downloads(if quick { 300_000 } else { 5_000_000 }).await?;
        let (figure5, third) = ack_paths(if quick { 300_000 } else { 20_000_000 }).await?;
        let (figure6, fourth) = caps(quick).await?;
        let late_ms = [first, second, third, fourth];
        Ok(RealTime { figure3, figure4, figure5, figure6, late_ms })
    })
}

/// Returns the 99th percentile of the packets' lateness, in milliseconds.
fn late(one: &Lateness) -> f64 {
    rounded(one.quantile(0.99).unwrap_or_default().as_secs_f64() * 1e3)
}

fn milliseconds(time: Duration) -> f64 {
    rounded(time.as_secs_f64() * 1e3)
}

/// Returns a link that is the same in both directions.
fn alike(direction: Direction) -> Both {
    Both { to_server: direction.clone(), to_client: direction }
}

/// Returns the number of bytes that a link of this rate (bits per second) carries in a time.
fn bytes_in(rate: u64, time: Duration) -> u64 {
    (rate as f64 * time.as_secs_f64() / 8.0) as u64
}

/// Measures requests without jitter and with the shorter of the two acknowledgement delays. Also
/// returns the lateness of packets.
async fn requests(runs: usize) -> Result<(Requests, f64)> {
    // The rate of the link does not matter, because requests have few packets.
    let link = Direction::new(1_000_000_000, Duration::from_millis(REQUEST_RTT) / 2);
    let stage = LiveNetwork::set(&[alike(link)])?;
    let transport = TransportConfig::default()
        .with_max_ack_delay(Duration::from_millis(ACK_DELAY))
        .with_mtu_discovery(false);
    let mut arms = Vec::new();
    for timer in Timer::ALL {
        let push = timer.push().map_err(failed)?;
        let mut arm = RequestArm { timer: timer.into(), completion_ms: Vec::new() };
        for _ in 0..runs {
            let session = stage.connect(transport.clone(), push.as_ref()).await?;
            arm.completion_ms.push(milliseconds(session.lost_request(&stage).await?));
            if push.is_some() {
                session.running()?;
            }
        }
        arms.push(arm);
    }
    let lateness = stage.strike().await?;
    let requests = Requests { rtt_ms: REQUEST_RTT, jitter_ms: 0, ack_delay_ms: ACK_DELAY, arms };
    Ok((requests, late(&lateness)))
}

/// Measures downloads with NewReno and the first of the round-trip times. RED uses the
/// instantaneous queue length. Also returns the lateness of packets.
async fn downloads(bytes: u64) -> Result<(Downloads, f64)> {
    let rtt = Duration::from_millis(DOWNLOAD_RTT);
    let product = bytes_in(RATE, rtt);
    let limit = Limit::Bytes(5 * product);
    let red = Queue::Red(Red {
        limit,
        min_threshold: (2 * product) as f64,
        max_threshold: (5 * product) as f64,
        weight: 1.0,
        max_probability: 1.0,
        gentle: false,
        ecn: true,
        typical_packet: 1_500,
    });
    let mut arms = Vec::new();
    let mut most = 0.0_f64;
    for marking in [Marking::TailDrop, Marking::Plugin, Marking::Native] {
        let queue = if marking == Marking::TailDrop { Queue::DropTail(limit) } else { red };
        let stage = LiveNetwork::set(&[alike(Direction::new(RATE, rtt / 2).queue(queue))])?;
        let transport = TransportConfig::default()
            .with_ecn(marking == Marking::Native)
            .with_congestion(Arc::new(equic_quic::congestion::Algorithm::NewReno));
        let push = marking.push().map_err(failed)?;
        let session = stage.connect(transport, push.as_ref()).await?;
        let mut arm = DownloadArm::of(marking.into());
        let took = session.download(bytes, PATIENCE).await?;
        arm.completion_s.push(rounded(took.as_secs_f64()));
        arm.lost.push(session.server.stats().packets_lost);
        if push.is_some() {
            session.running()?;
        }
        arms.push(arm);
        most = most.max(late(&stage.strike().await?));
    }
    let (controller, rtt_ms) = ("NewReno".to_owned(), vec![DOWNLOAD_RTT]);
    Ok((Downloads { controller, bytes, rate: RATE, rtt_ms, arms }, most))
}

/// Returns a configuration whose windows exceed what two paths and their queues can hold.
fn wide(ack_frequency: bool) -> TransportConfig {
    let streams = StreamConfig::default()
        .with_max_stream_window(WINDOW)
        .with_max_connection_window(WINDOW)
        .with_send_buffer(WINDOW)
        .with_connection_send_buffer(WINDOW);
    TransportConfig::default().with_streams(streams).with_ack_frequency(ack_frequency)
}

/// Measures downloads over two asymmetric paths with the first of the round-trip times. Every
/// second packet is acknowledged. Also returns the lateness of packets.
async fn ack_paths(bytes: u64) -> Result<(AckPaths, f64)> {
    let [down, up] = ASYMMETRIC;
    let rtt = Duration::from_millis(ASYMMETRIC_RTT);
    let way = |rate: u64, queue: u64| {
        let limit = bytes_in(rate, Duration::from_millis(queue));
        Direction::new(rate, rtt / 2).queue(Queue::DropTail(Limit::Bytes(limit)))
    };
    let links =
        [0, 1].map(|at| Both { to_server: way(up[at], 1_000), to_client: way(down[at], 100) });
    let (mut arms, mut most) = (Vec::new(), 0.0_f64);
    for acks in AckPath::ALL {
        let stage = LiveNetwork::set(&links)?;
        let push = acks.push().map_err(failed)?;
        let session = stage.connect(wide(false), push.as_ref()).await?;
        let before = Session::sent(&session.client);
        let took = session.download(bytes, PATIENCE).await?;
        let after = Session::sent(&session.client);
        if push.is_some() {
            session.running()?;
        }
        arms.push(AckArm {
            completion_s: vec![rounded(took.as_secs_f64())],
            sent: vec![[after[0] - before[0], after[1] - before[1]]],
        });
        most = most.max(late(&stage.strike().await?));
    }
    let (first, same) = (arms.pop().unwrap_or_default(), arms.pop().unwrap_or_default());
    let rtt_ms = vec![ASYMMETRIC_RTT];
    Ok((AckPaths { bytes, down, up, ack_frequency: false, rtt_ms, same, first }, most))
}

/// Measures a download over two paths, during which the client pushes plugins that cap the server's
/// rate. Each cap replaces the previous one. Also returns the lateness of packets.
async fn caps(quick: bool) -> Result<(Caps, f64)> {
    let plan = Caps::planned(quick);
    let rtt = Duration::from_millis(plan.rtt_ms);
    let queue = Queue::DropTail(Limit::Bytes(bytes_in(plan.rate, rtt)));
    let links = [(); 2].map(|()| alike(Direction::new(plan.rate, rtt / 2).queue(queue)));
    let stage = LiveNetwork::set(&links)?;
    // The plugins are compiled before the clock starts.
    let caps: Result<Vec<_>> = (plan.caps.iter())
        .map(|(at, rate)| Ok((Duration::from_millis(*at), cap(*rate).map_err(failed)?)))
        .collect();
    let mut caps = caps?.into_iter().peekable();
    let mut session = stage.connect(wide(true), None).await?;
    session.download_on();
    let begun = Instant::now();
    let (mut rates, mut before) = (Vec::new(), (begun, Session::sent(&session.server)));
    for interval in 1..=plan.length_ms / plan.interval_ms {
        while let Some((_, push)) = caps.next_if(|(at, _)| *at <= begun.elapsed()) {
            session.offer(push)?;
        }
        let until = begun + Duration::from_millis(interval * plan.interval_ms);
        tokio::time::sleep_until(until.into()).await;
        let now = (Instant::now(), Session::sent(&session.server));
        // This is the real length of the interval, which may be longer than planned on a busy
        // machine.
        let seconds = now.0.duration_since(before.0).as_secs_f64().max(1e-3);
        rates.push(
            [0, 1].map(|path: usize| ((now.1[path] - before.1[path]) as f64 / seconds).round()),
        );
        before = now;
    }
    session.settled().await?;
    drop(session);
    let lateness = stage.strike().await?;
    Ok((Caps { rates, ..plan }, late(&lateness)))
}
