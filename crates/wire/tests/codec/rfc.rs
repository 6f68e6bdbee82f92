//! The examples of RFC 9000 appendix A, RFC 9001 appendix A and RFC 9369 appendix A.

use crate::support::hex;
use equic_wire::frame::{Frame, Frames};
use equic_wire::packet::{
    Datagram, HeaderMask, LongHeader, LongKind, LongPacket, Packet, ParseOptions, Retry,
    ShortHeader,
};
use equic_wire::{
    ConnectionId, KnownVersion, PacketNumber, PacketNumberLen, Reader, TruncatedPacketNumber,
    VarInt, VarIntLen, Writer,
};

const TAG_LEN: usize = 16;

/// Returns the packet with this name from the test vectors of a version.
fn vector(version: KnownVersion, name: &str) -> Vec<u8> {
    let text = match version {
        KnownVersion::V1 => include_str!("../vectors/v1.txt"),
        KnownVersion::V2 => include_str!("../vectors/v2.txt"),
        _ => panic!("no document has vectors of {version:?}"),
    };
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    hex(line.expect("there is such a vector"))
}

fn mask(version: KnownVersion, name: &str) -> HeaderMask {
    vector(version, name).try_into().expect("five bytes")
}

fn number(number: u64) -> PacketNumber {
    PacketNumber::new(number).expect("in range")
}

fn only(packet: &[u8]) -> Packet<'_> {
    let mut packets = Datagram::new(packet, ParseOptions::default());
    let first = packets.next().expect("there is a packet").expect("it parses");
    assert!(packets.next().is_none());
    first
}

fn only_long(packet: &[u8]) -> LongPacket<'_> {
    match only(packet) {
        Packet::Long(long) => long,
        other => panic!("{other:?}"),
    }
}

#[test]
fn varint_of_appendix_a_1() {
    let examples: [(&str, u64); 5] = [
        ("c2197c5eff14e88c", 151_288_809_941_952_652),
        ("9d7f3e7d", 494_878_333),
        ("7bbd", 15_293),
        ("25", 37),
        ("4025", 37),
    ];
    for (encoding, value) in examples {
        let encoding = hex(encoding);
        let mut reader = Reader::new(&encoding);
        let read = reader.varint().expect("it is all there");
        assert_eq!(read.get(), value);
        assert!(reader.is_empty());
        let mut buffer = [0; 8];
        let mut writer = Writer::new(&mut buffer);
        let len = VarIntLen::of_first_byte(encoding[0]);
        writer.varint_of_len(read, len).expect("it fits");
        assert_eq!(writer.written(), encoding);
    }
}

#[test]
fn packet_number_encodings_of_appendix_a_2() {
    let acked = Some(number(0xabe8b3));
    let sent = number(0xac5c02).truncate(acked).expect("it is near enough");
    assert_eq!((sent.len(), sent.bits()), (PacketNumberLen::Two, 0x5c02));
    let sent = number(0xace8fe).truncate(acked).expect("it is near enough");
    assert_eq!((sent.len(), sent.bits()), (PacketNumberLen::Three, 0xace8fe));
}

/// RFC 9000 s.17.1: the encoding must cover "more than twice as large a range". Checks the chosen
/// length on both sides of each limit.
// RFC 9000 s.17.1 #1 #2 #3
#[test]
fn packet_number_encodings_at_the_edges() {
    use PacketNumberLen::{Four, One, Three, Two};
    let acked = number(1000);
    let ahead = |n: u64| number(1000 + n).truncate(Some(acked)).map(TruncatedPacketNumber::len);
    assert_eq!((ahead(1), ahead(127), ahead(128)), (Some(One), Some(One), Some(Two)));
    assert_eq!((ahead((1 << 15) - 1), ahead(1 << 15)), (Some(Two), Some(Three)));
    assert_eq!((ahead((1 << 23) - 1), ahead(1 << 23)), (Some(Three), Some(Four)));
    assert_eq!((ahead((1 << 31) - 1), ahead(1 << 31)), (Some(Four), None));
    let first = |n: u64| number(n).truncate(None).map(TruncatedPacketNumber::len);
    assert_eq!((first(0), first(126), first(127)), (Some(One), Some(One), Some(Two)));
}

/// Decodes packet numbers near 0 and near 2^62-1, where one of the candidates of RFC 9000 A.3 does
/// not exist.
#[test]
fn packet_number_decodings_at_the_edges() {
    let restore = |largest: Option<u64>, bits: &str, len| {
        let field = hex(bits);
        let field = TruncatedPacketNumber::read(&mut Reader::new(&field), len);
        field.expect("it is all there").restore(largest.map(number)).map(PacketNumber::get)
    };
    let last = PacketNumber::MAX.get();
    assert_eq!(restore(None, "ff", PacketNumberLen::One), Some(255), "there is none below");
    assert_eq!(restore(Some(199), "48", PacketNumberLen::One), Some(328), "200 + 128");
    assert_eq!(restore(Some(199), "49", PacketNumberLen::One), Some(73));
    assert_eq!(restore(Some(last - 1), "ff", PacketNumberLen::One), Some(last));
    assert_eq!(restore(Some(last), "fe", PacketNumberLen::One), Some(last - 1));
    assert_eq!(restore(Some(last), "00", PacketNumberLen::One), None, "beyond the last");
}

#[test]
fn packet_number_decoding_of_appendix_a_3() {
    let field = hex("9b32");
    let field = TruncatedPacketNumber::read(&mut Reader::new(&field), PacketNumberLen::Two);
    let restored = field.expect("it is all there").restore(Some(number(0xa82f30ea)));
    assert_eq!(restored, Some(number(0xa82f9b32)));
}

// RFC 9001 s.5.2 #2
#[test]
fn packet_client_initials_of_the_appendices() {
    for version in [KnownVersion::V1, KnownVersion::V2] {
        let packet = vector(version, "client_initial");
        let long = only_long(&packet);
        assert_eq!((long.version(), long.kind()), (version, LongKind::Initial { token: &[] }));
        assert_eq!(long.dcid().as_bytes(), hex("8394c8f03e515708"));
        assert!(long.scid().is_empty());
        assert_eq!(long.bytes().len(), 1200);
        let header = vector(version, "client_initial_header");
        assert_eq!(long.protected().sample(&packet).unwrap()[..], packet[22..38]);

        let mut open = packet.clone();
        let mask = mask(version, "client_initial_mask");
        let unprotected = long.protected().remove(&mut open, &mask).expect("it is long enough");
        assert_eq!(open[..unprotected.header_len()], header);
        assert_eq!(unprotected.packet_number().restore(None), Some(number(2)));
        assert_eq!(unprotected.check_reserved_bits(), Ok(()));

        // Writes the packet again: header, ciphertext without its tag, tag, and header protection.
        // The result must be the original packet.
        let mut buffer = vec![0; 1200];
        let mut writer = Writer::new(&mut buffer);
        let written = LongHeader {
            version,
            kind: LongKind::Initial { token: &[] },
            dcid: long.dcid(),
            scid: long.scid(),
            fixed_bit: true,
        };
        let pn = number(2).truncate_to(PacketNumberLen::Four);
        let packet_open = written.open(&mut writer, pn, VarIntLen::Two).expect("it fits");
        writer.zeros(1162).expect("it fits");
        assert_eq!(packet_open.payload_len(&writer), 1162);
        let finished = packet_open.finish(&mut writer, TAG_LEN).expect("it fits");
        assert_eq!(buffer[..finished.header_len], header);
        buffer[finished.header_len..].copy_from_slice(&packet[22..]);
        finished.protect(&mut buffer, &mask).expect("it is all there");
        assert_eq!(buffer, packet);
    }
}

#[test]
fn packet_server_initials_of_the_appendices() {
    for version in [KnownVersion::V1, KnownVersion::V2] {
        let packet = vector(version, "server_initial");
        let long = only_long(&packet);
        assert!(long.dcid().is_empty());
        assert_eq!(long.scid().as_bytes(), hex("f067a5502a4262b5"));
        let mut open = packet.clone();
        let mask = mask(version, "server_initial_mask");
        let unprotected = long.protected().remove(&mut open, &mask).expect("it is long enough");
        assert_eq!(open[..unprotected.header_len()], vector(version, "server_initial_header"));
        assert_eq!(unprotected.packet_number().len(), PacketNumberLen::Two);
        assert_eq!(unprotected.packet_number().restore(None), Some(number(1)));
    }
}

#[test]
fn retry_of_the_appendices() {
    for version in [KnownVersion::V1, KnownVersion::V2] {
        let packet = vector(version, "retry");
        let Packet::Retry(retry) = only(&packet) else { panic!("not a Retry") };
        assert_eq!(retry.version(), version);
        assert_eq!((retry.token(), retry.scid().as_bytes()), (&b"token"[..], &packet[7..15]));
        assert_eq!(retry.without_tag(), &packet[..packet.len() - Retry::TAG_LEN]);
        assert_eq!(retry.integrity_tag()[..], packet[packet.len() - Retry::TAG_LEN..]);
        let mut buffer = [0; 64];
        let mut writer = Writer::new(&mut buffer);
        let (dcid, scid) = (ConnectionId::EMPTY, retry.scid());
        Retry::write_without_tag(&mut writer, version, dcid, scid, b"token", packet[0])
            .expect("it fits");
        assert_eq!(writer.written(), retry.without_tag());
    }
}

#[test]
fn packet_short_headers_of_the_appendices() {
    for version in [KnownVersion::V1, KnownVersion::V2] {
        let packet = vector(version, "short");
        assert_eq!(packet.len(), 21, "the smallest there is");
        let Packet::Short(short) = only(&packet) else { panic!("not a short header") };
        let mut open = packet.clone();
        let mask = mask(version, "short_mask");
        let unprotected = short.protected().remove(&mut open, &mask).expect("it is long enough");
        assert_eq!(open[..unprotected.header_len()], vector(version, "short_header"));
        let restored = unprotected.packet_number().restore(Some(number(654_360_563)));
        assert_eq!(restored, Some(number(654_360_564)));
        assert_eq!((unprotected.spin(), unprotected.key_phase()), (Some(false), Some(false)));

        let mut buffer = vec![0; 21];
        let mut writer = Writer::new(&mut buffer);
        let header = ShortHeader {
            dcid: ConnectionId::EMPTY,
            spin: false,
            key_phase: false,
            fixed_bit: true,
        };
        let pn = number(654_360_564).truncate_to(PacketNumberLen::Three);
        let packet_open = header.open(&mut writer, pn).expect("it fits");
        writer.u8(1).expect("it fits");
        assert_eq!(packet_open.padding_needed(&writer, TAG_LEN), 0);
        let finished = packet_open.finish(&mut writer, TAG_LEN).expect("it fits");
        buffer[finished.header_len..].copy_from_slice(&packet[4..]);
        finished.protect(&mut buffer, &mask).expect("it is all there");
        assert_eq!(buffer, packet);
    }
}

#[test]
fn frame_payloads_of_the_appendices() {
    let version = KnownVersion::V1;
    let payload = [vector(version, "client_initial_crypto_frame"), vec![0; 917]].concat();
    let frames: Vec<_> = Frames::new(&payload).unwrap().map(Result::unwrap).collect();
    let [Frame::Crypto(crypto), Frame::Padding(padding)] = frames[..] else {
        panic!("{frames:?}");
    };
    assert_eq!((crypto.offset(), crypto.data().len()), (VarInt::ZERO, 241));
    assert_eq!(padding.get(), 917);

    let payload = vector(version, "server_initial_payload");
    let frames: Vec<_> = Frames::new(&payload).unwrap().map(Result::unwrap).collect();
    let [Frame::Ack(ack), Frame::Crypto(crypto)] = frames[..] else { panic!("{frames:?}") };
    assert_eq!((ack.largest(), ack.range_count(), ack.ecn()), (PacketNumber::ZERO, 1, None));
    assert_eq!(crypto.data().len(), 90);
}
