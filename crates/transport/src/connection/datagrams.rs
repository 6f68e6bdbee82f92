//! Unreliable datagrams (RFC 9221).

use std::collections::VecDeque;

use bytes::Bytes;
use equic_wire::Writer;
use equic_wire::frame::{DatagramFrame, Frame};

use super::path::Path;
use super::space::{SentFrame, SpaceId};
use super::{Connection, Event};
use crate::lazy::{LazyBox, StaticDefault};
use crate::operation::Operation;

/// Memory in bytes that a waiting datagram costs beside its data, so that empty ones are bounded, too.
const OVERHEAD: usize = size_of::<Bytes>();

/// A DATAGRAM frame of any size that fits into a packet is taken (RFC 9221 s.3).
const MAX_FRAME: usize = 65_535;

/// Bytes of a short header with the longest packet number, without the connection ID, and of the tag.
const PACKET_OVERHEAD: usize = 1 + 4 + 16;

/// Reason for which a datagram cannot be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DatagramError {
    /// The peer takes none, or its transport parameters have not come yet.
    Unsupported,
    /// It is larger than so many bytes, which is what fits into a packet now
    /// ([`Connection::max_datagram_size`]). It may have fitted before: paths change.
    TooLarge(usize),
    /// So much is waiting for the network already; [`Event::DatagramsWritable`] will say when there is
    /// room.
    Full,
    /// The connection is over.
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

/// Datagrams that wait, bounded in bytes.
#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Bytes>,
    /// With [`OVERHEAD`].
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

/// Those of a connection.
#[derive(Debug, Default)]
pub(super) struct Datagrams {
    /// At most the configured `datagram_receive_buffer`.
    incoming: LazyBox<Queue>,
    /// At most `datagram_send_buffer`.
    outgoing: LazyBox<Queue>,
    /// The application knows that there is something to read.
    told: bool,
    /// It was told that there is no room, and wants to hear when there is.
    wants_room: bool,
    /// The first did not fit behind what came before it in the packet: it goes first in the next.
    first: bool,
    /// The application has sent one, or would have if it had fitted.
    used: bool,
}

impl Datagrams {
    /// `max_datagram_frame_size` for a receive buffer of so many bytes.
    pub(super) fn frame_limit(buffer: usize) -> u64 {
        buffer.min(MAX_FRAME) as u64
    }

    /// True if a datagram waits to be sent.
    pub(super) fn wants_to_send(&self) -> bool {
        !self.outgoing.waiting.is_empty()
    }

    /// True if the application sends datagrams: larger ones may be of use to it.
    pub(super) fn are_used(&self) -> bool {
        self.used
    }

    /// True if a waiting datagram is to be sent before all other frames.
    pub(super) fn goes_first(&self) -> bool {
        self.first
    }

    /// Bytes kept of what the peer sent.
    pub(super) fn memory(&self) -> usize {
        self.incoming.bytes
    }
}

impl Connection {
    /// Sends a datagram: once, in one packet, when congestion control allows. Lost ones are counted
    /// ([`super::Stats::datagram_frames_lost`]) and not sent again.
    ///
    /// # Errors
    /// [`DatagramError`]; it is not sent then.
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
        // One may always wait, however small the buffer.
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
            // Whichever path it will go on.
            let may = |path: &&Path| path.is_current() && path.is_validated() && path.may_send();
            packet = self.paths.iter().filter(may).map(room).fold(packet, usize::min);
        }
        let frame = usize::try_from(limit).unwrap_or(usize::MAX).min(packet);
        // The type and the longest length there can be; without the length a frame is one byte.
        Some(frame.saturating_sub(1 + 2))
    }

    /// The oldest datagram that came and was not read.
    pub fn read_datagram(&mut self) -> Option<Bytes> {
        let data = self.datagrams.incoming.get_mut_if_allocated().and_then(Queue::pop);
        self.datagrams.told &= data.is_some();
        data
    }

    /// A DATAGRAM frame came. False: it breaks a limit of ours.
    pub(super) fn on_datagram_frame(&mut self, frame: &DatagramFrame<'_>) -> bool {
        let buffer = self.config.datagram_receive_buffer;
        let size = Frame::Datagram(*frame).encoded_len() as u64;
        // RFC 9221 s.3; zero: not offered.
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
        // Newer ones are worth more to those who want datagrams.
        while incoming.bytes > buffer && incoming.pop().is_some() {
            self.stats.datagram_frames_dropped += 1;
        }
        if !self.datagrams.told && !self.datagrams.incoming.waiting.is_empty() {
            self.datagrams.told = true;
            self.events.push_back(Event::DatagramsReadable);
        }
        true
    }

    /// Writes as many as fit.
    pub(super) fn write_datagrams(
        &mut self,
        id: SpaceId,
        writer: &mut Writer<'_>,
        frames: &mut Vec<SentFrame>,
    ) {
        self.datagrams.first = false;
        while let Some(data) = self.datagrams.outgoing.waiting.front().cloned() {
            let frame = Frame::Datagram(DatagramFrame { data: &data, to_end_of_packet: false });
            if self.write_frame(id, &frame, writer).is_ok() {
                self.stats.datagram_frames_sent += 1;
                frames.push(SentFrame::Datagram);
            } else if writer.position() > 0 || self.spaces.probes(id) > 0 {
                // Probes are smaller than other packets.
                self.datagrams.first = true;
                break;
            } else {
                // It has a packet for itself and does not fit: the path takes less than it did.
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
