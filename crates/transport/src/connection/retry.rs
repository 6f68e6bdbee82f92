//! Address validation of a connection (RFC 9000 s.8.1): Retry packets and tokens. The endpoint
//! creates and checks tokens.

use bytes::Bytes;
use equic_wire::Side;
use equic_wire::packet::Retry;

use super::handshake::tls_version;
use super::space::{SentFrame, SpaceId};
use super::{Connection, Event};
use crate::Timestamp;
use crate::crypto::retry_tag;
use crate::operation::Operation;

/// Maximum length in bytes of an accepted token. It leaves room for other content in an Initial
/// packet of 1,200 bytes.
pub(super) const MAX_PEER_TOKEN: usize = 900;

/// Maximum number of tokens that wait for the application. Later ones are dropped.
const MAX_TOKENS: usize = 4;

impl Connection {
    /// Sets the token for a client's first packets, from an [`Event::NewToken`] of an earlier
    /// connection to the same server (RFC 9000 s.8.1.3). Use each token once, and call this before
    /// the first [`Connection::poll_transmit`].
    ///
    /// Returns false if the call is too late, the token is longer than 900 bytes, or this is a
    /// server.
    pub fn set_token(&mut self, token: Vec<u8>) -> bool {
        let first = self.side == Side::Client && self.stats.packets_sent == 0;
        let fits = first && token.len() <= MAX_PEER_TOKEN;
        if fits {
            self.start.set_token(token.into());
        }
        fits
    }

    /// Queues a token for the client's next connection (RFC 9000 s.8.1.3), for example from
    /// `Endpoint::new_token`. It is sent when the handshake is complete.
    ///
    /// Returns false if this is a client, the token is empty or longer than 900 bytes, or four
    /// tokens are waiting already.
    pub fn send_token(&mut self, token: Vec<u8>) -> bool {
        let sound = (1..=MAX_PEER_TOKEN).contains(&token.len());
        let waiting = self.outbox.count(|frame| matches!(frame, SentFrame::NewToken(_)));
        let fits = self.side == Side::Server && sound && waiting < MAX_TOKENS;
        if fits {
            self.outbox.push(SentFrame::NewToken(token.into()));
        }
        fits
    }

    /// Processes a NEW_TOKEN frame.
    pub(super) fn on_new_token(&mut self, token: &[u8]) {
        self.decide_on_frame(Operation::NewToken, 0, (), Some(token), |connection| {
            let events = &mut connection.events;
            let waiting = events.iter().filter(|event| matches!(event, Event::NewToken(_)));
            if token.len() <= MAX_PEER_TOKEN && waiting.count() < MAX_TOKENS {
                events.push_back(Event::NewToken(token.to_vec()));
            }
        });
    }

    /// Processes a Retry packet (RFC 9000 s.17.2.5.2). Returns true if it is accepted.
    pub(super) fn on_retry(&mut self, now: Timestamp, retry: &Retry<'_>) -> bool {
        let wanted = self.side == Side::Client
            && !self.closing.is_closed()
            // Only once, and before any other packet from the server.
            && self.start.retry().is_none()
            && self.stats.packets_received == self.packets_before
            && retry.version() == self.version
            && retry.dcid() == self.ids.scid()
            && retry.scid() != self.ids.remote.current()
            && retry.token().len() <= MAX_PEER_TOKEN;
        let genuine = wanted && {
            let original = self.ids.original_dcid();
            let version = tls_version(self.version);
            // RFC 9001 s.5.8: the integrity tag must match.
            retry_tag(version, original.as_bytes(), retry.without_tag()) == *retry.integrity_tag()
        };
        if !genuine || !self.decide_on(Operation::FollowRetry, (), retry.token(), true) {
            return false;
        }
        #[cfg(feature = "qlog")]
        self.log_retry(retry);
        self.activity.restart(now);
        self.start.follow_retry(Bytes::copy_from_slice(retry.token()), retry.scid());
        self.ids.remote.set_handshake_id(retry.scid());
        let keys = self.start.initial_keys(self.side, self.version, retry.scid());
        self.keys.install(SpaceId::Initial, keys);
        // RFC 9000 s.17.2.5.3: everything is sent again under new packet numbers, including early
        // data.
        self.send_all_again(SpaceId::Initial);
        self.send_all_again(SpaceId::DATA);
        self.path_mut().restart_backoff();
        true
    }

    /// Declares all packets in flight lost, because the peer will not acknowledge them. This is no
    /// sign of congestion.
    pub(super) fn send_all_again(&mut self, id: SpaceId) {
        let Some(space) = self.space(id) else { return };
        space.probe(0);
        for (number, packet) in space.loss.give_up_all() {
            if packet.in_flight
                && let Some(path) = self.paths.get_mut(packet.content.path)
            {
                path.landed(packet.size.into());
            }
            self.send_again(id, number, false, &packet.content.frames);
        }
    }
}
