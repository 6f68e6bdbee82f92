//! One end of a connection with its application, and the interface between the connection and the
//! application.

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
    /// Time at which the message was passed to the connection.
    pub(crate) made: Time,
    /// Size of the message in bytes.
    pub(crate) bytes: u32,
}

/// An action that an application requests from its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Say {
    /// Sends all data of a stream and ends the stream. The client numbers its streams from 0, in
    /// the order in which it first sends on them.
    Stream { stream: u64, bytes: u64 },
    /// Sends a message, which may be lost.
    Message(Message),
}

/// An event that a connection reports to its application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// The handshake is complete.
    Connected,
    /// Bytes arrived on a stream.
    Bytes { bytes: u64 },
    /// A stream ended. All its data was reported before.
    Finished { stream: u64 },
    /// A message arrived.
    Message(Message),
}

/// The interface of a QUIC or TCP connection that applications use.
pub(crate) trait Channel: Send {
    /// Begins the handshake of a client. A server begins when the first datagram arrives.
    fn begin(&mut self, now: Time);
    fn on_datagram(&mut self, now: Time, datagram: Datagram<'_>);
    fn on_timer(&mut self, now: Time);
    fn poll_transmit(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit>;
    fn next_timer(&mut self) -> Option<Time>;
    /// Appends the events since the last call of this method to `heard`.
    fn listen(&mut self, heard: &mut Vec<Heard>);
    /// Accepts an action of the application.
    fn say(&mut self, say: Say);
    /// Passes queued data to the connection, as far as the connection has room.
    fn flush(&mut self);
    /// Closes the connection, because all data has been sent.
    fn close(&mut self, now: Time);
    /// Returns `true` if the handshake has begun.
    fn has_begun(&self) -> bool;
    /// Returns the reason why the connection failed, or `None` if it did not fail.
    fn failure(&self) -> Option<&str>;
    fn state(&self) -> SenderState;
    /// Returns the state of each path of a multipath connection. The list is empty without
    /// multipath.
    #[cfg(feature = "quic")]
    fn paths(&self) -> Vec<crate::quic::PathState> {
        Vec::new()
    }
    /// Returns the reason why a hook was detached, or `None` if no hook was detached.
    #[cfg(feature = "quic")]
    fn failed_hook(&self) -> Option<&str> {
        None
    }
}

/// The application that runs at one end of a connection.
pub(super) trait Program: Send {
    /// Called when the client's connection begins.
    fn start(&mut self, now: Time, say: &mut Vec<Say>);
    fn hear(&mut self, now: Time, heard: Heard, say: &mut Vec<Say>);
    /// Called at the time that [`Program::next`] returned. It may also be called at other times.
    fn wake(&mut self, now: Time, say: &mut Vec<Say>);
    fn next(&self) -> Option<Time>;
    /// Returns the time at which the client begins its handshake.
    fn start_at(&self) -> Time;
    /// Returns `true` if the application at this end is complete. This end then closes the
    /// connection.
    fn is_done(&self) -> bool;
    fn bytes(&self) -> u64;
    fn report(&self, now: Time) -> Report;
}

/// The units that the client has requested, by stream number. The bytes of a request have no
/// content, so both ends share this list in memory to know which unit is meant.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestedUnits(Arc<Mutex<Vec<u64>>>);

impl RequestedUnits {
    pub(super) fn push(&self, unit: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(unit);
    }

    pub(super) fn get(&self, stream: u64) -> u64 {
        let asked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        usize::try_from(stream).ok().and_then(|stream| asked.get(stream).copied()).unwrap_or(stream)
    }
}

/// One end of a connection with its application, created by [`crate::quic::attach`] or
/// [`crate::tcp::attach`].
pub struct Party {
    channel: Box<dyn Channel>,
    program: Box<dyn Program>,
    client: bool,
    /// True if the application at this end knows when it is complete. The run then waits for this
    /// end.
    awaited: bool,
    closed: bool,
    say: Vec<Say>,
    heard: Vec<Heard>,
}

/// The applications of both ends.
pub(crate) struct Ends {
    pub(crate) client: Party,
    pub(crate) server: Party,
}

/// Creates the applications of both ends. The client begins its connection at `start`.
pub(crate) fn ends(
    application: &Application,
    start: Time,
    client: Box<dyn Channel>,
    server: Box<dyn Channel>,
) -> Ends {
    let asked = RequestedUnits::default();
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
    /// Returns the results of the application so far. Only the end that receives the last byte has
    /// complete results: the client for requests, pages and videos, and the server for streams and
    /// calls.
    pub fn report(&self, now: Time) -> Report {
        let mut report = self.program.report(now);
        report.failure = self.failure().map(str::to_owned);
        report
    }

    /// Returns the reason why the connection failed, or `None` if it did not fail. The other end
    /// may not have noticed the failure.
    pub fn failure(&self) -> Option<&str> {
        self.channel.failure().filter(|_| !self.program.is_done())
    }

    /// Returns the state and the counters of the sender at this end.
    pub fn state(&self) -> SenderState {
        self.channel.state()
    }

    /// Returns the reason why a hook of this end was detached, or `None` if all hooks are attached.
    #[cfg(feature = "quic")]
    pub fn failed_hook(&self) -> Option<&str> {
        self.channel.failed_hook()
    }

    /// Returns the state of each path at this end. The list is empty without multipath.
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
