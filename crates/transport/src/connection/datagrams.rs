//! Unreliable datagrams (RFC 9221).

use std::collections::VecDeque;

use bytes::Bytes;
use equic_wire::Writer;
use equic_wire::frame::{DatagramFrame, Frame};

use super::path::Path;
use super::space::{FrameList, SentFrame, SpaceId};
use super::{Connection, Event};
use crate::lazy::{LazyBox, StaticDefault};
use crate::operation::Operation;

/// Overhead of a waiting datagram in bytes. It bounds the number of empty datagrams.
const OVERHEAD: usize = size_of::<Bytes>();

/// Our limit on the size of a DATAGRAM frame. It permits any frame that fits into a packet (RFC
/// 9221 s.3).
const MAX_FRAME: usize = 65_535;

/// Size in bytes of a short header with the longest packet number and of the AEAD tag, without the
/// connection ID.
const PACKET_OVERHEAD: usize = 1 + 4 + 16;

/// Reason for which a datagram cannot be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DatagramError {
    /// The peer does not accept datagrams, or its transport parameters have not arrived yet.
    Unsupported,
    /// The datagram exceeds the given size in bytes, the maximum for a packet on the current path
    /// ([`Connection::max_datagram_size`]). The maximum changes with the path.
    TooLarge(usize),
    /// The send buffer is full. [`Event::DatagramsWritable`] reports when there is room.
    Full,
    /// The connection is closed.
    Closed,
}

impl std::fmt::Display for DatagramError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DatagramError::Unsupported => f.write_str("the peer does not accept DATAGRAM frames"),
            DatagramError::TooLarge(most) => {
                write!(f, "the datagram does not fit into a packet: at present, {most} bytes fit")
            }
            DatagramError::Full => f.write_str("too many datagrams are waiting to be sent"),
            DatagramError::Closed => f.write_str("the connection has ended"),
        }
    }
}

impl std::error::Error for DatagramError {}

/// A queue of waiting datagrams, bounded in bytes.
#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Bytes>,
    /// Size of the datagrams, including [`OVERHEAD`] for each.
    bytes: usize,
}

impl StaticDefault for Queue {
    const STATIC_DEFAULT: &'static Queue = &Queue { waiting: VecDeque::new(), bytes: 0 };
}

impl Queue {
    fn push(&mut self, data: Bytes) {
        self.bytes += data.len() + OVERHEAD;
        self.waiting.push_back(data);
    }

    fn pop(&mut self) -> Option<Bytes> {
        let data = self.waiting.pop_front()?;
        self.bytes -= data.len() + OVERHEAD;
        Some(data)
    }
}

/// Datagrams of a connection.
#[derive(Debug, Default)]
pub(super) struct Datagrams {
    /// Received datagrams, up to `datagram_receive_buffer` bytes.
    incoming: LazyBox<Queue>,
    /// Datagrams to send, up to `datagram_send_buffer` bytes.
    outgoing: LazyBox<Queue>,
    /// True if the application was notified that a datagram is readable.
    told: bool,
    /// True if a datagram was rejected because the buffer was full. The application is notified
    /// when there is room.
    wants_room: bool,
    /// True if the first datagram did not fit into the rest of a packet. It precedes all other
    /// frames in the next packet.
    first: bool,
    /// True if the application has tried to send a datagram.
    used: bool,
}

impl Datagrams {
    /// Returns the `max_datagram_frame_size` to declare for a receive buffer of `buffer` bytes.
    pub(super) fn frame_limit(buffer: usize) -> u64 {
        buffer.min(MAX_FRAME) as u64
    }

    /// Returns true if a datagram waits to be sent.
    pub(super) fn wants_to_send(&self) -> bool {
        !self.outgoing.waiting.is_empty()
    }

    /// Returns true if the application sends datagrams. It may then benefit from a larger MTU.
    pub(super) fn are_used(&self) -> bool {
        self.used
    }

    /// Returns true if a waiting datagram must precede all other frames.
    pub(super) fn goes_first(&self) -> bool {
        self.first
    }

    /// Returns the size of the received datagrams in bytes, with overhead.
    pub(super) fn memory(&self) -> usize {
        self.incoming.bytes
    }
}

impl Connection {
    /// Queues a datagram. It is sent once, in one packet, when congestion control permits. A lost
    /// datagram is not sent again, but counted in [`super::Stats::datagram_frames_lost`].
    ///
    /// # Errors
    /// Returns a [`DatagramError`] if the datagram cannot be queued.
    pub fn send_datagram(&mut self, data: impl Into<Bytes>) -> Result<(), DatagramError> {
        if self.closing.is_closed() {
            return Err(DatagramError::Closed);
        }
        let data = data.into();
        let most = self.max_datagram_size().ok_or(DatagramError::Unsupported)?;
        self.datagrams.used = true;
        if data.len() > most {
            return Err(DatagramError::TooLarge(most));
        }
        let outgoing = &mut *self.datagrams.outgoing;
        // At least one datagram may wait, however small the buffer is.
        if !outgoing.waiting.is_empty()
            && outgoing.bytes + data.len() + OVERHEAD > self.config.datagram_send_buffer
        {
            self.datagrams.wants_room = true;
            return Err(DatagramError::Full);
        }
        outgoing.push(data);
        Ok(())
    }

    /// Returns the size of the largest datagram that can be sent now, in bytes. Returns `None` if
    /// the peer accepts no datagrams.
    ///
    /// The size changes with the path. The connection searches for sizes above the minimum only
    /// after [`Connection::send_datagram`] was called, even with a datagram that is too large, or
    /// after much was sent on streams.
    pub fn max_datagram_size(&self) -> Option<usize> {
        let limit = self.peer?.max_datagram_frame_size()?;
        let room = |path: &Path| {
            let ids = self.ids.remote_of(path.id()).unwrap_or(&self.ids.remote);
            let id = path.remote_id().and_then(|sequence| ids.get(sequence));
            let id = id.unwrap_or_else(|| ids.current());
            usize::from(path.mtu()).saturating_sub(PACKET_OVERHEAD + id.len())
        };
        let mut packet = room(self.path());
        if self.multipath.is_some() {
            // The datagram may be sent on any of these paths.
            let may = |path: &&Path| path.is_current() && path.is_validated() && path.may_send();
            packet = self.paths.iter().filter(may).map(room).fold(packet, usize::min);
        }
        let frame = usize::try_from(limit).unwrap_or(usize::MAX).min(packet);
        // The overhead is the type and the longest possible length field. A frame without a length
        // has one byte of overhead.
        Some(frame.saturating_sub(1 + 2))
    }

    /// Returns the oldest unread datagram, or `None` if all were read.
    pub fn read_datagram(&mut self) -> Option<Bytes> {
        let data = self.datagrams.incoming.get_mut_if_allocated().and_then(Queue::pop);
        self.datagrams.told &= data.is_some();
        data
    }

    /// Processes a DATAGRAM frame. Returns false if it exceeds our limit.
    pub(super) fn on_datagram_frame(&mut self, frame: &DatagramFrame<'_>) -> bool {
        let buffer = self.config.datagram_receive_buffer;
        let size = Frame::Datagram(*frame).encoded_len() as u64;
        // RFC 9221 s.3. A limit of zero means that datagrams are not supported.
        if size > Datagrams::frame_limit(buffer) {
            return false;
        }
        self.stats.datagram_frames_received += 1;
        if !self.decide_on(Operation::AcceptDatagram, (), frame.data, true) {
            self.stats.datagram_frames_dropped += 1;
            return true;
        }
        let incoming = &mut *self.datagrams.incoming;
        incoming.push(Bytes::copy_from_slice(frame.data));
        // Newer datagrams are worth more, so the oldest are dropped.
        while incoming.bytes > buffer && incoming.pop().is_some() {
            self.stats.datagram_frames_dropped += 1;
        }
        if !self.datagrams.told && !self.datagrams.incoming.waiting.is_empty() {
            self.datagrams.told = true;
            self.events.push_back(Event::DatagramsReadable);
        }
        true
    }

    /// Writes as many datagrams as fit.
    pub(super) fn write_datagrams(
        &mut self,
        id: SpaceId,
        writer: &mut Writer<'_>,
        frames: &mut FrameList,
    ) {
        self.datagrams.first = false;
        while let Some(data) = self.datagrams.outgoing.waiting.front().cloned() {
            let frame = Frame::Datagram(DatagramFrame { data: &data, to_end_of_packet: false });
            if self.write_frame(id, &frame, writer).is_ok() {
                self.stats.datagram_frames_sent += 1;
                frames.push(SentFrame::Datagram);
            } else if writer.position() > 0 || self.spaces.probes(id) > 0 {
                // The datagram may fit into the next packet: this one has other frames, or is a
                // small probe.
                self.datagrams.first = true;
                break;
            } else {
                // The datagram does not fit into a packet of its own, because the path's MTU has
                // fallen.
                self.stats.datagram_frames_lost += 1;
            }
            self.datagrams.outgoing.pop();
        }
        if self.datagrams.wants_room
            && self.datagrams.outgoing.bytes * 2 <= self.config.datagram_send_buffer
        {
            self.datagrams.wants_room = false;
            self.events.push_back(Event::DatagramsWritable);
        }
    }
}
