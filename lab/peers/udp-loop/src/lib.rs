//! The I/O loop for stacks that do no I/O themselves (`io=shared`): quinn-udp with GSO and GRO, on
//! one thread.
//!
//! An adapter implements [`Stack`]. [`Io`] is the socket, and [`client`] and [`server`] are the two
//! endpoints.

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

/// Size of a read from a stream, in bytes.
pub const CHUNK: usize = 64 << 10;
/// Maximum number of batches that are received before the stack may send.
const BATCHES: usize = 8;

/// The socket. It is shared because some stacks send while they process other events.
pub type Shared = Rc<RefCell<Io>>;

/// A stream: number of its connection, and stream ID.
pub type Place = (u64, u64);

/// A stack that does no I/O itself. It owns its connections and identifies them by numbers.
pub trait Stack {
    /// Starts a connection. If `resume` is true, it uses the last session ticket, if there is one.
    fn connect(&mut self, resume: bool) -> Result<u64>;
    /// Processes a datagram, and drops an invalid one. If the datagram is for another connection
    /// than the previous one, the stack should first send what the previous connection has to send.
    /// Otherwise, the two endpoints would take turns instead of running at the same time.
    fn handle_datagram(&mut self, datagram: &mut [u8], from: SocketAddr, io: &Shared)
    -> Result<()>;
    /// Returns the time of the next timeout, or `None` without a timeout.
    fn timeout(&self) -> Option<Instant>;
    /// Processes the timeout that [`Stack::timeout`] returned and that has expired.
    fn handle_timeout(&mut self, now: Instant);
    /// Sends what is due. Returns true if there may be more.
    fn transmit(&mut self, io: &Shared) -> Result<bool>;
    /// Returns a stream that may be readable. The stream is returned again when more data has
    /// arrived.
    fn poll_readable(&mut self) -> Option<Place>;
    /// Returns a stream that was blocked and may now be writable.
    fn poll_writable(&mut self) -> Option<Place>;
    /// Returns a connection that has ended.
    fn poll_closed(&mut self) -> Option<u64>;
    /// Returns true if the handshake of the connection is complete.
    fn is_established(&mut self, connection: u64) -> bool;
    /// Returns true if the connection is neither closed nor closing.
    fn is_open(&mut self, connection: u64) -> bool;
    /// Returns true if the connection was resumed with a session ticket.
    fn is_resumed(&mut self, connection: u64) -> bool;
    /// Opens a bidirectional stream. Returns its ID, or `None` if no stream can be opened now.
    fn open(&mut self, connection: u64) -> Result<Option<u64>>;
    /// Writes to a stream. Returns the number of accepted bytes.
    fn write(&mut self, at: Place, data: Bytes, end: bool) -> Result<usize>;
    /// Reads from a stream. Returns the number of bytes and whether the stream has ended, or `None`
    /// if there is no data.
    fn read(&mut self, at: Place, buffer: &mut [u8]) -> Result<Option<(usize, bool)>>;
    /// Closes a connection.
    fn close(&mut self, connection: u64);
    /// Records settings that are in force on this connection.
    fn observe(&mut self, connection: u64, effective: &mut Effective);
    /// Returns true if sending caused events that are not handled yet.
    fn has_news(&self) -> bool {
        false
    }
    /// Serves connections with another protocol than `perf`.
    fn serve_others(&mut self) {}
}

/// A stack and its socket.
pub struct Loop<S> {
    pub stack: S,
    pub io: Shared,
    inbox: Inbox,
}

impl<S: Stack> Loop<S> {
    pub fn new(stack: S, io: Io) -> Loop<S> {
        Loop { stack, io: Rc::new(RefCell::new(io)), inbox: Inbox::new() }
    }

    /// Opens connections, with a limit on concurrent handshakes.
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

    /// Returns an error if the connection has ended.
    pub fn must_be_open(&mut self, connection: u64) -> Result<()> {
        ensure!(self.stack.is_open(connection), "the connection was lost");
        Ok(())
    }

    /// Closes connections, and sends their CONNECTION_CLOSE frames.
    pub fn close_all(&mut self, connections: &[u64], effective: &mut Effective) -> Result<()> {
        for connection in connections {
            self.stack.observe(*connection, effective);
            self.stack.close(*connection);
        }
        self.flush()
    }

    /// Sends everything that is due.
    pub fn flush(&mut self) -> Result<()> {
        while self.stack.transmit(&self.io)? {}
        self.io.borrow_mut().flush()
    }

    /// Sends what is due. Then waits for datagrams and timers until `limit`, or until standard
    /// input ends if `stdin` is true. Returns true if standard input has ended.
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
