//! Trials of this source tree's plugins. Each trial runs a connection in virtual time, once without
//! a plugin and once with a plugin that should improve the result. In most trials, the server
//! pushes the plugin to a client that has never seen it.

use std::sync::Arc;
use std::time::Duration;

use equic_net::{Chance, Link, Queue};
use equic_plugin::Plugin;
use equic_plugin::exchange::{Progress, Push};
use equic_transport::TransportConfig;
use equic_transport::congestion::Algorithm;

use crate::network::{End, sent_hash};
use crate::pair::{Pair, TrialError, key, policy};
use crate::tree::Source;

mod application;
mod cost;
mod pquic;
mod repair;
mod scheduler;

use application::{messages, nagle, priorities};
pub use cost::{Way, bulk};
pub use pquic::{Extension, Loading, extended, loading, signed};
pub use scheduler::{SchedulerArm, schedule};

/// Maximum virtual time for one transfer.
const PATIENCE: Duration = Duration::from_secs(600);

/// A trial of a plugin. A lower value is better in all trials.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    /// Name of the plugin.
    pub plugin: &'static str,
    /// Description of the network path and of the data.
    pub scenario: &'static str,
    /// Quantity that is measured.
    pub measure: &'static str,
    /// Unit of the quantity. An empty string means that it is a count.
    pub unit: &'static str,
    /// True if the server pushes the plugin to the client. Otherwise the plugin belongs to the
    /// application, which exchanges messages with the plugin.
    pub pushed: bool,
    run: fn(&Setup) -> Result<Run, TrialError>,
}

/// Parameters of one run of a trial.
struct Setup {
    push: Option<(Arc<Push>, &'static str)>,
    /// The plugin, if it belongs to the application and not to the peer.
    own: Option<Plugin>,
    seed: u64,
    /// Divisor of the amount of work. 1 is the full trial.
    part: u64,
}

/// Result of one run of a trial, with or without the plugin.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The quantity that the trial measures, in the trial's unit.
    pub value: f64,
    /// Duration of each transfer, in milliseconds of virtual time.
    pub times: Vec<f64>,
    /// Number of packets that the sender declared lost.
    pub lost: u64,
    /// True if the receiver read exactly the data that was sent, by their SHA-256, in every
    /// transfer.
    pub intact: bool,
}

/// Results of a trial, without the plugin and with it.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The trial.
    pub trial: Trial,
    /// Size of the plugin's bundle, in bytes.
    pub bundle: usize,
    /// Result without the plugin.
    pub without: Run,
    /// Result with the plugin.
    pub with: Run,
}

/// All trials.
pub const TRIALS: &[Trial] = &[
    Trial {
        plugin: "tail-loss-probe",
        scenario: "1,200 requests of 2.5 kB, one after the other; round trips of 10 to 50 ms, 10 % of packets lost",
        measure: "mean duration of the slowest quarter of the requests",
        unit: "ms",
        pushed: true,
        run: tail_loss_probe,
    },
    Trial {
        plugin: "ack-delay",
        scenario: "download of 5 MB at 20 Mbit/s, round trip 40 ms",
        measure: "acknowledgements sent",
        unit: "",
        pushed: true,
        run: ack_delay,
    },
    Trial {
        plugin: "cubic",
        scenario: "upload of 20 MB at 50 Mbit/s by a client with NewReno; round trip 100 ms, 0.05 % of packets lost",
        measure: "time",
        unit: "s",
        pushed: true,
        run: cubic,
    },
    Trial {
        plugin: "ecn",
        scenario: "download of 10 MB at 10 Mbit/s between ends without ECN; round trip 40 ms, a queue of 100 ms that marks packets from 40 ms on",
        measure: "packets lost",
        unit: "",
        pushed: true,
        run: ecn,
    },
    Trial {
        plugin: "rate",
        scenario: "upload of 10 MB at 20 Mbit/s by a client with CUBIC; round trip 40 ms, 1 % of packets lost",
        measure: "time",
        unit: "s",
        pushed: true,
        run: rate,
    },
    Trial {
        plugin: "ack-frequency",
        scenario: "upload of 5 MB at 20 Mbit/s, round trip 40 ms",
        measure: "acknowledgements received",
        unit: "",
        pushed: true,
        run: ack_frequency,
    },
    Trial {
        plugin: "priorities",
        scenario: "100 kB on an urgent stream during a transfer of 3 MB, from a server at 10 Mbit/s; round trip 40 ms",
        measure: "duration of the transfer on the urgent stream",
        unit: "ms",
        pushed: false,
        run: priorities,
    },
    Trial {
        plugin: "nagle",
        scenario: "1,000 writes of 20 bytes by a server, one every millisecond; round trip 40 ms",
        measure: "packets sent",
        unit: "",
        pushed: false,
        run: nagle,
    },
    Trial {
        plugin: "messages",
        scenario: "800 messages of 200 bytes from a server, one every 5 ms, which is more than the path's rate of 0.3 Mbit/s; round trip 40 ms, 1 % of packets lost; without the plugin, all messages are sent on one stream",
        measure: "messages that are lost or arrive after more than 200 ms",
        unit: "",
        pushed: false,
        run: messages,
    },
    Trial {
        plugin: "fec-xor",
        scenario: "answers of 7 kB by a server, five on each connection, or until a loss occurs; round trip 40 ms, 3 % of \
                   packets lost",
        measure: "answers that arrive at least a round trip late",
        unit: "%",
        pushed: false,
        run: repair::xor,
    },
    Trial {
        plugin: "fec-rlc",
        scenario: "answers of 7 kB by a server, five on each connection, or until a loss occurs; round trip 40 ms, 8 % of \
                   packets lost",
        measure: "answers that arrive at least a round trip late",
        unit: "%",
        pushed: false,
        run: repair::rlc,
    },
];

impl Trial {
    /// Runs the trial without the plugin and with it. The amount of work is divided by `part`, so 1
    /// is the full trial. The same arguments give the same results.
    ///
    /// # Errors
    /// The plugin cannot be built or does not run until the end, or a transfer is not complete.
    pub fn run(&self, seed: u64, part: u64) -> Result<Compared, TrialError> {
        let source = Source::find(self.plugin);
        let source = source.ok_or_else(|| TrialError::of("the tree has no such plugin"))?;
        let bundle = source.bundle(Some(&key()?))?;
        let push = Push::new(&bundle).map_err(TrialError::of)?;
        let push = Arc::new(if self.plugin == "ecn" { push.at_both_ends() } else { push });
        let (push, own) = match self.pushed {
            true => (Some((push, self.plugin)), None),
            false => (None, Some(source.load()?)),
        };
        let run = |push, own| (self.run)(&Setup { push, own, seed, part: part.max(1) });
        let (without, with) = (run(None, None)?, run(push, own)?);
        Ok(Compared { trial: *self, bundle: bundle.len(), without, with })
    }
}

impl Setup {
    fn connect(&self, link: &Link, transport: &TransportConfig) -> Result<Pair, TrialError> {
        let push = self.push.iter().map(|(push, _)| push.clone()).collect();
        let both = [transport.clone(), transport.clone()];
        let mut pair = Pair::connect(link, both, push, policy()?, self.seed)?;
        if self.push.is_some() {
            pair.settle()?;
        }
        Ok(pair)
    }

    /// Makes `times` transfers of `bytes` bytes, each on a new stream.
    fn carry(&self, pair: &mut Pair, from: End, bytes: u64, times: u64) -> Result<Run, TrialError> {
        let sent = sent_hash(bytes);
        let mut run = Run { value: 0.0, times: Vec::new(), lost: 0, intact: true };
        for _ in 0..times {
            let carried = pair.network.transfer_hashed(from, bytes, PATIENCE);
            let carried = carried.map_err(TrialError::of)?;
            run.times.push(carried.took.as_secs_f64() * 1e3);
            run.intact &= carried.sha256 == sent;
        }
        let connection = pair.network.connection(from);
        run.lost = connection.map_or(0, |connection| connection.stats().packets_lost);
        if let Some((_, name)) = self.push {
            let standing = pair.standings(End::Client).pop();
            if standing.as_ref().is_none_or(|one| one.progress != Progress::Active) {
                return Err(TrialError::of(format!("{name} does not run: {standing:?}")));
            }
        }
        Ok(run)
    }
}

fn milliseconds(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Returns a link with a bottleneck of this rate, delay and queue.
fn bottleneck(megabits: u64, delay: u64, queue: u64) -> Link {
    Link {
        rate: Some(megabits * 1_000_000),
        delay: milliseconds(delay),
        queue: Queue::Time(milliseconds(queue)),
        overhead: 28,
        ..Link::default()
    }
}

fn tail_loss_probe(setup: &Setup) -> Result<Run, TrialError> {
    let (delay, jitter) = (milliseconds(5), milliseconds(20));
    let link = Link { delay, jitter, drop: Chance::percent(10.0), ..Link::default() };
    let mut pair = setup.connect(&link, &TransportConfig::default())?;
    // The number of requests is not divided, because the result of fewer requests would be random.
    let mut run = setup.carry(&mut pair, End::Client, 2_500, 1_200)?;
    let mut sorted = run.times.clone();
    sorted.sort_unstable_by(f64::total_cmp);
    let slowest = &sorted[sorted.len() / 4 * 3..];
    run.value = slowest.iter().sum::<f64>() / slowest.len() as f64;
    Ok(run)
}

fn ack_delay(setup: &Setup) -> Result<Run, TrialError> {
    let mut pair = setup.connect(&bottleneck(20, 20, 100), &TransportConfig::default())?;
    let acks = |pair: &mut Pair| {
        let client = pair.network.connection(End::Client);
        client.map_or(0, |client| client.stats().acks_sent)
    };
    let before = acks(&mut pair);
    let run = setup.carry(&mut pair, End::Server, 5_000_000 / setup.part, 1)?;
    Ok(Run { value: (acks(&mut pair) - before) as f64, ..run })
}

fn cubic(setup: &Setup) -> Result<Run, TrialError> {
    let link = Link { drop: Chance::percent(0.05), ..bottleneck(50, 50, 100) };
    let congestion = Arc::new(Algorithm::NewReno);
    let transport = TransportConfig::default().with_congestion(congestion);
    let mut pair = setup.connect(&link, &transport)?;
    // The size of the transfer is not divided, because hardly any packet would be lost in a quarter
    // of it.
    let run = setup.carry(&mut pair, End::Client, 20_000_000, 1)?;
    Ok(Run { value: run.times.iter().sum::<f64>() / 1e3, ..run })
}

fn rate(setup: &Setup) -> Result<Run, TrialError> {
    let link = Link { drop: Chance::percent(1.0), ..bottleneck(20, 20, 100) };
    let mut pair = setup.connect(&link, &TransportConfig::default())?;
    let run = setup.carry(&mut pair, End::Client, 10_000_000 / setup.part, 1)?;
    Ok(Run { value: run.times.iter().sum::<f64>() / 1e3, ..run })
}

fn ack_frequency(setup: &Setup) -> Result<Run, TrialError> {
    let mut pair = setup.connect(&bottleneck(20, 20, 100), &TransportConfig::default())?;
    let acks = |pair: &mut Pair| {
        let client = pair.network.connection(End::Client);
        client.map_or(0, |client| client.stats().acks_received)
    };
    let before = acks(&mut pair);
    // The size of the transfer is not divided, because a short transfer consists mostly of slow
    // start.
    let run = setup.carry(&mut pair, End::Client, 5_000_000, 1)?;
    Ok(Run { value: (acks(&mut pair) - before) as f64, ..run })
}

fn ecn(setup: &Setup) -> Result<Run, TrialError> {
    let transport = TransportConfig::default().with_ecn(false);
    let mut pair = setup.connect(&bottleneck(10, 20, 100), &transport)?;
    pair.network.mark_above(milliseconds(40));
    let run = setup.carry(&mut pair, End::Server, 10_000_000 / setup.part, 1)?;
    Ok(Run { value: run.lost as f64, ..run })
}
