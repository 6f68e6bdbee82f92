//! Packet number spaces, and the record of a packet in flight.

use std::iter::once;
use std::ops::Deref;

pub(crate) use equic_wire::PathId;

pub(super) use super::frames::{PathFrame, SentFrame};
use super::packet_numbers::PacketNumbers;
use super::paths::PathKey;
use crate::lazy::LazyBuf;
use crate::operation::Word;
use crate::received::ReceivedPackets;
use crate::recovery::{Content, LossDetector};
use crate::stream::{Assembler, SendBuffer};

/// Maximum capacity of a packet's list of frames that is kept for the next packet.
const KEPT_PLACES: usize = 16;

/// Number of the spaces that end with the handshake: Initial and Handshake.
const HANDSHAKE_SPACES: usize = 2;

/// Maximum number of path IDs in use, whatever [`super::TransportConfig::max_paths`] is.
pub(super) const MOST_PATH_IDS: usize = 8;

/// The packet number spaces (RFC 9000 s.12.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SpaceId {
    Initial,
    Handshake,
    /// Space of 0-RTT and 1-RTT packets with this path ID (RFC 10069). Without multipath, only path
    /// ID 0 exists.
    Data(PathId),
}

impl SpaceId {
    /// Application data of path ID 0.
    pub(crate) const DATA: SpaceId = SpaceId::Data(PathId::ZERO);

    pub(crate) const fn is_data(self) -> bool {
        matches!(self, SpaceId::Data(_))
    }

    /// Returns the space that stores the CRYPTO data of this one. CRYPTO data of 1-RTT packets is
    /// one stream for all paths.
    pub(crate) const fn of_crypto(self) -> SpaceId {
        match self {
            SpaceId::Data(_) => SpaceId::DATA,
            other => other,
        }
    }
}

impl Word for SpaceId {
    fn to_word(self) -> u64 {
        match self {
            SpaceId::Initial => 0,
            SpaceId::Handshake => 1,
            SpaceId::Data(id) => 2 + u64::from(id.get()),
        }
    }

    fn from_word(word: u64) -> Option<SpaceId> {
        Some(match word {
            0 => SpaceId::Initial,
            1 => SpaceId::Handshake,
            other => SpaceId::Data(PathId::new(u32::try_from(other - 2).ok()?)),
        })
    }
}

/// All spaces of a connection. The spaces of Initial and Handshake packets are discarded during its
/// life. Spaces of path IDs other than 0 are created and removed. [`Spaces::get`] and
/// [`Spaces::get_mut`] are therefore the only ways to get a space by its ID, and each caller
/// decides what to do if the space is missing. Path ID 0 always has a space: see [`Spaces::data`].
pub(super) struct Spaces {
    /// The Initial and Handshake spaces, until each is discarded. `None` once both are, which frees
    /// their memory.
    handshake: Option<Box<[Option<Space>; HANDSHAKE_SPACES]>>,
    /// Space of path ID 0.
    data: Space,
    /// Spaces of other path IDs in ascending order; at most [`MOST_PATH_IDS`] including path 0.
    others: Vec<(PathId, Space)>,
    /// An empty list, whose allocation is reused for the frames of the next packet.
    list: Vec<SentFrame>,
}

impl Spaces {
    pub(super) fn new() -> Spaces {
        let handshake = Some(Box::new([Some(Space::new()), Some(Space::new())]));
        Spaces { handshake, data: Space::new(), others: Vec::new(), list: Vec::new() }
    }

    /// Removes and returns the space of Initial or Handshake packets (RFC 9001 s.4.9). Returns
    /// `None` if it was discarded before, or if `id` is a space of application data, which
    /// [`Spaces::remove`] removes.
    pub(super) fn discard(&mut self, id: SpaceId) -> Option<Space> {
        let both = self.handshake.as_mut()?;
        let gone = match id {
            SpaceId::Initial => both[0].take(),
            SpaceId::Handshake => both[1].take(),
            SpaceId::Data(_) => None,
        };
        if both.iter().all(Option::is_none) {
            self.handshake = None;
        }
        gone
    }

    /// Returns true if packets of application data wait for an acknowledgement.
    pub(super) fn are_in_flight(&self) -> bool {
        let waits = |space: &Space| space.loss.last_ack_eliciting().is_some();
        waits(&self.data) || self.others.iter().any(|(_, space)| waits(space))
    }

    /// Frees memory that the next packets allocate again. Called if nothing is in flight or waits
    /// to be sent.
    pub(super) fn shrink(&mut self) {
        self.list = Vec::new();
        for space in once(&mut self.data).chain(self.others.iter_mut().map(|(_, space)| space)) {
            space.shrink();
        }
    }

    /// Returns the existing spaces in the order of their packets in a datagram.
    pub(super) fn ids(&self) -> impl Iterator<Item = SpaceId> + use<> {
        let mut others = [PathId::ZERO; MOST_PATH_IDS];
        others.iter_mut().zip(&self.others).for_each(|(place, (id, _))| *place = *id);
        let there = self.handshake.as_deref().map(|both| both.each_ref().map(Option::is_some));
        let next = if there.is_some() { 0 } else { HANDSHAKE_SPACES };
        let handshake = there.unwrap_or_default();
        Ids { handshake, others, count: self.others.len(), next }
    }

    /// Variant of [`Spaces::ids`] that also returns the spaces.
    pub(super) fn iter(&self) -> impl Iterator<Item = (SpaceId, &Space)> {
        self.ids().filter_map(|id| Some((id, self.get(id)?)))
    }

    /// Returns the space of path ID 0, which lives as long as the connection. It keeps the CRYPTO
    /// data of 1-RTT packets, on whatever path they are sent.
    #[inline(always)]
    pub(super) fn data(&self) -> &Space {
        &self.data
    }

    /// Returns true if `holds` is true for a space of application data of any path ID.
    #[inline]
    pub(super) fn any_data(&self, mut holds: impl FnMut(SpaceId, &Space) -> bool) -> bool {
        let mut others = self.others.iter();
        holds(SpaceId::DATA, &self.data)
            || others.any(|(id, space)| holds(SpaceId::Data(*id), space))
    }

    /// Returns an empty list for the frames of a new packet. [`Spaces::take_back`] returns its
    /// memory.
    #[inline(always)]
    pub(super) fn lend_list(&mut self) -> FrameList {
        FrameList { first: None, others: Some(std::mem::take(&mut self.list)) }
    }

    /// Lends memory to a list that has none, before a second frame is added.
    #[inline(always)]
    pub(super) fn lend_to(&mut self, list: &mut FrameList) {
        if list.others.is_none() && !list.is_empty() {
            list.others = Some(std::mem::take(&mut self.list));
        }
    }

    /// Keeps the memory of a list for the next packet, unless it is large. The list must be empty.
    #[inline(always)]
    pub(super) fn take_back(&mut self, list: &mut FrameList) {
        debug_assert!(list.is_empty(), "the frames of a packet must be recorded or sent again");
        if let Some(others) = list.others.take()
            && others.capacity() <= KEPT_PLACES
        {
            self.list = others;
        }
    }

    /// Returns the capacity of the list for the next packet.
    #[cfg(test)]
    pub(super) fn list_capacity(&self) -> usize {
        self.list.capacity()
    }

    /// Mutable variant of [`Spaces::data`].
    pub(super) fn data_mut(&mut self) -> &mut Space {
        &mut self.data
    }

    /// Returns a space, or `None` if it was discarded or its path ID is not in use.
    #[inline(always)]
    pub(super) fn get(&self, id: SpaceId) -> Option<&Space> {
        match id {
            SpaceId::Initial => self.handshake.as_ref()?[0].as_ref(),
            SpaceId::Handshake => self.handshake.as_ref()?[1].as_ref(),
            SpaceId::Data(id) if id == PathId::ZERO => Some(&self.data),
            SpaceId::Data(id) => {
                self.others.iter().find(|(other, _)| *other == id).map(|(_, space)| space)
            }
        }
    }

    /// Mutable variant of [`Spaces::get`].
    #[inline(always)]
    pub(super) fn get_mut(&mut self, id: SpaceId) -> Option<&mut Space> {
        match id {
            SpaceId::Initial => self.handshake.as_mut()?[0].as_mut(),
            SpaceId::Handshake => self.handshake.as_mut()?[1].as_mut(),
            SpaceId::Data(id) if id == PathId::ZERO => Some(&mut self.data),
            SpaceId::Data(id) => {
                self.others.iter_mut().find(|(other, _)| *other == id).map(|(_, space)| space)
            }
        }
    }

    /// Returns true if a space has CRYPTO data to send. Returns false if the space was removed.
    #[inline(always)]
    pub(super) fn has_crypto(&self, id: SpaceId) -> bool {
        self.get(id).is_some_and(Space::has_crypto)
    }

    /// Returns the number of probes to send in a space, or 0 if the space was removed.
    #[inline(always)]
    pub(super) fn probes(&self, id: SpaceId) -> u8 {
        self.get(id).map_or(0, Space::probes)
    }

    /// Adds the space of a path ID.
    pub(super) fn add(&mut self, id: PathId) {
        if id != PathId::ZERO && self.get(SpaceId::Data(id)).is_none() {
            let at = self.others.partition_point(|(other, _)| *other < id);
            self.others.insert(at, (id, Space::new()));
        }
    }

    /// Removes the space of a path ID. The space of path 0 is only emptied, because it stores
    /// CRYPTO data.
    pub(super) fn remove(&mut self, id: PathId) {
        self.others.retain(|(other, _)| *other != id);
        if id == PathId::ZERO {
            self.data.received = ReceivedPackets::default();
            self.data.probes = 0;
        }
    }
}

/// Iterator of [`Spaces::ids`]. It runs several times per packet.
struct Ids {
    /// True if the Initial and Handshake spaces exist.
    handshake: [bool; HANDSHAKE_SPACES],
    /// Path IDs other than 0, and their number.
    others: [PathId; MOST_PATH_IDS],
    count: usize,
    /// Index of the next space, in the order Initial, Handshake, path ID 0, others.
    next: usize,
}

impl Iterator for Ids {
    type Item = SpaceId;

    #[inline]
    fn next(&mut self) -> Option<SpaceId> {
        while self.handshake.get(self.next) == Some(&false) {
            self.next += 1;
        }
        let at = self.next;
        self.next += 1;
        match at {
            0 => Some(SpaceId::Initial),
            1 => Some(SpaceId::Handshake),
            2 => Some(SpaceId::DATA),
            _ => self.others.get(..self.count)?.get(at - 3).map(|id| SpaceId::Data(*id)),
        }
    }
}

/// Frames of a packet during its construction. The first frame needs no allocation.
#[derive(Debug, Default)]
pub(super) struct FrameList {
    first: Option<SentFrame>,
    /// The other frames. `None` if no memory was lent ([`Spaces::lend_to`]), so that dropping the
    /// list of a packet with one frame is free.
    others: Option<Vec<SentFrame>>,
}

impl FrameList {
    /// Appends a frame.
    #[inline(always)]
    pub(super) fn push(&mut self, frame: SentFrame) {
        if self.first.is_none() {
            self.first = Some(frame);
        } else {
            self.others.get_or_insert_default().push(frame);
        }
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.as_ref().map_or(0, Vec::len)
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Moves the frames out of the list, which becomes empty.
    #[inline(always)]
    pub(super) fn take(&mut self) -> SentFrames {
        match (self.first.take(), &mut self.others) {
            (Some(one), None) => SentFrames::One(one),
            (Some(one), Some(others)) if others.is_empty() => SentFrames::One(one),
            (first, others) => {
                let mut all = Vec::with_capacity(1 + others.as_ref().map_or(0, Vec::len));
                all.extend(first);
                all.extend(others.iter_mut().flat_map(|others| others.drain(..)));
                SentFrames::Several(all.into())
            }
        }
    }
}

/// Frames of a packet in flight. A single frame, as in most packets with stream data, needs no
/// allocation.
#[derive(Debug, Clone)]
pub(super) enum SentFrames {
    One(SentFrame),
    /// Any number of frames.
    Several(Box<[SentFrame]>),
}

impl SentFrames {
    /// Returns the number of frames in separately allocated memory.
    pub(super) fn allocated(&self) -> usize {
        match self {
            SentFrames::One(_) => 0,
            SentFrames::Several(frames) => frames.len(),
        }
    }
}

impl Default for SentFrames {
    fn default() -> SentFrames {
        SentFrames::Several(Box::default())
    }
}

impl Deref for SentFrames {
    type Target = [SentFrame];

    #[inline]
    fn deref(&self) -> &[SentFrame] {
        match self {
            SentFrames::One(frame) => std::slice::from_ref(frame),
            SentFrames::Several(frames) => frames,
        }
    }
}

/// A packet in flight.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub frames: SentFrames,
    /// True if the packet was marked ECT(0).
    pub marked: bool,
    /// Path on which the packet was sent.
    pub path: PathKey,
    /// True if the packet counts as in flight only because of frames of hooks that other hooks
    /// attached.
    pub nested: bool,
}

impl Sent {
    /// Creates the record of a packet.
    #[inline(always)]
    pub(super) fn new(frames: SentFrames, marked: bool, path: PathKey) -> Sent {
        // Most packets have one STREAM frame.
        let nested = match &frames {
            SentFrames::One(SentFrame::Stream { .. }) => false,
            frames => SentFrame::any_nested(frames),
        };
        Sent { frames, marked, path, nested }
    }
}

impl Content for Sent {
    /// Merges packets that each contain one piece of the same stream, if the pieces are adjacent
    /// and of equal length.
    #[inline(always)]
    fn merge(&mut self, count: u16, next: &Sent) -> bool {
        let alike = (self.marked, self.path, self.nested) == (next.marked, next.path, next.nested);
        let (SentFrames::One(one), SentFrames::One(other)) = (&mut self.frames, &next.frames)
        else {
            return false;
        };
        let (
            SentFrame::Stream { id, range, fin: false },
            SentFrame::Stream { id: other, range: behind, fin: false },
        ) = (one, other)
        else {
            return false;
        };
        let length = behind.end - behind.start;
        let follows = alike
            && id == other
            && range.end == behind.start
            && range.end - range.start == length * u64::from(count);
        if follows {
            range.end = behind.end;
        }
        follows
    }

    fn part(&self, all: u16, from: u16, count: u16) -> Sent {
        let frames = match &self.frames {
            SentFrames::One(SentFrame::Stream { id, range, fin }) => {
                let length = (range.end - range.start) / u64::from(all.max(1));
                let start = range.start + length * u64::from(from);
                let range = start..start + length * u64::from(count);
                SentFrames::One(SentFrame::Stream { id: *id, range, fin: *fin })
            }
            other => other.clone(),
        };
        Sent { frames, ..*self }
    }
}

pub(super) struct Space {
    pub received: ReceivedPackets,
    pub loss: LossDetector<Sent>,
    pub crypto_in: LazyBuf<Assembler>,
    pub crypto_out: LazyBuf<SendBuffer>,
    pub numbers: PacketNumbers,
    /// Number of probes to send, regardless of the window.
    probes: u8,
}

impl Space {
    pub(super) fn new() -> Space {
        Space {
            received: ReceivedPackets::default(),
            loss: LossDetector::default(),
            crypto_in: LazyBuf::default(),
            crypto_out: LazyBuf::default(),
            numbers: PacketNumbers::default(),
            probes: 0,
        }
    }

    /// Returns true if CRYPTO data must be sent or retransmitted.
    #[inline]
    pub(super) fn has_crypto(&self) -> bool {
        self.crypto_out.get().is_some_and(|out| out.wants_to_send(u64::MAX))
    }

    /// See [`Spaces::shrink`].
    fn shrink(&mut self) {
        self.loss.shrink();
        self.received.shrink();
        self.crypto_in.shrink();
        self.crypto_out.shrink();
    }

    /// Returns the number of probes that are still to be sent, regardless of the window (RFC 9002
    /// s.6.2.4).
    pub(super) fn probes(&self) -> u8 {
        self.probes
    }

    /// Sets the number of probes to send after a probe timeout. Zero cancels pending probes.
    pub(super) fn probe(&mut self, packets: u8) {
        self.probes = packets;
    }

    /// Records a written packet. If it is ack-eliciting, it counts as a pending probe.
    pub(super) fn on_written(&mut self, eliciting: bool) {
        self.probes = self.probes.saturating_sub(u8::from(eliciting));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pto_probe_has_frames_that_elicit_acknowledgements() {
        let mut space = Space::new();
        space.on_written(true);
        assert_eq!(space.probes(), 0);
        space.probe(2);
        space.on_written(false);
        assert_eq!(space.probes(), 2);
        space.on_written(true);
        assert_eq!(space.probes(), 1);
        space.probe(2);
        assert_eq!(space.probes(), 2, "another timeout does not add probes");
        space.probe(0);
        assert_eq!(space.probes(), 0);
    }

    #[test]
    fn packet_frames_keep_their_order() {
        let mut spaces = Spaces::new();
        for count in 0..4 {
            let mut list = spaces.lend_list();
            (0..count).map(SentFrame::Ack).for_each(|frame| list.push(frame));
            assert_eq!((list.len(), list.is_empty()), (count as usize, count == 0));
            let sent = Sent::new(list.take(), false, PathKey(0));
            let wanted: Vec<SentFrame> = (0..count).map(SentFrame::Ack).collect();
            assert_eq!((*sent.frames).to_vec(), wanted);
            assert_eq!(sent.frames.allocated(), if count == 1 { 0 } else { wanted.len() });
            assert!(list.is_empty());
            let places = list.others.as_ref().unwrap().capacity();
            spaces.take_back(&mut list);
            assert_eq!(spaces.list_capacity(), places, "the next packet reuses the memory");
        }
        spaces.take_back(&mut FrameList { first: None, others: Some(Vec::with_capacity(1000)) });
        assert!(spaces.list_capacity() <= KEPT_PLACES, "the memory of a long list is freed");
    }

    #[test]
    fn space_order_is_that_of_a_datagram() {
        let spaces = Spaces::new();
        let ids: Vec<SpaceId> = spaces.ids().collect();
        assert_eq!(ids, [SpaceId::Initial, SpaceId::Handshake, SpaceId::DATA]);
        for id in ids {
            assert_eq!(SpaceId::from_word(id.to_word()), Some(id));
        }
    }

    #[test]
    fn space_that_is_discarded_does_not_come_back() {
        let (initial, handshake) = (SpaceId::Initial, SpaceId::Handshake);
        let mut spaces = Spaces::new();
        for id in [initial, handshake] {
            spaces.get_mut(id).unwrap().probe(2);
            assert_eq!(spaces.probes(id), 2);
        }
        assert!(spaces.discard(SpaceId::DATA).is_none(), "path 0 always has a space");
        assert_eq!(spaces.discard(initial).map(|space| space.probes()), Some(2));
        assert_eq!(spaces.ids().collect::<Vec<_>>(), [handshake, SpaceId::DATA]);
        assert!(spaces.get(initial).is_none() && spaces.get_mut(initial).is_none());
        assert_eq!((spaces.probes(initial), spaces.has_crypto(initial)), (0, false));
        assert!(spaces.discard(initial).is_none());
        assert_eq!(spaces.probes(handshake), 2, "the probes belong to the other space");
        assert!(spaces.discard(handshake).is_some() && spaces.handshake.is_none());
        assert_eq!(spaces.ids().collect::<Vec<_>>(), [SpaceId::DATA]);
        assert_eq!(spaces.iter().map(|(id, _)| id).collect::<Vec<_>>(), [SpaceId::DATA]);
        assert!(spaces.get(handshake).is_none() && spaces.discard(handshake).is_none());
    }

    #[test]
    fn space_of_handshake_packets_may_go_first() {
        let mut spaces = Spaces::new();
        assert!(spaces.discard(SpaceId::Handshake).is_some());
        assert_eq!(spaces.ids().collect::<Vec<_>>(), [SpaceId::Initial, SpaceId::DATA]);
    }

    #[test]
    fn space_of_path_ids_lasts_while_they_are_used() {
        let mut spaces = Spaces::new();
        let path = |id| SpaceId::Data(PathId::new(id));
        spaces.add(PathId::new(7));
        spaces.add(PathId::new(3));
        spaces.add(PathId::ZERO);
        let ids: Vec<SpaceId> = spaces.ids().skip(2).collect();
        assert_eq!(ids, [path(0), path(3), path(7)]);
        spaces.get_mut(path(7)).unwrap().probe(2);
        spaces.add(PathId::new(7));
        assert_eq!((spaces.probes(path(7)), spaces.probes(path(3))), (2, 0));
        spaces.remove(PathId::new(7));
        assert!(spaces.get(path(7)).is_none() && spaces.get(path(3)).is_some());
        spaces.remove(PathId::ZERO);
        assert!(spaces.get(SpaceId::DATA).is_some(), "the space stores CRYPTO data");
        assert_eq!(path(3).of_crypto(), SpaceId::DATA);
        assert_eq!(SpaceId::Handshake.of_crypto(), SpaceId::Handshake);
    }
}
