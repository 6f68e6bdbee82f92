//! Datagrams of a connection into as few messages to the system as possible.

use std::io;
use std::net::{IpAddr, SocketAddr};

use equic_transport::{Connection, EcnCodepoint, Timestamp, Transmit};

use crate::grouping::{GROUP, Grouping};
use crate::outlets::{Out, Outlets};
use crate::udp::{MAX_DATAGRAM, Outgoing, Udp};

/// Bytes of one message: what fits into an IP packet, with headers.
const MAX_BATCH: usize = 65_000;

/// Destinations that are kept for [`Batch::failed`]. Clients that begin are few; others need none.
const FAILED: usize = 16;

/// Gathers datagrams of a connection in messages: each has datagrams until one is of another size, way or marking, or there are as
/// many as the system takes at once.
pub(crate) struct Batch {
    buffer: Vec<u8>,
    /// Messages that are complete; they lie before the one that is being made.
    messages: Vec<Message>,
    /// Number of them that the system has taken.
    taken: usize,
    /// The message that is being made.
    last: Message,
    /// Its last datagram was shorter than the others, so that it takes no more.
    ended: bool,
    /// A datagram that did not fit to the others and lies behind them.
    behind: Option<Transmit>,
    /// Bytes that the system has taken since [`Batch::has_sent`] was last true.
    sent: usize,
    /// Destinations that this machine refused to send to, with the kind of error; at most [`FAILED`].
    failed: Vec<(SocketAddr, io::ErrorKind)>,
}

/// Datagrams of one size, but for the last, which go the same way.
#[derive(Clone, Copy)]
struct Message {
    /// Where it begins in the buffer.
    start: usize,
    len: usize,
    segment: usize,
    count: usize,
    destination: SocketAddr,
    source: Option<IpAddr>,
    ecn: EcnCodepoint,
}

impl Message {
    fn empty(start: usize) -> Message {
        Message {
            start,
            len: 0,
            segment: 0,
            count: 0,
            destination: SocketAddr::from(([0, 0, 0, 0], 0)),
            source: None,
            ecn: EcnCodepoint::NotEct,
        }
    }

    fn end(&self) -> usize {
        self.start + self.len
    }
}

/// Result of one round of sending for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The connection has nothing more to send now.
    All,
    /// The connection may have more to send, but others have their turn first.
    Some,
    /// The system takes no more now; the datagrams in the batch wait.
    Blocked,
}

impl Batch {
    pub(crate) fn new() -> Batch {
        Batch {
            // What is not used costs no memory.
            buffer: vec![0; (GROUP + 1) * MAX_DATAGRAM],
            messages: Vec::with_capacity(GROUP),
            taken: 0,
            last: Message::empty(0),
            ended: false,
            behind: None,
            sent: 0,
            failed: Vec::new(),
        }
    }

    /// Takes the destinations that this machine refused to send to since the last call.
    pub(crate) fn failed(&mut self) -> Vec<(SocketAddr, io::ErrorKind)> {
        std::mem::take(&mut self.failed)
    }

    /// True once so many bytes have been sent, then again when as many more have.
    pub(crate) fn has_sent(&mut self, bytes: usize) -> bool {
        let has = self.sent >= bytes;
        if has {
            self.sent = 0;
        }
        has
    }

    /// Number of bytes that the system has taken since [`Batch::has_sent`] was last true.
    pub(crate) fn sent(&self) -> usize {
        self.sent
    }

    /// Sends what a connection has, in at most `turns` messages, and no more once they have `bytes`.
    pub(crate) fn send(
        &mut self,
        connection: &mut Connection,
        grouping: &mut Grouping,
        now: Timestamp,
        outlets: impl Out,
        (turns, bytes): (usize, usize),
    ) -> Sent {
        let most = outlets.max_segments();
        let (mut turn, mut sent) = (0, 0);
        while turn < turns && sent < bytes {
            let group = grouping.messages().min(turns - turn);
            let mut more = true;
            for _ in 0..group {
                more = self.fill(connection, now, most);
                sent += self.last.len;
                turn += 1;
                self.complete();
                if !more || sent >= bytes {
                    break;
                }
            }
            if self.flush_timed(outlets, grouping).is_err() {
                return Sent::Blocked;
            }
            if !more && self.last.len == 0 {
                return Sent::All;
            }
        }
        // What did not fit to the last message: the batch is for others now.
        if self.flush(outlets).is_err() { Sent::Blocked } else { Sent::Some }
    }

    /// Fills the last message; true if the connection may have more to send.
    fn fill(&mut self, connection: &mut Connection, now: Timestamp, most: usize) -> bool {
        while !self.ended
            && self.last.count < most
            && self.last.len + self.last.segment <= MAX_BATCH
        {
            let end = self.last.end();
            let room = &mut self.buffer[end..end + MAX_DATAGRAM];
            let Some(sent) = connection.poll_transmit(now, room) else {
                return false;
            };
            if !self.add(sent) {
                return true;
            }
            if !self.ended && sent.size == self.last.segment {
                // As long as nothing but stream data is to be sent, that is all at once.
                let end = self.last.end();
                let room = &mut self.buffer[end..(self.last.start + MAX_BATCH).max(end)];
                let more = connection.driver().poll_transmit_more(
                    now,
                    &sent,
                    room,
                    most - self.last.count,
                );
                self.last.len += more;
                self.last.count += more.div_ceil(sent.size);
                self.ended = !more.is_multiple_of(sent.size);
            }
        }
        true
    }

    /// Adds the datagram that lies behind the last message to it if it fits; otherwise returns false, and
    /// it stays where it is until [`Batch::complete`].
    fn add(&mut self, sent: Transmit) -> bool {
        let last = &mut self.last;
        if last.count == 0 {
            (last.segment, last.destination, last.ecn) = (sent.size, sent.destination, sent.ecn);
            last.source = sent.source;
        } else if sent.size > last.segment
            || sent.destination != last.destination
            || sent.ecn != last.ecn
            || sent.source != last.source
        {
            self.behind = Some(sent);
            return false;
        }
        self.ended = sent.size < last.segment;
        last.len += sent.size;
        last.count += 1;
        true
    }

    /// The last message is complete, another one begins behind it.
    fn complete(&mut self) {
        let next = Message::empty(self.last.end());
        let last = std::mem::replace(&mut self.last, next);
        self.ended = false;
        if last.count > 0 {
            self.messages.push(last);
        }
        if let Some(sent) = self.behind.take() {
            // It lies there already.
            self.add(sent);
        }
    }

    /// The socket that what is gathered goes out of.
    pub(crate) fn outlet<'a>(&self, outlets: Outlets<'a>) -> &'a Udp {
        outlets.of(self.messages.get(self.taken).unwrap_or(&self.last).source)
    }

    /// Sends what is gathered, if anything is.
    ///
    /// # Errors
    /// The system takes no more now; nothing is lost.
    pub(crate) fn flush(&mut self, outlets: impl Out) -> io::Result<()> {
        self.complete();
        self.flush_complete(outlets)
    }

    /// Sends the messages that are complete; one that is not moves to the front.
    fn flush_complete(&mut self, outlets: impl Out) -> io::Result<()> {
        while let Some(message) = self.messages.get_mut(self.taken) {
            let outcome = outlets.send(&Outgoing {
                destination: message.destination,
                source: message.source,
                ecn: message.ecn,
                bytes: &self.buffer[message.start..message.end()],
                segment: message.segment,
            });
            let taken = match outcome {
                Ok(taken) => taken,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
                // Lost like any other datagram, and QUIC's timers judge it so.
                Err(error) => {
                    if self.failed.len() < FAILED {
                        self.failed.push((message.destination, error.kind()));
                    }
                    message.len
                }
            };
            self.sent += taken;
            message.start += taken;
            message.len -= taken;
            if message.len == 0 {
                self.taken += 1;
            }
        }
        self.messages.clear();
        self.taken = 0;
        self.buffer.copy_within(self.last.start..self.last.end(), 0);
        self.last.start = 0;
        Ok(())
    }

    /// As [`Batch::flush_complete`], and notes how long it takes.
    fn flush_timed(&mut self, outlets: impl Out, grouping: &mut Grouping) -> io::Result<()> {
        let fewest = self.messages.iter().map(|message| message.count).min().unwrap_or(0);
        if !grouping.is_timed(fewest) {
            return self.flush_complete(outlets);
        }
        let count = self.messages.iter().map(|message| message.count).sum();
        let start = outlets.clock();
        self.flush_complete(outlets)?;
        grouping.took(outlets.clock() - start, count);
        Ok(())
    }
}
