//! Tests that every legal set of transport parameters survives a round trip, and that illegal sets
//! are rejected.

use crate::support::strategies::*;
use crate::support::{check, hex, laws};
use equic_wire::packet::Versions;
use equic_wire::params::{
    AckDelayExponent, ActiveConnectionIdLimit, MaxAckDelay, MaxUdpPayloadSize, ParameterError,
    ParameterErrorKind, ParameterId, PreferredAddress, RawParameter, RawParameters,
    TransportParameters, VersionInformation,
};
use equic_wire::{
    ConnectionId, PathId, ResetToken, Side, TransportErrorCode, VarInt, Version, Writer,
};
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};

fn written(parameters: &TransportParameters<'_>) -> Vec<u8> {
    let mut buffer = vec![0; parameters.encoded_len()];
    let mut writer = Writer::new(&mut buffer);
    parameters.write(&mut writer).expect("as long as it says");
    assert_eq!(writer.remaining(), 0);
    buffer
}

fn number(value: u64) -> VarInt {
    VarInt::new(value).expect("in range")
}

// RFC 9000 s.7.4 #2, s.18.2 #1 #9
#[test]
fn param_round_trip_of_any_legal_set() {
    let integers = prop::array::uniform8(varint());
    let counts = (stream_count(), stream_count(), 0..=20u8, 0..1u16 << 14);
    let ids = (connection_id(1..=20), connection_id(0..=20), connection_id(1..=20));
    let rest = (reset_token(), bytes(12..=12), any::<[bool; 6]>());
    check((integers, counts, ids, rest), |(integers, counts, ids, rest)| {
        let (token, list, [server, migration, grease, versions, optional, preferred]) = rest;
        let mut set = TransportParameters::client(ids.0);
        if server {
            set = TransportParameters::server(ids.0, ids.1);
            let server = set.server.as_mut().expect("a server's");
            server.retry_source_connection_id = optional.then_some(ids.1);
            server.stateless_reset_token = optional.then_some(token);
            let v4 = SocketAddrV4::new(Ipv4Addr::from([list[0], 1, 2, 3]), 443);
            let v6 = SocketAddrV6::new(Ipv6Addr::LOCALHOST, list[1].into(), 0, 0);
            let v6 = preferred.then_some(v6);
            let address = PreferredAddress::new(optional.then_some(v4), v6, ids.2, token);
            server.preferred_address = preferred.then(|| address.expect("an ID is there"));
        }
        set.max_idle_timeout_ms = integers[0];
        let size = number(integers[1].get().max(1200));
        set.max_udp_payload_size = MaxUdpPayloadSize::new(size).expect("1200 or more");
        set.initial_max_data = integers[2];
        set.initial_max_stream_data_bidi_local = integers[3];
        set.initial_max_stream_data_bidi_remote = integers[4];
        set.initial_max_stream_data_uni = integers[5];
        (set.initial_max_streams_bidi, set.initial_max_streams_uni) = (counts.0, counts.1);
        set.ack_delay_exponent = AckDelayExponent::new(counts.2).expect("20 or less");
        set.max_ack_delay = MaxAckDelay::from_millis(counts.3).expect("under 2^14");
        set.disable_active_migration = migration;
        let limit = number(integers[6].get().max(2));
        set.active_connection_id_limit = ActiveConnectionIdLimit::new(limit).expect("2 or more");
        set.max_datagram_frame_size = integers[7];
        set.grease_quic_bit = grease;
        let delay = u64::from(counts.3) * 1000;
        set.min_ack_delay_us = optional.then(|| number(delay.min(integers[0].get())));
        let path_id = PathId::new(u32::from_be_bytes(list[4..8].try_into().unwrap()));
        set.initial_max_path_id = migration.then_some(path_id);
        let chosen = Version(u32::from_be_bytes(list[..4].try_into().unwrap()));
        let available = Versions::new(&list).expect("whole versions");
        let information = VersionInformation::new(chosen, available);
        set.version_information = information.filter(|_| versions);

        let sender = if server { Side::Server } else { Side::Client };
        let bytes = written(&set);
        assert_eq!(TransportParameters::parse(&bytes, sender), Ok(set));
        laws::transport_parameters(&bytes);
        let mut end = 0;
        let ends: Vec<usize> = RawParameters::new(&bytes)
            .map(|parameter| {
                let parameter = parameter.expect("it is all there");
                end = parameter.value.as_ptr() as usize + parameter.value.len()
                    - bytes.as_ptr() as usize;
                end
            })
            .collect();
        for len in 0..bytes.len() {
            let read = TransportParameters::parse(&bytes[..len], sender);
            let whole = len == 0 || ends.contains(&len);
            match read {
                Ok(_) => assert!(whole, "{len} bytes"),
                Err(error) if whole => assert_eq!(error.kind, ParameterErrorKind::Missing),
                Err(error) => assert_eq!(error.kind, ParameterErrorKind::Truncated),
            }
        }
    });
}

/// Returns encoded parameters: those that a client must send, followed by `hexadecimal`.
fn client_with(hexadecimal: &str) -> Vec<u8> {
    [hex("0f0401020304"), hex(hexadecimal)].concat()
}

/// Returns encoded parameters: those that a server must send, followed by `hexadecimal`.
fn server_with(hexadecimal: &str) -> Vec<u8> {
    [hex("00020506"), client_with(hexadecimal)].concat()
}

fn error_of(bytes: &[u8], sender: Side) -> ParameterError {
    TransportParameters::parse(bytes, sender).expect_err("it is not legal")
}

fn preferred_address(connection_id: &str) -> String {
    let token = "22".repeat(16);
    let body = format!("c0000201{:04x}{}{:04x}{connection_id}{token}", 443, "00".repeat(16), 0);
    format!("0d{:02x}{body}", body.len() / 2)
}

// RFC 9287 s.3 #1
// RFC 9368 s.4 #3 #4 #5 #6
// RFC 9000 s.7.3 #3, s.7.4 #1 #3, s.18.2 #7 #8 #10
// RFC 10069 s.2.1 #1 #2
#[test]
fn param_errors() {
    use ParameterErrorKind::{Duplicate, FromClient, Length, Missing, Truncated, Value};
    let id = |id: ParameterId| Some(id);
    let rows = [
        ("", Side::Server, id(ParameterId::ORIGINAL_DESTINATION_CONNECTION_ID), Missing),
        ("0f00", Side::Client, id(ParameterId::INITIAL_SOURCE_CONNECTION_ID), Duplicate),
        ("04010504010f", Side::Client, id(ParameterId::INITIAL_MAX_DATA), Duplicate),
        ("1b001b00", Side::Client, ParameterId::reserved(0), Duplicate),
        ("0401", Side::Client, id(ParameterId::INITIAL_MAX_DATA), Truncated),
        ("ff", Side::Client, None, Truncated),
        ("0400", Side::Client, id(ParameterId::INITIAL_MAX_DATA), Length),
        ("04020505", Side::Client, id(ParameterId::INITIAL_MAX_DATA), Length),
        ("040140", Side::Client, id(ParameterId::INITIAL_MAX_DATA), Length),
        ("030244af", Side::Client, id(ParameterId::MAX_UDP_PAYLOAD_SIZE), Value),
        ("0a0115", Side::Client, id(ParameterId::ACK_DELAY_EXPONENT), Value),
        ("0a024100", Side::Client, id(ParameterId::ACK_DELAY_EXPONENT), Value),
        ("0b0480004000", Side::Client, id(ParameterId::MAX_ACK_DELAY), Value),
        ("0b0480010000", Side::Client, id(ParameterId::MAX_ACK_DELAY), Value),
        ("0c0100", Side::Client, id(ParameterId::DISABLE_ACTIVE_MIGRATION), Length),
        ("0e0101", Side::Client, id(ParameterId::ACTIVE_CONNECTION_ID_LIMIT), Value),
        ("0808d000000000000001", Side::Client, id(ParameterId::INITIAL_MAX_STREAMS_BIDI), Value),
        ("0908d000000000000001", Side::Client, id(ParameterId::INITIAL_MAX_STREAMS_UNI), Value),
        ("6ab20101", Side::Client, id(ParameterId::GREASE_QUIC_BIT), Length),
        ("1103000000", Side::Client, id(ParameterId::VERSION_INFORMATION), Length),
        ("11050000000100", Side::Client, id(ParameterId::VERSION_INFORMATION), Length),
        ("110400000000", Side::Server, id(ParameterId::VERSION_INFORMATION), Value),
        ("11080000000100000000", Side::Client, id(ParameterId::VERSION_INFORMATION), Value),
        ("1108000000016b3343cf", Side::Client, id(ParameterId::VERSION_INFORMATION), Value),
        ("110c000000010000000100000000", Side::Client, id(ParameterId::VERSION_INFORMATION), Value),
        ("c0000000ff04de1b0480030d40", Side::Client, id(ParameterId::MIN_ACK_DELAY), Value),
        ("3e08c000000100000000", Side::Client, id(ParameterId::INITIAL_MAX_PATH_ID), Value),
        ("3e024001ff", Side::Client, None, Truncated),
        ("0000", Side::Client, id(ParameterId::ORIGINAL_DESTINATION_CONNECTION_ID), FromClient),
        ("1000", Side::Client, id(ParameterId::RETRY_SOURCE_CONNECTION_ID), FromClient),
        ("020f", Side::Server, id(ParameterId::STATELESS_RESET_TOKEN), Truncated),
        ("020101", Side::Server, id(ParameterId::STATELESS_RESET_TOKEN), Length),
        ("0d0101", Side::Server, id(ParameterId::PREFERRED_ADDRESS), Length),
    ];
    for (bytes, sender, id, kind) in rows {
        // In the first row, a server sends the parameters of a client. So the parameters that a
        // server must send are missing.
        let bytes = match (sender, bytes) {
            (Side::Server, "") | (Side::Client, _) => client_with(bytes),
            (Side::Server, _) => server_with(bytes),
        };
        let error = error_of(&bytes, sender);
        assert_eq!((error.id, error.kind), (id, kind), "{error}");
        assert_eq!(error.code(), TransportErrorCode::TRANSPORT_PARAMETER_ERROR);
        laws::transport_parameters(&bytes);
    }
    let too_long = format!("1015{}", "11".repeat(21));
    assert_eq!(error_of(&server_with(&too_long), Side::Server).kind, Length);
    let token = format!("0210{}", "33".repeat(16));
    assert_eq!(error_of(&client_with(&token), Side::Client).kind, FromClient);
    assert_eq!(error_of(&[], Side::Client).kind, Missing);
}

// RFC 9000 s.18.2 #4 #5 #6
#[test]
fn param_preferred_address() {
    let bytes = server_with(&preferred_address("04aabbccdd"));
    let parameters = TransportParameters::parse(&bytes, Side::Server).expect("it is legal");
    let address = parameters.server.unwrap().preferred_address.expect("it is there");
    assert_eq!(address.ipv4(), Some("192.0.2.1:443".parse().unwrap()));
    assert_eq!(address.ipv6(), None, "all zeros stand for none");
    assert_eq!(address.connection_id().as_bytes(), hex("aabbccdd"));
    assert_eq!(address.reset_token(), ResetToken([0x22; 16]));

    for (illegal, kind) in [
        (preferred_address("00"), ParameterErrorKind::Value),
        (preferred_address(&format!("15{}", "aa".repeat(21))), ParameterErrorKind::Value),
        (preferred_address("04aabbccddee"), ParameterErrorKind::Length),
    ] {
        assert_eq!(error_of(&server_with(&illegal), Side::Server).kind, kind, "{illegal}");
    }
    // RFC 9000 s.18.2: a server with an empty connection ID must not send a preferred address.
    let bytes = [hex("000205060f00"), hex(&preferred_address("04aabbccdd"))].concat();
    let error = error_of(&bytes, Side::Server);
    assert_eq!(error.id, Some(ParameterId::PREFERRED_ADDRESS));
}

// RFC 9000 s.7.4.2 #1
#[test]
fn param_unknown_are_skipped_and_kept() {
    let bytes = client_with("3c0105c00000000000700f026162");
    let parameters = TransportParameters::parse(&bytes, Side::Client).expect("it is legal");
    let unknown: Vec<_> = parameters.unknown().map(|p| (p.id.0.get(), p.value)).collect();
    assert_eq!(unknown, [(0x3c, &[5][..]), (0x700f, &b"ab"[..])]);
    let defaults = TransportParameters::client(ConnectionId::new(&[1, 2, 3, 4]).unwrap());
    assert_ne!(parameters, defaults, "the unknown ones count");
    assert_eq!(parameters.max_udp_payload_size.get().get(), 65_527);
    assert_eq!(parameters.active_connection_id_limit.get().get(), 2);
    assert_eq!(parameters.max_ack_delay.as_millis(), 25);
    assert_eq!(parameters.ack_delay_exponent.get(), 3);
}

#[test]
fn param_long_list_of_unknown_ones_costs_its_length() {
    let mut bytes = client_with("");
    let mut buffer = [0; 16];
    for n in 0..20_000 {
        let id = ParameterId::reserved(n).expect("in range");
        assert!(id.is_reserved() && !id.is_known());
        let mut writer = Writer::new(&mut buffer);
        RawParameter { id, value: &[] }.write(&mut writer).expect("it fits");
        bytes.extend_from_slice(writer.written());
    }
    let parameters = TransportParameters::parse(&bytes, Side::Client).expect("it is legal");
    assert_eq!(parameters.unknown().count(), 20_000);
}
