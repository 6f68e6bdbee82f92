//! Transport parameters as identifiers and uninterpreted values (RFC 9000 s.18).

use super::{ParameterError, ParameterErrorKind};
use crate::VarInt;
use crate::cursor::Reader;
use core::fmt;

/// Identifier of a transport parameter. A peer may send any variable-length integer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParameterId(pub VarInt);

/// One parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawParameter<'a> {
    /// Identifier of the parameter.
    pub id: ParameterId,
    /// Value of the parameter, as on the wire.
    pub value: &'a [u8],
}

/// An iterator over transport parameters, in the order in which they were received. It ends after
/// the first parameter that extends beyond the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawParameters<'a> {
    reader: Reader<'a>,
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $rfc_name:literal;)*) => {
        impl ParameterId {
            $($(#[$doc])* pub const $name: ParameterId = ParameterId(VarInt::from_u32($value));)*

            /// Returns the RFC's name of the parameter, or `None` if it is unknown.
            pub const fn name(self) -> Option<&'static str> {
                match self.0.get() {
                    $($value => Some($rfc_name),)*
                    _ => None,
                }
            }

            /// Returns the index of the parameter in the table of known parameters, or `None` if it
            /// is unknown.
            pub(super) fn index(self) -> Option<u32> {
                (0u32..).zip([$($value as u64),*]).find(|(_, id)| *id == self.0.get()).map(|(at, _)| at)
            }
        }

        /// The identifiers as `u64` constants, which `match` patterns can use.
        pub(super) mod number {
            $(pub(in crate::params) const $name: u64 = $value;)*
        }
    };
}

ids! {
    /// Server only.
    ORIGINAL_DESTINATION_CONNECTION_ID = 0x00, "original_destination_connection_id";
    /// Milliseconds.
    MAX_IDLE_TIMEOUT = 0x01, "max_idle_timeout";
    /// Server only.
    STATELESS_RESET_TOKEN = 0x02, "stateless_reset_token";
    /// Bytes.
    MAX_UDP_PAYLOAD_SIZE = 0x03, "max_udp_payload_size";
    /// Bytes.
    INITIAL_MAX_DATA = 0x04, "initial_max_data";
    /// Bytes.
    INITIAL_MAX_STREAM_DATA_BIDI_LOCAL = 0x05, "initial_max_stream_data_bidi_local";
    /// Bytes.
    INITIAL_MAX_STREAM_DATA_BIDI_REMOTE = 0x06, "initial_max_stream_data_bidi_remote";
    /// Bytes.
    INITIAL_MAX_STREAM_DATA_UNI = 0x07, "initial_max_stream_data_uni";
    /// Streams.
    INITIAL_MAX_STREAMS_BIDI = 0x08, "initial_max_streams_bidi";
    /// Streams.
    INITIAL_MAX_STREAMS_UNI = 0x09, "initial_max_streams_uni";
    /// Exponent of ACK Delay fields: their unit is 2 to the power of this exponent, in
    /// microseconds.
    ACK_DELAY_EXPONENT = 0x0a, "ack_delay_exponent";
    /// Milliseconds.
    MAX_ACK_DELAY = 0x0b, "max_ack_delay";
    /// A flag: set if the parameter is present.
    DISABLE_ACTIVE_MIGRATION = 0x0c, "disable_active_migration";
    /// Server only.
    PREFERRED_ADDRESS = 0x0d, "preferred_address";
    /// Connection IDs.
    ACTIVE_CONNECTION_ID_LIMIT = 0x0e, "active_connection_id_limit";
    /// Mandatory.
    INITIAL_SOURCE_CONNECTION_ID = 0x0f, "initial_source_connection_id";
    /// Server only.
    RETRY_SOURCE_CONNECTION_ID = 0x10, "retry_source_connection_id";
    /// RFC 9368.
    VERSION_INFORMATION = 0x11, "version_information";
    /// Largest DATAGRAM frame, in bytes (RFC 9221).
    MAX_DATAGRAM_FRAME_SIZE = 0x20, "max_datagram_frame_size";
    /// The largest path ID that the peer may use (RFC 10069 s.2.1).
    INITIAL_MAX_PATH_ID = 0x3e, "initial_max_path_id";
    /// A flag: set if the parameter is present (RFC 9287).
    GREASE_QUIC_BIT = 0x2ab2, "grease_quic_bit";
    /// Microseconds (draft-ietf-quic-ack-frequency).
    MIN_ACK_DELAY = 0xff04_de1b, "min_ack_delay";
}

impl ParameterId {
    /// Returns `true` if this crate interprets the parameter.
    pub const fn is_known(self) -> bool {
        self.name().is_some()
    }

    /// Returns the reserved identifier `31 * n + 27`, or `None` if it exceeds 2^62-1. An endpoint
    /// sends such parameters to test that its peer ignores unknown ones (RFC 9000 s.18.1).
    pub fn reserved(n: u64) -> Option<Self> {
        VarInt::new(n.checked_mul(31)?.checked_add(27)?).ok().map(ParameterId)
    }

    /// Returns `true` if the identifier is reserved for such tests: it has the form `31 * n + 27`.
    pub const fn is_reserved(self) -> bool {
        self.0.get() % 31 == 27
    }
}

impl<'a> RawParameters<'a> {
    pub(super) const EMPTY: RawParameters<'static> = RawParameters { reader: Reader::new(&[]) };

    /// Creates an iterator over the parameters in `bytes`, the content of the
    /// quic_transport_parameters extension.
    pub const fn new(bytes: &'a [u8]) -> Self {
        RawParameters { reader: Reader::new(bytes) }
    }
}

impl<'a> Iterator for RawParameters<'a> {
    type Item = Result<RawParameter<'a>, ParameterError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let truncated = |id| ParameterError { id, kind: ParameterErrorKind::Truncated };
        let Ok(id) = self.reader.varint().map(ParameterId) else {
            self.reader.take_rest();
            return Some(Err(truncated(None)));
        };
        let Ok(value) = self.reader.varint_bytes() else {
            self.reader.take_rest();
            return Some(Err(truncated(Some(id))));
        };
        Some(Ok(RawParameter { id, value }))
    }
}

impl core::iter::FusedIterator for RawParameters<'_> {}

impl fmt::Display for ParameterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "transport parameter {:#x}", self.0),
        }
    }
}

impl fmt::Debug for ParameterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
