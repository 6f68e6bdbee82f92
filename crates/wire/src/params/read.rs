//! Reads transport parameters from bytes (RFC 9000 s.7.4, s.18.2).

use super::raw::number;
use super::{
    AckDelayExponent, ActiveConnectionIdLimit, MaxAckDelay, MaxUdpPayloadSize, ParameterError,
    ParameterErrorKind, ParameterId, PreferredAddress, RawParameter, RawParameters,
    ServerParameters, TransportParameters, Unknown, VersionInformation,
};
use crate::cursor::Reader;
use crate::{ConnectionId, PathId, ResetToken, Side, StreamCount, VarInt};

/// Number of unknown parameters that are remembered to detect duplicates. Further unknown
/// parameters are compared only with these, so that a long list takes linear time.
const COMPARED_UNKNOWN: usize = 32;

/// Set of the parameters that have been read so far, to detect duplicates.
struct Seen {
    known: u32,
    unknown: [Option<ParameterId>; COMPARED_UNKNOWN],
}

impl Seen {
    /// Adds `id` to the set. Returns `true` if the set already contained it.
    fn again(&mut self, id: ParameterId) -> bool {
        if let Some(index) = id.index() {
            let bit = 1u32.checked_shl(index).unwrap_or(0);
            let again = self.known & bit != 0;
            self.known |= bit;
            return again;
        }
        for place in &mut self.unknown {
            match place {
                Some(seen) if *seen == id => return true,
                Some(_) => {}
                None => {
                    *place = Some(id);
                    return false;
                }
            }
        }
        false
    }
}

/// The parameters that only a server may send, as far as they have been read.
#[derive(Default)]
struct ServerOnly {
    original_destination_connection_id: Option<ConnectionId>,
    retry_source_connection_id: Option<ConnectionId>,
    stateless_reset_token: Option<ResetToken>,
    preferred_address: Option<PreferredAddress>,
}

impl<'a> TransportParameters<'a> {
    /// Reads the content of a quic_transport_parameters extension. `sender` is the side that sent
    /// it.
    ///
    /// # Errors
    /// See [`ParameterErrorKind`]. The endpoint closes the connection with
    /// TRANSPORT_PARAMETER_ERROR.
    pub fn parse(bytes: &'a [u8], sender: Side) -> Result<Self, ParameterError> {
        let raw = RawParameters::new(bytes);
        let mut seen = Seen { known: 0, unknown: [None; COMPARED_UNKNOWN] };
        let mut parameters = TransportParameters {
            unknown: Unknown(raw),
            ..TransportParameters::client(ConnectionId::EMPTY)
        };
        let mut source_id = None;
        let mut server_only = ServerOnly::default();
        for parameter in raw {
            let parameter = parameter?;
            let id = parameter.id;
            let error = |kind| ParameterError { id: Some(id), kind };
            if seen.again(id) {
                return Err(error(ParameterErrorKind::Duplicate));
            }
            if id.0.get() == number::INITIAL_SOURCE_CONNECTION_ID {
                source_id = Some(read_connection_id(parameter.value).map_err(error)?);
            } else if server_only.take(parameter).map_err(error)? {
                if sender == Side::Client {
                    return Err(error(ParameterErrorKind::FromClient));
                }
            } else {
                parameters.take(parameter).map_err(error)?;
            }
        }
        // RFC 9000 s.7.3 #3: this parameter is mandatory.
        parameters.initial_source_connection_id =
            source_id.ok_or(missing(ParameterId::INITIAL_SOURCE_CONNECTION_ID))?;
        if sender == Side::Server {
            parameters.server = Some(server_only.complete()?);
        }
        parameters.check_together(sender)?;
        Ok(parameters)
    }

    /// Reads one parameter that both sides may send. Ignores an unknown parameter.
    fn take(&mut self, parameter: RawParameter<'a>) -> Result<(), ParameterErrorKind> {
        let value = parameter.value;
        let limits = ParameterErrorKind::Value;
        match parameter.id.0.get() {
            number::MAX_IDLE_TIMEOUT => self.max_idle_timeout_ms = read_integer(value)?,
            number::MAX_UDP_PAYLOAD_SIZE => {
                self.max_udp_payload_size =
                    MaxUdpPayloadSize::new(read_integer(value)?).ok_or(limits)?;
            }
            number::INITIAL_MAX_DATA => self.initial_max_data = read_integer(value)?,
            number::INITIAL_MAX_STREAM_DATA_BIDI_LOCAL => {
                self.initial_max_stream_data_bidi_local = read_integer(value)?;
            }
            number::INITIAL_MAX_STREAM_DATA_BIDI_REMOTE => {
                self.initial_max_stream_data_bidi_remote = read_integer(value)?;
            }
            number::INITIAL_MAX_STREAM_DATA_UNI => {
                self.initial_max_stream_data_uni = read_integer(value)?;
            }
            number::INITIAL_MAX_STREAMS_BIDI => {
                self.initial_max_streams_bidi = read_stream_count(value)?;
            }
            number::INITIAL_MAX_STREAMS_UNI => {
                self.initial_max_streams_uni = read_stream_count(value)?;
            }
            number::ACK_DELAY_EXPONENT => {
                let exponent = u8::try_from(read_integer(value)?.get()).map_err(|_| limits)?;
                self.ack_delay_exponent = AckDelayExponent::new(exponent).ok_or(limits)?;
            }
            number::MAX_ACK_DELAY => {
                let ms = u16::try_from(read_integer(value)?.get()).map_err(|_| limits)?;
                self.max_ack_delay = MaxAckDelay::from_millis(ms).ok_or(limits)?;
            }
            number::DISABLE_ACTIVE_MIGRATION => {
                self.disable_active_migration = read_flag(value)?;
            }
            number::ACTIVE_CONNECTION_ID_LIMIT => {
                self.active_connection_id_limit =
                    ActiveConnectionIdLimit::new(read_integer(value)?).ok_or(limits)?;
            }
            number::VERSION_INFORMATION => {
                self.version_information = Some(VersionInformation::read(value)?);
            }
            number::MAX_DATAGRAM_FRAME_SIZE => {
                self.max_datagram_frame_size = read_integer(value)?;
            }
            number::GREASE_QUIC_BIT => self.grease_quic_bit = read_flag(value)?,
            number::MIN_ACK_DELAY => self.min_ack_delay_us = Some(read_integer(value)?),
            number::INITIAL_MAX_PATH_ID => {
                // RFC 10069 s.2.1 #1 #2
                let id = PathId::from_varint(read_integer(value)?).ok_or(limits)?;
                self.initial_max_path_id = Some(id);
            }
            // RFC 9000 s.7.4.2 #1
            _ => {}
        }
        Ok(())
    }

    /// Checks the conditions that involve more than one parameter.
    // RFC 9368 s.3 #2, s.4 #6
    // RFC 9000 s.18.2 #4 #5 #6
    pub(super) fn check_together(&self, sender: Side) -> Result<(), ParameterError> {
        let error = |id| ParameterError { id: Some(id), kind: ParameterErrorKind::Value };
        // draft-ietf-quic-ack-frequency s.3
        let max_ack_delay_us = u64::from(self.max_ack_delay.as_millis()).saturating_mul(1000);
        if self.min_ack_delay_us.is_some_and(|min| min.get() > max_ack_delay_us) {
            return Err(error(ParameterId::MIN_ACK_DELAY));
        }
        // RFC 9368 s.4: a client's available versions must include the chosen one.
        if let Some(versions) = self.version_information
            && sender == Side::Client
            && !versions.available().contains(versions.chosen())
        {
            return Err(error(ParameterId::VERSION_INFORMATION));
        }
        // RFC 9000 s.18.2: a server with a zero-length connection ID must not send a preferred
        // address.
        if self.initial_source_connection_id.is_empty()
            && self.server.is_some_and(|server| server.preferred_address.is_some())
        {
            return Err(error(ParameterId::PREFERRED_ADDRESS));
        }
        Ok(())
    }
}

impl ServerOnly {
    /// Reads one parameter that only a server may send. Returns `false` if `parameter` is any other
    /// parameter.
    fn take(&mut self, parameter: RawParameter<'_>) -> Result<bool, ParameterErrorKind> {
        let value = parameter.value;
        match parameter.id.0.get() {
            number::ORIGINAL_DESTINATION_CONNECTION_ID => {
                self.original_destination_connection_id = Some(read_connection_id(value)?);
            }
            number::RETRY_SOURCE_CONNECTION_ID => {
                self.retry_source_connection_id = Some(read_connection_id(value)?);
            }
            number::STATELESS_RESET_TOKEN => {
                let token = value.try_into().map_err(|_| ParameterErrorKind::Length)?;
                self.stateless_reset_token = Some(ResetToken(token));
            }
            number::PREFERRED_ADDRESS => {
                self.preferred_address = Some(PreferredAddress::read(value)?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn complete(self) -> Result<ServerParameters, ParameterError> {
        let original = self
            .original_destination_connection_id
            .ok_or(missing(ParameterId::ORIGINAL_DESTINATION_CONNECTION_ID))?;
        Ok(ServerParameters {
            original_destination_connection_id: original,
            retry_source_connection_id: self.retry_source_connection_id,
            stateless_reset_token: self.stateless_reset_token,
            preferred_address: self.preferred_address,
        })
    }
}

const fn missing(id: ParameterId) -> ParameterError {
    ParameterError { id: Some(id), kind: ParameterErrorKind::Missing }
}

/// Reads a value that consists of one variable-length integer. Fails if bytes follow the integer.
fn read_integer(value: &[u8]) -> Result<VarInt, ParameterErrorKind> {
    let mut reader = Reader::new(value);
    let integer = reader.varint().map_err(|_| ParameterErrorKind::Length)?;
    if reader.is_empty() { Ok(integer) } else { Err(ParameterErrorKind::Length) }
}

fn read_stream_count(value: &[u8]) -> Result<StreamCount, ParameterErrorKind> {
    // RFC 9000 s.4.6
    StreamCount::new(read_integer(value)?.get()).ok_or(ParameterErrorKind::Value)
}

fn read_connection_id(value: &[u8]) -> Result<ConnectionId, ParameterErrorKind> {
    ConnectionId::new(value).map_err(|_| ParameterErrorKind::Length)
}

// RFC 9287 s.3 #1
fn read_flag(value: &[u8]) -> Result<bool, ParameterErrorKind> {
    if value.is_empty() { Ok(true) } else { Err(ParameterErrorKind::Length) }
}
