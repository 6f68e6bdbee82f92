//! 1-RTT packet protection keys and their update (RFC 9001 s.6).

use std::time::Duration;

use equic_wire::PathId;
use rustls::quic::{DirectionalKeys, HeaderProtectionKey, Keys};

use super::limits::{KeyLimits, last_words};
use super::packet_key::{KeyPair, OneRttKey};
use super::session::KeySource;
use crate::Timestamp;

/// The reason why a packet could not be decrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenError {
    /// The packet is forged or corrupted, and must be discarded without an answer (RFC 9001 s.5.5).
    Forged,
    /// The peer updated its keys again before this end had acknowledged its last update, or went
    /// back to old keys. This is the error KEY_UPDATE_ERROR (RFC 9001 s.6.1, s.6.4).
    KeyUpdate,
}

/// Number of packets that the current 1-RTT keys have protected, compared with their limit (RFC
/// 9001 s.6.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wear {
    /// The keys have protected less than half of the packets that they may.
    Fresh,
    /// The keys have protected at least half of the packets that they may. They should be updated.
    Half,
    /// The keys have protected at least three quarters of the packets that they may. They must be
    /// updated now, even if a hook wants to defer the update.
    Worn,
    /// The keys have protected all packets that they may, except for a few that are reserved for
    /// CONNECTION_CLOSE frames.
    Spent,
}

/// The packet numbers of a key phase, one for each path ID. The number of path 0, which most
/// connections use, is stored separately.
#[derive(Default)]
struct Firsts {
    zero: Option<u64>,
    others: Vec<(PathId, u64)>,
}

impl Firsts {
    fn of(&self, path: PathId) -> Option<u64> {
        if path == PathId::ZERO {
            return self.zero;
        }
        self.others.iter().find(|(id, _)| *id == path).map(|(_, number)| *number)
    }

    /// Sets the packet number of a path, unless the path already has a lower one.
    fn lower(&mut self, path: PathId, number: u64) {
        if path == PathId::ZERO {
            self.zero = Some(self.zero.map_or(number, |first| first.min(number)));
            return;
        }
        match self.others.iter_mut().find(|(id, _)| *id == path) {
            Some((_, first)) => *first = (*first).min(number),
            None => self.others.push((path, number)),
        }
    }

    fn is_empty(&self) -> bool {
        self.zero.is_none() && self.others.is_empty()
    }
}

/// The keys of one key phase, for both directions.
struct Phase {
    keys: KeyPair,
    /// Largest number of packets that may be sent in this key phase.
    limit: u64,
    /// The first packet number sent in this key phase on each path.
    first_sent: Firsts,
    /// The lowest packet number received in this key phase on each path.
    first_received: Firsts,
    /// Number of packets sent in this key phase.
    sealed: u64,
    /// Time at which the peer first acknowledged a packet of this key phase. `None` if it has not
    /// yet.
    confirmed: Option<Timestamp>,
}

impl Phase {
    fn new(keys: KeyPair, limits: KeyLimits) -> Phase {
        let limit = limits.confidentiality(keys.local.confidentiality_limit());
        let (first_sent, first_received) = (Firsts::default(), Firsts::default());
        Phase { keys, limit, first_sent, first_received, sealed: 0, confirmed: None }
    }
}

/// Number of received packets after which the keys of the first update are derived in advance. A
/// connection with very little traffic never derives them, which saves memory.
///
/// If the peer updates its keys earlier, the next keys are derived when the packet with the update
/// arrives, which RFC 9001 s.6.3 permits. Then one packet of the connection takes a few
/// microseconds longer, whether it comes from the peer or is forged.
const NEXT_AFTER: u64 = 16;

/// The 1-RTT keys of a connection.
pub(crate) struct OneRttKeys {
    local_header: Box<dyn HeaderProtectionKey>,
    remote_header: Box<dyn HeaderProtectionKey>,
    secrets: KeySource,
    /// The Key Phase bit for packets that this end sends (RFC 9000 s.17.3.1).
    bit: bool,
    current: Phase,
    /// The next keys, derived in advance so that a key update takes no extra time (RFC 9001 s.6.3,
    /// s.9.5). `None` until [`NEXT_AFTER`] packets have arrived.
    // RFC 9001 s.6.3 #1 #3
    next: Option<KeyPair>,
    /// Number of packets received so far, while the next keys are not derived yet.
    received: u64,
    /// The peer's previous keys, and the time until which they are kept. They decrypt packets that
    /// arrive after a packet with newer keys. The time is `None` until the first packet with the
    /// newer keys arrives.
    previous: Option<(OneRttKey, Option<Timestamp>)>,
    limits: KeyLimits,
    updates: u64,
}

impl OneRttKeys {
    /// Creates the 1-RTT keys from the keys and secrets of the handshake.
    pub(crate) fn new(keys: Keys, secrets: impl Into<KeySource>, limits: KeyLimits) -> OneRttKeys {
        let secrets = secrets.into();
        let DirectionalKeys { header: local_header, packet: local } = keys.local;
        let DirectionalKeys { header: remote_header, packet: remote } = keys.remote;
        OneRttKeys {
            local_header,
            remote_header,
            secrets,
            bit: false,
            current: Phase::new(KeyPair { local: local.into(), remote: remote.into() }, limits),
            next: None,
            received: 0,
            previous: None,
            limits,
            updates: 0,
        }
    }

    /// Returns the Key Phase bit for packets to send.
    pub(crate) fn bit(&self) -> bool {
        self.bit
    }

    /// Returns the number of key updates so far, by either end.
    pub(crate) fn updates(&self) -> u64 {
        self.updates
    }

    /// Returns the header protection key for packets to send. A key update does not change this key
    /// (RFC 9001 s.6).
    pub(crate) fn local_header(&self) -> &dyn HeaderProtectionKey {
        &*self.local_header
    }

    /// Returns the header protection key for received packets.
    pub(crate) fn remote_header(&self) -> &dyn HeaderProtectionKey {
        &*self.remote_header
    }

    /// Returns true if these keys can protect packets of paths other than path 0. For this, the
    /// nonce must have room for a path ID (RFC 10069 s.2.1).
    pub(crate) fn take_path_ids(&self) -> bool {
        // Try the highest path ID and packet number, which no real packet ever has.
        let number = equic_wire::VarInt::MAX.get();
        self.current.keys.local.seal(PathId::MAX, number, &[], &mut []).is_ok()
    }

    /// Forgets the packet numbers of the path `path`, which has ended.
    pub(crate) fn forget_path(&mut self, path: PathId) {
        for firsts in [&mut self.current.first_sent, &mut self.current.first_received] {
            firsts.others.retain(|(id, _)| *id != path);
        }
    }

    /// Encrypts the `payload` of a packet in place and returns the tag, which the caller must
    /// append to the payload.
    ///
    /// # Errors
    /// Fails if the payload is longer than the AEAD permits, or if the keys have protected as many
    /// packets as they may. That limit counts the packets of all paths (RFC 10069 s.7.3).
    // RFC 9001 s.6.6 #1 #2
    pub(crate) fn seal(
        &mut self,
        path: PathId,
        number: u64,
        header: &[u8],
        payload: &mut [u8],
    ) -> Result<rustls::quic::Tag, rustls::Error> {
        // RFC 9001 s.6.6: never protect more packets than the limit, even if the caller has not
        // checked it.
        if self.current.sealed >= self.current.limit {
            return Err(rustls::Error::EncryptError);
        }
        let tag = self.current.keys.local.seal(path, number, header, payload)?;
        self.current.sealed += 1;
        self.current.first_sent.lower(path, number);
        Ok(tag)
    }

    /// Returns how many packets the keys have protected, compared with their limit.
    #[inline]
    pub(crate) fn wear(&self) -> Wear {
        let Phase { sealed, limit, .. } = self.current;
        if sealed < limit / 2 {
            Wear::Fresh
        } else if sealed >= limit - last_words(limit) {
            Wear::Spent
        } else if sealed >= limit - limit / 4 {
            Wear::Worn
        } else {
            Wear::Half
        }
    }

    /// Returns true if at least `pause` has passed since the peer first acknowledged a packet with
    /// the current keys (RFC 9001 s.6.5 #1). The keys of the handshake need no pause.
    pub(crate) fn has_rested(&self, now: Timestamp, pause: Duration) -> bool {
        self.updates == 0 || self.current.confirmed.is_some_and(|at| now.since(at) >= pause)
    }

    /// Returns the number of packets that may fail authentication with these keys (RFC 9001 s.6.6).
    pub(crate) fn integrity_limit(&self) -> u64 {
        self.limits.integrity(self.current.keys.remote.integrity_limit())
    }

    /// Updates the keys and returns true, if the peer has acknowledged a packet with the current
    /// keys (RFC 9001 s.6.1). Otherwise changes nothing and returns false. The caller must ensure
    /// that the handshake is confirmed.
    // RFC 9001 s.6.1 #2
    pub(crate) fn update(&mut self) -> bool {
        let allowed = self.current.confirmed.is_some();
        if allowed {
            self.advance();
        }
        allowed
    }

    // RFC 9001 s.6.2 #1 #2, s.6.4 #1
    fn advance(&mut self) {
        let next = self.next.take().unwrap_or_else(|| self.secrets.next_packet_keys());
        // After an update, further ones are likely, so the next keys are derived in advance from
        // now on.
        self.next = Some(self.secrets.next_packet_keys());
        let last = std::mem::replace(&mut self.current, Phase::new(next, self.limits));
        self.previous = Some((last.keys.remote, None));
        self.bit = !self.bit;
        self.updates += 1;
    }

    /// Records that the peer acknowledged the packet with this number on this path. If the packet
    /// had the current keys, the next key update is permitted (RFC 9001 s.6.1).
    pub(crate) fn on_acked(&mut self, now: Timestamp, path: PathId, number: u64) {
        if self.current.first_sent.of(path).is_some_and(|first| number >= first) {
            self.current.confirmed.get_or_insert(now);
        }
    }

    /// Returns true if a packet with this Key Phase bit may belong to another key phase, or may end
    /// the last key update.
    #[inline]
    fn may_change_phase(&self, bit: bool) -> bool {
        bit != self.bit || matches!(self.previous, Some((_, None)))
    }

    /// Returns true if the caller must now call [`OneRttKeys::keep_previous_until`], because
    /// [`OneRttKeys::open`] has decrypted the first packet of the current phase. `bit` is the Key
    /// Phase bit of that packet.
    #[inline]
    pub(crate) fn previous_need_a_time(&self, bit: bool) -> bool {
        bit == self.bit && matches!(self.previous, Some((_, None)))
    }

    /// Sets the time until which the previous keys are kept: three PTOs from now (RFC 9001 s.6.5).
    #[cold]
    pub(crate) fn keep_previous_until(&mut self, time: Timestamp) {
        if let Some((_, until)) = &mut self.previous {
            *until = Some(time);
        }
    }

    /// Decrypts the `payload` of a packet in place. The payload ends with the tag. Returns the
    /// plaintext, and true if the peer updated its keys with this packet.
    ///
    /// `largest` is the largest packet number received on the path so far. Afterwards, the caller
    /// asks [`OneRttKeys::previous_need_a_time`].
    ///
    /// # Errors
    /// [`OpenError`]. Except for `Forged`, the connection must be closed.
    // RFC 9001 s.5.5 #1 #2
    pub(crate) fn open<'a>(
        &mut self,
        (path, number): (PathId, u64),
        bit: bool,
        header: &[u8],
        payload: &'a mut [u8],
        largest: Option<u64>,
    ) -> Result<(&'a [u8], bool), OpenError> {
        if bit == self.bit {
            let opened = self.current.keys.remote.open(path, number, header, payload);
            return match opened {
                Ok(opened) => {
                    self.received(path, number);
                    Ok((opened, false))
                }
                Err(_) => Err(OpenError::Forged),
            };
        }
        // The packet has a lower number than the first packet of the current key phase, so it
        // belongs to the previous phase (RFC 9001 s.6.5).
        let overtaken = self.current.first_received.of(path).map_or_else(
            // No packet of the current phase has arrived on this path. If the previous keys still
            // exist, this end has updated its keys and the peer may not have done so yet. So the
            // packet belongs to the previous phase (RFC 10069 s.2.5).
            || self.previous.is_some(),
            |first| number < first,
        );
        if overtaken {
            let Some((previous, _)) = &self.previous else { return Err(OpenError::Forged) };
            return match previous.open(path, number, header, payload) {
                Ok(opened) => Ok((opened, false)),
                Err(_) => Err(OpenError::Forged),
            };
        }
        let OneRttKeys { next, secrets, .. } = self;
        // RFC 9001 s.6.3 #2
        let next = next.get_or_insert_with(|| secrets.next_packet_keys());
        let opened =
            next.remote.open(path, number, header, payload).map_err(|_| OpenError::Forged)?;
        // RFC 9001 s.6.4: the packet has newer keys than a packet with a higher number, which is
        // forbidden.
        if largest.is_some_and(|largest| number < largest) {
            return Err(OpenError::KeyUpdate);
        }
        // RFC 9001 s.6.1, s.6.2: the peer may update its keys again only after this end has
        // acknowledged the last update, in a packet with the current keys. This end has sent no
        // such packet, so the peer has updated twice in a row.
        if self.updates > 0 && self.current.first_sent.is_empty() {
            return Err(OpenError::KeyUpdate);
        }
        self.advance();
        self.received(path, number);
        Ok((opened, true))
    }

    /// Returns true if [`OneRttKeys::open_to`] can decrypt packets with this Key Phase bit.
    #[inline]
    pub(crate) fn may_open_to(&self, bit: bool) -> bool {
        self.current.keys.remote.opener().is_some() && !self.may_change_phase(bit)
    }

    /// Decrypts a packet's payload from `sealed`, which ends with the tag, into `to`, which is
    /// shorter by the length of the tag. Returns `Some(true)` if the packet is authentic,
    /// `Some(false)` if it is not.
    ///
    /// Returns `None` and does nothing if the keys cannot decrypt into another buffer, or if the
    /// packet may belong to another key phase. The caller must then call [`OneRttKeys::open`].
    #[inline]
    pub(crate) fn open_to(
        &mut self,
        (path, number): (PathId, u64),
        bit: bool,
        header: &[u8],
        sealed: &[u8],
        to: &mut [u8],
    ) -> Option<bool> {
        if self.may_change_phase(bit) {
            return None;
        }
        let opener = self.current.keys.remote.opener()?;
        let opened = opener.open_to(path.get(), number, header, sealed, to);
        if opened {
            self.received(path, number);
        }
        Some(opened)
    }

    // RFC 9001 s.9.5 #3
    fn received(&mut self, path: PathId, number: u64) {
        self.current.first_received.lower(path, number);
        if self.next.is_none() {
            self.received += 1;
            if self.received >= NEXT_AFTER {
                self.next = Some(self.secrets.next_packet_keys());
            }
        }
    }

    /// Returns the time until which the peer's previous keys are kept.
    #[cfg(test)]
    pub(crate) fn previous_until(&self) -> Option<Timestamp> {
        self.previous.as_ref().and_then(|(_, until)| *until)
    }

    /// Discards the previous keys if it is time to do so.
    // RFC 9001 s.6.1 #3, s.6.5 #2 #3
    pub(crate) fn expire(&mut self, now: Timestamp) {
        if self.previous.as_ref().is_some_and(|(_, until)| until.is_some_and(|until| until <= now))
        {
            self.previous = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::testing::one_rtt_pair;

    const EARLY: Timestamp = Timestamp::from_nanos(1_000);
    const LATER: Timestamp = Timestamp::from_nanos(1_000_000);

    /// One end of a connection, with its packet numbers.
    struct End {
        keys: OneRttKeys,
        next: u64,
        largest: Option<u64>,
    }

    struct Packet {
        number: u64,
        bit: bool,
        bytes: Vec<u8>,
    }

    fn ends() -> (End, End) {
        let (client, server) = one_rtt_pair();
        let end = |keys| End { keys, next: 0, largest: None };
        (end(client), end(server))
    }

    impl End {
        fn send(&mut self) -> Packet {
            let (number, bit) = (self.next, self.keys.bit());
            self.next += 1;
            let mut bytes = b"one rtt".to_vec();
            let tag = self.keys.seal(PathId::ZERO, number, &[u8::from(bit)], &mut bytes).unwrap();
            bytes.extend_from_slice(tag.as_ref());
            Packet { number, bit, bytes }
        }

        fn receive(&mut self, packet: Packet) -> Result<bool, OpenError> {
            let Packet { number, bit, mut bytes } = packet;
            let header = [u8::from(bit)];
            let packet = (PathId::ZERO, number);
            let (plain, updated) =
                self.keys.open(packet, bit, &header, &mut bytes, self.largest)?;
            assert_eq!(plain, b"one rtt");
            if self.keys.previous_need_a_time(bit) {
                self.keys.keep_previous_until(LATER);
            }
            self.largest = self.largest.max(Some(number));
            Ok(updated)
        }
    }

    /// Decrypts a packet into another buffer, if the keys of `end` can do this.
    fn opened_elsewhere(end: &mut End, packet: &Packet) -> Option<Result<Vec<u8>, ()>> {
        let mut to = vec![0; packet.bytes.len() - 16];
        let (of, header) = ((PathId::ZERO, packet.number), [u8::from(packet.bit)]);
        let opened = end.keys.open_to(of, packet.bit, &header, &packet.bytes, &mut to)?;
        Some(if opened { Ok(to) } else { Err(()) })
    }

    #[test]
    fn key_update_current_phase_opens_into_another_buffer() {
        let (mut client, mut server) = ends();
        let right = Some(Ok(b"one rtt".to_vec()));
        let packet = client.send();
        assert_eq!(opened_elsewhere(&mut server, &packet), right);
        let mut forged = client.send();
        forged.bytes[3] ^= 1;
        assert_eq!(opened_elsewhere(&mut server, &forged), Some(Err(())));
        let late = client.send();
        // The first packet of the next key phase, and late packets of the previous one, must be
        // decrypted in place.
        let answer = server.send();
        client.receive(answer).unwrap();
        client.keys.on_acked(EARLY, PathId::ZERO, 0);
        assert!(client.keys.update());
        let first = client.send();
        assert_eq!(opened_elsewhere(&mut server, &first), None);
        assert_eq!(server.receive(first), Ok(true));
        assert_eq!(opened_elsewhere(&mut server, &late), None);
        let next = client.send();
        assert_eq!(
            opened_elsewhere(&mut server, &next),
            right,
            "the packet is of the current phase"
        );
    }

    // RFC 9001 s.6.1 #2, s.6.2 #1 #2, s.6.3 #3, s.6.4 #1
    #[test]
    fn key_update_is_followed_by_the_peer() {
        let (mut client, mut server) = ends();
        assert!(!client.keys.update(), "no packet is acknowledged yet");
        assert_eq!(server.receive(client.send()), Ok(false));
        client.keys.on_acked(EARLY, PathId::ZERO, 0);
        assert!(client.keys.update());
        assert!(!client.keys.update(), "a second update is too early");
        assert_eq!(server.receive(client.send()), Ok(true));
        assert_eq!(server.keys.bit(), client.keys.bit());
        assert_eq!(client.receive(server.send()), Ok(false));
        assert_eq!((client.keys.updates(), server.keys.updates()), (1, 1));
        // Now the server updates its keys, too.
        server.keys.on_acked(EARLY, PathId::ZERO, 0);
        assert!(server.keys.update());
        assert_eq!(client.receive(server.send()), Ok(true));
        assert_eq!(server.receive(client.send()), Ok(false));
    }

    // RFC 9001 s.6.3 #1 #2, s.9.5 #3
    #[test]
    fn key_update_next_keys_are_derived_when_used() {
        let (mut client, mut server) = ends();
        for packet in 1..=NEXT_AFTER {
            assert!(server.keys.next.is_none(), "before packet {packet}");
            assert_eq!(server.receive(client.send()), Ok(false));
        }
        assert!(server.keys.next.is_some() && client.keys.next.is_none());
        // A forged packet with the next Key Phase bit makes the client derive the next keys once.
        // It must have no other effect.
        let mut forged = server.send();
        (forged.bit, forged.bytes[0]) = (!forged.bit, forged.bytes[0] ^ 1);
        assert_eq!(client.receive(forged), Err(OpenError::Forged));
        assert!(client.keys.next.is_some() && client.keys.updates() == 0);
        assert_eq!(client.receive(server.send()), Ok(false));
        client.keys.on_acked(EARLY, PathId::ZERO, 0);
        assert!(
            client.keys.update() && client.keys.next.is_some(),
            "further keys are derived in advance"
        );
        assert_eq!(server.receive(client.send()), Ok(true));
        assert_eq!(client.receive(server.send()), Ok(false));
    }

    fn seal(keys: &mut OneRttKeys, path: u32, number: u64) -> Vec<u8> {
        let mut bytes = b"one rtt".to_vec();
        let tag = keys.seal(PathId::new(path), number, &[7], &mut bytes).unwrap();
        bytes.extend_from_slice(tag.as_ref());
        bytes
    }

    fn open(
        keys: &mut OneRttKeys,
        (path, number): (u32, u64),
        bit: bool,
        bytes: &[u8],
    ) -> Result<bool, OpenError> {
        let (mut bytes, path) = (bytes.to_vec(), PathId::new(path));
        let (plain, updated) = keys.open((path, number), bit, &[7], &mut bytes, None)?;
        assert_eq!(plain, b"one rtt");
        if keys.previous_need_a_time(bit) {
            keys.keep_previous_until(LATER);
        }
        Ok(updated)
    }

    #[test]
    fn key_update_nonces_of_each_path_differ() {
        let (mut client, mut server) = ends();
        assert!(client.keys.take_path_ids());
        let packets = [0, 1, 2].map(|path| seal(&mut client.keys, path, 5));
        for (sent, packet) in (0..).zip(&packets) {
            for path in 0..3 {
                let opened = open(&mut server.keys, (path, 5), false, packet);
                let right = if path == sent { Ok(false) } else { Err(OpenError::Forged) };
                assert_eq!(opened, right, "sealed for path {sent}, opened for path {path}");
            }
        }
        assert!(packets[0] != packets[1] && packets[1] != packets[2]);
    }

    #[test]
    fn key_update_reaches_a_path_with_its_next_packet() {
        let (mut client, mut server) = ends();
        let [first, late, later] =
            [(0, 0), (1, 0), (1, 1)].map(|(path, number)| seal(&mut client.keys, path, number));
        assert_eq!(open(&mut server.keys, (0, 0), false, &first), Ok(false));
        client.keys.on_acked(EARLY, PathId::new(1), 7);
        assert!(client.keys.update(), "an acknowledgment on any path permits an update");
        let new = seal(&mut client.keys, 0, 1);
        assert_eq!(open(&mut server.keys, (0, 1), true, &new), Ok(true));
        assert_eq!(
            open(&mut server.keys, (1, 0), false, &late),
            Ok(false),
            "the packet is of the previous phase"
        );
        let next = seal(&mut client.keys, 1, 2);
        assert_eq!(open(&mut server.keys, (1, 2), true, &next), Ok(false));
        assert_eq!(
            open(&mut server.keys, (1, 1), false, &later),
            Ok(false),
            "a packet of the new phase arrived before it"
        );
        assert_eq!(server.keys.updates(), 1);
        server.keys.forget_path(PathId::new(1));
        assert!(server.keys.current.first_received.of(PathId::new(1)).is_none());
        assert_eq!(server.keys.current.first_received.of(PathId::ZERO), Some(1));
    }

    // RFC 9001 s.6.1 #4, s.6.5 #2 #3
    #[test]
    fn key_update_overtaken_packets_are_read_for_a_while() {
        let (mut client, mut server) = ends();
        let (late, too_late) = (client.send(), client.send());
        assert_eq!(server.receive(client.send()), Ok(false));
        client.keys.on_acked(EARLY, PathId::ZERO, 2);
        client.keys.update();
        assert_eq!(server.receive(client.send()), Ok(true));
        assert_eq!(server.receive(late), Ok(false));
        server.keys.expire(LATER);
        assert_eq!(server.receive(too_late), Err(OpenError::Forged));
    }

    // RFC 9001 s.6.1 #3
    #[test]
    fn key_update_of_both_ends_at_once() {
        let (mut client, mut server) = ends();
        server.receive(client.send()).unwrap();
        client.keys.on_acked(EARLY, PathId::ZERO, 0);
        let crossing = server.send();
        client.keys.update();
        assert_eq!(client.receive(crossing), Ok(false));
        assert_eq!(server.receive(client.send()), Ok(true));
        assert_eq!(client.receive(server.send()), Ok(false));
    }

    #[test]
    fn key_update_twice_without_acknowledgement_is_an_error() {
        let (mut client, mut server) = ends();
        server.receive(client.send()).unwrap();
        client.keys.on_acked(EARLY, PathId::ZERO, 0);
        client.keys.update();
        server.receive(client.send()).unwrap();
        // The server has sent nothing with the new keys, so it cannot have acknowledged this
        // packet. The client pretends that it has.
        client.keys.on_acked(EARLY, PathId::ZERO, 1);
        client.keys.update();
        assert_eq!(server.receive(client.send()), Err(OpenError::KeyUpdate));
    }

    /// A packet with new keys has a lower number than one with old keys.
    // RFC 9001 s.6.4 #2
    #[test]
    fn key_update_with_old_keys_after_new_ones_is_an_error() {
        let (mut client, mut server) = ends();
        assert_eq!(server.receive(client.send()), Ok(false));
        client.next = 5;
        assert_eq!(server.receive(client.send()), Ok(false));
        client.keys.on_acked(EARLY, PathId::ZERO, 5);
        assert!(client.keys.update());
        client.next = 3;
        assert_eq!(server.receive(client.send()), Err(OpenError::KeyUpdate));
    }

    // RFC 9001 s.5.5 #1 #2
    #[test]
    fn key_update_is_not_triggered_by_forgeries() {
        let (mut client, mut server) = ends();
        for bit in [false, true] {
            let mut packet = client.send();
            packet.bytes[0] ^= 1;
            packet.bit = bit;
            assert_eq!(server.receive(packet), Err(OpenError::Forged));
        }
        assert_eq!(server.keys.updates(), 0);
        assert_eq!(server.keys.integrity_limit(), 1 << 52);
    }

    // RFC 9001 s.6.6 #1 #2
    #[test]
    fn key_update_limits_end_the_keys() {
        let (mut client, _) = ends();
        // The confidentiality limit of AES-GCM in packets (RFC 9001 s.6.6).
        let limit = 1 << 23;
        assert_eq!(client.keys.current.limit, limit);
        for (sealed, wear) in [
            (0, Wear::Fresh),
            (limit / 2 - 1, Wear::Fresh),
            (limit / 2, Wear::Half),
            (limit / 4 * 3 - 1, Wear::Half),
            (limit / 4 * 3, Wear::Worn),
            (limit - 65, Wear::Worn),
            (limit - 64, Wear::Spent),
            (limit, Wear::Spent),
        ] {
            client.keys.current.sealed = sealed;
            assert_eq!(client.keys.wear(), wear, "{sealed}");
        }
        assert!(
            client.keys.seal(PathId::ZERO, 9, &[0], &mut [0; 20]).is_err(),
            "no packet beyond the limit is sealed"
        );
        client.keys.current.sealed = limit - 1;
        client.send();
        client.keys.on_acked(EARLY, PathId::ZERO, 0);
        assert!(
            client.keys.has_rested(EARLY, Duration::from_secs(1)),
            "the keys of the handshake need no pause"
        );
        assert!(client.keys.update());
        assert_eq!(client.keys.wear(), Wear::Fresh);
        client.send();
        assert!(!client.keys.has_rested(LATER, Duration::ZERO), "no packet is acknowledged yet");
        client.keys.on_acked(EARLY, PathId::ZERO, 1);
        assert!(client.keys.has_rested(LATER, LATER.since(EARLY)));
        assert!(!client.keys.has_rested(LATER, Duration::from_secs(1)));
    }

    #[test]
    fn key_update_limits_can_be_lowered_and_not_raised() {
        let (client, _) = ends();
        let local = &client.keys.current.keys.local;
        let of_aead = (local.confidentiality_limit(), local.integrity_limit());
        assert_eq!(of_aead, (1 << 23, 1 << 52));
        let limits =
            |packets_per_key, forged_packets| KeyLimits { packets_per_key, forged_packets };
        let low = limits(7, 8);
        assert_eq!((low.confidentiality(of_aead.0), low.integrity(of_aead.1)), (7, 8));
        let high = limits(u64::MAX, u64::MAX);
        assert_eq!((high.confidentiality(of_aead.0), high.integrity(of_aead.1)), of_aead);
    }
}
