//! Writes the field `data` of each event (quic-events s.3 to 6).

use std::net::SocketAddr;

use equic_wire::packet::Versions;
use equic_wire::{TransportErrorCode, VarInt, Version};
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::frame::FrameList;
use super::parameters::{Alpn, Endpoint, VersionList, transport_parameters};
use super::{Hex, One, millis, names, optional, raw};
use crate::connection::{CloseReason, ConnectionError};
use crate::qlog::{Event, EventKind, Metrics, Packet, TimerChange, Unprotected};
use crate::recovery::{GRANULARITY, PACKET_THRESHOLD};

pub(super) struct Data<'a>(pub &'a Event<'a>);

impl Serialize for Data<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let (event, fields) = (self.0, &mut map);
        match event.kind {
            EventKind::PacketSent(_)
            | EventKind::PacketReceived(_)
            | EventKind::UnprotectedReceived { .. }
            | EventKind::PacketDropped { .. }
            | EventKind::PacketsAcked { .. }
            | EventKind::DatagramSent { .. }
            | EventKind::DatagramReceived { .. }
            | EventKind::PacketLost(_)
            | EventKind::MarkedForRetransmit(_) => packets(fields, &event.kind),
            EventKind::KeyUpdated(_)
            | EventKind::KeyDiscarded(_)
            | EventKind::TimerUpdated { .. }
            | EventKind::RecoveryParametersSet { .. }
            | EventKind::RecoveryMetricsUpdated(_)
            | EventKind::CongestionStateUpdated { .. }
            | EventKind::EcnStateUpdated { .. } => recovery(fields, &event.kind),
            _ => connection(fields, event),
        }?;
        map.end()
    }
}

fn connection<M: SerializeMap>(map: &mut M, event: &Event<'_>) -> Result<(), M::Error> {
    match event.kind {
        EventKind::ConnectionStarted { local, remote, ids: [ours, theirs] } => {
            map.serialize_entry("local", &Endpoint(local, None, Some(ours)))?;
            let remote = Endpoint(Some(remote.ip()), Some(remote.port()), Some(theirs));
            map.serialize_entry("remote", &remote)
        }
        EventKind::ConnectionClosed(reason) => closed(map, reason),
        EventKind::ConnectionStateUpdated { old, new }
        | EventKind::MigrationStateUpdated { old, new } => {
            optional(map, "old", old)?;
            map.serialize_entry("new", new)
        }
        EventKind::ConnectionIdUpdated { initiator, old, new } => {
            map.serialize_entry("initiator", names::initiator(initiator))?;
            map.serialize_entry("old", &Hex(old.as_bytes()))?;
            map.serialize_entry("new", &Hex(new.as_bytes()))
        }
        EventKind::SpinBitUpdated(state) => map.serialize_entry("state", &state),
        EventKind::TupleAssigned(addresses) => {
            let name = if event.path == 0 { String::new() } else { event.path.to_string() };
            map.serialize_entry("tuple_id", &name)?;
            let Some((local, remote)) = addresses else { return Ok(()) };
            let remote: SocketAddr = remote;
            let remote = Endpoint(Some(remote.ip()), Some(remote.port()), None);
            map.serialize_entry("tuple_remote", &remote)?;
            optional(map, "tuple_local", local.map(|local| Endpoint(Some(local), None, None)))
        }
        EventKind::MtuUpdated { old, new } => {
            map.serialize_entry("old", &old)?;
            map.serialize_entry("new", &new)
        }
        EventKind::VersionInformation { ours, client, theirs, chosen } => {
            let key = if client { "client_versions" } else { "server_versions" };
            map.serialize_entry(key, &VersionList(ours.to_vec()))?;
            let theirs = theirs.and_then(version_list);
            optional(map, "server_versions", theirs)?;
            let chosen = chosen.map(|version| version.0.to_be_bytes());
            optional(map, "chosen_version", chosen.as_ref().map(|bytes| Hex(bytes)))
        }
        EventKind::AlpnInformation(alpn) => map.serialize_entry("chosen_alpn", &Alpn(alpn)),
        EventKind::ParametersSet { initiator, parameters } => {
            map.serialize_entry("initiator", names::initiator(initiator))?;
            transport_parameters(map, parameters)
        }
        EventKind::CipherSelected(name) => map.serialize_entry("tls_cipher", name),
        EventKind::StreamStateUpdated { id, part, old, new } => {
            map.serialize_entry("stream_id", &id.as_varint().get())?;
            map.serialize_entry("stream_type", names::direction(id.direction()))?;
            optional(map, "old", old)?;
            map.serialize_entry("new", new)?;
            map.serialize_entry("stream_side", names::part(part))
        }
        _ => Ok(()),
    }
}

fn packets<M: SerializeMap>(map: &mut M, kind: &EventKind<'_>) -> Result<(), M::Error> {
    match kind {
        EventKind::PacketSent(packet) | EventKind::PacketReceived(packet) => {
            map.serialize_entry("header", &packet.header)?;
            map.serialize_entry("frames", &FrameList(packet))?;
            map.serialize_entry("raw", &PacketRaw(packet))?;
            map.serialize_entry("datagram_payload_checksum", &packet.checksum)?;
            optional(map, "is_mtu_probe_packet", packet.mtu_probe.then_some(true))
        }
        EventKind::UnprotectedReceived { packet, length, checksum } => {
            map.serialize_entry("header", packet)?;
            if let Unprotected::VersionNegotiation(packet) = packet {
                optional(map, "supported_versions", version_list(packet.versions()))?;
            }
            map.serialize_entry("raw", &raw(*length as u64))?;
            map.serialize_entry("datagram_payload_checksum", checksum)
        }
        EventKind::PacketDropped { packet_type, length, checksum, trigger } => {
            let name = packet_type.map_or("unknown", names::packet);
            map.serialize_entry("header", &One("packet_type", name))?;
            map.serialize_entry("raw", &raw(*length as u64))?;
            map.serialize_entry("datagram_payload_checksum", checksum)?;
            map.serialize_entry("trigger", trigger)
        }
        EventKind::PacketsAcked { space, numbers } => {
            map.serialize_entry("packet_number_space", names::space(*space))?;
            map.serialize_entry("packet_numbers", numbers)
        }
        EventKind::DatagramSent { length, ecn, checksum }
        | EventKind::DatagramReceived { length, ecn, checksum } => {
            map.serialize_entry("count", &1)?;
            map.serialize_entry("raw", &[raw(*length as u64)])?;
            map.serialize_entry("ecn", &[names::codepoint(*ecn)])?;
            map.serialize_entry("datagram_payload_checksums", &[checksum])
        }
        EventKind::PacketLost(lost) => {
            map.serialize_entry(
                "header",
                &LostHeader(names::packet(lost.packet_type), lost.number),
            )?;
            optional(map, "is_mtu_probe_packet", lost.mtu_probe.then_some(true))?;
            optional(map, "trigger", lost.trigger)
        }
        EventKind::MarkedForRetransmit(frames) => map.serialize_entry("frames", frames),
        _ => Ok(()),
    }
}

fn recovery<M: SerializeMap>(map: &mut M, kind: &EventKind<'_>) -> Result<(), M::Error> {
    match *kind {
        EventKind::KeyUpdated(change) | EventKind::KeyDiscarded(change) => {
            map.serialize_entry("key_type", names::key(change))?;
            optional(map, "key_phase", change.phase)?;
            map.serialize_entry("trigger", names::key_trigger(change))
        }
        EventKind::TimerUpdated { timer, change } => {
            map.serialize_entry("timer_type", names::timer(timer))?;
            match change {
                TimerChange::Set(delta) => {
                    map.serialize_entry("event_type", "set")?;
                    map.serialize_entry("delta", &millis(delta))
                }
                TimerChange::Expired => map.serialize_entry("event_type", "expired"),
                TimerChange::Cancelled => map.serialize_entry("event_type", "cancelled"),
            }
        }
        EventKind::RecoveryParametersSet { initial_rtt, datagram, window, algorithm } => {
            map.serialize_entry("reordering_threshold", &PACKET_THRESHOLD)?;
            // This is kTimeThreshold of RFC 9002 s.6.1.2.
            map.serialize_entry("time_threshold", &1.125)?;
            let granularity = u16::try_from(GRANULARITY.as_millis()).unwrap_or(u16::MAX);
            map.serialize_entry("timer_granularity", &granularity)?;
            map.serialize_entry("initial_rtt", &millis(initial_rtt))?;
            map.serialize_entry("max_datagram_size", &datagram)?;
            map.serialize_entry("initial_congestion_window", &window)?;
            map.serialize_entry("congestion_control", algorithm)
        }
        EventKind::RecoveryMetricsUpdated(new) => metrics(map, &new),
        EventKind::CongestionStateUpdated { old, new, trigger } => {
            optional(map, "old", old)?;
            map.serialize_entry("new", new)?;
            optional(map, "trigger", trigger)
        }
        EventKind::EcnStateUpdated { old, new } => {
            optional(map, "old", old.map(names::ecn_state))?;
            map.serialize_entry("new", names::ecn_state(new))
        }
        _ => Ok(()),
    }
}

fn metrics<M: SerializeMap>(map: &mut M, new: &Metrics) -> Result<(), M::Error> {
    optional(map, "min_rtt", new.min_rtt.map(millis))?;
    optional(map, "smoothed_rtt", new.smoothed_rtt.map(millis))?;
    optional(map, "latest_rtt", new.latest_rtt.map(millis))?;
    optional(map, "rtt_variance", new.rtt_variance.map(millis))?;
    optional(map, "pto_count", new.pto_count)?;
    optional(map, "congestion_window", new.congestion_window)?;
    optional(map, "bytes_in_flight", new.bytes_in_flight)?;
    optional(map, "ssthresh", new.ssthresh)?;
    optional(map, "pacing_rate", new.pacing_rate)
}

fn closed<M: SerializeMap>(map: &mut M, reason: &CloseReason) -> Result<(), M::Error> {
    let (error, initiator) = match reason {
        CloseReason::IdleTimeout => return map.serialize_entry("trigger", "idle_timeout"),
        CloseReason::StatelessReset => {
            map.serialize_entry("initiator", "remote")?;
            return map.serialize_entry("trigger", "stateless_reset");
        }
        // The draft has no trigger for the end of a connection after failed path validation.
        CloseReason::NoValidatedPath => return map.serialize_entry("initiator", "local"),
        CloseReason::Local(error) => (error, "local"),
        CloseReason::Peer(error) => (error, "remote"),
    };
    let ConnectionError { application, code, reason, .. } = error;
    map.serialize_entry("initiator", initiator)?;
    let (name, key) = if *application {
        (None, "application_error")
    } else {
        let code = TransportErrorCode(VarInt::new(*code).unwrap_or(VarInt::MAX));
        (names::transport_error(code), "connection_error")
    };
    map.serialize_entry(key, name.as_deref().unwrap_or("unknown"))?;
    if name.is_none() {
        map.serialize_entry("error_code", code)?;
    }
    map.serialize_entry("reason", reason)?;
    map.serialize_entry("trigger", if *application { "application" } else { "error" })
}

/// Returns the versions as a list. Returns `None` if `versions` is empty, because a log must not
/// contain empty lists.
fn version_list(versions: Versions<'_>) -> Option<VersionList> {
    let list: Vec<Version> = versions.iter().collect();
    (!list.is_empty()).then_some(VersionList(list))
}

struct LostHeader(&'static str, u64);

impl Serialize for LostHeader {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("packet_type", self.0)?;
        map.serialize_entry("packet_number", &self.1)?;
        map.end()
    }
}

struct PacketRaw<'a>(&'a Packet<'a>);

impl Serialize for PacketRaw<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("length", &self.0.length)?;
        map.serialize_entry("payload_length", &self.0.payload.len())?;
        map.end()
    }
}
