//! Key updates and limits on the use of keys (RFC 9001 s.6).

use super::Connection;
use crate::Timestamp;
use crate::crypto::{OneRttKeys, Wear};
use crate::operation::Operation;
use crate::violation::Condition;

impl Connection {
    /// Updates the keys of 1-RTT packets (RFC 9001 s.6), if an update is allowed now. Returns true
    /// if the keys were updated.
    ///
    /// Calling this is optional. Keys are updated automatically when they have protected half of
    /// the permitted number of packets ([`super::TransportConfig::key_limits`]). If the keys cannot
    /// be updated in time, the connection ends with AEAD_LIMIT_REACHED. This happens if the
    /// handshake is not confirmed or the peer acknowledges nothing. No packet is ever protected
    /// beyond the limit.
    ///
    /// With several paths, an update is allowed only after three of the longest probe timeouts have
    /// passed since the peer confirmed the last update. Otherwise packets of the slowest path could
    /// arrive after their keys were discarded (RFC 10069 s.2.5).
    pub fn update_keys(&mut self) -> bool {
        let pause = self.longest_pto() * 3;
        let rested = self.multipath.is_none()
            || self.keys.one_rtt().is_some_and(|keys| keys.has_rested(self.now, pause));
        rested && self.may_update_keys(false) && self.next_keys()
    }

    /// Returns the number of key updates so far, by either end.
    pub fn key_updates(&self) -> u64 {
        self.keys.one_rtt().map_or(0, OneRttKeys::updates)
    }

    fn may_update_keys(&mut self, worn: bool) -> bool {
        self.decide(Operation::UpdateKeys, worn, self.handshake.is_confirmed())
    }

    fn next_keys(&mut self) -> bool {
        // RFC 9001 s.6.1: no update before the handshake is confirmed.
        let updated = self.handshake.is_confirmed()
            && self.keys.one_rtt_mut().is_some_and(OneRttKeys::update);
        #[cfg(feature = "qlog")]
        if updated {
            self.log_key_update();
        }
        updated
    }

    /// Updates worn keys before a datagram is built. If keys have reached their limit, closes the
    /// connection and returns false.
    pub(super) fn mind_keys(&mut self, now: Timestamp) -> bool {
        let wear = self.keys.one_rtt().map_or(Wear::Fresh, OneRttKeys::wear);
        if wear >= Wear::Half {
            self.renew_keys(now, wear);
        }
        let spent = self.keys.one_rtt().is_some_and(|keys| keys.wear() == Wear::Spent);
        // Keys that cannot be updated are discarded at the end of the handshake.
        let may_wear_out = !self.keys.are_one_rtt_alone();
        let worn_out = may_wear_out
            && self
                .spaces
                .iter()
                .any(|(id, space)| self.keys.is_worn_out(id, space.numbers.next()));
        if spent || worn_out {
            self.fail(now, Condition::ConfidentialityLimit);
            return false;
        }
        true
    }

    #[cold]
    fn renew_keys(&mut self, now: Timestamp, wear: Wear) {
        // RFC 9001 s.6.5: the peer may keep its old keys for three PTOs. With several paths, the
        // longest PTO counts (RFC 10069 s.2.5).
        let pause = self.longest_pto() * 3;
        let rested = self.keys.one_rtt().is_some_and(|keys| keys.has_rested(now, pause));
        // A hook can defer the update while the limit is not near.
        if wear >= Wear::Worn || rested && self.may_update_keys(true) {
            self.next_keys();
        }
    }

    /// Counts a packet that could not be opened. `limit` is the integrity limit of its key.
    pub(super) fn on_forgery(&mut self, now: Timestamp, limit: u64) {
        // RFC 9001 s.6.6: the limit applies to all keys of the connection together.
        if self.forgeries.count(limit) {
            self.fail(now, Condition::IntegrityLimit);
        }
    }
}
