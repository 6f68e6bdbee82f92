//! 0-RTT (RFC 9000 s.7.4.1, RFC 9001 s.4.6): sent with what an earlier connection left behind.

use equic_wire::params::{RawParameters, TransportParameters};
use equic_wire::{Side, TransportErrorCode};

use super::space::{SentFrame, SpaceId};
use super::waiting::Readiness;
use super::{Connection, Event};
use crate::Timestamp;
use crate::operation::Operation;
use crate::stream::{PeerLimits, Streams};

/// Whether early data (0-RTT) is offered, and the server's answer to it.
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

/// Early data of a connection.
#[derive(Default)]
pub(super) struct Early {
    answer: Answer,
    /// Limits that the server granted when the session was made, which early data must keep to.
    remembered: Option<PeerLimits>,
    /// Time at which a server discards the keys of early data: some time after the first 1-RTT packet.
    expires: Option<Timestamp>,
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
    const OWN: [Id; 6] = [
        Id::ORIGINAL_DESTINATION_CONNECTION_ID,
        Id::RETRY_SOURCE_CONNECTION_ID,
        Id::INITIAL_SOURCE_CONNECTION_ID,
        Id::STATELESS_RESET_TOKEN,
        Id::PREFERRED_ADDRESS,
        Id::VERSION_INFORMATION,
    ];
    let mut bytes = Vec::new();
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

/// Whether no limit in `new` is lower than in `old`.
fn covers(new: &PeerLimits, old: &PeerLimits) -> bool {
    new.max_data >= old.max_data
        && new.max_stream_data_bidi_local >= old.max_stream_data_bidi_local
        && new.max_stream_data_bidi_remote >= old.max_stream_data_bidi_remote
        && new.max_stream_data_uni >= old.max_stream_data_uni
        && new.max_streams_bidi >= old.max_streams_bidi
        && new.max_streams_uni >= old.max_streams_uni
}

impl Connection {
    /// Whether the connection is in early data (0-RTT), which an attacker may repeat (RFC 9001 s.9.2).
    ///
    /// A client: what is sent now may go out before the handshake is complete; it must do no harm if
    /// it is carried out more than once. A server: what is read now may be such a repetition.
    pub fn is_early(&self) -> bool {
        match self.early.answer {
            Answer::Open => true,
            Answer::Accepted => !self.handshake.is_complete(),
            Answer::None | Answer::Rejected => false,
        }
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
        self.early = Early { answer: Answer::Open, remembered: Some(limits), expires: None };
    }

    /// A client may send early data.
    pub(super) fn may_send_early(&self) -> bool {
        self.side == Side::Client && !self.keys.has(SpaceId::DATA) && self.keys.has_early()
    }

    /// TLS has got on: whether early data is taken may be known by now.
    pub(super) fn look_for_early(&mut self, now: Timestamp) {
        match (self.side, self.early.answer) {
            (Side::Server, Answer::None) if self.handshake.level() != SpaceId::Initial => {
                let keys =
                    self.handshake.tls().zero_rtt_keys().filter(|_| !self.handshake.is_complete());
                let accepted = keys.is_some();
                self.keys.set_early(keys);
                self.early.answer = if accepted { Answer::Accepted } else { Answer::Rejected };
                if accepted {
                    self.early_answered(true);
                }
            }
            (Side::Client, Answer::Open) if self.keys.has(SpaceId::DATA) => {
                // RFC 9001 s.4.9.3: 1-RTT keys from now on.
                self.keys.set_early(None);
                if self.handshake.tls().is_early_data_accepted() {
                    self.early.answer = Answer::Accepted;
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
        if self.early.answer != Answer::Open {
            return;
        }
        self.early = Early { answer: Answer::Rejected, ..Early::default() };
        self.keys.set_early(None);
        for (number, packet) in self.space(SpaceId::DATA).loss.give_up_all() {
            if packet.in_flight
                && let Some(path) = self.paths.get_mut(packet.content.path)
            {
                path.landed(packet.size.into());
            }
            let kept: Vec<SentFrame> = packet
                .content
                .frames
                .into_iter()
                .filter(|frame| !matches!(frame, SentFrame::Stream { .. } | SentFrame::Control(_)))
                .collect();
            self.send_again(SpaceId::DATA, number, false, &kept);
        }
        let pages = self.streams.pages().clone();
        self.streams = Streams::new(self.side, self.config.streams.clone());
        self.streams.set_pages(pages);
        self.early_answered(false);
    }

    /// Whether the server, having accepted early data, keeps at least the limits it promised before
    /// (RFC 9000 s.7.4.1).
    pub(super) fn check_promises(&mut self, now: Timestamp, new: &PeerLimits) -> bool {
        let old = self.early.remembered.filter(|_| self.early.answer == Answer::Accepted);
        let kept = old.is_none_or(|old| covers(new, &old));
        if !kept {
            let code = TransportErrorCode::PROTOCOL_VIOLATION;
            self.fail(now, code, "it takes early data and less than it promised");
        }
        kept
    }

    /// Whether a 0-RTT packet can be opened now, later or never.
    pub(super) fn early_readiness(&self) -> Readiness {
        match (self.side, self.early.answer) {
            (Side::Server, Answer::None) => Readiness::TooEarly,
            (Side::Server, Answer::Accepted) if self.keys.has_early() => Readiness::Ready,
            _ => Readiness::TooLate,
        }
    }

    /// RFC 9001 s.4.9.3: a server keeps its keys for stragglers, three probe timeouts long.
    pub(super) fn on_one_rtt_packet(&mut self, now: Timestamp) {
        if self.keys.has_early() && self.early.expires.is_none() {
            self.early.expires = Some(now + self.path().rtt.pto_base() * 3);
        }
    }

    pub(super) fn expire_early(&mut self, now: Timestamp) {
        if self.early.expires.is_some_and(|at| at <= now) {
            self.keys.set_early(None);
        }
    }
}
