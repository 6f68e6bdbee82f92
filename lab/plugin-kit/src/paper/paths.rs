//! Downloads over two paths, for figures 5 and 6 of "The Case for Protocol Plugins" (De Coninck and
//! Bonaventure, 2019). For figure 5, the client sends all acknowledgements on one path. For figure
//! 6, the client makes the server limit the rate of one path.

use std::sync::Arc;
use std::time::Duration;

use equic_net::{Link, Queue};
use equic_plugin::exchange::{Progress, Push};
use equic_transport::{Direction, ReadOutcome, StreamError, StreamId, TransportConfig, WriteError};

use super::PATIENCE;
use crate::network::{End, Network};
use crate::pair::{Pair, TrialError, key, policy};
use crate::tree::Source;

/// Maximum amount of data that a sender may buffer, in bytes. It exceeds the capacity of both paths
/// and their queues, so that only the paths limit a download.
const WINDOW: u64 = 16 << 20;

/// Returns a signed plugin of this source tree with these settings, ready to be pushed.
fn push(name: &str, settings: &[(&str, &str)]) -> Result<Arc<Push>, TrialError> {
    let source = Source::find(name);
    let source = source.ok_or_else(|| TrialError::of("the tree has no such plugin"))?;
    let bundle = source.bundle_with(settings, Some(&key()?))?;
    Ok(Arc::new(Push::new(&bundle).map_err(TrialError::of)?))
}

/// Returns a connection with two paths, each on its own link. A path's ID is also the number of its
/// link.
fn two(
    links: &[&Link; 2],
    transport: TransportConfig,
    seed: u64,
    prepare: impl FnOnce(&mut Network) -> Result<(), TrialError>,
) -> Result<Pair, TrialError> {
    let mut transport = transport.with_max_paths(2);
    let streams = &mut transport.streams;
    streams.max_stream_window = WINDOW;
    streams.max_connection_window = WINDOW;
    streams.send_buffer = WINDOW;
    streams.connection_send_buffer = WINDOW;
    let mut pair = Pair::over(links, &transport, &policy()?, seed)?;
    prepare(&mut pair.network)?;
    pair.network.connect().map_err(TrialError::of)?;
    pair.network.open_path(1).map_err(TrialError::of)?;
    Ok(pair)
}

/// The path on which the client sends its acknowledgements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckPath {
    /// Each packet is acknowledged on the path on which it arrived.
    Same,
    /// All packets are acknowledged on the first path. For this, the server pushes the plugin
    /// `ack-path`.
    First,
}

impl AckPath {
    /// Both variants.
    pub const ALL: [AckPath; 2] = [AckPath::Same, AckPath::First];

    /// Returns the plugin that the server pushes to the client, or `None` if no plugin is needed.
    ///
    /// # Errors
    /// The plugin cannot be built.
    pub fn push(self) -> Result<Option<Arc<Push>>, TrialError> {
        match self {
            AckPath::Same => Ok(None),
            AckPath::First => push("ack-path", &[("ACK_PATH", "0")]).map(Some),
        }
    }
}

/// Returns a plugin that limits the rate of the second path to `rate` bytes per second. The client
/// pushes it to the server.
///
/// # Errors
/// The plugin cannot be built.
pub fn cap(rate: u64) -> Result<Arc<Push>, TrialError> {
    push("cap-path", &[("PATH", "1"), ("RATE", &rate.to_string())])
}

/// The network for a download over two asymmetric paths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asymmetric {
    /// Round-trip time of both paths.
    pub rtt: Duration,
    /// Rates of the two paths towards the client, in bits per second.
    pub down: [u64; 2],
    /// Rates of the two paths towards the server, in bits per second.
    pub up: [u64; 2],
    /// True if the server requests fewer acknowledgements while its congestion window is large
    /// (draft-ietf-quic-ack-frequency).
    pub ack_frequency: bool,
}

/// Downloads `bytes` bytes after the plugin has started. Returns the duration of the download, and
/// the number of bytes that the client sent on each path during that time. Queues hold 100 ms of
/// data towards the client, and one second towards the server.
///
/// # Errors
/// The plugin does not run, or the download is not complete.
pub fn asymmetric(
    path: &Asymmetric,
    acks: AckPath,
    bytes: u64,
    seed: u64,
) -> Result<(Duration, [u64; 2]), TrialError> {
    let link = Link { delay: path.rtt / 2, ..Link::default() };
    let transport = TransportConfig::default().with_ack_frequency(path.ack_frequency);
    let mut pair = two(&[&link, &link], transport, seed, |network| {
        for (at, (down, up)) in path.down.into_iter().zip(path.up).enumerate() {
            let queue = |time| Queue::Time(Duration::from_millis(time));
            network.set_rate(End::Server, at, down, queue(100)).map_err(TrialError::of)?;
            network.set_rate(End::Client, at, up, queue(1_000)).map_err(TrialError::of)?;
        }
        Ok(())
    })?;
    if let Some(push) = acks.push()? {
        pair.offer(End::Server, push, None)?;
        settled(&mut pair, End::Client)?;
    }
    let before = [0, 1].map(|link| pair.network.carried(End::Client, link));
    let took = pair.network.transfer(End::Server, bytes, PATIENCE).map_err(TrialError::of)?;
    let sent = [0, 1].map(|link| pair.network.carried(End::Client, link) - before[link]);
    none_failed(&mut pair)?;
    Ok((took, sent))
}

/// Runs the network until the last plugin that was offered to the end `at` runs.
fn settled(pair: &mut Pair, at: End) -> Result<(), TrialError> {
    pair.settle()?;
    let standing = pair.standings(at).pop();
    if standing.as_ref().is_none_or(|one| one.progress != Progress::Active) {
        return Err(TrialError::of(format!("the plugin does not run: {standing:?}")));
    }
    Ok(())
}

fn none_failed(pair: &mut Pair) -> Result<(), TrialError> {
    for end in [End::Client, End::Server] {
        if let Some((_, error)) = pair.network.failures(end).pop() {
            return Err(TrialError::of(error));
        }
    }
    Ok(())
}

/// The network for a download over two equal paths, where plugins limit the rate of the second one.
/// The client pushes each plugin of `caps` at its time after the first byte. It replaces the plugin
/// before it.
#[derive(Clone, Debug, PartialEq)]
pub struct Capped {
    /// Rate of each path, in bits per second.
    pub rate: u64,
    /// Round-trip time of each path.
    pub rtt: Duration,
    /// Rate limits in bytes per second, each with the time at which the client pushes the plugin
    /// that enforces it.
    pub caps: Vec<(Duration, u64)>,
    /// Duration of the download.
    pub length: Duration,
    /// Length of the intervals in which rates are measured.
    pub interval: Duration,
}

/// Downloads for a fixed time. Returns the rates at which the server sent on each path in each
/// interval, in bytes of UDP payload per second.
///
/// # Errors
/// A plugin cannot be built, or does not run at the end of the download.
pub fn capped(path: &Capped, seed: u64) -> Result<Vec<[f64; 2]>, TrialError> {
    let link = Link {
        rate: Some(path.rate),
        delay: path.rtt / 2,
        queue: Queue::Time(path.rtt),
        overhead: 28,
        ..Link::default()
    };
    let mut pair = two(&[&link, &link], TransportConfig::default(), seed, |_| Ok(()))?;
    let begun = pair.network.elapsed();
    let mut flow = Endless::default();
    let (mut measured, mut caps) = (Vec::new(), path.caps.iter().peekable());
    let mut before = [0, 1].map(|link| pair.network.carried(End::Server, link));
    let mut at = Duration::ZERO;
    while at < path.length {
        while let Some((_, rate)) = caps.next_if(|(from, _)| *from <= at) {
            let last = pair.standings(End::Client).pop().and_then(|one| one.id);
            pair.offer(End::Client, cap(*rate)?, last)?;
        }
        at += path.interval;
        let until = begun + at;
        let done = |network: &mut Network| flow.go_on(network) || network.elapsed() >= until;
        let why = "the measured interval does not end";
        pair.network.run_until(2 * path.interval, why, done).map_err(TrialError::of)?;
        if let Some(error) = flow.wrong.take() {
            return Err(TrialError::of(error));
        }
        let now = [0, 1].map(|link| pair.network.carried(End::Server, link));
        measured
            .push([0, 1].map(|link: usize| {
                (now[link] - before[link]) as f64 / path.interval.as_secs_f64()
            }));
        before = now;
    }
    none_failed(&mut pair)?;
    if !path.caps.is_empty() {
        settled(&mut pair, End::Server)?;
    }
    Ok(measured)
}

/// A stream on which the server sends data to the client without end.
#[derive(Default)]
struct Endless {
    stream: Option<StreamId>,
    incoming: Option<StreamId>,
    wrong: Option<StreamError>,
}

impl Endless {
    /// Writes and reads as much as possible. Returns `true` after an error.
    fn go_on(&mut self, network: &mut Network) -> bool {
        self.wrong = self.step(network).err();
        self.wrong.is_some()
    }

    fn step(&mut self, network: &mut Network) -> Result<(), StreamError> {
        let mut buffer = [0; 16_384];
        if let Some(server) = network.connection(End::Server) {
            self.stream = self.stream.or_else(|| server.open(Direction::Unidirectional));
            if let Some(stream) = self.stream {
                loop {
                    match server.streams().write(stream, &buffer) {
                        Ok(count) if count > 0 => {}
                        Ok(_) | Err(StreamError::Write(WriteError::Blocked)) => break,
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        if let Some(client) = network.connection(End::Client) {
            self.incoming = self.incoming.or_else(|| client.accept(Direction::Unidirectional));
            if let Some(stream) = self.incoming {
                while let ReadOutcome::Bytes(_) = client.streams().read(stream, &mut buffer)? {}
            }
        }
        Ok(())
    }
}
