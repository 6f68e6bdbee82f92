//! Enumerations with the names that the qlog drafts define for their values.

use equic_wire::packet::PacketType;
use equic_wire::{Direction, TransportErrorCode};

use crate::path::EcnState;
use crate::qlog::{EventKind, Initiator, KeyChange, KeyLevel, StreamPart, Timer};
use crate::received::EcnCodepoint;

pub(crate) fn event(kind: &EventKind<'_>) -> &'static str {
    match kind {
        EventKind::ConnectionStarted { .. } => "connection_started",
        EventKind::ConnectionClosed(_) => "connection_closed",
        EventKind::ConnectionStateUpdated { .. } => "connection_state_updated",
        EventKind::ConnectionIdUpdated { .. } => "connection_id_updated",
        EventKind::SpinBitUpdated(_) => "spin_bit_updated",
        EventKind::TupleAssigned(_) => "tuple_assigned",
        EventKind::MtuUpdated { .. } => "mtu_updated",
        EventKind::VersionInformation { .. } => "version_information",
        EventKind::AlpnInformation(_) => "alpn_information",
        EventKind::ParametersSet { .. } | EventKind::CipherSelected(_) => "parameters_set",
        EventKind::PacketSent(_) => "packet_sent",
        EventKind::PacketReceived(_) | EventKind::UnprotectedReceived { .. } => "packet_received",
        EventKind::PacketDropped { .. } => "packet_dropped",
        EventKind::PacketsAcked { .. } => "packets_acked",
        EventKind::DatagramSent { .. } => "udp_datagrams_sent",
        EventKind::DatagramReceived { .. } => "udp_datagrams_received",
        EventKind::StreamStateUpdated { .. } => "stream_state_updated",
        EventKind::MigrationStateUpdated { .. } => "migration_state_updated",
        EventKind::TimerUpdated { .. } => "timer_updated",
        EventKind::KeyUpdated(_) => "key_updated",
        EventKind::KeyDiscarded(_) => "key_discarded",
        EventKind::RecoveryParametersSet { .. } => "recovery_parameters_set",
        EventKind::RecoveryMetricsUpdated(_) => "recovery_metrics_updated",
        EventKind::CongestionStateUpdated { .. } => "congestion_state_updated",
        EventKind::PacketLost(_) => "packet_lost",
        EventKind::MarkedForRetransmit(_) => "marked_for_retransmit",
        EventKind::EcnStateUpdated { .. } => "ecn_state_updated",
    }
}

/// Returns the draft's `$PacketType`.
pub(crate) fn packet(packet_type: PacketType) -> &'static str {
    match packet_type {
        PacketType::Initial => "initial",
        PacketType::Handshake => "handshake",
        PacketType::ZeroRtt => "0RTT",
        PacketType::OneRtt => "1RTT",
    }
}

/// Returns the draft's `$PacketNumberSpace`.
pub(super) fn space(packet_type: PacketType) -> &'static str {
    match packet_type {
        PacketType::Initial => "initial",
        PacketType::Handshake => "handshake",
        PacketType::ZeroRtt | PacketType::OneRtt => "application_data",
    }
}

pub(super) fn initiator(initiator: Initiator) -> &'static str {
    match initiator {
        Initiator::Local => "local",
        Initiator::Remote => "remote",
    }
}

pub(crate) fn direction(direction: Direction) -> &'static str {
    match direction {
        Direction::Unidirectional => "unidirectional",
        Direction::Bidirectional => "bidirectional",
    }
}

pub(super) fn part(part: StreamPart) -> &'static str {
    match part {
        StreamPart::Sending => "sending",
        StreamPart::Receiving => "receiving",
    }
}

/// Returns the value of `ECN` (s.8.11).
pub(super) fn codepoint(ecn: EcnCodepoint) -> &'static str {
    match ecn {
        EcnCodepoint::NotEct => "Not-ECT",
        EcnCodepoint::Ect1 => "ECT(1)",
        EcnCodepoint::Ect0 => "ECT(0)",
        EcnCodepoint::Ce => "CE",
    }
}

/// Returns the draft's `ECNState`.
pub(super) fn ecn_state(state: EcnState) -> &'static str {
    match state {
        EcnState::Testing => "testing",
        EcnState::Unknown => "unknown",
        EcnState::Failed => "failed",
        EcnState::Capable => "capable",
    }
}

/// Returns the draft's `$TimerType`.
pub(super) fn timer(timer: Timer) -> &'static str {
    match timer {
        Timer::Loss => "loss_timeout",
        Timer::Ack => "ack",
        Timer::Idle => "idle_timeout",
    }
}

/// Returns the draft's `$KeyType`.
pub(super) fn key(change: KeyChange) -> &'static str {
    match (change.client, change.level) {
        (true, KeyLevel::Initial) => "client_initial_secret",
        (true, KeyLevel::Handshake) => "client_handshake_secret",
        (true, KeyLevel::OneRtt) => "client_1rtt_secret",
        (false, KeyLevel::Initial) => "server_initial_secret",
        (false, KeyLevel::Handshake) => "server_handshake_secret",
        (false, KeyLevel::OneRtt) => "server_1rtt_secret",
    }
}

pub(super) fn key_trigger(change: KeyChange) -> &'static str {
    match change.trigger {
        None => "tls",
        Some(Initiator::Local) => "local_update",
        Some(Initiator::Remote) => "remote_update",
    }
}

/// Returns the name of a transport error: a `$TransportError` or `CryptoError` of the draft.
/// Returns `None` if the draft has no name for the code.
pub(super) fn transport_error(code: TransportErrorCode) -> Option<String> {
    match code {
        TransportErrorCode::VERSION_NEGOTIATION_ERROR
        | TransportErrorCode::APPLICATION_ABANDON_PATH
        | TransportErrorCode::PATH_RESOURCE_LIMIT_REACHED
        | TransportErrorCode::PATH_UNSTABLE_OR_POOR
        | TransportErrorCode::NO_CID_AVAILABLE_FOR_PATH => None,
        _ => match code.tls_alert() {
            Some(alert) => Some(format!("crypto_error_0x1{alert:02x}")),
            None => code.name().map(str::to_ascii_lowercase),
        },
    }
}
