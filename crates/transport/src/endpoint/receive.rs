//! Finds the connection that a received datagram belongs to (RFC 9000 s.5.2).

use std::net::SocketAddr;
use std::time::Duration;

use equic_wire::packet::{
    Datagram, LongInvariant, LongKind, MIN_INITIAL_DATAGRAM, Packet, ParseOptions,
};
use equic_wire::{ConnectionId, KnownVersion, ResetToken, Version};

use super::incoming::Incoming;
use super::routes::FirstName;
use super::shared::Presented;
use super::{Endpoint, Handle, PendingIncoming, Received, RetryVerdict};
use crate::Timestamp;
use crate::connection::{DatagramMeta, FirstPacket};
use crate::crypto::Token;
use crate::violation::Condition;

/// Smallest length of a client's first Destination Connection ID, in bytes (RFC 9000 s.7.2 #1).
const MIN_FIRST_ID: usize = 8;

impl Endpoint {
    /// Processes a received datagram. If the result is [`Received::Respond`], `response` contains
    /// the datagram that the caller must send. The previous content of `response` is lost in any
    /// case.
    pub fn handle_datagram(
        &mut self,
        now: Timestamp,
        arrival: DatagramMeta,
        datagram: &[u8],
        response: &mut Vec<u8>,
    ) -> Received {
        response.clear();
        match datagram.first() {
            Some(first) if LongInvariant::is_long(*first) => {
                self.on_long(now, arrival, datagram, response)
            }
            Some(_) => self.on_short(now, arrival, datagram, response),
            None => Received::Nothing,
        }
    }

    /// Returns true if a datagram has a short header with the same connection ID as one of the last
    /// datagrams of this connection. If the result is false, the datagram may still belong to the
    /// connection: call [`Endpoint::handle_datagram`].
    #[inline]
    pub fn is_for_recent(&self, handle: Handle, datagram: &[u8]) -> bool {
        let short = datagram.first().is_some_and(|first| !LongInvariant::is_long(*first));
        short
            && self.recent.iter().flatten().any(|(recent, owner)| {
                *owner == handle
                    && datagram.get(1..=self.source.id_len()).is_some_and(|id| recent.is(id))
            })
    }

    /// Returns the Destination Connection ID of a datagram if this end has chosen the ID. That is
    /// the case for a short header, and for long headers if the datagram contains a Handshake
    /// packet. Other long headers may carry an ID that the client chose.
    pub fn own_id<'d>(&self, datagram: &'d [u8]) -> Option<&'d [u8]> {
        let length = self.source.id_len();
        if datagram.first().is_none_or(|first| !LongInvariant::is_long(*first)) {
            return datagram.get(1..=length);
        }
        let header = LongInvariant::parse(datagram).ok()?;
        let version = *KnownVersion::ALL.iter().find(|v| Version::from(**v) == header.version)?;
        let options = ParseOptions { dcid_len: length, greased_fixed_bit: true };
        let is_handshake = |packet: Packet<'_>| matches!(packet, Packet::Long(long) if matches!(long.kind(), LongKind::Handshake));
        let mut packets = Datagram::new(datagram, options).including(version);
        let chosen = header.dcid.len() == length && packets.any(|p| p.is_ok_and(is_handshake));
        chosen.then_some(header.dcid)
    }

    /// Returns true if a connection ID belongs to one of the endpoint's connections.
    pub fn is_known(&self, id: &[u8]) -> bool {
        self.routes.by_id(id).is_some()
    }

    /// Returns the length in bytes of every connection ID that the endpoint issues.
    // RFC 9000 s.10.3.2 #2
    pub fn id_len(&self) -> usize {
        self.source.id_len()
    }

    // RFC 9000 s.11 #3
    fn on_short(
        &mut self,
        now: Timestamp,
        arrival: DatagramMeta,
        datagram: &[u8],
        response: &mut Vec<u8>,
    ) -> Received {
        let Some(id) = datagram.get(1..=self.source.id_len()) else { return Received::Nothing };
        for (recent, handle) in self.recent.iter().flatten() {
            if recent.is(id) {
                return Received::Connection(*handle);
            }
        }
        let known = self.routes.by_id(id);
        let id = ConnectionId::cut(id);
        if let Some(handle) = known {
            self.recent = [Some((id, handle)), self.recent[0]];
            return Received::Connection(handle);
        }
        if let Some(handle) = self.reset_by(datagram) {
            return Received::Connection(handle);
        }
        self.write_reset(now, arrival.remote.ip(), id, datagram.len(), response)
    }

    /// Returns the connection that a datagram resets, or `None` if it is not a stateless reset (RFC
    /// 9000 s.10.3.1).
    // RFC 9000 s.10.3.1 #1
    fn reset_by(&self, datagram: &[u8]) -> Option<Handle> {
        if !self.routes.has_tokens() {
            return None;
        }
        let token = ResetToken(*datagram.last_chunk()?);
        self.routes.by_token(&self.source.reset_key().blind(token))
    }

    fn on_long(
        &mut self,
        now: Timestamp,
        arrival: DatagramMeta,
        datagram: &[u8],
        response: &mut Vec<u8>,
    ) -> Received {
        let remote = arrival.remote;
        // RFC 9000 s.17.2.1 #6
        let header = LongInvariant::parse(datagram).ok();
        let of = |header: &LongInvariant<'_>| {
            self.routes.by_id(header.dcid).or_else(|| self.routes.by_first(header.dcid, remote))
        };
        // RFC 9000 s.10.3 #8: a datagram that ends with a known reset token is a stateless reset,
        // whatever its header is.
        let known = header.as_ref().and_then(of).or_else(|| self.reset_by(datagram));
        if let Some(handle) = known {
            return Received::Connection(handle);
        }
        let Some(header) = header else { return Received::Nothing };
        let Some(server) = &self.server else { return Received::Nothing };
        // RFC 9368 s.2.1 #5
        // RFC 9000 s.6.1 #1
        if header.version == Version::NEGOTIATION {
            return Received::Nothing;
        }
        let mut known = KnownVersion::ALL.iter().filter(|known| server.speaks(**known));
        let Some(version) = known.find(|known| Version::from(**known) == header.version) else {
            // RFC 9000 s.5.2.2 #1 #2 #3, s.6.1: a server answers an unknown version only if the
            // datagram is large enough for an Initial packet.
            return if datagram.len() < MIN_INITIAL_DATAGRAM {
                Received::Nothing
            } else {
                // RFC 9000 s.17.2.1 #7
                self.write_version_negotiation(&header, response)
            };
        };
        // RFC 9287 s.3.1: a client that has a token of this server may clear the Fixed Bit in its
        // first packet.
        // RFC 9287 s.3 #2
        let greased_fixed_bit = server.transport().grease;
        let options = ParseOptions { dcid_len: self.source.id_len(), greased_fixed_bit };
        let Some(Ok(Packet::Long(packet))) =
            Datagram::new(datagram, options).including(*version).next()
        else {
            return Received::Nothing;
        };
        let name = FirstName::new(packet.dcid(), remote);
        if let Some(waiting) = self.waiting.get_mut(&name) {
            if waiting.has_room(datagram.len()) {
                waiting.datagrams.push((arrival, datagram.to_vec()));
            }
            return Received::Nothing;
        }
        // RFC 9000 s.5.2.2 #6
        let LongKind::Initial { token } = packet.kind() else { return Received::Nothing };
        // RFC 9000 s.14.1 #3: the datagram of an Initial packet must have at least 1,200 bytes.
        if datagram.len() < MIN_INITIAL_DATAGRAM {
            return Received::Nothing;
        }
        let (original, client) = (packet.dcid(), packet.scid());
        let mut first = FirstPacket::without_token(packet.version(), original, client, remote);
        let Ok(made) = self.read_token(now, token, &mut first) else {
            // RFC 9000 s.8.1.2: a server may close the connection at once if a Retry token is not
            // valid.
            return self.write_close(&first, Condition::InvalidToken, response);
        };
        if first.retry.is_none() && packet.dcid().len() < MIN_FIRST_ID
            || self.waiting.len() >= self.config.max_incoming
        {
            return Received::Nothing;
        }
        let mut by_token = false;
        if let (Some(made), Some(name)) = (made, token.first_chunk()) {
            let (name, address) = (u64::from_be_bytes(*name), canonical(remote).ip());
            let (wall, token) = (self.wall.read(now), Presented { name, made, address });
            by_token = self.token_key.spend(wall, &token, &self.config);
            first.validated = by_token;
        }
        let datagrams = vec![(arrival, datagram.to_vec())];
        self.waiting.insert(name, PendingIncoming { by_token, datagrams });
        Received::Incoming(Incoming(first, arrival))
    }

    /// Validates the token in a client's Initial packet. If it is a valid NEW_TOKEN token, returns
    /// the time since the Unix epoch at which it was issued. Fails if it is from a Retry packet and
    /// is not valid for this client now.
    // RFC 9000 s.8.1.3 #10
    fn read_token(
        &mut self,
        now: Timestamp,
        token: &[u8],
        first: &mut FirstPacket,
    ) -> Result<Option<Duration>, InvalidToken> {
        if token.is_empty() {
            return Ok(None);
        }
        if let Some(foreign) = &self.config.retry_tokens {
            match foreign.open(first.remote, first.sent_to, token) {
                RetryVerdict::Proof(original) => {
                    (first.original, first.retry, first.validated) =
                        (original, Some(first.sent_to), true);
                    return Ok(None);
                }
                RetryVerdict::Invalid => return Err(InvalidToken),
                RetryVerdict::Other => {}
            }
        }
        match self.tokens.open(token) {
            Some(Token::Retry { remote, original, retry, validity }) => {
                let wall = self.wall.read(now);
                if !validity.holds(wall, self.config.retry_token_lifetime)
                    || remote != canonical(first.remote)
                    || retry != first.sent_to
                {
                    return Err(InvalidToken);
                }
                (first.original, first.retry, first.validated) = (original, Some(retry), true);
                Ok(None)
            }
            Some(Token::Future { address, version, validity }) => {
                // RFC 9000 s.8.1.3: an invalid token counts as no token.
                let wall = self.wall.read(now);
                let good = validity.holds(wall, self.config.new_token_lifetime)
                    && version == first.version
                    // RFC 9000 s.8.1.4 #4
                    && address == first.remote.ip().to_canonical();
                // RFC 9000 s.8.1.4 #5
                Ok(good.then_some(validity.made))
            }
            // Another server has sealed the token, or this server with an earlier key.
            None => Ok(None),
        }
    }
}

struct InvalidToken;

/// Converts the IPv4-mapped address of a client on a dual-stack socket to IPv4, because tokens
/// contain this form.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
