//! Experiments of "The Case for Protocol Plugins" (De Coninck and Bonaventure, 2019) on connections in memory, where one end
//! pushes the plugin to the other: a request whose packet is lost (its figure 3), and a download over a router
//! that marks packets or drops them (its figure 4). `paths`: downloads over two paths (figures 5 and 6).

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

/// Policy of the ends of these experiments, which lets all that is pushed in them run.
///
/// # Errors
/// Never: it is a fault of this crate.
pub fn policy() -> Result<Policy, TrialError> {
    crate::pair::policy()
}

/// Virtual time for one request or download.
const PATIENCE: Duration = Duration::from_secs(600);

/// Bytes of a request, and of its answer: a packet each.
const REQUEST: [usize; 2] = [100, 1_000];

/// Text in C of the timers of the paper's time, and its manifest.
const TIMER: [&str; 2] = [
    include_str!("../../../experiments/plugins/timer.c"),
    include_str!("../../../experiments/plugins/timer.toml"),
];

/// Timer after which a client sends a lost request again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// The retransmission timer of picoquic in 2018: RTT + 4 variations + the peer's delay of acknowledgements, and
    /// 50 ms at least.
    Picoquic,
    /// That timer with the tail loss probe before it, as in the paper's plugin.
    PicoquicProbe,
    /// The retransmission timer as the paper's text has it: the same formula, without a least time.
    Formula,
    /// Today's probe timeout (RFC 9002 s.6.2), without any plugin.
    ProbeTimeout,
    /// The plugin `tail-loss-probe` of the tree, over today's probe timeout.
    TailLossProbe,
}

impl Timer {
    /// All of them.
    pub const ALL: [Timer; 5] = [
        Timer::Picoquic,
        Timer::PicoquicProbe,
        Timer::Formula,
        Timer::ProbeTimeout,
        Timer::TailLossProbe,
    ];

    /// Returns the plugin that the server pushes to the client, or `None` if it pushes none.
    ///
    /// # Errors
    /// The plugin is not built.
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

/// The signed bundle of a plugin of the tree.
fn of_the_tree(name: &str) -> Result<Vec<u8>, TrialError> {
    let source = Source::find(name);
    source.ok_or_else(|| TrialError::of("the tree has no such plugin"))?.bundle(Some(&key()?))
}

/// The path of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequestPath {
    /// Mean round-trip time.
    pub rtt: Duration,
    /// Time by which packets are later or earlier than the mean at most, in each direction; at most half of `rtt`.
    pub jitter: Duration,
    /// Longest time for which an end delays acknowledgements (`max_ack_delay`).
    pub ack_delay: Duration,
}

/// Connects a client and a server over `path`, has the server push `push`, and sends one request whose packet is lost, once.
/// Returns the time until the client has read the answer.
///
/// # Errors
/// The plugin does not run, or no answer comes.
pub fn lost_request(
    push: Option<&Arc<Push>>,
    path: &RequestPath,
    seed: u64,
) -> Result<Duration, TrialError> {
    let delay = (path.rtt / 2).saturating_sub(path.jitter);
    let link = Link { delay, jitter: 2 * path.jitter, ..Link::default() };
    // A probe for a larger packet would be lost in the place of the request.
    let transport = TransportConfig {
        max_ack_delay: path.ack_delay,
        mtu_discovery: false,
        ..TransportConfig::default()
    };
    let mut pair = connect(&link, &transport, push, seed)?;
    pair.network.pass(Duration::from_millis(100)).map_err(TrialError::of)?;
    pair.network.lose(End::Client, &[0]);
    let begun = pair.network.elapsed();
    let mut exchange = Request::begin(&mut pair.network)?;
    let why = "the answer to the request is not complete";
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

/// Fails unless the client still runs what was pushed to it.
fn runs(pair: &Pair, push: Option<&Arc<Push>>) -> Result<(), TrialError> {
    let standing = pair.standings(End::Client).pop();
    let active = standing.as_ref().is_some_and(|one| one.progress == Progress::Active);
    if push.is_some() && !active {
        return Err(TrialError::of(format!("the plugin does not run: {standing:?}")));
    }
    Ok(())
}

/// A request on a stream of its own, and its answer.
struct Request {
    stream: StreamId,
    /// The stream as the server has it, once it has come.
    accepted: Option<StreamId>,
    /// Bytes that the server and the client have read.
    read: [usize; 2],
    wrong: Option<String>,
}

impl Request {
    fn begin(network: &mut Network) -> Result<Request, TrialError> {
        let client = network.connection(End::Client);
        let client = client.ok_or_else(|| TrialError::of("there is no connection"))?;
        let stream = client.open(Direction::Bidirectional);
        let stream = stream.ok_or_else(|| TrialError::of("no stream may be opened"))?;
        say(client, stream, REQUEST[0]).map_err(TrialError::of)?;
        Ok(Request { stream, accepted: None, read: [0, 0], wrong: None })
    }

    /// True if it is over: the answer has come, or something is wrong.
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
    let wrote = end.write(stream, &vec![0; bytes]).map_err(|error| error.to_string())?;
    if wrote != bytes {
        return Err(format!("{wrote} of {bytes} bytes were taken"));
    }
    end.streams().finish(stream).map_err(|error| error.to_string())
}

fn hear(end: &mut Connection, stream: StreamId, read: &mut usize) -> Result<(), String> {
    let mut buffer = [0; 2048];
    while let ReadOutcome::Bytes(count) =
        end.read(stream, &mut buffer).map_err(|error| error.to_string())?
    {
        *read += count;
    }
    Ok(())
}

/// Marking by the router before the bottleneck, and the reaction of the ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marking {
    /// It drops what finds the queue full; the ends are without ECN.
    TailDrop,
    /// It marks what waits long, too; the plugin `ecn` at both ends heeds marks, which the ends themselves do not.
    Plugin,
    /// It marks what waits long, too; the ends have ECN as RFC 9000 s.13.4 has it, and no plugin.
    Native,
    /// As [`Marking::Plugin`], by the average of a router with RED (Floyd and Jacobson, 1993) rather than by what each packet
    /// waits.
    Averaged,
}

/// Weight of a packet in RED's average: that of its paper.
const RED_WEIGHT: f64 = 0.002;

impl Marking {
    /// All of them.
    pub const ALL: [Marking; 4] =
        [Marking::TailDrop, Marking::Plugin, Marking::Native, Marking::Averaged];

    /// Returns the plugin that the server pushes to the client, or `None` if it pushes none.
    ///
    /// # Errors
    /// The plugin is not built.
    pub fn push(self) -> Result<Option<Arc<Push>>, TrialError> {
        if matches!(self, Marking::TailDrop | Marking::Native) {
            return Ok(None);
        }
        let push = Push::new(&of_the_tree("ecn")?).map_err(TrialError::of)?;
        Ok(Some(Arc::new(push.at_both_ends())))
    }
}

/// The path of a download.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DownloadPath {
    /// Rate of the bottleneck, in bits a second.
    pub rate: u64,
    /// Round-trip time without the queue.
    pub rtt: Duration,
    /// Congestion control of both ends.
    pub controller: Algorithm,
}

/// Figures of a download.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Download {
    /// Time until the client has read the last byte.
    pub took: Duration,
    /// Packets that the server gave up as lost.
    pub lost: u64,
    /// Mean time that the server's packets waited for the bottleneck.
    pub waited: Duration,
}

/// Downloads this many bytes through a queue of five bandwidth-delay products, after the plugin was pushed. The queue marks
/// packets above two products, unless `marking` is [`Marking::TailDrop`], like RED with two equal thresholds, which uses
/// the present or the average length of the queue ([`Marking::Averaged`]).
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
    let transport = TransportConfig {
        ecn: marking == Marking::Native,
        congestion: Arc::new(path.controller),
        ..TransportConfig::default()
    };
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
