//! 0-RTT (RFC 9000 s.7.4.1, RFC 9001 s.4.6): sent with what an earlier connection left behind.

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
    /// A client may send early data, and does not know whether it is accepted.
    Open,
    Accepted,
    Rejected,
}

/// Early data of a connection: whether there is any, and what it relies on. Its keys are with the others.
#[derive(Default)]
pub(super) struct Early {
    answer: Answer,
    /// Limits that the server granted when the session was made, which early data must keep to.
    remembered: Option<Box<PeerLimits>>,
    /// Time at which a server discards the keys of early data: some time after the first 1-RTT packet.
    expires: Option<Timestamp>,
}

impl Early {
    /// A client sends early data under the limits of the session that it resumes.
    fn offered(remembered: PeerLimits) -> Early {
        Early { answer: Answer::Open, remembered: Some(Box::new(remembered)), expires: None }
    }

    /// True if a server has not looked yet whether it takes early data.
    fn is_undecided(&self) -> bool {
        self.answer == Answer::None
    }

    /// True if a client waits for the server's answer.
    fn is_open(&self) -> bool {
        self.answer == Answer::Open
    }

    /// The server, this end or the peer, takes early data or not.
    fn decide(&mut self, accepted: bool) {
        self.answer = if accepted { Answer::Accepted } else { Answer::Rejected };
    }

    /// True if what is sent or read now may be repeated by an attacker.
    fn is_used(&self, complete: bool) -> bool {
        match self.answer {
            Answer::Open => true,
            Answer::Accepted => !complete,
            Answer::None | Answer::Rejected => false,
        }
    }

    /// True if a server that took early data keeps at least the limits it promised before (RFC 9000 s.7.4.1).
    fn is_kept_by(&self, new: &PeerLimits) -> bool {
        let old = self.remembered.as_deref().filter(|_| self.answer == Answer::Accepted);
        old.is_none_or(|old| covers(new, old))
    }

    /// Tells if a 0-RTT packet can be opened; `keys`: they are there.
    fn readiness(&self, side: Side, keys: bool) -> Readiness {
        match (side, self.answer) {
            (Side::Server, Answer::None) => Readiness::TooEarly,
            (Side::Server, Answer::Accepted) if keys => Readiness::Ready,
            _ => Readiness::TooLate,
        }
    }

    /// The first 1-RTT packet has come: the keys of early data are good for stragglers until then.
    fn keep_keys(&mut self, until: Timestamp) {
        self.expires.get_or_insert(until);
    }

    /// Time at which the 0-RTT keys are discarded.
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

/// Those of our parameters that a client relies on in 0-RTT: all that are no connection's own.
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
    // Each has two numbers of eight bytes, where it was declared with two bytes at least.
    let mut bytes = Vec::with_capacity(declared.len() * 4);
    for parameter in RawParameters::new(declared).flatten() {
        // Those without meaning are of chance (RFC 9000 s.18.1).
        if !OWN.contains(&parameter.id) && parameter.id.name().is_some() {
            bytes.extend_from_slice(&parameter.id.0.get().to_be_bytes());
            bytes.extend_from_slice(&(parameter.value.len() as u64).to_be_bytes());
            bytes.extend_from_slice(parameter.value);
        }
    }
    bytes
}

/// True if no limit in `new` is lower than in `old`.
fn covers(new: &PeerLimits, old: &PeerLimits) -> bool {
    new.max_data >= old.max_data
        && new.max_stream_data_bidi_local >= old.max_stream_data_bidi_local
        && new.max_stream_data_bidi_remote >= old.max_stream_data_bidi_remote
        && new.max_stream_data_uni >= old.max_stream_data_uni
        && new.max_streams_bidi >= old.max_streams_bidi
        && new.max_streams_uni >= old.max_streams_uni
}

impl Connection {
    /// True if the connection is in early data (0-RTT), which an attacker may repeat (RFC 9001 s.9.2).
    ///
    /// A client: what is sent now may go out before the handshake is complete; it must do no harm if
    /// it is carried out more than once. A server: what is read now may be such a repetition.
    pub fn is_early(&self) -> bool {
        self.early.is_used(self.handshake.is_complete())
    }

    /// A client has begun TLS: perhaps with a session that lets it send.
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

    /// A client may send early data.
    pub(super) fn may_send_early(&self) -> bool {
        self.side == Side::Client && !self.keys.has(SpaceId::DATA) && self.keys.has_early()
    }

    /// TLS has got on: whether early data is taken may be known by now.
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
                // RFC 9001 s.4.9.3: 1-RTT keys from now on.
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

    /// RFC 9001 s.4.6.2: all that was assumed may be wrong, so every stream begins anew.
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

    /// True if the server, having accepted early data, keeps at least the limits it promised before
    /// (RFC 9000 s.7.4.1).
    pub(super) fn check_promises(&mut self, now: Timestamp, new: &PeerLimits) -> bool {
        let kept = self.early.is_kept_by(new);
        if !kept {
            self.fail(now, Violation::ReducedLimitsAfterEarlyData);
        }
        kept
    }

    /// Tells if a 0-RTT packet can be opened now, later or never.
    pub(super) fn early_readiness(&self) -> Readiness {
        self.early.readiness(self.side, self.keys.has_early())
    }

    /// RFC 9001 s.4.9.3: a server keeps its keys for stragglers, three probe timeouts long.
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
        assert!(early.is_kept_by(&promised(9)), "it has not answered");
        early.decide(true);
        assert!(!early.is_kept_by(&promised(9)) && early.is_kept_by(&promised(10)));
        let less = PeerLimits { max_streams_uni: 4, ..promised(20) };
        assert!(!early.is_kept_by(&less), "each of them counts");
        early.decide(false);
        assert!(early.is_kept_by(&promised(9)));
    }

    #[test]
    fn early_data_packets_wait_for_keys_or_are_dropped() {
        let mut early = Early::default();
        assert_eq!(early.readiness(Side::Server, false), Readiness::TooEarly);
        assert_eq!(early.readiness(Side::Client, true), Readiness::TooLate, "clients get none");
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
