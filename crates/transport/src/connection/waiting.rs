//! Storage for a few packets that arrive before their keys (RFC 9001 s.5.7).

use super::Connection;
use super::migration::From;
use super::paths::PathKey;
use super::presence::MayBeAttached;
use super::receive::{Origin, ProtectedPacket};
use super::space::SpaceId;
use crate::Timestamp;
use crate::operation::Operation;
use crate::received::EcnCodepoint;

/// Maximum number of stored packets. A first flight has about as many.
const MAX_PACKETS: usize = 10;
/// Maximum size of all stored packets together, in bytes.
const MAX_BYTES: usize = 16 * 1024;

struct Kept {
    found: ProtectedPacket,
    path: PathKey,
    ecn: EcnCodepoint,
    packet: Vec<u8>,
}

/// Packets without keys, in order of arrival.
#[derive(Default)]
pub(super) struct UndecryptedPackets {
    /// At most [`MAX_PACKETS`] packets, with [`MAX_BYTES`] together.
    packets: Vec<Kept>,
    bytes: usize,
}

impl UndecryptedPackets {
    /// Stores a packet until its keys are available. Returns true if there was room.
    fn keep(
        &mut self,
        found: ProtectedPacket,
        path: PathKey,
        ecn: EcnCodepoint,
        packet: &[u8],
    ) -> bool {
        let fits = self.packets.len() < MAX_PACKETS && self.bytes + packet.len() <= MAX_BYTES;
        if fits {
            self.bytes += packet.len();
            let found = found.for_later();
            self.packets.push(Kept { found, path, ecn, packet: packet.to_vec() });
        }
        fits
    }

    /// Returns the index of the first packet for which `wanted` is true.
    fn position(&self, wanted: impl Fn(&ProtectedPacket) -> bool) -> Option<usize> {
        self.packets.iter().position(|kept| wanted(&kept.found))
    }

    /// Removes and returns the packet at an index.
    fn take(&mut self, at: usize) -> Option<Kept> {
        let kept = (at < self.packets.len()).then(|| self.packets.remove(at))?;
        self.bytes -= kept.packet.len();
        Some(kept)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Returns the memory in use, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.bytes + self.packets.capacity() * size_of::<Kept>()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }
}

/// The time at which a packet can be opened: now, later or never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Readiness {
    Ready,
    /// The keys of the packet may still become available.
    TooEarly,
    /// The keys of the packet were discarded, or will never be available.
    TooLate,
}

impl Connection {
    /// Stores a packet whose keys are not available yet. Returns false if it is dropped.
    pub(super) fn keep_waiting(
        &mut self,
        found: ProtectedPacket,
        from: From,
        ecn: EcnCodepoint,
        packet: &[u8],
    ) -> bool {
        // There is no migration before the handshake is confirmed (RFC 9000 s.9).
        let From::Known(path) = from else { return false };
        let input = (found.space, packet.len());
        self.decide(Operation::KeepPacket, input, true)
            && self.waiting.keep(found, path, ecn, packet)
    }

    /// Processes stored packets whose keys are now available.
    pub(super) fn replay_waiting(&mut self, now: Timestamp) {
        while let Some(at) =
            self.waiting.position(|found| self.readiness(found) != Readiness::TooEarly)
            && let Some(kept) = self.waiting.take(at)
        {
            let Kept { found, path, ecn, mut packet } = kept;
            let mut origin = Origin { from: From::Known(path), size: packet.len(), ecn };
            self.handle_packet(MayBeAttached, now, found, &mut origin, &mut packet);
        }
    }

    /// Returns whether the keys of a packet are available.
    pub(super) fn readiness(&self, found: &ProtectedPacket) -> Readiness {
        let ready = |yes| if yes { Readiness::Ready } else { Readiness::TooEarly };
        match found.space {
            SpaceId::Data(_) if found.is_early() => self.early_readiness(),
            // The client may read 1-RTT packets before its Finished is sent. The server must wait
            // for that Finished (RFC 9001 s.5.7).
            SpaceId::Data(_) => {
                ready(self.keys.has(found.space) && self.handshake.may_carry_data(!self.side))
            }
            id if self.keys.is_discarded(id) => Readiness::TooLate,
            id => ready(self.keys.has(id)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undecryptable_packets_are_bounded() {
        let (path, ecn) = (PathKey(0), EcnCodepoint::NotEct);
        let mut waiting = UndecryptedPackets::default();
        for _ in 0..MAX_PACKETS {
            assert!(waiting.keep(
                ProtectedPacket::in_space(SpaceId::Handshake),
                path,
                ecn,
                &[0; 100]
            ));
        }
        assert!(!waiting.keep(ProtectedPacket::in_space(SpaceId::Handshake), path, ecn, &[0; 100]));
        assert_eq!(waiting.len(), MAX_PACKETS);
        let mut waiting = UndecryptedPackets::default();
        assert!(waiting.keep(
            ProtectedPacket::in_space(SpaceId::DATA),
            path,
            ecn,
            &[0; MAX_BYTES - 1]
        ));
        assert!(!waiting.keep(ProtectedPacket::in_space(SpaceId::DATA), path, ecn, &[0; 2]));
        assert!(waiting.keep(ProtectedPacket::in_space(SpaceId::DATA), path, ecn, &[0; 1]));
    }

    #[test]
    fn undecryptable_packets_keep_their_order() {
        let (path, ecn) = (PathKey(0), EcnCodepoint::NotEct);
        let mut waiting = UndecryptedPackets::default();
        for (space, size) in
            [(SpaceId::DATA, 1), (SpaceId::Handshake, 2), (SpaceId::DATA, MAX_BYTES - 3)]
        {
            assert!(waiting.keep(ProtectedPacket::in_space(space), path, ecn, &vec![0; size]));
        }
        assert!(!waiting.keep(ProtectedPacket::in_space(SpaceId::DATA), path, ecn, &[0; 1]));
        let at = waiting.position(|found| found.space == SpaceId::DATA).unwrap();
        assert_eq!(waiting.take(at).unwrap().packet.len(), 1);
        let at = waiting.position(|found| found.space == SpaceId::DATA).unwrap();
        assert_eq!(waiting.take(at).unwrap().packet.len(), MAX_BYTES - 3);
        assert!(waiting.position(|found| found.space == SpaceId::DATA).is_none());
        assert!(waiting.take(1).is_none() && waiting.bytes == 2);
    }
}
