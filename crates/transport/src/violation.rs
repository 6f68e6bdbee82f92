//! The rules of the protocol that a peer can break, and the other reasons why the transport closes
//! a connection. Only this module defines the error codes and reason phrases for them.
//!
//! A CONNECTION_CLOSE frame carries the phrase to the peer. A phrase is short, uses the terms of
//! the RFCs, and contains nothing that the peer has sent.

use std::fmt;

use equic_wire::TransportErrorCode as Code;
use equic_wire::frame::{FrameError, FrameErrorKind};
use equic_wire::params::{ParameterError, ParameterErrorKind};

/// A rule of the protocol that the peer broke, so that this end closed the connection.
///
/// A violation is more precise than the error code. So a server can count violations by kind, and a
/// test can check for a specific one. New variants may be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Violation {
    /// A malformed frame, or a frame that this packet type or sender must not carry (RFC 9000
    /// s.12.4, s.19).
    Frame(FrameErrorKind),
    /// Malformed or missing transport parameters (RFC 9000 s.7.4, s.18).
    TransportParameter(ParameterErrorKind),
    /// TLS reported this alert (RFC 9001 s.4.8 #1).
    Tls(u8),
    /// A packet that is authentic but has reserved header bits set (RFC 9000 s.17.2 #9, s.17.3.1).
    // RFC 9000 s.17.3.1 #3
    ReservedBits,
    /// A key update before the previous one was acknowledged, or a packet that is protected with
    /// older keys than a packet with a lower number (RFC 9001 s.6.2, s.6.4 #2).
    KeyUpdate,
    /// An acknowledgment of a packet that was never sent (RFC 9000 s.13.1 #2).
    AckOfUnsentPacket,
    /// A TLS CertificateRequest after the handshake (RFC 9001 s.4.4).
    PostHandshakeAuthentication,
    /// CRYPTO data at an encryption level that TLS has already left (RFC 9001 s.4.1.3 #1 #2).
    CryptoAtOldLevel,
    /// An incomplete TLS message when TLS left its encryption level (RFC 9001 s.4.1.3 #3).
    CryptoNotConsumed,
    /// More CRYPTO data than this end is willing to buffer (RFC 9000 s.7.5 #2).
    CryptoBufferExceeded,
    /// A frame for a direction in which the unidirectional stream carries no data (RFC 9000 s.19.4,
    /// s.19.5, s.19.8, s.19.10, s.19.13).
    // RFC 9000 s.19.4 #1, s.19.5 #2, s.19.10 #2, s.19.13 #2
    StreamDirection,
    /// A frame for a stream that only this end may open and has not opened (RFC 9000 s.19.4,
    /// s.19.5, s.19.8, s.19.10).
    // RFC 9000 s.19.5 #1, s.19.8 #1, s.19.10 #1
    StreamNotOpened,
    /// A stream ID beyond the stream limit (RFC 9000 s.4.6 #3).
    // RFC 9000 s.19.11 #4
    StreamLimit,
    /// Stream data beyond the flow control limit of the stream or of the connection (RFC 9000
    /// s.4.1).
    // RFC 9000 s.4.1 #2, s.19.9 #2, s.19.10 #4
    FlowControl,
    /// A final size that differs from an earlier one, or data beyond the final size (RFC 9000
    /// s.4.5).
    // RFC 9000 s.4.5 #3 #4
    FinalSize,
    /// A DATAGRAM frame that is larger than this end's `max_datagram_frame_size`, or that this end
    /// did not agree to receive (RFC 9221 s.3 #3 #4).
    DatagramSize,
    /// A `requested_max_ack_delay` below `min_ack_delay`, or of at least 2^14 ms
    /// (draft-ietf-quic-ack-frequency s.4).
    AckFrequencyDelay,
    /// A NEW_CONNECTION_ID frame from a peer that uses zero-length connection IDs (RFC 9000
    /// s.19.15).
    // RFC 9000 s.19.15 #3
    NewConnectionIdWithoutIds,
    /// A NEW_CONNECTION_ID frame that contradicts an earlier one. It has the same sequence number
    /// with another ID or token, or the same ID with another sequence number (RFC 9000 s.19.15) or
    /// path ID (RFC 10069 s.3.2.1).
    ConnectionIdReused,
    /// More connection IDs than `active_connection_id_limit` (RFC 9000 s.5.1.1).
    ConnectionIdLimit,
    /// More connection IDs to retire than this end allows to remain unacknowledged (RFC 9000
    /// s.5.1.2).
    UnacknowledgedRetirements,
    /// RETIRE_CONNECTION_ID for a sequence number that was never issued (RFC 9000 s.19.16 #1).
    RetiredUnissuedId,
    /// RETIRE_CONNECTION_ID for the Destination Connection ID of its own packet (RFC 9000 s.19.16).
    // RFC 9000 s.19.16 #2
    RetiredIdInUse,
    /// Connection IDs in the transport parameters that differ from those of the handshake packets
    /// (RFC 9000 s.7.3 #4).
    HandshakeConnectionIds,
    /// Transport parameters that a hook rejected.
    TransportParametersRejected,
    /// Transport parameters that lower the limits remembered for 0-RTT, although the server
    /// accepted 0-RTT (RFC 9000 s.7.4.1).
    ReducedLimitsAfterEarlyData,
    /// A transport parameter `version_information` that contradicts the version negotiation, so
    /// that someone has manipulated the negotiation (RFC 9368 s.4 #9 #12 #15 #17).
    VersionInformation,
    /// A frame of an extension in a packet other than a 1-RTT packet.
    ExtensionFrameOutsideOneRtt,
    /// A frame of an extension that could not be parsed by the hook that owns its frame type.
    ExtensionFrame,
    /// A frame that is longer than the rest of its packet, and whose extension is no longer
    /// attached.
    ExtensionFrameTruncated,
    /// A frame that a hook rejected.
    FrameRejected,
    /// The transport parameter `initial_max_path_id` from a peer that uses zero-length connection
    /// IDs (RFC 10069 s.2.1 #4).
    MultipathWithoutIds,
    /// The transport parameter `initial_max_path_id`, although the nonce of the negotiated AEAD has
    /// no room for a path ID (RFC 10069 s.2.1 #5).
    MultipathNonce,
    /// A path ID above the limit that this end has set (RFC 10069 s.4 #3).
    PathIdLimit,
    /// MAX_PATH_ID below the transport parameter `initial_max_path_id` (RFC 10069 s.4.6 #2 #3).
    MaxPathIdReduced,
    /// PATHS_BLOCKED with a limit above the one that this end has set (RFC 10069 s.4.7 #1).
    PathsBlockedLimit,
    /// PATH_CIDS_BLOCKED with a sequence number above the next one of this end (RFC 10069 s.4.7).
    // RFC 10069 s.4.7 #2
    PathCidsBlockedSequence,
}

impl Violation {
    /// Returns the error code that the connection is closed with.
    pub fn code(self) -> Code {
        self.parts().0
    }

    /// Returns the reason phrase, in plain ASCII.
    pub fn phrase(self) -> &'static str {
        self.parts().1
    }

    fn parts(self) -> (Code, &'static str) {
        use Violation as V;
        const VIOLATION: Code = Code::PROTOCOL_VIOLATION;
        match self {
            V::Frame(kind) => (kind.code(), kind.phrase()),
            V::TransportParameter(kind) => (Code::TRANSPORT_PARAMETER_ERROR, kind.phrase()),
            V::Tls(alert) => (Code::crypto(alert), alert_name(alert)),
            V::ReservedBits => (VIOLATION, "reserved bits are set"),
            V::KeyUpdate => {
                (Code::KEY_UPDATE_ERROR, "key update too early, or old keys used after it")
            }
            V::AckOfUnsentPacket => (VIOLATION, "acknowledgment of a packet that was never sent"),
            V::PostHandshakeAuthentication => (VIOLATION, "TLS post-handshake authentication"),
            V::CryptoAtOldLevel => (VIOLATION, "CRYPTO data at an old encryption level"),
            V::CryptoNotConsumed => {
                (VIOLATION, "incomplete TLS message at the end of an encryption level")
            }
            V::CryptoBufferExceeded => {
                (Code::CRYPTO_BUFFER_EXCEEDED, "CRYPTO data exceeds the buffer")
            }
            V::StreamDirection => {
                (Code::STREAM_STATE_ERROR, "frame for a missing half of a unidirectional stream")
            }
            V::StreamNotOpened => {
                (Code::STREAM_STATE_ERROR, "frame for a stream that its initiator has not opened")
            }
            V::StreamLimit => (Code::STREAM_LIMIT_ERROR, "stream ID exceeds the stream limit"),
            V::FlowControl => (Code::FLOW_CONTROL_ERROR, "data exceeds a flow control limit"),
            V::FinalSize => (Code::FINAL_SIZE_ERROR, "final size changed, or data beyond it"),
            V::DatagramSize => (VIOLATION, "DATAGRAM frame exceeds max_datagram_frame_size"),
            V::AckFrequencyDelay => (VIOLATION, "ACK_FREQUENCY: max ACK delay out of range"),
            V::NewConnectionIdWithoutIds => {
                (VIOLATION, "NEW_CONNECTION_ID with zero-length connection IDs")
            }
            V::ConnectionIdReused => {
                (VIOLATION, "connection ID or sequence number was used before")
            }
            V::ConnectionIdLimit => {
                (Code::CONNECTION_ID_LIMIT_ERROR, "active_connection_id_limit exceeded")
            }
            V::UnacknowledgedRetirements => (
                Code::CONNECTION_ID_LIMIT_ERROR,
                "too many unacknowledged connection ID retirements",
            ),
            V::RetiredUnissuedId => (VIOLATION, "retired connection ID was never issued"),
            V::RetiredIdInUse => (VIOLATION, "retired connection ID is that of the same packet"),
            V::HandshakeConnectionIds => (
                Code::TRANSPORT_PARAMETER_ERROR,
                "connection IDs do not match those of the handshake",
            ),
            V::TransportParametersRejected => {
                (Code::TRANSPORT_PARAMETER_ERROR, "transport parameters rejected")
            }
            V::ReducedLimitsAfterEarlyData => {
                (VIOLATION, "0-RTT accepted with limits below the remembered ones")
            }
            V::VersionInformation => (
                Code::VERSION_NEGOTIATION_ERROR,
                "version_information contradicts version negotiation",
            ),
            V::ExtensionFrameOutsideOneRtt => (VIOLATION, "extension frame outside a 1-RTT packet"),
            V::ExtensionFrame => (Code::FRAME_ENCODING_ERROR, "malformed extension frame"),
            V::ExtensionFrameTruncated => {
                (Code::FRAME_ENCODING_ERROR, "extension frame exceeds the packet")
            }
            V::FrameRejected => (VIOLATION, "frame rejected by an extension"),
            V::MultipathWithoutIds => (VIOLATION, "multipath with zero-length connection IDs"),
            V::MultipathNonce => {
                (Code::TRANSPORT_PARAMETER_ERROR, "multipath with an AEAD nonce that is too short")
            }
            V::PathIdLimit => (VIOLATION, "path ID exceeds the maximum path ID"),
            V::MaxPathIdReduced => (VIOLATION, "MAX_PATH_ID below initial_max_path_id"),
            V::PathsBlockedLimit => (VIOLATION, "PATHS_BLOCKED above the maximum path ID"),
            V::PathCidsBlockedSequence => {
                (VIOLATION, "PATH_CIDS_BLOCKED above the next sequence number")
            }
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.phrase())
    }
}

/// A reason for closing or refusing a connection that is not a violation by the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    /// The server supports none of the client's versions (RFC 9000 s.6.2 #1).
    NoCommonVersion,
    /// This end's keys have protected as many packets as their AEAD permits, and cannot be updated
    /// (RFC 9001 s.6.6 #4).
    ConfidentialityLimit,
    /// The number of packets that failed authentication has reached the limit of the AEAD (RFC 9001
    /// s.6.6).
    // RFC 9001 s.6.6 #7
    IntegrityLimit,
    /// The peer abandoned the only path that was open (RFC 10069 s.3.4 #8).
    LastPathAbandoned,
    /// The server does not accept the connection attempt (RFC 9000 s.5.2.2 #4).
    Refused,
    /// The token in an Initial packet is from a Retry packet and is not valid (RFC 9000 s.8.1.2).
    // RFC 9000 s.8.1.2 #2
    InvalidToken,
}

impl Condition {
    pub(crate) fn code(self) -> Code {
        self.parts().0
    }

    pub(crate) const fn phrase(self) -> &'static str {
        self.parts().1
    }

    const fn parts(self) -> (Code, &'static str) {
        match self {
            Condition::NoCommonVersion => (Code::VERSION_NEGOTIATION_ERROR, "no version in common"),
            Condition::ConfidentialityLimit => {
                (Code::AEAD_LIMIT_REACHED, "AEAD confidentiality limit reached")
            }
            Condition::IntegrityLimit => (Code::AEAD_LIMIT_REACHED, "AEAD integrity limit reached"),
            Condition::LastPathAbandoned => (Code::NO_ERROR, "the last path was abandoned"),
            Condition::Refused => (Code::CONNECTION_REFUSED, ""),
            Condition::InvalidToken => (Code::INVALID_TOKEN, "invalid or expired Retry token"),
        }
    }
}

/// Why a connection is closed: the error code, the reason for the local application, and the rule
/// that the peer broke, if it broke one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub code: Code,
    pub reason: String,
    pub violation: Option<Violation>,
}

impl From<Violation> for Failure {
    fn from(violation: Violation) -> Failure {
        Failure::with_reason(violation, violation.phrase().to_owned())
    }
}

impl From<Condition> for Failure {
    fn from(condition: Condition) -> Failure {
        Failure::internal(condition.code(), condition.phrase())
    }
}

impl From<FrameError> for Failure {
    fn from(error: FrameError) -> Failure {
        Failure::with_reason(Violation::Frame(error.kind), error.to_string())
    }
}

impl From<ParameterError> for Failure {
    fn from(error: ParameterError) -> Failure {
        Failure::with_reason(Violation::TransportParameter(error.kind), error.to_string())
    }
}

impl Failure {
    /// Creates the failure for a violation. `reason` is more precise than the violation's phrase.
    pub(crate) fn with_reason(violation: Violation, reason: String) -> Failure {
        Failure { code: violation.code(), reason, violation: Some(violation) }
    }

    /// Creates the failure for an error that is not a violation by the peer.
    pub(crate) fn internal(code: Code, reason: &str) -> Failure {
        Failure { code, reason: reason.to_owned(), violation: None }
    }
}

/// Returns the name of a TLS alert (RFC 8446 s.6, RFC 7301 s.3.2). The peer gets this name and not
/// TLS's error text, because that text can quote the peer, for example names in its certificate.
const fn alert_name(alert: u8) -> &'static str {
    match alert {
        10 => "TLS alert unexpected_message",
        20 => "TLS alert bad_record_mac",
        22 => "TLS alert record_overflow",
        40 => "TLS alert handshake_failure",
        42 => "TLS alert bad_certificate",
        43 => "TLS alert unsupported_certificate",
        44 => "TLS alert certificate_revoked",
        45 => "TLS alert certificate_expired",
        46 => "TLS alert certificate_unknown",
        47 => "TLS alert illegal_parameter",
        48 => "TLS alert unknown_ca",
        49 => "TLS alert access_denied",
        50 => "TLS alert decode_error",
        51 => "TLS alert decrypt_error",
        70 => "TLS alert protocol_version",
        71 => "TLS alert insufficient_security",
        80 => "TLS alert internal_error",
        86 => "TLS alert inappropriate_fallback",
        109 => "TLS alert missing_extension",
        110 => "TLS alert unsupported_extension",
        112 => "TLS alert unrecognized_name",
        113 => "TLS alert bad_certificate_status_response",
        115 => "TLS alert unknown_psk_identity",
        116 => "TLS alert certificate_required",
        120 => "TLS alert no_application_protocol",
        _ => "TLS alert",
    }
}

#[cfg(test)]
mod tests;
