//! Trials of plugins that belong to the application at the server. The application exchanges
//! messages with its plugin.

use std::time::Duration;

use equic_net::{Chance, Link};
use equic_transport::operation::HookId;
use equic_transport::{
    Connection, Direction, ReadOutcome, StreamError, StreamId, TransportConfig, WriteError,
};

use super::{PATIENCE, Run, Setup, bottleneck, milliseconds};
use crate::network::{End, Network, byte};
use crate::pair::TrialError;

/// Size of one application message, in bytes.
const MESSAGE: usize = 200;

/// Age at which a message becomes useless to the receiver.
const LATE: Duration = Duration::from_millis(200);

/// Maximum age at which the plugin still sends a message. The rest of [`LATE`] is for the network
/// path.
const LIFETIME: Duration = Duration::from_millis(75);

fn end(network: &mut Network, end: End) -> Result<&mut Connection, TrialError> {
    network.connection(end).ok_or_else(|| TrialError::of("there is no connection"))
}

impl Setup {
    /// Returns a connection on which the plugin runs at these ends, and the plugin's hook at the
    /// first of them.
    fn own(&self, link: &Link, ends: &[End]) -> Result<(Network, Option<HookId>), TrialError> {
        let mut network = self.connect(link, &TransportConfig::default())?.network;
        let mut first = None;
        if let Some(plugin) = &self.own {
            for at in ends {
                let hook = plugin.attach(end(&mut network, *at)?).map_err(TrialError::of)?;
                first = first.or(Some(hook));
            }
        }
        Ok((network, first))
    }
}

/// Returns an error if a plugin failed at either end.
fn check(network: &mut Network) -> Result<(), TrialError> {
    for at in [End::Client, End::Server] {
        if let Some((_, error)) = network.failures(at).pop() {
            return Err(TrialError::of(error));
        }
    }
    Ok(())
}

/// A stream from the server to the client.
struct Flow {
    stream: StreamId,
    bytes: u64,
    written: u64,
    read: u64,
    finished: Option<Duration>,
    intact: bool,
}

impl Flow {
    fn open(server: &mut Connection, bytes: u64) -> Result<Flow, TrialError> {
        let stream = server.open(Direction::Unidirectional);
        let stream = stream.ok_or_else(|| TrialError::of("no stream can be opened"))?;
        Ok(Flow { stream, bytes, written: 0, read: 0, finished: None, intact: true })
    }

    fn write(&mut self, server: &mut Connection) -> Result<(), StreamError> {
        while self.written < self.bytes {
            let until = self.bytes.min(self.written + 4096);
            let piece: Vec<u8> = (self.written..until).map(byte).collect();
            match server.streams().write(self.stream, &piece) {
                Ok(count) => self.written += count as u64,
                Err(StreamError::Write(WriteError::Blocked)) => return Ok(()),
                Err(error) => return Err(error),
            }
            if self.written == self.bytes {
                server.streams().finish(self.stream)?;
            }
        }
        Ok(())
    }

    fn read(&mut self, client: &mut Connection, now: Duration) -> Result<(), StreamError> {
        let mut buffer = [0; 4096];
        loop {
            match client.streams().read(self.stream, &mut buffer)? {
                ReadOutcome::Bytes(count) => {
                    let sent = (self.read..).map(byte);
                    self.intact &= buffer[..count].iter().copied().eq(sent.take(count));
                    self.read += count as u64;
                }
                ReadOutcome::Blocked => return Ok(()),
                ReadOutcome::Finished | ReadOutcome::Reset(_) => {
                    self.intact &= self.read == self.bytes;
                    self.finished = self.finished.or(Some(now));
                    return Ok(());
                }
            }
        }
    }
}

/// Measures the duration of an urgent stream while another stream is sent.
pub(super) fn priorities(setup: &Setup) -> Result<Run, TrialError> {
    let (mut network, hook) = setup.own(&bottleneck(10, 20, 100), &[End::Server])?;
    let server = end(&mut network, End::Server)?;
    let mut flows = vec![Flow::open(server, 3_000_000)?, Flow::open(server, 100_000)?];
    if let Some(hook) = hook {
        let share = [flows[1].stream.as_varint().get(), 1].map(u64::to_ne_bytes).concat();
        server.tell_hook(hook, &share).map_err(TrialError::of)?;
    }
    let begun = network.elapsed();
    let mut accepted = 0;
    let mut wrong = None;
    let why = "the streams did not complete in time";
    let done = network.run_until(PATIENCE, why, |network| {
        let now = network.elapsed() - begun;
        let mut step = || -> Result<bool, TrialError> {
            let server = end(network, End::Server)?;
            for flow in &mut flows {
                flow.write(server).map_err(TrialError::of)?;
            }
            let client = end(network, End::Client)?;
            while client.accept(Direction::Unidirectional).is_some() {
                accepted += 1;
            }
            for flow in flows.iter_mut().take(accepted) {
                if flow.finished.is_none() {
                    flow.read(client, now).map_err(TrialError::of)?;
                }
            }
            Ok(flows.iter().all(|flow| flow.finished.is_some()))
        };
        step().unwrap_or_else(|error| {
            wrong = Some(error);
            true
        })
    });
    done.map_err(TrialError::of)?;
    check(&mut network)?;
    if let Some(error) = wrong {
        return Err(error);
    }
    let time = |flow: &Flow| flow.finished.unwrap_or(PATIENCE).as_secs_f64() * 1e3;
    let lost = end(&mut network, End::Server)?.stats().packets_lost;
    let intact = flows.iter().all(|flow| flow.intact);
    Ok(Run { value: time(&flows[1]), times: flows.iter().map(time).collect(), lost, intact })
}

/// Measures how many packets are needed for many small writes.
pub(super) fn nagle(setup: &Setup) -> Result<Run, TrialError> {
    let link = Link { delay: milliseconds(20), ..Link::default() };
    let (mut network, _) = setup.own(&link, &[End::Server])?;
    let server = end(&mut network, End::Server)?;
    let before = server.stats().packets_sent;
    let mut flow = Flow::open(server, 0)?;
    for tick in 0..4_000 {
        let server = end(&mut network, End::Server)?;
        if tick < 1_000 {
            let piece: Vec<u8> = (flow.bytes..flow.bytes + 20).map(byte).collect();
            flow.bytes +=
                server.streams().write(flow.stream, &piece).map_err(TrialError::of)? as u64;
        } else if tick == 1_000 {
            server.streams().finish(flow.stream).map_err(TrialError::of)?;
        }
        network.pass(milliseconds(1)).map_err(TrialError::of)?;
        let now = network.elapsed();
        let client = end(&mut network, End::Client)?;
        if flow.read > 0 || client.accept(Direction::Unidirectional).is_some() {
            flow.read(client, now).map_err(TrialError::of)?;
        }
        if flow.finished.is_some() {
            break;
        }
    }
    check(&mut network)?;
    let stats = end(&mut network, End::Server)?.stats();
    let time = flow.finished.ok_or_else(|| TrialError::of("the stream did not complete"))?;
    let packets = (stats.packets_sent - before) as f64;
    let times = vec![time.as_secs_f64() * 1e3];
    Ok(Run { value: packets, times, lost: stats.packets_lost, intact: flow.intact })
}

/// The client's record of messages: when each message was sent, and its age when the client read
/// it.
struct Ages {
    given: Vec<Duration>,
    ages: Vec<Option<Duration>>,
    intact: bool,
}

impl Ages {
    /// Returns a message of the application: its number, followed by bytes that depend on the
    /// number.
    fn message(number: usize) -> Vec<u8> {
        let mut message = (number as u64).to_le_bytes().to_vec();
        message.resize(MESSAGE, number as u8);
        message
    }

    fn give(&mut self, now: Duration) -> Vec<u8> {
        let number = self.given.len();
        self.given.push(now);
        self.ages.push(None);
        Ages::message(number)
    }

    fn read(&mut self, now: Duration, message: &[u8]) {
        let number = message.first_chunk().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes));
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        match (self.given.get(number), self.ages.get_mut(number)) {
            (Some(given), Some(age)) => {
                self.intact &= age.is_none() && message == Ages::message(number);
                *age = Some(now - *given);
            }
            _ => self.intact = false,
        }
    }
}

/// Counts messages that are late or lost. The plugin sends messages in frames of its own. Without
/// the plugin, they are sent on a stream.
pub(super) fn messages(setup: &Setup) -> Result<Run, TrialError> {
    let (drop, rate) = (Chance::percent(1.0), Some(300_000));
    let link = Link { drop, rate, ..bottleneck(1, 20, 60) };
    let (mut network, hook) = setup.own(&link, &[End::Server, End::Client])?;
    let stream = end(&mut network, End::Server)?.open(Direction::Unidirectional);
    let stream = stream.ok_or_else(|| TrialError::of("no stream can be opened"))?;
    let mut ages = Ages { given: Vec::new(), ages: Vec::new(), intact: true };
    let (mut incoming, mut part) = (None, Vec::new());
    let count = (800 / setup.part).max(200);
    for tick in 0..count * 5 + 2_000 {
        let now = network.elapsed();
        let server = end(&mut network, End::Server)?;
        if tick % 5 == 0 && tick < count * 5 {
            let message = ages.give(now);
            match hook {
                Some(hook) => {
                    let lifetime = (LIFETIME.as_nanos() as u64).to_ne_bytes();
                    let told = server.tell_hook(hook, &[&lifetime[..], &message].concat());
                    told.map_err(TrialError::of)?;
                }
                None => {
                    server.streams().write(stream, &message).map_err(TrialError::of)?;
                }
            }
        }
        network.pass(milliseconds(1)).map_err(TrialError::of)?;
        let now = network.elapsed();
        for (_, message) in network.messages(End::Client) {
            ages.read(now, &message);
        }
        let client = end(&mut network, End::Client)?;
        incoming = incoming.or_else(|| client.accept(Direction::Unidirectional));
        let mut buffer = [0; 4096];
        while let Some(stream) = incoming
            && let ReadOutcome::Bytes(count) =
                client.streams().read(stream, &mut buffer).map_err(TrialError::of)?
        {
            part.extend_from_slice(&buffer[..count]);
        }
        while part.len() >= MESSAGE {
            ages.read(now, &part.drain(..MESSAGE).collect::<Vec<u8>>());
        }
    }
    check(&mut network)?;
    let late = ages.ages.iter().filter(|age| age.is_none_or(|age| age > LATE)).count();
    let times = ages.ages.iter().flatten().map(|age| age.as_secs_f64() * 1e3).collect();
    let lost = end(&mut network, End::Server)?.stats().packets_lost;
    Ok(Run { value: late as f64, times, lost, intact: ages.intact })
}
