//! Keys of a connection's packets: keys of Initial, Handshake and 0-RTT packets, which are never
//! updated, and keys of 1-RTT packets (RFC 9001 s.4.1.4, s.4.9).

use equic_wire::packet::PacketType;
use rustls::quic::{DirectionalKeys, HeaderProtectionKey, Keys, PacketKey, Tag};

use super::space::SpaceId;
use crate::crypto::session::KeySource;
use crate::crypto::{KeyLimits, OneRttKeys, last_words};

/// Keys of Initial or Handshake packets.
#[derive(Default)]
enum LongKeys {
    /// The keys are not available yet.
    #[default]
    Awaited,
    Ready(Box<Keys>),
    /// The keys were discarded for good.
    Discarded,
}

impl LongKeys {
    fn ready(&self) -> Option<&Keys> {
        match self {
            LongKeys::Ready(keys) => Some(keys),
            LongKeys::Awaited | LongKeys::Discarded => None,
        }
    }
}

/// All keys of a connection. The handshake installs and discards them.
pub(super) struct PacketKeys {
    initial: LongKeys,
    handshake: LongKeys,
    /// 0-RTT keys: a client seals with them, and a server opens with them.
    early: Option<DirectionalKeys>,
    one_rtt: Option<OneRttKeys>,
    limits: KeyLimits,
}

impl PacketKeys {
    pub(super) fn new(limits: KeyLimits) -> PacketKeys {
        let (initial, handshake) = (LongKeys::Awaited, LongKeys::Awaited);
        PacketKeys { initial, handshake, early: None, one_rtt: None, limits }
    }

    fn long(&self, id: SpaceId) -> Option<&LongKeys> {
        match id {
            SpaceId::Initial => Some(&self.initial),
            SpaceId::Handshake => Some(&self.handshake),
            SpaceId::Data(_) => None,
        }
    }

    fn long_mut(&mut self, id: SpaceId) -> Option<&mut LongKeys> {
        match id {
            SpaceId::Initial => Some(&mut self.initial),
            SpaceId::Handshake => Some(&mut self.handshake),
            SpaceId::Data(_) => None,
        }
    }

    /// Installs or replaces keys of Initial or Handshake packets. Does nothing if they were
    /// discarded.
    pub(super) fn install(&mut self, id: SpaceId, new: Keys) {
        match self.long_mut(id) {
            Some(LongKeys::Discarded) | None => {}
            Some(keys) => *keys = LongKeys::Ready(Box::new(new)),
        }
    }

    /// Installs the keys of 1-RTT packets.
    pub(super) fn install_one_rtt(&mut self, keys: Keys, next: impl Into<KeySource>) {
        self.one_rtt = Some(OneRttKeys::new(keys, next, self.limits));
    }

    /// Installs the keys of 0-RTT packets, or removes them if `keys` is `None`.
    pub(super) fn set_early(&mut self, keys: Option<DirectionalKeys>) {
        self.early = keys;
    }

    /// Discards the keys of a space (RFC 9001 s.4.9). Does nothing for 1-RTT keys, which are kept
    /// until the end.
    pub(super) fn discard(&mut self, id: SpaceId) {
        if let Some(keys) = self.long_mut(id) {
            *keys = LongKeys::Discarded;
        }
    }

    /// Returns true if the keys of a space are available. For application data, these are the 1-RTT
    /// keys.
    pub(super) fn has(&self, id: SpaceId) -> bool {
        self.long(id).map_or(self.one_rtt.is_some(), |keys| keys.ready().is_some())
    }

    /// Returns true if the keys of a space were discarded.
    pub(super) fn is_discarded(&self, id: SpaceId) -> bool {
        matches!(self.long(id), Some(LongKeys::Discarded))
    }

    /// Returns true if only 1-RTT keys remain for packets to send, because all others were
    /// discarded.
    #[inline]
    pub(super) fn are_one_rtt_alone(&self) -> bool {
        let gone = |keys: &LongKeys| matches!(keys, LongKeys::Discarded);
        self.one_rtt.is_some() && gone(&self.initial) && gone(&self.handshake)
    }

    pub(super) fn has_early(&self) -> bool {
        self.early.is_some()
    }

    pub(super) fn one_rtt(&self) -> Option<&OneRttKeys> {
        self.one_rtt.as_ref()
    }

    pub(super) fn one_rtt_mut(&mut self) -> Option<&mut OneRttKeys> {
        self.one_rtt.as_mut()
    }

    /// Returns the keys for the next packet of a space if they are never updated, so never 1-RTT
    /// keys.
    fn sealing(&self, id: SpaceId) -> Option<&DirectionalKeys> {
        match self.long(id) {
            Some(keys) => keys.ready().map(|keys| &keys.local),
            None if self.one_rtt.is_some() => None,
            None => self.early.as_ref(),
        }
    }

    /// Returns the confidentiality limit of the keys of a space that are never updated. Returns
    /// `None` for 1-RTT keys, or without keys.
    fn limit(&self, id: SpaceId) -> Option<u64> {
        Some(self.limits.confidentiality(self.sealing(id)?.packet.confidentiality_limit()))
    }

    /// Returns true if the packets sent in a space leave only the reserve for closing the
    /// connection. The next packet number, `next`, is at least the number of packets sent.
    pub(super) fn is_worn_out(&self, id: SpaceId, next: u64) -> bool {
        self.limit(id).is_some_and(|limit| next >= limit - last_words(limit))
    }

    /// Encrypts the payload of a packet of a space in place and returns the tag. Returns `None` if
    /// there are no keys, or if they have reached their limit (RFC 9001 s.6.6).
    pub(super) fn seal(
        &mut self,
        id: SpaceId,
        number: u64,
        header: &[u8],
        payload: &mut [u8],
    ) -> Option<Tag> {
        if let (SpaceId::Data(path), Some(keys)) = (id, &mut self.one_rtt) {
            return keys.seal(path, number, header, payload).ok();
        }
        let keys = self.sealing(id)?;
        let beyond = number >= self.limits.confidentiality(keys.packet.confidentiality_limit());
        if beyond { None } else { keys.packet.encrypt_in_place(number, header, payload).ok() }
    }

    /// Returns the key for header protection of packets to send in a space.
    #[inline(always)]
    pub(super) fn local_header(&self, id: SpaceId) -> Option<&dyn HeaderProtectionKey> {
        match (id, &self.one_rtt) {
            (SpaceId::Data(_), Some(keys)) => Some(keys.local_header()),
            _ => Some(&*self.sealing(id)?.header),
        }
    }

    /// Returns the keys to open packets of this type, or `None` for 1-RTT packets.
    fn opening(&self, kind: PacketType) -> Option<&DirectionalKeys> {
        match kind {
            PacketType::Initial => self.initial.ready().map(|keys| &keys.remote),
            PacketType::Handshake => self.handshake.ready().map(|keys| &keys.remote),
            PacketType::ZeroRtt => self.early.as_ref(),
            PacketType::OneRtt => None,
        }
    }

    /// Returns the key for header protection of received packets.
    #[inline(always)]
    pub(super) fn remote_header(&self, kind: PacketType) -> Option<&dyn HeaderProtectionKey> {
        match kind {
            PacketType::OneRtt => Some(self.one_rtt.as_ref()?.remote_header()),
            _ => Some(&*self.opening(kind)?.header),
        }
    }

    /// Returns the key for packet protection of received packets, or `None` for 1-RTT packets.
    pub(super) fn remote_packet(&self, kind: PacketType) -> Option<&dyn PacketKey> {
        Some(&*self.opening(kind)?.packet)
    }
}

#[cfg(test)]
mod tests {
    use equic_wire::{ConnectionId, KnownVersion, Side};

    use super::*;
    use crate::crypto::tls_initial_keys;

    fn keys(side: Side) -> Keys {
        let suite = rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
        let suite = suite.tls13().unwrap().quic_suite().unwrap();
        tls_initial_keys(&suite, side, KnownVersion::V1, ConnectionId::EMPTY)
    }

    fn empty() -> PacketKeys {
        PacketKeys::new(KeyLimits { packets_per_key: 16, ..KeyLimits::default() })
    }

    #[test]
    fn keys_are_installed_once_and_discarded_for_good() {
        for id in [SpaceId::Initial, SpaceId::Handshake] {
            let mut all = empty();
            assert!(!all.has(id) && !all.is_discarded(id));
            assert!(all.seal(id, 0, &[], &mut [0; 20]).is_none() && all.local_header(id).is_none());
            all.install(id, keys(Side::Client));
            all.install(id, keys(Side::Client));
            assert!(all.has(id) && all.local_header(id).is_some());
            assert!(!all.are_one_rtt_alone());
            all.discard(id);
            all.install(id, keys(Side::Client));
            assert!(!all.has(id) && all.is_discarded(id) && all.local_header(id).is_none());
            assert!(all.seal(id, 0, &[], &mut [0; 20]).is_none());
        }
    }

    #[test]
    fn keys_of_one_end_open_what_the_other_sealed() {
        let (mut client, mut server) = (empty(), empty());
        client.install(SpaceId::Handshake, keys(Side::Client));
        server.install(SpaceId::Handshake, keys(Side::Server));
        let mut packet = *b"what is said";
        let tag = client.seal(SpaceId::Handshake, 3, b"header", &mut packet).unwrap();
        let sealed = [&packet[..], tag.as_ref()].concat();
        let open = |header: &[u8], number| {
            let key = server.remote_packet(PacketType::Handshake).unwrap();
            let mut sealed = sealed.clone();
            key.decrypt_in_place(number, header, &mut sealed).map(<[u8]>::to_vec)
        };
        assert_eq!(open(b"header", 3).unwrap(), b"what is said");
        assert!(open(b"Header", 3).is_err() && open(b"header", 4).is_err());
        let others = [PacketType::Initial, PacketType::ZeroRtt, PacketType::OneRtt];
        for kind in others {
            assert!(server.remote_packet(kind).is_none() && server.remote_header(kind).is_none());
        }
    }

    #[test]
    fn keys_protect_no_packet_beyond_the_limit() {
        let mut all = empty();
        all.install(SpaceId::Initial, keys(Side::Client));
        assert!(!all.is_worn_out(SpaceId::Initial, 13));
        assert!(all.is_worn_out(SpaceId::Initial, 14), "two packets are reserved for closing");
        assert!(all.seal(SpaceId::Initial, 15, &[], &mut [0; 20]).is_some());
        assert!(all.seal(SpaceId::Initial, 16, &[], &mut [0; 20]).is_none());
        assert!(!all.is_worn_out(SpaceId::Handshake, 1000), "there are no Handshake keys");
    }

    #[test]
    fn keys_of_early_data_last_until_1_rtt_keys_come() {
        let mut client = empty();
        client.set_early(Some(keys(Side::Client).local));
        assert!(client.has_early() && !client.has(SpaceId::DATA));
        assert!(client.seal(SpaceId::DATA, 0, &[], &mut [0; 20]).is_some());
        assert!(client.seal(SpaceId::DATA, 16, &[], &mut [0; 20]).is_none(), "0-RTT has a limit");
        assert!(client.remote_header(PacketType::ZeroRtt).is_some());
        client.set_early(None);
        assert!(client.seal(SpaceId::DATA, 0, &[], &mut [0; 20]).is_none());
        client.one_rtt = Some(crate::crypto::testing::one_rtt_pair().0);
        client.set_early(Some(keys(Side::Client).local));
        assert!(client.has(SpaceId::DATA) && client.one_rtt().is_some());
        // 1-RTT keys count their packets themselves.
        assert!(client.seal(SpaceId::DATA, 1_000, &[], &mut [0; 20]).is_some());
        assert!(!client.is_worn_out(SpaceId::DATA, 1_000));
        for id in [SpaceId::Initial, SpaceId::Handshake] {
            assert!(!client.are_one_rtt_alone(), "other keys may arrive");
            client.discard(id);
        }
        assert!(client.are_one_rtt_alone());
        client.discard(SpaceId::DATA);
        assert!(client.has(SpaceId::DATA) && !client.is_discarded(SpaceId::DATA));
    }
}
