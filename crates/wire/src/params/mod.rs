//! Transport parameters (RFC 9000 s.7.4 and s.18), including those of RFC 9221, RFC 9287, RFC 9368,
//! RFC 10069 and draft-ietf-quic-ack-frequency.
//!
//! [`RawParameters`] is the sequence of parameters as received. [`TransportParameters`] has a field
//! for each known parameter. Every value is within its limits, and parameters that only a server
//! may send are rejected if a client sends them. Unknown parameters are not interpreted;
//! [`TransportParameters::unknown`] returns them.

mod error;
mod raw;
mod read;
mod value;
mod write;

pub use error::{ParameterError, ParameterErrorKind};
pub use raw::{ParameterId, RawParameter, RawParameters};
pub use value::{
    AckDelayExponent, ActiveConnectionIdLimit, MaxAckDelay, MaxUdpPayloadSize, PreferredAddress,
    VersionInformation,
};

use crate::{ConnectionId, PathId, ResetToken, StreamCount, VarInt};
use core::fmt;

/// The transport parameters of one endpoint. A parameter that the endpoint does not send has its
/// default value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportParameters<'a> {
    /// The Source Connection ID of the endpoint's first Initial (RFC 9000 s.7.3).
    pub initial_source_connection_id: ConnectionId,
    /// Idle timeout in milliseconds. 0 disables it.
    pub max_idle_timeout_ms: VarInt,
    /// The largest UDP payload that the endpoint accepts, in bytes.
    pub max_udp_payload_size: MaxUdpPayloadSize,
    /// Initial limit on the total number of bytes that the endpoint accepts on all streams.
    pub initial_max_data: VarInt,
    /// Initial limit on the number of bytes that the endpoint accepts on each bidirectional stream
    /// that it opens itself.
    pub initial_max_stream_data_bidi_local: VarInt,
    /// Initial limit on the number of bytes that the endpoint accepts on each bidirectional stream
    /// that its peer opens.
    pub initial_max_stream_data_bidi_remote: VarInt,
    /// Initial limit on the number of bytes that the endpoint accepts on each unidirectional stream
    /// that its peer opens.
    pub initial_max_stream_data_uni: VarInt,
    /// Number of bidirectional streams that the peer may open.
    pub initial_max_streams_bidi: StreamCount,
    /// Number of unidirectional streams that the peer may open.
    pub initial_max_streams_uni: StreamCount,
    /// Exponent with which the endpoint encodes the ACK Delay field of its ACK frames.
    pub ack_delay_exponent: AckDelayExponent,
    /// Longest time for which the endpoint delays an acknowledgement.
    pub max_ack_delay: MaxAckDelay,
    /// True if the peer must not migrate while it sends to the server's address of the handshake.
    pub disable_active_migration: bool,
    /// Maximum number of connection IDs of the peer that the endpoint stores.
    pub active_connection_id_limit: ActiveConnectionIdLimit,
    /// The largest DATAGRAM frame that the endpoint accepts, in bytes, including the type and
    /// Length fields. 0 means that the endpoint does not support DATAGRAM (RFC 9221).
    pub max_datagram_frame_size: VarInt,
    /// True if the endpoint accepts packets with a zero Fixed Bit (RFC 9287).
    pub grease_quic_bit: bool,
    /// The shortest ACK delay that the endpoint supports, in microseconds
    /// (draft-ietf-quic-ack-frequency). It must not exceed `max_ack_delay`. `None` if the endpoint
    /// does not accept ACK_FREQUENCY frames.
    pub min_ack_delay_us: Option<VarInt>,
    /// The largest path ID that the peer may use, until a MAX_PATH_ID frame raises the limit (RFC
    /// 10069 s.2.1). An endpoint that sends this parameter supports multipath QUIC and must not use
    /// zero-length connection IDs. A client must not remember the parameter for 0-RTT. `None` if
    /// the endpoint does not support multipath.
    pub initial_max_path_id: Option<PathId>,
    /// The QUIC version that the endpoint chose, and the versions that it supports (RFC 9368).
    pub version_information: Option<VersionInformation<'a>>,
    /// The parameters that only a server sends, or `None` for a client.
    pub server: Option<ServerParameters>,
    unknown: Unknown<'a>,
}

/// Parameters that only a server may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerParameters {
    /// The Destination Connection ID of the client's first Initial (RFC 9000 s.7.3).
    pub original_destination_connection_id: ConnectionId,
    /// The Source Connection ID of the server's Retry packet, or `None` if it sent none (RFC 9000
    /// s.7.3).
    pub retry_source_connection_id: Option<ConnectionId>,
    /// The stateless reset token for the connection ID that the server chose during the handshake.
    pub stateless_reset_token: Option<ResetToken>,
    /// The address at which the server prefers to be reached, or `None` if it has no preference.
    pub preferred_address: Option<PreferredAddress>,
}

impl<'a> TransportParameters<'a> {
    /// Creates the parameters of a client. All parameters that are not an argument have their
    /// default values.
    pub fn client(initial_source_connection_id: ConnectionId) -> Self {
        TransportParameters {
            initial_source_connection_id,
            max_idle_timeout_ms: VarInt::ZERO,
            max_udp_payload_size: MaxUdpPayloadSize::default(),
            initial_max_data: VarInt::ZERO,
            initial_max_stream_data_bidi_local: VarInt::ZERO,
            initial_max_stream_data_bidi_remote: VarInt::ZERO,
            initial_max_stream_data_uni: VarInt::ZERO,
            initial_max_streams_bidi: StreamCount::default(),
            initial_max_streams_uni: StreamCount::default(),
            ack_delay_exponent: AckDelayExponent::default(),
            max_ack_delay: MaxAckDelay::default(),
            disable_active_migration: false,
            active_connection_id_limit: ActiveConnectionIdLimit::default(),
            max_datagram_frame_size: VarInt::ZERO,
            grease_quic_bit: false,
            min_ack_delay_us: None,
            initial_max_path_id: None,
            version_information: None,
            server: None,
            unknown: Unknown(RawParameters::EMPTY),
        }
    }

    /// Creates the parameters of a server. All parameters that are not an argument have their
    /// default values.
    pub fn server(
        initial_source_connection_id: ConnectionId,
        original_destination_connection_id: ConnectionId,
    ) -> Self {
        let server = ServerParameters {
            original_destination_connection_id,
            retry_source_connection_id: None,
            stateless_reset_token: None,
            preferred_address: None,
        };
        TransportParameters {
            server: Some(server),
            ..TransportParameters::client(initial_source_connection_id)
        }
    }

    /// Returns the received parameters that this crate does not know, including reserved ones.
    pub fn unknown(&self) -> impl Iterator<Item = RawParameter<'a>> + use<'a> {
        self.unknown.iter()
    }
}

/// All received parameters, from which the unknown ones are read. Two values are equal if their
/// unknown parameters are equal.
#[derive(Clone, Copy)]
struct Unknown<'a>(RawParameters<'a>);

impl<'a> Unknown<'a> {
    fn iter(self) -> impl Iterator<Item = RawParameter<'a>> {
        self.0.filter_map(Result::ok).filter(|parameter| !parameter.id.is_known())
    }
}

impl PartialEq for Unknown<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Unknown<'_> {}

impl fmt::Debug for Unknown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
