//! The loop of stacks that bring no sockets (`io=shared`): quinn-udp with GSO and GRO, one thread.
//!
//! [`Stack`] is what a stack gives, [`Io`] the socket; [`client`] and [`server`] are the two ends.

#![forbid(unsafe_code)]

pub mod client;
mod io;
pub mod server;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;

use anyhow::{Result, ensure};
use bytes::Bytes;
use equic_bench_contract::{Effective, OPENING};

use io::Inbox;
pub use io::Io;

/// Bytes that are read from a stream at a time.
pub const CHUNK: usize = 64 << 10;
/// Batches that are received before their connections have their turn.
const BATCHES: usize = 8;

/// The socket, which some stacks send on while they are at work.
pub type Shared = Rc<RefCell<Io>>;

/// Stream of a connection: number of the connection, and ID of the stream.
pub type Place = (u64, u64);

/// A stack without sockets, with all its connections, which it numbers.
pub trait Stack {
    /// Begins a connection; with the last ticket there was, if that is wanted.
    fn connect(&mut self, resume: bool) -> Result<u64>;
    /// Takes a datagram; one that is not understood is dropped. What another connection has to send should
    /// leave first: if all were dealt with before anything left, the two ends would work by turns.
    fn handle_datagram(&mut self, datagram: &mut [u8], from: SocketAddr, io: &Shared)
    -> Result<()>;
    /// Time at which the stack has to be woken; none: it need not be.
    fn timeout(&self) -> Option<Instant>;
    /// Acts on the time that [`Stack::timeout`] gave, which has come.
    fn handle_timeout(&mut self, now: Instant);
    /// Sends what is due; whether there may be more.
    fn transmit(&mut self, io: &Shared) -> Result<bool>;
    /// A stream that may be read; it comes again when more has arrived.
    fn poll_readable(&mut self) -> Option<Place>;
    /// A stream that was full and may be written again.
    fn poll_writable(&mut self) -> Option<Place>;
    /// A connection that is gone.
    fn poll_closed(&mut self) -> Option<u64>;
    /// Whether the connection's handshake is over.
    fn is_established(&mut self, connection: u64) -> bool;
    /// Whether the connection is neither over nor about to be.
    fn is_open(&mut self, connection: u64) -> bool;
    /// Whether the connection's handshake made use of a session ticket.
    fn is_resumed(&mut self, connection: u64) -> bool;
    /// Opens a bidirectional stream; none: not now.
    fn open(&mut self, connection: u64) -> Result<Option<u64>>;
    /// Writes to a stream; how many bytes it took.
    fn write(&mut self, at: Place, data: Bytes, end: bool) -> Result<usize>;
    /// Reads from a stream: how many bytes, and whether it ended; none: nothing is there.
    fn read(&mut self, at: Place, buffer: &mut [u8]) -> Result<Option<(usize, bool)>>;
    /// Closes a connection.
    fn close(&mut self, connection: u64);
    /// Notes what turned out to be in force.
    fn observe(&mut self, connection: u64, effective: &mut Effective);
    /// Whether sending caused events that were not handled yet.
    fn has_news(&self) -> bool {
        false
    }
    /// Does what a server does on connections with another protocol than `perf`.
    fn serve_others(&mut self) {}
}

/// A stack on its socket.
pub struct Loop<S> {
    pub stack: S,
    pub io: Shared,
    inbox: Inbox,
}

impl<S: Stack> Loop<S> {
    pub fn new(stack: S, io: Io) -> Loop<S> {
        Loop { stack, io: Rc::new(RefCell::new(io)), inbox: Inbox::new() }
    }

    /// Opens connections, some at a time.
    pub fn connect_all(&mut self, count: usize) -> Result<Vec<u64>> {
        let mut open = Vec::with_capacity(count);
        let mut opening = VecDeque::new();
        while open.len() < count {
            while open.len() + opening.len() < count && opening.len() < OPENING {
                opening.push_back(self.stack.connect(false)?);
            }
            self.turn(None, false)?;
            for _ in 0..opening.len() {
                let Some(connection) = opening.pop_front() else { break };
                if self.stack.is_established(connection) {
                    open.push(connection);
                } else {
                    self.must_be_open(connection)?;
                    opening.push_back(connection);
                }
            }
        }
        Ok(open)
    }

    /// An error if the connection is over.
    pub fn must_be_open(&mut self, connection: u64) -> Result<()> {
        ensure!(self.stack.is_open(connection), "the connection was lost");
        Ok(())
    }

    /// Closes connections, and has the closes leave.
    pub fn close_all(&mut self, connections: &[u64], effective: &mut Effective) -> Result<()> {
        for connection in connections {
            self.stack.observe(*connection, effective);
            self.stack.close(*connection);
        }
        self.flush()
    }

    /// Sends all that is due.
    pub fn flush(&mut self) -> Result<()> {
        while self.stack.transmit(&self.io)? {}
        self.io.borrow_mut().flush()
    }

    /// Sends what is due, then waits for datagrams and timers, at most until `limit`, or for the end of
    /// standard input if that matters; whether the latter came.
    pub fn turn(&mut self, limit: Option<Instant>, stdin: bool) -> Result<bool> {
        let Loop { stack, io, inbox } = self;
        let more = stack.transmit(io)?;
        io.borrow_mut().flush()?;
        let due = stack.timeout();
        let until = match more || stack.has_news() {
            true => Some(Instant::now()),
            false => due.into_iter().chain(limit).min(),
        };
        let ended = io.borrow().wait(until, stdin)?;
        for _ in 0..BATCHES {
            if !io.borrow().receive(inbox)? {
                break;
            }
            inbox.each(|datagram, from| stack.handle_datagram(datagram, from, io))?;
        }
        let now = Instant::now();
        if due.is_some_and(|due| due <= now) {
            stack.handle_timeout(now);
        }
        Ok(ended)
    }
}
