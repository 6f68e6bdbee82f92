//! Compares this crate with other implementations of QUIC on the same bytes.

use crate::support::check;
use crate::support::strategies::{bytes, connection_id, stream_count, varint};
use equic_wire::packet::{Datagram, LongKind, Packet, ParseOptions};
use equic_wire::params::TransportParameters;
use equic_wire::{ConnectionId, KnownVersion, Reader, Side, VarInt, Writer};
use octets::{Octets, OctetsMut};

#[test]
fn varint_equals_octets() {
    check(varint(), |value| {
        let mut theirs = [0; 8];
        let len = OctetsMut::with_slice(&mut theirs).put_varint(value.get()).unwrap().len();
        let mut ours = [0; 8];
        let mut writer = Writer::new(&mut ours);
        writer.varint(value).expect("it fits");
        assert_eq!(writer.written(), &theirs[..len]);
    });
    check(bytes(0..=9), |bytes| {
        let mut reader = Reader::new(&bytes);
        let ours = reader.varint().ok().map(VarInt::get);
        let mut octets = Octets::with_slice(&bytes);
        assert_eq!(ours, octets.get_varint().ok());
    });
}

/// quinn reads transport parameters that this crate wrote. quinn writes them again, in its own
/// order and with an additional reserved parameter. This crate must read the same values from them.
#[test]
fn param_through_quinn() {
    let integers = proptest::array::uniform6(varint());
    check((integers, stream_count(), connection_id(0..=20)), |(integers, count, id)| {
        let mut set = TransportParameters::server(id, id);
        set.max_idle_timeout_ms = integers[0];
        set.initial_max_data = integers[1];
        set.initial_max_stream_data_bidi_local = integers[2];
        set.initial_max_stream_data_bidi_remote = integers[3];
        set.initial_max_stream_data_uni = integers[4];
        set.max_datagram_frame_size = integers[5];
        (set.initial_max_streams_bidi, set.initial_max_streams_uni) = (count, count);
        set.grease_quic_bit = count.get() % 2 == 0;
        set.disable_active_migration = count.get() % 3 == 0;
        set.min_ack_delay_us = Some(VarInt::from_u32(1000));
        let mut buffer = vec![0; set.encoded_len()];
        set.write(&mut Writer::new(&mut buffer)).expect("as long as it says");

        let side = quinn_proto::Side::Client;
        let theirs =
            quinn_proto::transport_parameters::TransportParameters::read(side, &mut &buffer[..])
                .expect("quinn takes it");
        let mut again = Vec::new();
        theirs.write(&mut again);
        let mut read = TransportParameters::parse(&again, Side::Server).expect("it is legal");
        let unknown = read.unknown().count();
        assert!(read.unknown().all(|parameter| parameter.id.is_reserved()));
        assert!(unknown <= 1, "{read:?}");
        // `encoded_len` does not include the reserved parameter that quinn has added.
        let mut known = vec![0; read.encoded_len()];
        read.write(&mut Writer::new(&mut known)).expect("as long as it says");
        read = TransportParameters::parse(&known, Side::Server).expect("it is legal");
        assert_eq!(read, set);
    });
}

#[test]
fn packet_first_datagram_of_a_quinn_client() {
    let provider = quinn_proto::crypto::rustls::QuicClientConfig::try_from(tls());
    let config = quinn_proto::ClientConfig::new(std::sync::Arc::new(provider.expect("TLS 1.3")));
    let endpoint_config = std::sync::Arc::new(quinn_proto::EndpointConfig::default());
    let mut endpoint = quinn_proto::Endpoint::new(endpoint_config, None, true, None);
    let now = std::time::Instant::now();
    let server = "192.0.2.1:443".parse().unwrap();
    let (_, mut connection) =
        endpoint.connect(now, config, server, "example.org").expect("it may connect");
    let mut datagram = Vec::new();
    let transmit = connection.poll_transmit(now, 1, &mut datagram).expect("there is an Initial");
    assert_eq!(transmit.size, datagram.len(), "one datagram");
    let mut packets = Datagram::new(&datagram, ParseOptions::default());
    let Some(Ok(Packet::Long(long))) = packets.next() else { panic!("not a long header") };
    assert_eq!(long.version(), KnownVersion::V1);
    assert_eq!(long.kind(), LongKind::Initial { token: &[] });
    assert!(long.dcid().len() >= 8, "RFC 9000 s.7.2");
    assert_ne!(long.dcid(), ConnectionId::EMPTY);
    assert!(datagram.len() >= 1200);
    assert!(long.protected().sample(&datagram).is_some());
}

fn tls() -> rustls::ClientConfig {
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("AWS-LC has TLS 1.3")
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth()
}
