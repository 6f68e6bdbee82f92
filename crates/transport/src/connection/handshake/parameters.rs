//! Transport parameters (RFC 9000 s.7.4, s.18).

use equic_wire::params::{MaxAckDelay, TransportParameters};
use equic_wire::{PathId, Side, StreamCount, VarInt, Writer};

use super::ACTIVE_IDS;
use crate::Timestamp;
use crate::connection::ack_frequency::min_ack_delay;
use crate::connection::config::TransportConfig;
use crate::connection::datagrams::Datagrams;
use crate::connection::peer::Peer;
use crate::connection::space::SpaceId;
use crate::connection::{Connection, early, multipath};
use crate::operation::Operation;
use crate::violation::Violation;

impl Connection {
    /// Reads and checks the peer's transport parameters (RFC 9000 s.7.3, s.7.4).
    pub(super) fn read_parameters(&mut self, now: Timestamp) {
        // Until then, TLS returns a client the parameters of an earlier connection (RFC 9000
        // s.7.4.1).
        if self.peer.is_some() || self.side == Side::Client && !self.keys.has(SpaceId::DATA) {
            return;
        }
        let Some(bytes) = self.handshake.tls().transport_parameters() else { return };
        let bytes = bytes.to_vec();
        if !self.decide_on(Operation::ReadParameters, (), &bytes, true) {
            return self.fail(now, Violation::TransportParametersRejected);
        }
        let parameters = match TransportParameters::parse(&bytes, !self.side) {
            Ok(parameters) => parameters,
            Err(error) => return self.fail(now, error),
        };
        let same = parameters.initial_source_connection_id == self.ids.remote.current()
            && parameters.server.is_none_or(|server| {
                server.original_destination_connection_id == self.ids.original_dcid()
                    && server.retry_source_connection_id == self.start.retry()
            });
        if !same {
            return self.fail(now, Violation::HandshakeConnectionIds);
        }
        let limits = early::limits(&parameters);
        if !self.check_versions(now, &parameters) || !self.check_promises(now, &limits) {
            return;
        }
        self.streams.set_peer_limits(limits);
        let limit = parameters.active_connection_id_limit.get().get();
        let most = limit.min(self.config.connection_ids);
        let count = self.decide(Operation::ConnectionIdCount, most, most).min(most);
        self.ids.local.set_limit(limit, count);
        let size = parameters.max_udp_payload_size.get().get();
        self.paths.iter_mut().for_each(|path| path.on_peer_limit(size));
        if let Some(server) = parameters.server {
            if let Some(token) = server.stateless_reset_token {
                self.ids.remote.set_handshake_token(token);
            }
            if let Some(preferred) = server.preferred_address {
                let (id, token) = (preferred.connection_id(), preferred.reset_token());
                self.ids.remote.add_preferred(id, token);
            }
            self.preferred_address = server.preferred_address.map(Box::new);
        }
        #[cfg(feature = "qlog")]
        self.log_parameters(&parameters);
        self.peer = Some(Peer::new(&parameters));
        if !self.agree_on_paths(now, &parameters) {
            return;
        }
        self.tell_parameters(&bytes);
    }
}

/// Returns our transport parameters, encoded.
pub(super) fn declare(
    config: &TransportConfig,
    mut parameters: TransportParameters<'_>,
) -> Vec<u8> {
    let varint = |value: u64| VarInt::new(value).unwrap_or(VarInt::MAX);
    let count = |value: u64| StreamCount::new(value).unwrap_or_default();
    let streams = &config.streams;
    let idle = u64::try_from(config.max_idle_timeout.as_millis()).unwrap_or(0);
    parameters.max_idle_timeout_ms = varint(idle);
    parameters.initial_max_data = varint(streams.connection_window);
    parameters.initial_max_stream_data_bidi_local = varint(streams.stream_window);
    parameters.initial_max_stream_data_bidi_remote = varint(streams.stream_window);
    parameters.initial_max_stream_data_uni = varint(streams.stream_window);
    parameters.initial_max_streams_bidi = count(streams.max_streams_bidi);
    parameters.initial_max_streams_uni = count(streams.max_streams_uni);
    let delay = u16::try_from(config.max_ack_delay.as_millis()).unwrap_or(u16::MAX);
    parameters.max_ack_delay = MaxAckDelay::from_millis(delay).unwrap_or_default();
    let least = u64::try_from(min_ack_delay(config).as_micros()).unwrap_or(0);
    parameters.min_ack_delay_us = Some(varint(least));
    let datagram = Datagrams::frame_limit(config.datagram_receive_buffer);
    parameters.max_datagram_frame_size = varint(datagram);
    parameters.disable_active_migration = !config.allow_migration;
    let limit = VarInt::from_u32(ACTIVE_IDS);
    if let Some(limit) = equic_wire::params::ActiveConnectionIdLimit::new(limit) {
        parameters.active_connection_id_limit = limit;
    }
    parameters.grease_quic_bit = config.grease;
    // RFC 10069 s.2.1: with one path, the parameter is not sent.
    let paths = u32::try_from(multipath::most(config.max_paths)).unwrap_or(0);
    parameters.initial_max_path_id = paths.checked_sub(1).filter(|max| *max > 0).map(PathId::new);
    let mut bytes = vec![0; parameters.encoded_len()];
    let mut writer = Writer::new(&mut bytes);
    // The buffer has exactly the encoded length, so this cannot fail.
    let _ = parameters.write(&mut writer);
    bytes
}
