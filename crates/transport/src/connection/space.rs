//! A packet number space, and what is remembered of a packet in flight.

use std::ops::{Index, IndexMut, Range};

use bytes::Bytes;
use equic_wire::StreamId;

use super::packet_numbers::PacketNumbers;
use super::paths::PathKey;
use crate::operation::{Extension, Word};
use crate::received::ReceivedPackets;
use crate::recovery::LossDetector;
use crate::stream::{Assembler, Control, SendBuffer};

/// A path identifier of RFC 10069: whose packet numbers and connection IDs. Without that extension
/// there is 0 alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PathId(pub u32);

/// The packet number spaces (RFC 9000 s.12.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SpaceId {
    Initial,
    Handshake,
    Data(PathId),
}

impl SpaceId {
    /// Application data of path ID 0.
    pub(crate) const DATA: SpaceId = SpaceId::Data(PathId(0));

    pub(crate) const fn is_data(self) -> bool {
        matches!(self, SpaceId::Data(_))
    }
}

impl Word for SpaceId {
    fn to_word(self) -> u64 {
        match self {
            SpaceId::Initial => 0,
            SpaceId::Handshake => 1,
            SpaceId::Data(PathId(id)) => 2 + u64::from(id),
        }
    }

    fn from_word(word: u64) -> Option<SpaceId> {
        Some(match word {
            0 => SpaceId::Initial,
            1 => SpaceId::Handshake,
            other => SpaceId::Data(PathId(u32::try_from(other - 2).ok()?)),
        })
    }
}

/// All spaces of a connection.
pub(super) struct Spaces {
    initial: Space,
    handshake: Space,
    /// By path ID.
    data: Vec<Space>,
}

impl Spaces {
    pub(super) fn new() -> Spaces {
        Spaces { initial: Space::new(), handshake: Space::new(), data: vec![Space::new()] }
    }

    /// In the order in which their packets stand in a datagram.
    pub(super) fn ids(&self) -> impl Iterator<Item = SpaceId> + use<> {
        let data = 0..u32::try_from(self.data.len()).unwrap_or(u32::MAX);
        [SpaceId::Initial, SpaceId::Handshake]
            .into_iter()
            .chain(data.map(|id| SpaceId::Data(PathId(id))))
    }
}

impl Index<SpaceId> for Spaces {
    type Output = Space;

    fn index(&self, id: SpaceId) -> &Space {
        match id {
            SpaceId::Initial => &self.initial,
            SpaceId::Handshake => &self.handshake,
            SpaceId::Data(PathId(id)) => &self.data[id as usize],
        }
    }
}

impl IndexMut<SpaceId> for Spaces {
    fn index_mut(&mut self, id: SpaceId) -> &mut Space {
        match id {
            SpaceId::Initial => &mut self.initial,
            SpaceId::Handshake => &mut self.handshake,
            SpaceId::Data(PathId(id)) => &mut self.data[id as usize],
        }
    }
}

/// A frame of a packet in flight, as far as its loss or acknowledgement matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SentFrame {
    /// Up to this packet number.
    Ack(u64),
    Crypto(Range<u64>),
    Stream {
        id: StreamId,
        range: Range<u64>,
        fin: bool,
    },
    Control(Control),
    HandshakeDone,
    NewConnectionId(u64),
    RetireConnectionId(u64),
    NewToken(Bytes),
    AckFrequency(u64),
    Datagram,
    Ping,
    /// A hook's.
    Extension(Extension),
}

impl SentFrame {
    /// True if a packet of these frames would not have been sent but for hooks that other hooks brought.
    pub(super) fn are_brought(frames: &[SentFrame]) -> bool {
        let mut brought = false;
        for frame in frames {
            match frame {
                SentFrame::Extension(one) if one.brought => brought = true,
                SentFrame::Ack(_) | SentFrame::Ping => {}
                _ => return false,
            }
        }
        brought
    }
}

/// A packet in flight.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub frames: Vec<SentFrame>,
    /// Marked ECT(0).
    pub marked: bool,
    /// Path that the packet was sent on.
    pub path: PathKey,
    /// Nothing but frames of hooks that other hooks brought makes it count as in flight.
    pub brought: bool,
}

impl Sent {
    pub(super) fn new(frames: Vec<SentFrame>, marked: bool, path: PathKey) -> Sent {
        let brought = SentFrame::are_brought(&frames);
        Sent { frames, marked, path, brought }
    }
}

pub(super) struct Space {
    pub received: ReceivedPackets,
    pub loss: LossDetector<Sent>,
    pub crypto_in: Assembler,
    pub crypto_out: SendBuffer,
    pub numbers: PacketNumbers,
    /// Probes to send, whatever the window says.
    probes: u8,
}

impl Space {
    pub(super) fn new() -> Space {
        Space {
            received: ReceivedPackets::default(),
            loss: LossDetector::default(),
            crypto_in: Assembler::default(),
            crypto_out: SendBuffer::default(),
            numbers: PacketNumbers::default(),
            probes: 0,
        }
    }

    /// Probes that are still to be sent, whatever the window says (RFC 9002 s.6.2.4).
    pub(super) fn probes(&self) -> u8 {
        self.probes
    }

    /// A probe timeout: so many packets are to be sent as probes. Zero takes back what was to be sent.
    pub(super) fn probe(&mut self, packets: u8) {
        self.probes = packets;
    }

    /// A packet is written: one that the peer acknowledges is a probe, if one was to be sent.
    pub(super) fn on_written(&mut self, eliciting: bool) {
        self.probes = self.probes.saturating_sub(u8::from(eliciting));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_a_packet_that_the_peer_acknowledges() {
        let mut space = Space::new();
        space.on_written(true);
        assert_eq!(space.probes(), 0);
        space.probe(2);
        space.on_written(false);
        assert_eq!(space.probes(), 2);
        space.on_written(true);
        assert_eq!(space.probes(), 1);
        space.probe(2);
        assert_eq!(space.probes(), 2, "another timeout does not add to them");
        space.probe(0);
        assert_eq!(space.probes(), 0);
    }

    #[test]
    fn spaces_are_in_the_order_of_a_datagram() {
        let spaces = Spaces::new();
        let ids: Vec<SpaceId> = spaces.ids().collect();
        assert_eq!(ids, [SpaceId::Initial, SpaceId::Handshake, SpaceId::DATA]);
        for id in ids {
            assert_eq!(SpaceId::from_word(id.to_word()), Some(id));
        }
    }
}
