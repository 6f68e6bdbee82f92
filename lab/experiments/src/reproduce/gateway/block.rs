//! Measures the cost of rejecting a connection attempt.
//!
//! There are two figures. [`decisions`] measures only the decision: the XDP program with
//! BPF_PROG_TEST_RUN, or the server's admission check in a loop. [`measure`] measures the total
//! cost of an attempt for the protected machine, on the server of a run after its clients have
//! finished. For this, a source that holds as many connections as its quota allows continues to
//! send attempts. The CPU time of the server process and of the XDP program is divided by the
//! number of attempts. The server process receives the datagram, processes QUIC, decides, and may
//! answer.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use equic_gateway::{Config, Gateway, Guard, ObjectSource};
use equic_http3::client::{Failure as Reason, Target};
use equic_http3::{
    Admission as _, AtLimit, Client, ClientConfig, Decision as Admitted, Fingerprint, QuotaConfig,
    Trust, UserSpaceQuota,
};
use equic_netns::Namespace;
use equic_netns::flood::FloodReport;
use equic_netns::flood::frame::udp_frame;
use equic_netns::measure::{self, BpfRuns, NetCounters};

use super::arm::{ArmContext, Processes};
use super::data::{Block, Decision};
use super::plan::{Arm, ExperimentPlan, PARALLEL, PORT, SEQUENTIAL};
use crate::failure::{Failure, Result};
use crate::part::{PATIENCE, Part};
use crate::signals::runtime;

/// Number of additional clients in the lab, for this measurement.
pub(super) const EXTRA: usize = 1;
/// Number of measurements of a decision. Each measurement makes `REPEAT` decisions.
const ROUNDS: usize = 20;
const REPEAT: u32 = 50_000;
/// Minimum share of the attempts that must be rejected. If fewer were rejected, something else was
/// measured.
const SHARE: f64 = 0.9;
/// Time within which the server must close a connection over the quota. It normally takes far less.
const CLOSED: Duration = Duration::from_secs(1);

/// Measures how many nanoseconds a decision takes against a source that has reached its quota, for
/// each arm with a quota.
pub(super) fn decisions() -> Result<Vec<Decision>> {
    let source: SocketAddr = "198.51.100.7:50000".parse()?;
    let quota = UserSpaceQuota::new(QuotaConfig {
        max_connections: super::plan::QUOTA,
        at_limit: AtLimit::Ignore,
        ..QuotaConfig::default()
    })?;
    let _held =
        (0..super::plan::QUOTA).map(|_| quota.opened(source)).collect::<Result<Vec<_>, _>>()?;
    let early = repeated(|| {
        let refused = std::hint::black_box(quota.incoming(std::hint::black_box(source)));
        refused == Admitted::Ignore
    })?;
    let late =
        repeated(|| std::hint::black_box(quota.opened(std::hint::black_box(source))).is_err())?;
    let mut decisions = vec![
        Decision {
            arm: Arm::UserLate,
            method: "loop over the server's admission function".to_owned(),
            nanoseconds: late,
        },
        Decision {
            arm: Arm::UserEarly,
            method: "loop over the server's admission function".to_owned(),
            nanoseconds: early,
        },
    ];
    for arm in [Arm::KernelStrict, Arm::KernelNew] {
        let (gateway, _held) = full(arm, source)?;
        let target: SocketAddr = ([192, 0, 2, 1], PORT).into();
        let frame = udp_frame([2; 6], [4; 6], source, target, &initial())
            .ok_or_else(|| Failure::new("cannot create the packet for the test run"))?;
        let mut nanoseconds = Vec::new();
        for _ in 0..ROUNDS {
            let run = gateway.test_run_repeat(&frame, None, REPEAT)?;
            if run.action != equic_gateway::Action::Drop {
                return Err(Failure::new("the gateway admitted a source that is over its quota"));
            }
            nanoseconds.push(run.duration.as_secs_f64() * 1e9);
        }
        decisions.push(Decision { arm, method: "BPF_PROG_TEST_RUN".to_owned(), nanoseconds });
    }
    Ok(decisions)
}

/// Measures the CPU time of a decision several times. Each decision must be a refusal.
fn repeated(mut refuses: impl FnMut() -> bool) -> Result<Vec<f64>> {
    let mut round = || {
        let begun = thread_cpu()?;
        let refused = (0..REPEAT).filter(|_| refuses()).count();
        let spent = thread_cpu()?.saturating_sub(begun);
        let nanoseconds = spent.as_secs_f64() * 1e9 / f64::from(REPEAT);
        Ok((refused == REPEAT as usize).then_some(nanoseconds))
    };
    let rounds = (0..ROUNDS).map(|_| round()).collect::<Result<Option<Vec<f64>>>>()?;
    rounds.ok_or_else(|| Failure::new("the server admitted a source that is over its quota"))
}

/// Returns the CPU time of this thread.
fn thread_cpu() -> Result<Duration> {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID);
    Ok(time
        .map_err(|error| Failure::because("the clock for CPU time is not available", error))?
        .into())
}

/// Creates a gateway in which a source has reached its limit.
fn full(arm: Arm, source: SocketAddr) -> Result<(Gateway, Vec<Guard>)> {
    let gateway = Gateway::load(&Config::for_port(PORT), ObjectSource::Embedded)?;
    gateway.control().set("max_connections", &super::plan::QUOTA.to_string())?;
    gateway.control().set("policy", arm.policy().unwrap_or("new"))?;
    let service = gateway.ledger()?.service_at(0)?;
    let held = (0..holders(arm)).map(|_| service.opened(source)).collect();
    Ok((gateway, held))
}

/// Returns the number of connections that reach the quota. `strict` compares with `>`, like the
/// paper's algorithm.
fn holders(arm: Arm) -> u32 {
    super::plan::QUOTA + u32::from(arm == Arm::KernelStrict)
}

/// Returns a version 1 Initial packet.
fn initial() -> Vec<u8> {
    let mut datagram = vec![0xc0, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 7, 6, 5, 4, 3, 2, 1];
    datagram.extend([0, 0x44, 0x00]);
    datagram.resize(1200, 0x5a);
    datagram
}

/// Measures the cost of an attempt on the server of a run whose arm has a quota.
///
/// # Errors
/// Also fails if the source could not hold its connections, or if too few attempts were rejected.
pub(super) fn measure(stage: &ArmContext<'_>, arm: Arm, cast: &Processes) -> Result<Block> {
    let host = stage.lab.client(SEQUENTIAL + PARALLEL);
    let holder = Holder::start(host, stage.plan, stage.lab.server(), &cast.pin, holders(arm))?;
    let before = Counters::look(stage, cast)?;
    let sent = if arm == Arm::UserLate {
        holder.attempts(Duration::from_secs_f64(stage.plan.block_s))?
    } else {
        let flood =
            Part::start("flood", &stage.placement(host), &stage.plan.flood(stage.lab.server()))?;
        let report: FloodReport = flood.finish()?.reported("report")?;
        report.sent
    };
    // Fails if the source is no longer at its quota, because the server would then admit attempts.
    holder.attempts(Duration::ZERO)?;
    let after = Counters::look(stage, cast)?;
    drop(holder);
    let attempts = match arm {
        Arm::UserLate => sent,
        Arm::KernelStrict | Arm::KernelNew => after.dropped - before.dropped,
        Arm::None | Arm::UserEarly => after.delivered - before.delivered,
    };
    // Datagrams that overflow the server's socket never reach the early check, so the arm
    // `UserEarly` has no minimum share.
    let share = if arm == Arm::UserEarly { 0.0 } else { SHARE };
    if attempts == 0 || (attempts as f64) < share * sent as f64 {
        return Err(Failure::new(format!(
            "only {attempts} of {sent} connection attempts were rejected"
        )));
    }
    let each = |nanoseconds: f64| nanoseconds / attempts as f64;
    let program = after.program.zip(before.program);
    Ok(Block {
        attempts,
        server_ns: each((after.server - before.server).as_secs_f64() * 1e9),
        kernel_ns: program.map(|(after, before)| each(after.since(before).nanoseconds as f64)),
    })
}

struct Counters {
    server: Duration,
    delivered: u64,
    dropped: u64,
    program: Option<BpfRuns>,
}

impl Counters {
    fn look(stage: &ArmContext<'_>, cast: &Processes) -> Result<Counters> {
        let (mut dropped, mut program) = (0, None);
        if let Some((_, control, _)) = &cast.gateway {
            dropped = control.counters()?.iter().map(|row| row.dropped).sum();
            program = Some(BpfRuns::of(control.program_id())?);
        }
        let server = measure::cpu_time(cast.server.pid());
        Ok(Counters {
            server: server.ok_or_else(|| Failure::new("the server has ended"))?,
            delivered: NetCounters::of(stage.lab.server())?.udp4.in_datagrams,
            dropped,
            program,
        })
    }
}

/// A client that holds as many connections as its quota allows. It runs in a thread inside its
/// namespace. Dropping it closes the connections.
struct Holder {
    /// Channel to the thread, which makes attempts on request. A request has the duration, and a
    /// channel for the number of attempts.
    orders: Option<Sender<(Duration, Sender<Result<u64>>)>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Holder {
    fn start(
        host: &Namespace,
        plan: &ExperimentPlan,
        server: &Namespace,
        pin: &str,
        connections: u32,
    ) -> Result<Holder> {
        let pin: Fingerprint = pin
            .parse()
            .map_err(|error| Failure::because("the server's fingerprint is invalid", error))?;
        let config = ClientConfig {
            trust: Trust::Fingerprint(pin),
            keep_alive: Some(Duration::from_millis(plan.idle_timeout_ms / 4)),
            ..ClientConfig::default()
        };
        let url = format!("https://{}:{PORT}/health", server.ipv4);
        let (orders, inbox) = channel();
        let (ready, is_ready) = channel();
        let host = host.clone();
        let thread = std::thread::spawn(move || {
            let held = host.enter().map_err(Failure::from).and_then(|()| {
                let runtime = runtime(Some(1))?;
                let client = runtime.block_on(async { Client::new(config) })?;
                Ok((runtime, client))
            });
            match held {
                Ok((runtime, client)) => {
                    runtime.block_on(hold(client, url, connections, &ready, inbox));
                }
                // If the receiver was dropped, no one needs the error.
                Err(failure) => drop(ready.send(Err(failure))),
            }
        });
        let holder = Holder { orders: Some(orders), thread: Some(thread) };
        let answer = is_ready.recv_timeout(PATIENCE);
        answer.map_err(|error| {
            Failure::because("cannot open the connections that fill the quota", error)
        })??;
        Ok(holder)
    }

    /// For some time, opens connections one after the other, which the server closes. Returns the
    /// number of attempts. Fails if the quota is no longer held, even with a duration of zero.
    fn attempts(&self, time: Duration) -> Result<u64> {
        let (reply, answer) = channel();
        let gone = || Failure::new("the client that holds the connections of the quota has ended");
        let orders = self.orders.as_ref().ok_or_else(gone)?;
        orders.send((time, reply)).map_err(|_| gone())?;
        answer.recv_timeout(PATIENCE + time).map_err(|_| gone())?
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            // Joining does not fail, because the thread does not panic.
            let _ = thread.join();
        }
    }
}

async fn hold(
    client: Client,
    url: String,
    connections: u32,
    ready: &Sender<Result>,
    inbox: Receiver<(Duration, Sender<Result<u64>>)>,
) {
    let mut held = Vec::new();
    while held.len() < connections as usize {
        match answered(&client, &url).await {
            Ok(connection) => held.push(connection),
            Err(failure) => {
                // If the receiver was dropped, no one needs the error.
                let _ = ready.send(Err(failure));
                return;
            }
        }
    }
    let _ = ready.send(Ok(()));
    // The runtime of this thread also drives the held connections, so the thread must not block.
    loop {
        match inbox.try_recv() {
            Ok((time, reply)) => {
                let tried = in_vain(&client, &url, time).await;
                let open = held.iter().all(equic_http3::Connection::is_open);
                let lost = || Failure::new("the connections that fill the quota were lost");
                let _ = reply.send(if open { tried } else { Err(lost()) });
            }
            Err(std::sync::mpsc::TryRecvError::Empty) => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(std::sync::mpsc::TryRecvError::Disconnected) => return,
        }
    }
}

/// Opens a connection and waits for a response. When this function returns, the server counts the
/// connection.
async fn answered(client: &Client, url: &str) -> Result<equic_http3::Connection> {
    let (target, path) = Target::parse(url)?;
    let connection = client.open(&target).await?;
    connection.get(&path).await?.drain().await?;
    Ok(connection)
}

async fn in_vain(client: &Client, url: &str, time: Duration) -> Result<u64> {
    let (begun, mut refused, mut kept) = (Instant::now(), 0, 0);
    while begun.elapsed() < time {
        // The server may close the connection before HTTP/3 has begun.
        let closed = match client.connect(url).await {
            Ok(connection) => tokio::time::timeout(CLOSED, connection.closed()).await.is_ok(),
            Err(error) if error.failure() == Reason::Refused => true,
            Err(error) => return Err(error.into()),
        };
        *(if closed { &mut refused } else { &mut kept }) += 1;
    }
    if (kept as f64) > (1.0 - SHARE) * refused as f64 {
        return Err(Failure::new(format!(
            "the server kept {kept} connections over the quota and closed {refused}"
        )));
    }
    Ok(refused)
}
