//! Combines the datagrams of a connection into as few messages to the system as possible.

use std::io;
use std::net::{IpAddr, SocketAddr};

use equic_transport::{Connection, EcnCodepoint, Timestamp, Transmit};

use crate::grouping::{GROUP, Grouping};
use crate::send_sockets::{MessageSender, SendSockets};
use crate::sendmsg::Outgoing;
use crate::udp::{MAX_DATAGRAM, Udp};

/// Maximum size of a message in bytes. With headers, it fits into one IP packet.
const MAX_BATCH: usize = 65_000;

/// Maximum number of destinations that are kept for [`Batch::failed`]. Only new client connections
/// need them, and these are few.
const MAX_FAILED: usize = 16;

/// Combines datagrams of a connection into messages. A message ends when a datagram has another
/// size, another destination or source, or another ECN codepoint. It also ends at the maximum
/// number of datagrams in one call to the system.
pub(crate) struct Batch {
    buffer: Vec<u8>,
    /// Complete messages. In the buffer, they precede the last message.
    messages: Vec<Message>,
    /// Number of complete messages that the system has accepted.
    taken: usize,
    /// The last message, to which datagrams are added.
    last: Message,
    /// True if the last message is complete, because its last datagram was shorter than the others.
    ended: bool,
    /// A datagram that did not fit into the last message. It follows this message in the buffer.
    behind: Option<Transmit>,
    /// Number of bytes that the system has accepted since [`Batch::has_sent`] last returned `true`.
    sent: usize,
    /// Destinations to which this machine refused to send, with the kind of error. At most
    /// [`MAX_FAILED`].
    failed: Vec<(SocketAddr, io::ErrorKind)>,
}

/// Datagrams with the same addresses and of the same size. Only the last one may be shorter.
#[derive(Clone, Copy)]
struct Message {
    /// Offset of the message in the buffer.
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

/// The result of one round of sending for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The connection has nothing more to send now.
    All,
    /// The connection may have more to send, but other connections get their turn first.
    Some,
    /// The system accepts no more now. Unsent datagrams stay in the batch.
    Blocked,
}

/// Limits of one round of sending for a connection.
#[derive(Clone, Copy)]
pub(crate) struct SendLimits {
    /// Maximum number of messages.
    pub messages: usize,
    /// Number of bytes after which no further message is made.
    pub bytes: usize,
}

impl Batch {
    pub(crate) fn new() -> Batch {
        Batch {
            // Pages that are never written take no memory.
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

    /// Returns and clears the destinations to which this machine refused to send since the last
    /// call.
    pub(crate) fn failed(&mut self) -> Vec<(SocketAddr, io::ErrorKind)> {
        std::mem::take(&mut self.failed)
    }

    /// Returns `true` if at least `bytes` bytes were sent since it last returned `true`.
    pub(crate) fn has_sent(&mut self, bytes: usize) -> bool {
        let has = self.sent >= bytes;
        if has {
            self.sent = 0;
        }
        has
    }

    /// Returns the number of bytes that the system has accepted since [`Batch::has_sent`] last
    /// returned `true`.
    pub(crate) fn sent(&self) -> usize {
        self.sent
    }

    /// Sends the data of a connection, up to a limit.
    pub(crate) fn send(
        &mut self,
        connection: &mut Connection,
        grouping: &mut Grouping,
        now: Timestamp,
        sender: impl MessageSender,
        limits: SendLimits,
    ) -> Sent {
        let most = sender.max_segments();
        let (mut messages, mut sent) = (0, 0);
        while messages < limits.messages && sent < limits.bytes {
            let group = grouping.messages().min(limits.messages - messages);
            let mut more = true;
            for _ in 0..group {
                more = self.fill(connection, now, most);
                sent += self.last.len;
                messages += 1;
                self.complete();
                if !more || sent >= limits.bytes {
                    break;
                }
            }
            if self.flush_timed(sender, grouping).is_err() {
                return Sent::Blocked;
            }
            if !more && self.last.len == 0 {
                return Sent::All;
            }
        }
        // The batch is then used for other connections, so a datagram left in the last message is
        // sent now.
        if self.flush(sender).is_err() { Sent::Blocked } else { Sent::Some }
    }

    /// Fills the last message. Returns `true` if the connection may have more to send.
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
                // While the connection sends only stream data, it writes all further datagrams in
                // one call.
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

    /// Adds the datagram that follows the last message to this message. Returns `false` if it does
    /// not fit. The datagram then stays in place until [`Batch::complete`].
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

    /// Completes the last message, and starts another one behind it.
    fn complete(&mut self) {
        let next = Message::empty(self.last.end());
        let last = std::mem::replace(&mut self.last, next);
        self.ended = false;
        if last.count > 0 {
            self.messages.push(last);
        }
        if let Some(sent) = self.behind.take() {
            // The datagram is already in the right place.
            self.add(sent);
        }
    }

    /// Returns the socket through which the next unsent message goes.
    pub(crate) fn next_socket<'a>(&self, sockets: SendSockets<'a>) -> &'a Udp {
        sockets.of(self.messages.get(self.taken).unwrap_or(&self.last).source)
    }

    /// Sends all messages.
    ///
    /// # Errors
    /// Returns an error if the system accepts no more now. Unsent datagrams stay in the batch.
    pub(crate) fn flush(&mut self, sender: impl MessageSender) -> io::Result<()> {
        self.complete();
        self.flush_complete(sender)
    }

    /// Sends the complete messages, and moves the last message to the front of the buffer.
    fn flush_complete(&mut self, sender: impl MessageSender) -> io::Result<()> {
        while let Some(message) = self.messages.get_mut(self.taken) {
            let outcome = sender.send(&Outgoing {
                destination: message.destination,
                source: message.source,
                ecn: message.ecn,
                bytes: &self.buffer[message.start..message.end()],
                segment: message.segment,
            });
            let taken = match outcome {
                Ok(taken) => taken,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
                // The datagram is lost. QUIC's loss detection handles that.
                Err(error) => {
                    if self.failed.len() < MAX_FAILED {
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

    /// Sends the complete messages as [`Batch::flush_complete`] does, and measures the time.
    fn flush_timed(
        &mut self,
        sender: impl MessageSender,
        grouping: &mut Grouping,
    ) -> io::Result<()> {
        let fewest = self.messages.iter().map(|message| message.count).min().unwrap_or(0);
        if !grouping.is_timed(fewest) {
            return self.flush_complete(sender);
        }
        let count = self.messages.iter().map(|message| message.count).sum();
        let start = sender.clock();
        self.flush_complete(sender)?;
        grouping.took(sender.clock() - start, count);
        Ok(())
    }
}
