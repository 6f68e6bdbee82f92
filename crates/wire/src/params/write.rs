//! Writes transport parameters as bytes (RFC 9000 s.18).

use super::{
    AckDelayExponent, ActiveConnectionIdLimit, MaxAckDelay, MaxUdpPayloadSize, ParameterId,
    RawParameter, ServerParameters, TransportParameters,
};
use crate::VarInt;
use crate::cursor::{BufferFull, Counter, Sink, Writer};

impl RawParameter<'_> {
    /// Writes one transport parameter, for example a reserved one or one of an extension.
    ///
    /// # Errors
    /// Fails if there is no room for the parameter. Nothing is written then.
    pub fn write(&self, writer: &mut Writer<'_>) -> Result<(), BufferFull> {
        writer.atomically(|writer| {
            writer.varint(self.id.0)?;
            writer.varint_bytes(self.value)
        })
    }
}

// RFC 9000 s.7.4 #2
impl TransportParameters<'_> {
    /// Returns the number of bytes that [`TransportParameters::write`] writes.
    pub fn encoded_len(&self) -> usize {
        Counter::of(|counter| self.encode(counter))
    }

    /// Writes all known parameters that differ from their defaults. An extension adds its own
    /// parameters with [`RawParameter::write`], each of them once. The caller must ensure that the
    /// combination of values is legal: `min_ack_delay` must not exceed `max_ack_delay`, and a
    /// client's supported versions must include the chosen one.
    ///
    /// # Errors
    /// Fails if there is no room for the parameters. Nothing is written then.
    pub fn write(&self, writer: &mut Writer<'_>) -> Result<(), BufferFull> {
        writer.atomically(|writer| self.encode(writer))
    }

    fn encode(&self, sink: &mut impl Sink) -> Result<(), BufferFull> {
        if let Some(server) = &self.server {
            encode_server(sink, server)?;
        }
        let zero = VarInt::ZERO;
        let integers = [
            (ParameterId::MAX_IDLE_TIMEOUT, self.max_idle_timeout_ms, zero),
            (
                ParameterId::MAX_UDP_PAYLOAD_SIZE,
                self.max_udp_payload_size.get(),
                MaxUdpPayloadSize::default().get(),
            ),
            (ParameterId::INITIAL_MAX_DATA, self.initial_max_data, zero),
            (
                ParameterId::INITIAL_MAX_STREAM_DATA_BIDI_LOCAL,
                self.initial_max_stream_data_bidi_local,
                zero,
            ),
            (
                ParameterId::INITIAL_MAX_STREAM_DATA_BIDI_REMOTE,
                self.initial_max_stream_data_bidi_remote,
                zero,
            ),
            (ParameterId::INITIAL_MAX_STREAM_DATA_UNI, self.initial_max_stream_data_uni, zero),
            (
                ParameterId::INITIAL_MAX_STREAMS_BIDI,
                self.initial_max_streams_bidi.as_varint(),
                zero,
            ),
            (ParameterId::INITIAL_MAX_STREAMS_UNI, self.initial_max_streams_uni.as_varint(), zero),
            (
                ParameterId::ACK_DELAY_EXPONENT,
                self.ack_delay_exponent.get().into(),
                AckDelayExponent::default().get().into(),
            ),
            (
                ParameterId::MAX_ACK_DELAY,
                self.max_ack_delay.as_millis().into(),
                MaxAckDelay::default().as_millis().into(),
            ),
            (
                ParameterId::ACTIVE_CONNECTION_ID_LIMIT,
                self.active_connection_id_limit.get(),
                ActiveConnectionIdLimit::default().get(),
            ),
            (ParameterId::MAX_DATAGRAM_FRAME_SIZE, self.max_datagram_frame_size, zero),
        ];
        for (id, value, default) in integers {
            if value != default {
                encode_integer(sink, id, value)?;
            }
        }
        if let Some(min_ack_delay) = self.min_ack_delay_us {
            encode_integer(sink, ParameterId::MIN_ACK_DELAY, min_ack_delay)?;
        }
        if let Some(id) = self.initial_max_path_id {
            encode_integer(sink, ParameterId::INITIAL_MAX_PATH_ID, id.as_varint())?;
        }
        if self.disable_active_migration {
            encode_bytes(sink, ParameterId::DISABLE_ACTIVE_MIGRATION, &[])?;
        }
        if self.grease_quic_bit {
            encode_bytes(sink, ParameterId::GREASE_QUIC_BIT, &[])?;
        }
        let source_id = self.initial_source_connection_id;
        encode_bytes(sink, ParameterId::INITIAL_SOURCE_CONNECTION_ID, source_id.as_bytes())?;
        if let Some(versions) = &self.version_information {
            let len = Counter::of(|counter| versions.encode(counter));
            encode_head(sink, ParameterId::VERSION_INFORMATION, len)?;
            versions.encode(sink)?;
        }
        Ok(())
    }
}

fn encode_server(sink: &mut impl Sink, server: &ServerParameters) -> Result<(), BufferFull> {
    let original = server.original_destination_connection_id;
    encode_bytes(sink, ParameterId::ORIGINAL_DESTINATION_CONNECTION_ID, original.as_bytes())?;
    if let Some(id) = server.retry_source_connection_id {
        encode_bytes(sink, ParameterId::RETRY_SOURCE_CONNECTION_ID, id.as_bytes())?;
    }
    if let Some(token) = server.stateless_reset_token {
        encode_bytes(sink, ParameterId::STATELESS_RESET_TOKEN, &token.0)?;
    }
    if let Some(preferred) = server.preferred_address {
        let len = Counter::of(|counter| preferred.encode(counter));
        encode_head(sink, ParameterId::PREFERRED_ADDRESS, len)?;
        preferred.encode(sink)?;
    }
    Ok(())
}

fn encode_head(sink: &mut impl Sink, id: ParameterId, len: usize) -> Result<(), BufferFull> {
    sink.varint(id.0)?;
    sink.varint(VarInt::try_from(len).map_err(|_| BufferFull)?)
}

fn encode_bytes(sink: &mut impl Sink, id: ParameterId, value: &[u8]) -> Result<(), BufferFull> {
    encode_head(sink, id, value.len())?;
    sink.bytes(value)
}

fn encode_integer(sink: &mut impl Sink, id: ParameterId, value: VarInt) -> Result<(), BufferFull> {
    encode_head(sink, id, value.encoded_len())?;
    sink.varint(value)
}
