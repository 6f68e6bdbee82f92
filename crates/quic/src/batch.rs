//! Datagrams of a connection into as few messages to the system as possible.

use std::io;
use std::net::{IpAddr, SocketAddr};

use equic_transport::{Connection, EcnCodepoint, Timestamp, Transmit};

use crate::outlets::Outlets;
use crate::udp::{MAX_DATAGRAM, Outgoing, Udp};

/// Bytes of one message: what fits into an IP packet, with headers.
const MAX_BATCH: usize = 65_000;

/// Gathers datagrams until one is of another size, way or marking, or there are as many as
/// the system takes at once.
pub(crate) struct Batch {
    buffer: Vec<u8>,
    len: usize,
    segment: usize,
    count: usize,
    destination: SocketAddr,
    source: Option<IpAddr>,
    ecn: EcnCodepoint,
    /// The last datagram was shorter than the others, so the batch takes no more.
    ended: bool,
    /// A datagram that did not fit to the others and lies behind them.
    behind: Option<Transmit>,
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
            buffer: vec![0; MAX_BATCH + MAX_DATAGRAM],
            len: 0,
            segment: 0,
            count: 0,
            destination: SocketAddr::from(([0, 0, 0, 0], 0)),
            source: None,
            ecn: EcnCodepoint::NotEct,
            ended: false,
            behind: None,
        }
    }

    /// Sends what a connection has, in at most `turns` messages, and no more once they have `bytes`.
    pub(crate) fn send(
        &mut self,
        connection: &mut Connection,
        now: Timestamp,
        outlets: Outlets<'_>,
        (turns, bytes): (usize, usize),
    ) -> Sent {
        let most = outlets.max_segments();
        let mut sent = 0;
        for _ in 0..turns {
            if sent >= bytes {
                break;
            }
            let more = self.fill(connection, now, most);
            sent += self.len;
            if self.flush(outlets).is_err() {
                return Sent::Blocked;
            }
            if !more && self.len == 0 {
                return Sent::All;
            }
        }
        // What did not fit to the last message: the batch is for others now.
        if self.flush(outlets).is_err() { Sent::Blocked } else { Sent::Some }
    }

    /// Fills the batch; true if the connection may have more to send.
    fn fill(&mut self, connection: &mut Connection, now: Timestamp, most: usize) -> bool {
        while !self.ended && self.count < most && self.len + self.segment <= MAX_BATCH {
            let end = self.len + MAX_DATAGRAM;
            let Some(sent) = connection.poll_transmit(now, &mut self.buffer[self.len..end]) else {
                return false;
            };
            if !self.add(sent) {
                return true;
            }
            if !self.ended && sent.size == self.segment {
                // As long as nothing but stream data is to be sent, that is all at once.
                let room = &mut self.buffer[self.len..MAX_BATCH.max(self.len)];
                let more = connection.poll_transmit_more(now, &sent, room, most - self.count);
                self.len += more;
                self.count += more.div_ceil(sent.size);
                self.ended = !more.is_multiple_of(sent.size);
            }
        }
        true
    }

    /// Adds the datagram that lies behind the batch to it if it fits; otherwise returns false, and
    /// it stays where it is until [`Batch::flush`].
    fn add(&mut self, sent: Transmit) -> bool {
        if self.count == 0 {
            (self.segment, self.destination, self.ecn) = (sent.size, sent.destination, sent.ecn);
            self.source = sent.source;
        } else if sent.size > self.segment
            || sent.destination != self.destination
            || sent.ecn != self.ecn
            || sent.source != self.source
        {
            self.behind = Some(sent);
            return false;
        }
        self.ended = sent.size < self.segment;
        self.len += sent.size;
        self.count += 1;
        true
    }

    /// The socket that what is gathered goes out of.
    pub(crate) fn outlet<'a>(&self, outlets: Outlets<'a>) -> &'a Udp {
        outlets.of(self.source)
    }

    /// Sends what is gathered, if anything is.
    ///
    /// # Errors
    /// The system takes no more now; nothing is lost.
    pub(crate) fn flush(&mut self, outlets: Outlets<'_>) -> io::Result<()> {
        if self.count > 0 {
            self.outlet(outlets).send(&Outgoing {
                destination: self.destination,
                source: self.source,
                ecn: self.ecn,
                bytes: &self.buffer[..self.len],
                segment: self.segment,
            })?;
        }
        let start = std::mem::take(&mut self.len);
        (self.count, self.segment, self.ended) = (0, 0, false);
        if let Some(sent) = self.behind.take() {
            self.buffer.copy_within(start..start + sent.size, 0);
            self.add(sent);
        }
        Ok(())
    }
}
