//! One end of a connection with its application: what moves between the two.

use std::sync::{Arc, Mutex, PoisonError};

use super::call::{Called, Caller};
use super::client::Client;
use super::server::Server;
use super::{Application, Report};
use crate::agent::{Agent, Datagram, Status, Transmit};
use crate::time::Time;
use crate::transfer::SenderState;

/// A message of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// Number of the message, from 0.
    pub(crate) number: u64,
    /// Time at which it was handed to the connection.
    pub(crate) made: Time,
    /// Bytes of it.
    pub(crate) bytes: u32,
}

/// Order that an application gives its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Say {
    /// All that it has to say on a stream, and its end. The client numbers streams from 0 in the order in which it
    /// first says something on them.
    Stream { stream: u64, bytes: u64 },
    /// A message that may be lost.
    Message(Message),
}

/// Event that a connection tells its application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// The handshake is complete.
    Connected,
    /// So many bytes on a stream.
    Bytes { bytes: u64 },
    /// The end of a stream, all before which has been heard.
    Finished { stream: u64 },
    /// A message.
    Message(Message),
}

/// A connection, as applications see it.
pub(crate) trait Channel: Send {
    /// Begins the handshake. Servers begin by themselves, with what comes.
    fn begin(&mut self, now: Time);
    fn on_datagram(&mut self, now: Time, datagram: Datagram<'_>);
    fn on_timer(&mut self, now: Time);
    fn poll_transmit(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit>;
    fn next_timer(&mut self) -> Option<Time>;
    /// Hands over what has come since the last call.
    fn listen(&mut self, heard: &mut Vec<Heard>);
    /// Takes what is to go.
    fn say(&mut self, say: Say);
    /// Gives the connection as much of that as it has room for.
    fn flush(&mut self);
    /// Ends the connection: all was said.
    fn close(&mut self, now: Time);
    /// True if the handshake was begun.
    fn has_begun(&self) -> bool;
    /// Reason for which the connection failed, if it did.
    fn failure(&self) -> Option<&str>;
    fn state(&self) -> SenderState;
    /// State of each of several paths; empty: it may have one only.
    #[cfg(feature = "quic")]
    fn paths(&self) -> Vec<crate::quic::PathState> {
        Vec::new()
    }
    /// Reason for which a hook was taken off, if one was.
    #[cfg(feature = "quic")]
    fn failed_hook(&self) -> Option<&str> {
        None
    }
}

/// An application at one end.
pub(super) trait Program: Send {
    /// The connection begins, at the client.
    fn start(&mut self, now: Time, say: &mut Vec<Say>);
    fn hear(&mut self, now: Time, heard: Heard, say: &mut Vec<Say>);
    /// [`Program::next`]'s moment has come, or another.
    fn wake(&mut self, now: Time, say: &mut Vec<Say>);
    fn next(&self) -> Option<Time>;
    /// Time at which the client begins its handshake.
    fn start_at(&self) -> Time;
    /// True if all is done: the connection is closed by this end then.
    fn is_done(&self) -> bool;
    fn bytes(&self) -> u64;
    fn report(&self, now: Time) -> Report;
}

/// Units that the client has asked for, by the number of the stream: known to both ends, since what is asked for is
/// in no byte.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked(Arc<Mutex<Vec<u64>>>);

impl Asked {
    pub(super) fn push(&self, unit: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(unit);
    }

    pub(super) fn get(&self, stream: u64) -> u64 {
        let asked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        usize::try_from(stream).ok().and_then(|stream| asked.get(stream).copied()).unwrap_or(stream)
    }
}

/// One end of a connection with its application. [`crate::quic::attach`] and [`crate::tcp::attach`] make them.
pub struct Party {
    channel: Box<dyn Channel>,
    program: Box<dyn Program>,
    client: bool,
    /// True if this end knows when all is done, so that the run waits for it.
    awaited: bool,
    closed: bool,
    say: Vec<Say>,
    heard: Vec<Heard>,
}

/// Both ends.
pub(crate) struct Ends {
    pub(crate) client: Party,
    pub(crate) server: Party,
}

/// Puts an application on both ends of a connection that the client begins at `start`.
pub(crate) fn ends(
    application: &Application,
    start: Time,
    client: Box<dyn Channel>,
    server: Box<dyn Channel>,
) -> Ends {
    let asked = Asked::default();
    let programs: [Box<dyn Program>; 2] = match application {
        Application::Call(call) => {
            [Box::new(Caller::new(call, start)), Box::new(Called::new(call, start))]
        }
        other => [
            Box::new(Client::new(other, start, asked.clone())),
            Box::new(Server::new(other, start, asked)),
        ],
    };
    let [caller, answerer] = programs;
    let download = application.is_download();
    let party = |channel, program, client| Party {
        channel,
        program,
        client,
        awaited: client == download,
        closed: false,
        say: Vec::new(),
        heard: Vec::new(),
    };
    Ends { client: party(client, caller, true), server: party(server, answerer, false) }
}

impl Party {
    /// Results of the application until now. Only the end that waits for the last byte knows all of it: of requests,
    /// pages and videos the client, of streams and calls the server.
    pub fn report(&self, now: Time) -> Report {
        let mut report = self.program.report(now);
        report.failure = self.failure().map(str::to_owned);
        report
    }

    /// Reason for which its connection failed, if it did: the other end may never have heard of it.
    pub fn failure(&self) -> Option<&str> {
        self.channel.failure().filter(|_| !self.program.is_done())
    }

    /// State and counters of its sender.
    pub fn state(&self) -> SenderState {
        self.channel.state()
    }

    /// Reason for which a hook of this end was taken off; none: all are as they were attached.
    #[cfg(feature = "quic")]
    pub fn failed_hook(&self) -> Option<&str> {
        self.channel.failed_hook()
    }

    /// State of each of several paths, as this end has it; empty for a connection that may have one only.
    #[cfg(feature = "quic")]
    pub fn paths(&self) -> Vec<crate::quic::PathState> {
        self.channel.paths()
    }

    fn work(&mut self, now: Time) {
        let mut heard = std::mem::take(&mut self.heard);
        self.channel.listen(&mut heard);
        for one in heard.drain(..) {
            self.program.hear(now, one, &mut self.say);
        }
        self.heard = heard;
        if self.program.next().is_some_and(|at| at <= now) {
            self.program.wake(now, &mut self.say);
        }
        for say in self.say.drain(..) {
            self.channel.say(say);
        }
        self.channel.flush();
        if self.program.is_done() && !self.closed {
            self.closed = true;
            self.channel.close(now);
        }
    }
}

impl Agent for Party {
    fn on_datagram(&mut self, now: Time, datagram: Datagram<'_>) {
        self.channel.on_datagram(now, datagram);
        self.work(now);
    }

    fn on_timer(&mut self, now: Time) {
        if self.client && !self.channel.has_begun() && now >= self.program.start_at() {
            self.channel.begin(now);
            self.program.start(now, &mut self.say);
        }
        self.channel.on_timer(now);
        self.work(now);
    }

    fn poll_transmit(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        self.channel.poll_transmit(now, buffer)
    }

    fn next_timer(&mut self) -> Option<Time> {
        if self.client && !self.channel.has_begun() {
            return Some(self.program.start_at());
        }
        let own = self.program.next().filter(|_| self.channel.failure().is_none());
        [self.channel.next_timer(), own].into_iter().flatten().min()
    }

    fn status(&self) -> Status {
        if !self.awaited {
            return Status::Background;
        }
        let over = self.program.is_done() || self.channel.failure().is_some();
        if over { Status::Finished } else { Status::Working }
    }

    fn goodput(&self) -> u64 {
        if self.awaited { self.program.bytes() } else { 0 }
    }
}
