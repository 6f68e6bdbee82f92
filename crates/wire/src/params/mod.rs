//! Transport parameters (RFC 9000 s.7.4 and s.18), with those of RFC 9221, RFC 9287, RFC 9368, RFC 10069
//! and draft-ietf-quic-ack-frequency.
//!
//! [`RawParameters`] is the sequence as it came; [`TransportParameters`] is what the known ones mean,
//! every value within its limits, and what only a server may send only there for a server. Unknown
//! ones are skipped, and stay at hand in [`TransportParameters::unknown`].

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

/// Transport parameters that an endpoint declares. A parameter that is absent has its default value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportParameters<'a> {
    /// The Source Connection ID of its first Initial (RFC 9000 s.7.3).
    pub initial_source_connection_id: ConnectionId,
    /// Milliseconds; 0: never idle.
    pub max_idle_timeout_ms: VarInt,
    /// The largest UDP payload it takes, in bytes.
    pub max_udp_payload_size: MaxUdpPayloadSize,
    /// Bytes it takes on all streams together.
    pub initial_max_data: VarInt,
    /// Bytes it takes on each bidirectional stream it opens.
    pub initial_max_stream_data_bidi_local: VarInt,
    /// Bytes it takes on each bidirectional stream its peer opens.
    pub initial_max_stream_data_bidi_remote: VarInt,
    /// Bytes it takes on each unidirectional stream its peer opens.
    pub initial_max_stream_data_uni: VarInt,
    /// Bidirectional streams its peer may open.
    pub initial_max_streams_bidi: StreamCount,
    /// Unidirectional streams its peer may open.
    pub initial_max_streams_uni: StreamCount,
    /// The unit of its ACK Delay fields.
    pub ack_delay_exponent: AckDelayExponent,
    /// Longest time for which the endpoint delays an acknowledgement.
    pub max_ack_delay: MaxAckDelay,
    /// Its peer is not to use another address with the one of the handshake.
    pub disable_active_migration: bool,
    /// Connection IDs of its peer that it stores.
    pub active_connection_id_limit: ActiveConnectionIdLimit,
    /// The largest DATAGRAM frame it takes, in bytes, type and length included; 0: none (RFC 9221).
    pub max_datagram_frame_size: VarInt,
    /// It takes packets with a zero Fixed Bit (RFC 9287).
    pub grease_quic_bit: bool,
    /// It takes ACK_FREQUENCY frames, and delays an acknowledgement by at least so many microseconds
    /// (draft-ietf-quic-ack-frequency). Not over `max_ack_delay`.
    pub min_ack_delay_us: Option<VarInt>,
    /// It speaks multipath QUIC, and its peer may use path IDs up to this one until a MAX_PATH_ID frame says more
    /// (RFC 10069 s.2.1). Who declares it uses no connection ID of zero length. Never remembered for 0-RTT.
    pub initial_max_path_id: Option<PathId>,
    /// The version it chose and those it knows (RFC 9368).
    pub version_information: Option<VersionInformation<'a>>,
    /// Parameters that only a server sends; `None` for a client.
    pub server: Option<ServerParameters>,
    unknown: Unknown<'a>,
}

/// Parameters that only a server may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerParameters {
    /// The Destination Connection ID of the client's first Initial (RFC 9000 s.7.3).
    pub original_destination_connection_id: ConnectionId,
    /// The Source Connection ID of its Retry packet, if it sent one (RFC 9000 s.7.3).
    pub retry_source_connection_id: Option<ConnectionId>,
    /// For the connection ID of the handshake.
    pub stateless_reset_token: Option<ResetToken>,
    /// Address at which the server prefers to be reached; none: it has no preference.
    pub preferred_address: Option<PreferredAddress>,
}

impl<'a> TransportParameters<'a> {
    /// The parameters of a client, all others at their defaults.
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

    /// The parameters of a server, all others at their defaults.
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

    /// The parameters that were read and that this crate does not know, reserved ones among them.
    pub fn unknown(&self) -> impl Iterator<Item = RawParameter<'a>> + use<'a> {
        self.unknown.iter()
    }
}

/// The unknown ones among all parameters that were read; equal if those are.
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
