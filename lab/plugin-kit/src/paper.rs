//! Experiments of "The Case for Protocol Plugins" (De Coninck and Bonaventure, 2019), repeated on
//! connections in memory. In each, one end pushes a plugin to the other. The first experiment is a
//! request whose packet is lost (the paper's figure 3). The second is a download through a router
//! that marks or drops packets (figure 4). The module `paths` has downloads over two paths (figures
//! 5 and 6).

mod paths;

use std::sync::Arc;
use std::time::Duration;

use equic_net::{Link, Queue};
use equic_plugin::exchange::{Progress, Push};
use equic_plugin::{PackError, Policy, pack};
use equic_transport::congestion::Algorithm;
use equic_transport::{Connection, Direction, ReadOutcome, StreamId, TransportConfig};

use crate::clang::compile_text;
use crate::network::{End, Network};
use crate::pair::{Pair, TrialError, key};
use crate::tree::Source;

pub use paths::{AckPath, Asymmetric, Capped, asymmetric, cap, capped};

/// Returns the policy of both ends in these experiments. It permits every plugin that the
/// experiments push.
///
/// # Errors
/// Returns no error, unless this crate has a fault.
pub fn policy() -> Result<Policy, TrialError> {
    crate::pair::policy()
}

/// Maximum virtual time for one request or download.
const PATIENCE: Duration = Duration::from_secs(600);

/// Size of a request and size of its answer, in bytes. Each of them fits into one packet.
const REQUEST: [usize; 2] = [100, 1_000];

/// C code and manifest of a plugin that implements the retransmission timers of the paper's time.
const TIMER: [&str; 2] = [
    include_str!("../../results/protocol-plugins/timer.c"),
    include_str!("../../results/protocol-plugins/timer.toml"),
];

/// The timer after which a client retransmits a lost request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// The retransmission timer of picoquic in 2018: RTT + 4 times the RTT variation + the peer's
    /// acknowledgement delay, at least 50 ms.
    Picoquic,
    /// The timer of picoquic, preceded by the tail loss probe of the paper's plugin.
    PicoquicProbe,
    /// The retransmission timer in the text of the paper: the same formula as picoquic's, but
    /// without a minimum.
    Formula,
    /// The probe timeout of RFC 9002 s.6.2, without a plugin.
    ProbeTimeout,
    /// The probe timeout of RFC 9002, preceded by the probe of the plugin `tail-loss-probe` of this
    /// source tree.
    TailLossProbe,
}

impl Timer {
    /// All timers.
    pub const ALL: [Timer; 5] = [
        Timer::Picoquic,
        Timer::PicoquicProbe,
        Timer::Formula,
        Timer::ProbeTimeout,
        Timer::TailLossProbe,
    ];

    /// Returns the plugin that the server pushes to the client, or `None` if this timer needs no
    /// plugin.
    ///
    /// # Errors
    /// The plugin cannot be built.
    pub fn push(self) -> Result<Option<Arc<Push>>, TrialError> {
        let timer = |least: &str, probe: u8| -> Result<Vec<u8>, TrialError> {
            let text = format!("#define LEAST ({least})\n#define PROBE {probe}\n{}", TIMER[0]);
            let object = compile_text("timer", &text).map_err(TrialError::of)?;
            pack(TIMER[1], &object, Some(&key()?)).map_err(|error: PackError| TrialError::of(error))
        };
        let bundle = match self {
            Timer::Picoquic => timer("50 * EQUIC_MILLISECOND", 0)?,
            Timer::PicoquicProbe => timer("50 * EQUIC_MILLISECOND", 1)?,
            Timer::Formula => timer("0", 0)?,
            Timer::ProbeTimeout => return Ok(None),
            Timer::TailLossProbe => of_the_tree("tail-loss-probe")?,
        };
        Ok(Some(Arc::new(Push::new(&bundle).map_err(TrialError::of)?)))
    }
}

/// Returns the signed bundle of a plugin of this source tree.
fn of_the_tree(name: &str) -> Result<Vec<u8>, TrialError> {
    let source = Source::find(name);
    source.ok_or_else(|| TrialError::of("the tree has no such plugin"))?.bundle(Some(&key()?))
}

/// The network path of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequestPath {
    /// Mean round-trip time.
    pub rtt: Duration,
    /// Maximum deviation of a packet's delay from the mean, in each direction. It is at most half
    /// of `rtt`.
    pub jitter: Duration,
    /// Maximum time by which an end delays its acknowledgements (`max_ack_delay`).
    pub ack_delay: Duration,
}

/// Connects a client to a server over `path`, and pushes `push` from the server to the client. The
/// client then sends one request, whose packet is lost once. Returns the time until the client has
/// read the answer.
///
/// # Errors
/// The plugin does not run, or no answer arrives.
pub fn lost_request(
    push: Option<&Arc<Push>>,
    path: &RequestPath,
    seed: u64,
) -> Result<Duration, TrialError> {
    let delay = (path.rtt / 2).saturating_sub(path.jitter);
    let link = Link { delay, jitter: 2 * path.jitter, ..Link::default() };
    // No probes for larger packets are sent, because such a probe could be lost instead of the
    // request.
    let transport =
        TransportConfig::default().with_max_ack_delay(path.ack_delay).with_mtu_discovery(false);
    let mut pair = connect(&link, &transport, push, seed)?;
    pair.network.pass(Duration::from_millis(100)).map_err(TrialError::of)?;
    pair.network.lose(End::Client, &[0]);
    let begun = pair.network.elapsed();
    let mut exchange = Request::begin(&mut pair.network)?;
    let why = "the answer to the request did not arrive in time";
    let done = |network: &mut Network| exchange.go_on(network);
    pair.network.run_until(PATIENCE, why, done).map_err(TrialError::of)?;
    if let Some(why) = exchange.wrong {
        return Err(TrialError::of(why));
    }
    let took = pair.network.elapsed() - begun;
    runs(&pair, push)?;
    Ok(took)
}

fn connect(
    link: &Link,
    transport: &TransportConfig,
    push: Option<&Arc<Push>>,
    seed: u64,
) -> Result<Pair, TrialError> {
    let both = [transport.clone(), transport.clone()];
    let pushed = push.into_iter().cloned().collect();
    let mut pair = Pair::connect(link, both, pushed, policy()?, seed)?;
    if push.is_some() {
        pair.settle()?;
    }
    Ok(pair)
}

/// Returns an error if the client no longer runs the plugin that was pushed to it.
fn runs(pair: &Pair, push: Option<&Arc<Push>>) -> Result<(), TrialError> {
    let standing = pair.standings(End::Client).pop();
    let active = standing.as_ref().is_some_and(|one| one.progress == Progress::Active);
    if push.is_some() && !active {
        return Err(TrialError::of(format!("the plugin does not run: {standing:?}")));
    }
    Ok(())
}

/// A request on a new stream, and its answer.
struct Request {
    stream: StreamId,
    /// The request's stream at the server, or `None` until its first packet has arrived there.
    accepted: Option<StreamId>,
    /// Number of bytes that have been read: of the request by the server, and of the answer by the
    /// client.
    read: [usize; 2],
    wrong: Option<String>,
}

impl Request {
    fn begin(network: &mut Network) -> Result<Request, TrialError> {
        let client = network.connection(End::Client);
        let client = client.ok_or_else(|| TrialError::of("there is no connection"))?;
        let stream = client.open(Direction::Bidirectional);
        let stream = stream.ok_or_else(|| TrialError::of("no stream can be opened"))?;
        say(client, stream, REQUEST[0]).map_err(TrialError::of)?;
        Ok(Request { stream, accepted: None, read: [0, 0], wrong: None })
    }

    /// Continues the request. Returns `true` when the answer has arrived or an error has occurred.
    fn go_on(&mut self, network: &mut Network) -> bool {
        self.step(network).unwrap_or_else(|error| {
            self.wrong = Some(error);
            true
        })
    }

    fn step(&mut self, network: &mut Network) -> Result<bool, String> {
        if let Some(server) = network.connection(End::Server) {
            self.accepted = self.accepted.or_else(|| server.accept(Direction::Bidirectional));
            if let Some(stream) = self.accepted.filter(|_| self.read[0] < REQUEST[0]) {
                hear(server, stream, &mut self.read[0])?;
                if self.read[0] == REQUEST[0] {
                    say(server, stream, REQUEST[1])?;
                }
            }
        }
        let Some(client) = network.connection(End::Client) else { return Ok(false) };
        hear(client, self.stream, &mut self.read[1])?;
        Ok(self.read[1] == REQUEST[1])
    }
}

fn say(end: &mut Connection, stream: StreamId, bytes: usize) -> Result<(), String> {
    let wrote = end.streams().write(stream, &vec![0; bytes]).map_err(|error| error.to_string())?;
    if wrote != bytes {
        return Err(format!("only {wrote} of {bytes} bytes were accepted"));
    }
    end.streams().finish(stream).map_err(|error| error.to_string())
}

fn hear(end: &mut Connection, stream: StreamId, read: &mut usize) -> Result<(), String> {
    let mut buffer = [0; 2048];
    while let ReadOutcome::Bytes(count) =
        end.streams().read(stream, &mut buffer).map_err(|error| error.to_string())?
    {
        *read += count;
    }
    Ok(())
}

/// How the router at the bottleneck signals congestion, and how the ends react.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marking {
    /// The router only drops packets, when its queue is full. The ends do not use ECN.
    TailDrop,
    /// The router also marks packets that wait long. The plugin `ecn`, which runs at both ends,
    /// reacts to marks. The transport itself does not.
    Plugin,
    /// The router also marks packets that wait long. The transport at both ends uses ECN as in RFC
    /// 9000 s.13.4, without a plugin.
    Native,
    /// Like [`Marking::Plugin`], but the router compares RED's average waiting time (Floyd and
    /// Jacobson, 1993), instead of each packet's own waiting time.
    Averaged,
}

/// Weight of a packet in the average of RED, as in the RED paper.
const RED_WEIGHT: f64 = 0.002;

impl Marking {
    /// All ways of marking.
    pub const ALL: [Marking; 4] =
        [Marking::TailDrop, Marking::Plugin, Marking::Native, Marking::Averaged];

    /// Returns the plugin that the server pushes to the client, or `None` if this way of marking
    /// needs no plugin.
    ///
    /// # Errors
    /// The plugin cannot be built.
    pub fn push(self) -> Result<Option<Arc<Push>>, TrialError> {
        if matches!(self, Marking::TailDrop | Marking::Native) {
            return Ok(None);
        }
        let push = Push::new(&of_the_tree("ecn")?).map_err(TrialError::of)?;
        Ok(Some(Arc::new(push.at_both_ends())))
    }
}

/// The network path of a download.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DownloadPath {
    /// Rate of the bottleneck, in bits per second.
    pub rate: u64,
    /// Round-trip time without the queue.
    pub rtt: Duration,
    /// Congestion control algorithm of both ends.
    pub controller: Algorithm,
}

/// Results of a download.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Download {
    /// Time until the client has read the last byte.
    pub took: Duration,
    /// Number of packets that the server declared lost.
    pub lost: u64,
    /// Mean time that the server's packets waited in the bottleneck's queue.
    pub waited: Duration,
}

/// Pushes the plugin `push` to the client, and then downloads `bytes` bytes. The bottleneck's queue
/// holds five bandwidth-delay products. Unless `marking` is [`Marking::TailDrop`], the router marks
/// packets when more than two bandwidth-delay products are in the queue, like RED with two equal
/// thresholds. It uses each packet's waiting time, or with [`Marking::Averaged`] the average.
///
/// # Errors
/// The plugin does not run, or the download is not complete.
pub fn download(
    marking: Marking,
    push: Option<&Arc<Push>>,
    path: &DownloadPath,
    bytes: u64,
    seed: u64,
) -> Result<Download, TrialError> {
    let link = Link {
        rate: Some(path.rate),
        delay: path.rtt / 2,
        queue: Queue::Time(5 * path.rtt),
        overhead: 28,
        ..Link::default()
    };
    let transport = TransportConfig::default()
        .with_ecn(marking == Marking::Native)
        .with_congestion(Arc::new(path.controller));
    let mut pair = connect(&link, &transport, push, seed)?;
    match marking {
        Marking::TailDrop => {}
        Marking::Plugin | Marking::Native => pair.network.mark_above(2 * path.rtt),
        Marking::Averaged => pair.network.mark_above_average(2 * path.rtt, RED_WEIGHT),
    }
    let took = pair.network.transfer(End::Server, bytes, PATIENCE).map_err(TrialError::of)?;
    runs(&pair, push)?;
    let waited = pair.network.mean_wait(End::Server);
    let server = pair.network.connection(End::Server);
    let stats = server.ok_or_else(|| TrialError::of("there is no connection"))?.stats();
    Ok(Download { took, lost: stats.packets_lost, waited })
}
