//! 0-RTT (RFC 9000 s.7.4.1, RFC 9001 s.4.6): early data, sent with keys and limits of an earlier
//! connection.

use equic_wire::Side;
use equic_wire::params::{RawParameters, TransportParameters};

use super::space::{SentFrame, SpaceId};
use super::waiting::Readiness;
use super::{Connection, Event};
use crate::Timestamp;
use crate::operation::Operation;
use crate::stream::{PeerLimits, Streams};
use crate::violation::Violation;

/// Offer of early data (0-RTT), and the server's answer to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Answer {
    /// Early data is not in use.
    #[default]
    None,
    /// A client may send early data, and does not know yet whether the server accepts it.
    Open,
    Accepted,
    Rejected,
}

/// State of early data on a connection, and the limits that it relies on. Its keys are in
/// `PacketKeys`.
#[derive(Default)]
pub(super) struct Early {
    answer: Answer,
    /// Limits that the server granted in the resumed session. Early data must stay within them.
    remembered: Option<Box<PeerLimits>>,
    /// Time at which a server discards the 0-RTT keys: some time after the first 1-RTT packet.
    expires: Option<Timestamp>,
}

impl Early {
    /// Creates the state of a client that sends early data under the limits of the resumed session.
    fn offered(remembered: PeerLimits) -> Early {
        Early { answer: Answer::Open, remembered: Some(Box::new(remembered)), expires: None }
    }

    /// Returns true if a server has not decided yet whether it accepts early data.
    fn is_undecided(&self) -> bool {
        self.answer == Answer::None
    }

    /// Returns true if a client waits for the server's answer.
    fn is_open(&self) -> bool {
        self.answer == Answer::Open
    }

    /// Records whether the server, at this end or the peer's, accepts early data.
    fn decide(&mut self, accepted: bool) {
        self.answer = if accepted { Answer::Accepted } else { Answer::Rejected };
    }

    /// Returns true if an attacker may replay what is sent or read now.
    fn is_used(&self, complete: bool) -> bool {
        match self.answer {
            Answer::Open => true,
            Answer::Accepted => !complete,
            Answer::None | Answer::Rejected => false,
        }
    }

    /// Returns true if the server's new limits are no lower than those it granted before, or it did
    /// not accept early data (RFC 9000 s.7.4.1).
    fn is_kept_by(&self, new: &PeerLimits) -> bool {
        let old = self.remembered.as_deref().filter(|_| self.answer == Answer::Accepted);
        old.is_none_or(|old| covers(new, old))
    }

    /// Returns whether a 0-RTT packet can be opened. `keys` is true if the 0-RTT keys are
    /// available.
    fn readiness(&self, side: Side, keys: bool) -> Readiness {
        match (side, self.answer) {
            (Side::Server, Answer::None) => Readiness::TooEarly,
            (Side::Server, Answer::Accepted) if keys => Readiness::Ready,
            _ => Readiness::TooLate,
        }
    }

    /// Sets the time at which the 0-RTT keys expire, after the first 1-RTT packet. Until then,
    /// reordered 0-RTT packets can be opened.
    fn keep_keys(&mut self, until: Timestamp) {
        self.expires.get_or_insert(until);
    }

    /// Returns the time at which the 0-RTT keys are discarded.
    #[cfg(test)]
    pub(super) fn keys_until(&self) -> Option<Timestamp> {
        self.expires
    }

    fn is_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|at| at <= now)
    }
}

pub(super) fn limits(parameters: &TransportParameters<'_>) -> PeerLimits {
    PeerLimits {
        max_data: parameters.initial_max_data.get(),
        max_stream_data_bidi_local: parameters.initial_max_stream_data_bidi_local.get(),
        max_stream_data_bidi_remote: parameters.initial_max_stream_data_bidi_remote.get(),
        max_stream_data_uni: parameters.initial_max_stream_data_uni.get(),
        max_streams_bidi: parameters.initial_max_streams_bidi.get(),
        max_streams_uni: parameters.initial_max_streams_uni.get(),
    }
}

/// Returns those of our transport parameters that clients rely on in 0-RTT: all that do not belong
/// to a single connection.
pub(super) fn promised(declared: &[u8]) -> Vec<u8> {
    use equic_wire::params::ParameterId as Id;
    const OWN: [Id; 7] = [
        Id::ORIGINAL_DESTINATION_CONNECTION_ID,
        Id::RETRY_SOURCE_CONNECTION_ID,
        Id::INITIAL_SOURCE_CONNECTION_ID,
        Id::STATELESS_RESET_TOKEN,
        Id::PREFERRED_ADDRESS,
        Id::VERSION_INFORMATION,
        // RFC 10069 s.2.1.
        Id::INITIAL_MAX_PATH_ID,
    ];
    // The two fields for ID and length take eight bytes each. In `declared`, they take at least two
    // bytes together.
    let mut bytes = Vec::with_capacity(declared.len() * 4);
    for parameter in RawParameters::new(declared).flatten() {
        // Reserved parameters have random values (RFC 9000 s.18.1).
        if !OWN.contains(&parameter.id) && parameter.id.name().is_some() {
            bytes.extend_from_slice(&parameter.id.0.get().to_be_bytes());
            bytes.extend_from_slice(&(parameter.value.len() as u64).to_be_bytes());
            bytes.extend_from_slice(parameter.value);
        }
    }
    bytes
}

/// Returns true if no limit in `new` is lower than in `old`.
fn covers(new: &PeerLimits, old: &PeerLimits) -> bool {
    new.max_data >= old.max_data
        && new.max_stream_data_bidi_local >= old.max_stream_data_bidi_local
        && new.max_stream_data_bidi_remote >= old.max_stream_data_bidi_remote
        && new.max_stream_data_uni >= old.max_stream_data_uni
        && new.max_streams_bidi >= old.max_streams_bidi
        && new.max_streams_uni >= old.max_streams_uni
}

impl Connection {
    /// Returns true if the connection is in early data (0-RTT), which an attacker can replay (RFC
    /// 9001 s.9.2).
    ///
    /// On a client, data sent now may leave before the handshake is complete. The server may
    /// process it more than once, so this must do no harm. On a server, data read now may be a
    /// replay.
    pub fn is_early(&self) -> bool {
        self.early.is_used(self.handshake.is_complete())
    }

    /// Begins early data on a client after TLS has started, if TLS resumes a session that permits
    /// it.
    pub(super) fn begin_early(&mut self) {
        let Some(keys) = self.handshake.tls().zero_rtt_keys() else { return };
        let remembered = self.handshake.tls().transport_parameters().map(<[u8]>::to_vec);
        let Some(Ok(parameters)) =
            remembered.as_deref().map(|bytes| TransportParameters::parse(bytes, Side::Server))
        else {
            return;
        };
        let limits = limits(&parameters);
        let size = parameters.max_udp_payload_size.get().get();
        self.paths.iter_mut().for_each(|path| path.on_peer_limit(size));
        self.streams.set_peer_limits(limits);
        self.keys.set_early(Some(keys));
        self.early = Early::offered(limits);
    }

    /// Returns true if a client may send early data.
    pub(super) fn may_send_early(&self) -> bool {
        self.side == Side::Client && !self.keys.has(SpaceId::DATA) && self.keys.has_early()
    }

    /// Checks after progress of TLS whether the server's decision on early data is known.
    pub(super) fn look_for_early(&mut self, now: Timestamp) {
        match self.side {
            Side::Server
                if self.early.is_undecided() && self.handshake.level() != SpaceId::Initial =>
            {
                let keys =
                    self.handshake.tls().zero_rtt_keys().filter(|_| !self.handshake.is_complete());
                let accepted = keys.is_some();
                self.keys.set_early(keys);
                self.early.decide(accepted);
                if accepted {
                    self.early_answered(true);
                }
            }
            Side::Client if self.early.is_open() && self.keys.has(SpaceId::DATA) => {
                // RFC 9001 s.4.9.3: only 1-RTT keys are used from now on.
                self.keys.set_early(None);
                if self.handshake.tls().is_early_data_accepted() {
                    self.early.decide(true);
                    self.early_answered(true);
                } else {
                    self.reject_early(now);
                }
            }
            _ => {}
        }
    }

    fn early_answered(&mut self, accepted: bool) {
        self.notify(Operation::EarlyDataAnswered, accepted);
        let event = if accepted { Event::EarlyDataAccepted } else { Event::EarlyDataRejected };
        self.events.push_back(event);
    }

    /// Processes the rejection of early data. Everything that was assumed may be wrong, so all
    /// streams are reset to their initial state (RFC 9001 s.4.6.2).
    pub(super) fn reject_early(&mut self, _now: Timestamp) {
        if !self.early.is_open() {
            return;
        }
        self.early = Early::default();
        self.early.decide(false);
        self.keys.set_early(None);
        for (number, packet) in self.spaces.data_mut().loss.give_up_all() {
            if packet.in_flight
                && let Some(path) = self.paths.get_mut(packet.content.path)
            {
                path.landed(packet.size.into());
            }
            let kept: Vec<SentFrame> = packet
                .content
                .frames
                .iter()
                .filter(|frame| !matches!(frame, SentFrame::Stream { .. } | SentFrame::Control(_)))
                .cloned()
                .collect();
            self.send_again(SpaceId::DATA, number, false, &kept);
        }
        let pages = self.streams.take_pages();
        self.streams = Streams::new(self.side, self.config.clone());
        self.streams.set_pages(pages);
        self.early_answered(false);
    }

    /// Returns true if the server did not lower its limits after it accepted early data (RFC 9000
    /// s.7.4.1). Closes the connection otherwise.
    pub(super) fn check_promises(&mut self, now: Timestamp, new: &PeerLimits) -> bool {
        let kept = self.early.is_kept_by(new);
        if !kept {
            self.fail(now, Violation::ReducedLimitsAfterEarlyData);
        }
        kept
    }

    /// Returns whether a 0-RTT packet can be opened now, later or never.
    pub(super) fn early_readiness(&self) -> Readiness {
        self.early.readiness(self.side, self.keys.has_early())
    }

    /// RFC 9001 s.4.9.3: a server keeps its 0-RTT keys for three PTOs, for reordered packets.
    pub(super) fn on_one_rtt_packet(&mut self, now: Timestamp) {
        if self.keys.has_early() {
            let until = now + self.longest_pto() * 3;
            self.early.keep_keys(until);
        }
    }

    pub(super) fn expire_early(&mut self, now: Timestamp) {
        if self.early.is_expired(now) {
            self.keys.set_early(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn promised(max_data: u64) -> PeerLimits {
        PeerLimits {
            max_data,
            max_stream_data_bidi_local: 5,
            max_stream_data_bidi_remote: 5,
            max_stream_data_uni: 5,
            max_streams_bidi: 5,
            max_streams_uni: 5,
        }
    }

    #[test]
    fn early_data_of_a_client_ends_with_rejection_or_the_handshake() {
        let mut early = Early::default();
        assert!(!early.is_used(false) && !early.is_open());
        early = Early::offered(promised(10));
        assert!(early.is_open() && early.is_used(false));
        early.decide(true);
        assert!(!early.is_open() && early.is_used(false) && !early.is_used(true));
        early.decide(false);
        assert!(!early.is_used(false));
    }

    #[test]
    fn early_data_limits_bind_a_server_that_accepts_it() {
        let mut early = Early::offered(promised(10));
        assert!(early.is_kept_by(&promised(9)), "the server has not answered");
        early.decide(true);
        assert!(!early.is_kept_by(&promised(9)) && early.is_kept_by(&promised(10)));
        let less = PeerLimits { max_streams_uni: 4, ..promised(20) };
        assert!(!early.is_kept_by(&less), "each limit counts");
        early.decide(false);
        assert!(early.is_kept_by(&promised(9)));
    }

    #[test]
    fn early_data_packets_wait_for_keys_or_are_dropped() {
        let mut early = Early::default();
        assert_eq!(early.readiness(Side::Server, false), Readiness::TooEarly);
        assert_eq!(early.readiness(Side::Client, true), Readiness::TooLate, "clients get no 0-RTT");
        early.decide(true);
        assert_eq!(early.readiness(Side::Server, true), Readiness::Ready);
        assert_eq!(early.readiness(Side::Server, false), Readiness::TooLate);
        early.decide(false);
        assert_eq!(early.readiness(Side::Server, true), Readiness::TooLate);
    }

    #[test]
    fn early_data_keys_are_kept_after_the_first_1_rtt_packet() {
        let mut early = Early::default();
        let at = |seconds| Timestamp::START + Duration::from_secs(seconds);
        assert!(!early.is_expired(at(100)));
        early.keep_keys(at(3));
        early.keep_keys(at(5));
        assert!(!early.is_expired(at(2)) && early.is_expired(at(3)));
    }
}
