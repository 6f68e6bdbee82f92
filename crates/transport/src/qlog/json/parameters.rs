//! Writes transport parameters (quic-events s.4.3), and the addresses and connection IDs of the two
//! ends.

use std::net::IpAddr;

use equic_wire::params::{PreferredAddress, TransportParameters};
use equic_wire::{ConnectionId, PathId, Version};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

use super::{Hex, One, optional};

pub(super) fn transport_parameters<M: SerializeMap>(
    map: &mut M,
    parameters: &TransportParameters<'_>,
) -> Result<(), M::Error> {
    let p = parameters;
    if let Some(server) = &p.server {
        let original = server.original_destination_connection_id;
        map.serialize_entry("original_destination_connection_id", &Hex(original.as_bytes()))?;
        if let Some(retry) = &server.retry_source_connection_id {
            map.serialize_entry("retry_source_connection_id", &Hex(retry.as_bytes()))?;
        }
        optional(map, "preferred_address", server.preferred_address.as_ref().map(Preferred))?;
    }
    let id = p.initial_source_connection_id;
    map.serialize_entry("initial_source_connection_id", &Hex(id.as_bytes()))?;
    map.serialize_entry("disable_active_migration", &p.disable_active_migration)?;
    map.serialize_entry("max_idle_timeout", &p.max_idle_timeout_ms.get())?;
    map.serialize_entry("max_udp_payload_size", &p.max_udp_payload_size.get().get())?;
    map.serialize_entry("ack_delay_exponent", &p.ack_delay_exponent.get())?;
    let delay = p.max_ack_delay.as_duration().as_millis();
    map.serialize_entry("max_ack_delay", &u64::try_from(delay).unwrap_or(u64::MAX))?;
    let limit = p.active_connection_id_limit.get().get();
    map.serialize_entry("active_connection_id_limit", &limit)?;
    map.serialize_entry("initial_max_data", &p.initial_max_data.get())?;
    let [local, remote] =
        [p.initial_max_stream_data_bidi_local, p.initial_max_stream_data_bidi_remote];
    map.serialize_entry("initial_max_stream_data_bidi_local", &local.get())?;
    map.serialize_entry("initial_max_stream_data_bidi_remote", &remote.get())?;
    map.serialize_entry("initial_max_stream_data_uni", &p.initial_max_stream_data_uni.get())?;
    map.serialize_entry("initial_max_streams_bidi", &p.initial_max_streams_bidi.get())?;
    map.serialize_entry("initial_max_streams_uni", &p.initial_max_streams_uni.get())?;
    map.serialize_entry("max_datagram_frame_size", &p.max_datagram_frame_size.get())?;
    map.serialize_entry("grease_quic_bit", &p.grease_quic_bit)?;
    // The draft has no field for this parameter of RFC 10069. `QUICParametersSet` can be extended.
    optional(map, "initial_max_path_id", p.initial_max_path_id.map(PathId::get))?;
    map.serialize_entry("unknown_parameters", &Unknown(p))
}

/// A `PreferredAddress` object without the stateless reset token, which could be used to end the
/// connection.
struct Preferred<'a>(&'a PreferredAddress);

impl Serialize for Preferred<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let (ipv4, ipv6) = (self.0.ipv4(), self.0.ipv6());
        optional(&mut map, "ip_v4", ipv4.map(|address| address.ip().to_string()))?;
        optional(&mut map, "port_v4", ipv4.map(|address| address.port()))?;
        optional(&mut map, "ip_v6", ipv6.map(|address| address.ip().to_string()))?;
        optional(&mut map, "port_v6", ipv6.map(|address| address.port()))?;
        map.serialize_entry("connection_id", &Hex(self.0.connection_id().as_bytes()))?;
        map.end()
    }
}

struct Unknown<'a>(&'a TransportParameters<'a>);

impl Serialize for Unknown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.unknown().map(|one| One("id", one.id.0.get())))
    }
}

/// A `TupleEndpointInfo` object (s.7.5): address, port and connection ID.
pub(super) struct Endpoint(pub Option<IpAddr>, pub Option<u16>, pub Option<ConnectionId>);

impl Serialize for Endpoint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some(address) = self.0 {
            let (ip, port) = match address {
                IpAddr::V4(_) => ("ip_v4", "port_v4"),
                IpAddr::V6(_) => ("ip_v6", "port_v6"),
            };
            map.serialize_entry(ip, &format_args!("{address}"))?;
            optional(&mut map, port, self.1)?;
        }
        if let Some(id) = &self.2 {
            map.serialize_entry("connection_ids", &[Hex(id.as_bytes())])?;
        }
        map.end()
    }
}

/// A list of versions, written as `[+ QuicVersion]`.
pub(super) struct VersionList(pub Vec<Version>);

impl Serialize for VersionList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.0.len()))?;
        for version in &self.0 {
            list.serialize_element(&Hex(&version.0.to_be_bytes()))?;
        }
        list.end()
    }
}

/// An application protocol, written as `ALPNIdentifier`.
pub(super) struct Alpn<'a>(pub &'a [u8]);

impl Serialize for Alpn<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("byte_value", &Hex(self.0))?;
        optional(&mut map, "string_value", std::str::from_utf8(self.0).ok())?;
        map.end()
    }
}
