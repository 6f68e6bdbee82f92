//! Events for the log (`crate::qlog`), one method for each kind. Without a log, a call costs one
//! test.
//!
//! Changes of state are not logged where they happen. `log/changes.rs` and `log/paths.rs` detect
//! them at the end of each call into the connection.

mod changes;
mod paths;

use equic_wire::KnownVersion;
use equic_wire::packet::{PacketType, Retry, VersionNegotiation};
use equic_wire::params::TransportParameters;

use super::Connection;
use super::close::CloseReason;
use super::packet_builder::{BuiltPacket, TAG_LEN};
use super::paths::PathKey;
use super::space::{Sent, SentFrame, SpaceId};
use crate::Timestamp;
use crate::operation::Operation;
use crate::qlog::{
    Event, EventKind, Form, Header, Initiator, Lost, Packet, QlogSink, Retransmitted, Timer,
    TimerChange, Unprotected, crc32c,
};
use crate::received::EcnCodepoint;
use crate::recovery::{PACKET_THRESHOLD, SentPacket};
use crate::stream::Control;
use changes::Known;

/// Exponent of the ACK Delay field that we use, and the default of RFC 9000 s.18.2.
const DEFAULT_EXPONENT: u8 = 3;

/// Log of a connection.
pub(super) struct Log {
    /// Receivers of the events, called in this order.
    sinks: Vec<Box<dyn QlogSink>>,
    now: Timestamp,
    /// Checksum of the received datagram that is being processed.
    checksum: u32,
    /// Unprotected packets of the datagram that is being built. They are logged when it is
    /// complete, because each event contains the datagram's checksum.
    sending: Vec<Sending>,
    known: Known,
}

struct Sending {
    number: u64,
    bytes: Vec<u8>,
    header_len: usize,
    mtu_probe: bool,
}

impl Log {
    fn emit(&mut self, path: PathKey, kind: EventKind<'_>) {
        let event = Event { time: self.now, path: path.0, kind };
        self.sinks.iter_mut().for_each(|sink| sink.event(&event));
    }
}

/// Returns the packet type of a space. All application data counts as 1-RTT.
fn packet_type(id: SpaceId) -> PacketType {
    match id {
        SpaceId::Initial => PacketType::Initial,
        SpaceId::Handshake => PacketType::Handshake,
        SpaceId::Data(_) => PacketType::OneRtt,
    }
}

impl Connection {
    /// Makes `sink` receive all events from now on, and replaces earlier sinks. For a complete log,
    /// call it before the first datagram.
    pub fn set_qlog(&mut self, sink: Box<dyn QlogSink>) {
        let mut log = Log {
            sinks: vec![sink],
            now: self.now,
            checksum: 0,
            sending: Vec::new(),
            known: Known::default(),
        };
        let path = self.path();
        let (key, local, remote) = (path.key(), path.local(), path.remote());
        let ids = [self.ids.scid(), self.ids.remote.current()];
        log.emit(key, EventKind::ConnectionStarted { local, remote, ids });
        changes::version(self, &mut log);
        if let Ok(parameters) = TransportParameters::parse(self.start.declared(), self.side) {
            let (initiator, parameters) = (Initiator::Local, &parameters);
            log.emit(key, EventKind::ParametersSet { initiator, parameters });
        }
        let start = EventKind::RecoveryParametersSet {
            initial_rtt: self.config.initial_rtt,
            datagram: path.mtu(),
            window: path.controller().window(),
            algorithm: path.controller().name(),
        };
        log.emit(key, start);
        self.qlog = Some(Box::new(log));
        self.log_changes();
    }

    /// Adds a sink. The first one works as with [`Connection::set_qlog`]. Each further one receives
    /// only later events, and not the present state of the connection.
    pub fn add_qlog(&mut self, sink: Box<dyn QlogSink>) {
        match self.qlog.as_mut() {
            Some(log) => log.sinks.push(sink),
            None => self.set_qlog(sink),
        }
    }

    /// Calls `run` with the log, if there is one.
    #[inline]
    fn with_log(&mut self, run: impl FnOnce(&Connection, &mut Log)) {
        if let Some(mut log) = self.qlog.take() {
            log.now = log.now.max(self.now);
            run(self, &mut log);
            self.qlog = Some(log);
        }
    }

    /// Logs the peer's transport parameters.
    pub(super) fn log_parameters(&mut self, parameters: &TransportParameters<'_>) {
        self.with_log(|connection, log| {
            let key = connection.path().key();
            log.emit(key, EventKind::ParametersSet { initiator: Initiator::Remote, parameters });
        });
    }

    pub(super) fn log_closed(&mut self, reason: &CloseReason) {
        self.with_log(|connection, log| {
            log.emit(connection.path().key(), EventKind::ConnectionClosed(reason));
        });
    }

    /// Logs a received datagram, before decryption.
    pub(super) fn log_datagram_received(&mut self, ecn: EcnCodepoint, datagram: &[u8]) {
        self.with_log(|connection, log| {
            log.checksum = crc32c(datagram);
            let (length, checksum) = (datagram.len(), log.checksum);
            let kind = EventKind::DatagramReceived { length, ecn, checksum };
            log.emit(connection.path().key(), kind);
        });
    }

    /// Logs an opened packet. `packet` is the packet without protection, and `payload` its frames.
    pub(super) fn log_received(
        &mut self,
        key: PathKey,
        number: u64,
        packet: &[u8],
        payload: &[u8],
    ) {
        self.with_log(|connection, log| {
            let Some(header) = Header::read(packet, number, connection.ids.scid().len()) else {
                return;
            };
            // First log the changes that the previous packet of the datagram caused.
            changes::keys(connection, log, Initiator::Remote);
            changes::state(connection, log);
            let ack_delay_exponent = match (header.form, &connection.peer) {
                (Form::Short { .. }, Some(peer)) => peer.ack_delay_exponent(),
                _ => DEFAULT_EXPONENT,
            };
            let (length, checksum, mtu_probe) = (packet.len(), log.checksum, false);
            let packet =
                Packet { header, payload, length, ack_delay_exponent, checksum, mtu_probe };
            log.known.received(key, &packet);
            log.emit(key, EventKind::PacketReceived(packet));
        });
    }

    /// Logs a Retry packet that is accepted.
    pub(super) fn log_retry(&mut self, retry: &Retry<'_>) {
        self.with_log(|connection, log| {
            let length = retry.without_tag().len() + Retry::TAG_LEN;
            let (packet, checksum) = (Unprotected::Retry(*retry), log.checksum);
            let kind = EventKind::UnprotectedReceived { packet, length, checksum };
            log.emit(connection.path().key(), kind);
        });
    }

    /// Logs a Version Negotiation packet. The client continues in version `chosen`, or closes the
    /// connection.
    pub(super) fn log_version_negotiation(
        &mut self,
        packet: &VersionNegotiation<'_>,
        chosen: Option<KnownVersion>,
    ) {
        self.with_log(|connection, log| {
            let (key, versions) = (connection.path().key(), packet.versions());
            // First byte, version, and the IDs with their lengths (RFC 9000 s.17.2.1).
            let ids = packet.dcid().len() + packet.scid().len();
            let length = 1 + 4 + 2 + ids + versions.as_bytes().len();
            let (packet, checksum) = (Unprotected::VersionNegotiation(*packet), log.checksum);
            log.emit(key, EventKind::UnprotectedReceived { packet, length, checksum });
            changes::negotiated(connection, log, versions, chosen);
        });
    }

    /// Logs a dropped packet of `length` bytes.
    pub(super) fn log_dropped(
        &mut self,
        packet_type: Option<PacketType>,
        length: usize,
        trigger: &'static str,
    ) {
        self.with_log(|connection, log| {
            let checksum = log.checksum;
            let kind = EventKind::PacketDropped { packet_type, length, checksum, trigger };
            log.emit(connection.path().key(), kind);
        });
    }

    /// Records a packet that is about to be protected. Its bytes include room for the tag.
    pub(super) fn log_sending(&mut self, packet: &BuiltPacket<'_>, mtu_probe: bool) {
        self.with_log(|_, log| {
            let (number, header_len) = (packet.number(), packet.header_len());
            let bytes = packet.bytes().to_vec();
            log.sending.push(Sending { number, bytes, header_len, mtu_probe });
        });
    }

    /// Removes the last recorded packet, because it could not be protected.
    pub(super) fn log_unsent(&mut self) {
        self.with_log(|_, log| drop(log.sending.pop()));
    }

    /// Logs a complete datagram and its packets, which [`Connection::log_sending`] recorded.
    pub(super) fn log_datagram_sent(&mut self, key: PathKey, ecn: EcnCodepoint, datagram: &[u8]) {
        self.with_log(|_, log| {
            let checksum = crc32c(datagram);
            for sent in std::mem::take(&mut log.sending) {
                let Sending { number, bytes, header_len, mtu_probe } = sent;
                let number_length = bytes.first().map_or(0, |first| usize::from(first & 3) + 1);
                // The header consists of the first byte, the ID and the packet number.
                let dcid_len = header_len.saturating_sub(1 + number_length);
                let Some(header) = Header::read(&bytes, number, dcid_len) else { continue };
                let end = bytes.len().saturating_sub(TAG_LEN);
                let payload = bytes.get(header_len..end).unwrap_or_default();
                let (length, ack_delay_exponent) = (bytes.len(), DEFAULT_EXPONENT);
                let packet =
                    Packet { header, payload, length, ack_delay_exponent, checksum, mtu_probe };
                changes::sent(log, key, &packet);
                log.emit(key, EventKind::PacketSent(packet));
            }
            let length = datagram.len();
            log.emit(key, EventKind::DatagramSent { length, ecn, checksum });
        });
    }

    /// Logs acknowledged packets, in descending order of their numbers.
    pub(super) fn log_acked(&mut self, id: SpaceId, packets: &[(u64, SentPacket<Sent>)]) {
        self.with_log(|connection, log| {
            let numbers: Vec<u64> = packets.iter().map(|(number, _)| *number).collect();
            let (space, key) = (packet_type(id), connection.path().key());
            log.emit(key, EventKind::PacketsAcked { space, numbers: &numbers });
            for frame in packets.iter().flat_map(|(_, packet)| packet.content.frames.iter()) {
                if let SentFrame::Stream { id, .. } | SentFrame::Control(Control::Reset(id, ..)) =
                    frame
                {
                    log.known.touch(*id);
                }
            }
        });
    }

    pub(super) fn log_lost(&mut self, id: SpaceId, number: u64, packet: &SentPacket<Sent>) {
        self.with_log(|connection, log| {
            let largest = connection.spaces.get(id).and_then(|space| space.loss.largest_acked());
            let threshold = connection.config.packet_threshold.max(PACKET_THRESHOLD);
            let overtaken =
                largest.is_some_and(|largest| largest >= number.saturating_add(threshold));
            let trigger = if overtaken { "reordering_threshold" } else { "time_threshold" };
            // A hook may use other thresholds, so the trigger is unknown.
            let known = !connection.hooks.is_hooked(Operation::LossThresholds);
            let lost = Lost {
                packet_type: packet_type(id),
                number,
                mtu_probe: packet.mtu_probe,
                trigger: known.then_some(trigger),
            };
            log.emit(packet.content.path, EventKind::PacketLost(lost));
        });
    }

    /// Logs that the content of these frames will be sent again.
    pub(super) fn log_again(&mut self, frames: &[SentFrame]) {
        self.with_log(|connection, log| {
            let again: Vec<Retransmitted> =
                frames.iter().filter_map(|frame| frame.logged(connection)).collect();
            if !again.is_empty() {
                log.emit(connection.path().key(), EventKind::MarkedForRetransmit(&again));
            }
        });
    }

    /// Logs the times of the timers for loss detection, acknowledgements and idleness.
    pub(super) fn log_timers(&mut self, timers: [Option<Timestamp>; 3]) {
        self.with_log(|connection, log| {
            let key = connection.path().key();
            for (index, timer) in [Timer::Loss, Timer::Ack, Timer::Idle].into_iter().enumerate() {
                let before = std::mem::replace(&mut log.known.timers[index], timers[index]);
                let change = match timers[index] {
                    same if same == before => continue,
                    Some(at) => TimerChange::Set(at.since(log.now)),
                    None => TimerChange::Cancelled,
                };
                log.emit(key, EventKind::TimerUpdated { timer, change });
            }
        });
    }

    /// Logs timers that have expired.
    pub(super) fn log_expired(&mut self) {
        self.with_log(|connection, log| {
            let key = connection.path().key();
            for (index, timer) in [Timer::Loss, Timer::Ack, Timer::Idle].into_iter().enumerate() {
                if log.known.timers[index].is_some_and(|at| at <= log.now) {
                    log.known.timers[index] = None;
                    let change = TimerChange::Expired;
                    log.emit(key, EventKind::TimerUpdated { timer, change });
                }
            }
        });
    }

    /// Logs a congestion signal on a path.
    pub(super) fn log_congestion(&mut self, key: PathKey, trigger: &'static str) {
        self.with_log(|connection, log| paths::congestion(connection, log, key, Some(trigger)));
    }

    /// Logs a key update that this end initiated.
    pub(super) fn log_key_update(&mut self) {
        self.with_log(|connection, log| changes::keys(connection, log, Initiator::Local));
    }

    /// Logs changes of state at the end of a call into the connection.
    pub(super) fn log_changes(&mut self) {
        self.with_log(changes::all);
    }
}
