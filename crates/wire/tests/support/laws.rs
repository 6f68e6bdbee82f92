//! Checks of properties that must hold for any bytes. The bytes may be invalid. But if they can be
//! parsed, the value must be the same after it is written and parsed again. The fuzz targets use
//! the same checks.

use equic_wire::frame::{Frame, Frames, PathAck, write_ack, write_path_ack};
use equic_wire::packet::{
    Datagram, LongHeader, LongPacket, Packet, ParseOptions, Retry, ShortHeader, ShortPacket,
    VersionNegotiation,
};
use equic_wire::params::TransportParameters;
use equic_wire::{Side, VarIntLen, Writer};

/// Checks a UDP payload. The first two bytes of the input select the parse options.
pub(crate) fn datagram(bytes: &[u8]) {
    let Some(([dcid_len, greased], payload)) = bytes.split_first_chunk() else { return };
    let dcid_len = usize::from(dcid_len % 23);
    let options = ParseOptions { dcid_len, greased_fixed_bit: greased & 1 == 1 };
    let mut packets = Datagram::new(payload, options);
    let mut before = packets.rest().len();
    while let Some(packet) = packets.next() {
        let after = packets.rest().len();
        assert!(after < before, "a packet takes bytes, or the datagram ends");
        before = after;
        match packet {
            Ok(Packet::Long(long)) => rewrite_long(&long, options),
            Ok(Packet::Short(short)) => rewrite_short(&short, options),
            Ok(Packet::Retry(retry)) => rewrite_retry(&retry, options),
            Ok(Packet::VersionNegotiation(vn)) => rewrite_version_negotiation(&vn, options),
            Ok(Packet::UnknownVersion(header)) => assert_eq!(header.version.known(), None),
            Err(_) => {}
        }
    }
}

fn one(bytes: &[u8], options: ParseOptions) -> Packet<'_> {
    let mut packets = Datagram::new(bytes, options);
    let packet = packets.next().expect("there is a packet").expect("it parses");
    assert!(packets.rest().is_empty(), "it takes all");
    packet
}

/// Writes a parsed packet again. The header protection mask is all zeros, so it changes nothing.
fn rewrite_long(long: &LongPacket<'_>, options: ParseOptions) {
    assert!(long.protected().sample(long.bytes()).is_some());
    let mut plain = long.bytes().to_vec();
    let open = long.protected().remove(&mut plain, &[0; 5]).expect("it is long enough");
    let _ = open.check_reserved_bits();
    let fixed_bit = plain[0] & 0x40 != 0;
    let (version, kind) = (long.version(), long.kind());
    let header = LongHeader { version, kind, dcid: long.dcid(), scid: long.scid(), fixed_bit };
    let mut buffer = vec![0; plain.len() + 16];
    let mut writer = Writer::new(&mut buffer);
    let length = VarIntLen::Eight;
    let packet = header.open(&mut writer, open.packet_number(), length).expect("it fits");
    assert_eq!(writer.position(), header.encoded_len(open.packet_number(), length));
    writer.bytes(&plain[open.header_len()..]).expect("it fits");
    let finished = packet.finish(&mut writer, 0).expect("it is as long as before");
    let Packet::Long(again) = one(&buffer[finished.packet], options) else {
        panic!("another kind of packet")
    };
    assert_eq!((again.version(), again.kind()), (version, kind));
    assert_eq!((again.dcid(), again.scid()), (long.dcid(), long.scid()));
    let mut bytes = again.bytes().to_vec();
    let unprotected = again.protected().remove(&mut bytes, &[0; 5]).expect("it is long enough");
    assert_eq!(unprotected.packet_number(), open.packet_number());
    assert_eq!(bytes[unprotected.header_len()..], plain[open.header_len()..]);
}

fn rewrite_short(short: &ShortPacket<'_>, options: ParseOptions) {
    let mask = [0x1f, 1, 2, 3, 4];
    let mut plain = short.bytes().to_vec();
    let open = short.protected().remove(&mut plain, &mask).expect("it is long enough");
    if open.check_reserved_bits().is_err() {
        return;
    }
    let header = ShortHeader {
        dcid: short.dcid(),
        spin: open.spin().expect("a short header"),
        key_phase: open.key_phase().expect("a short header"),
        fixed_bit: plain[0] & 0x40 != 0,
    };
    let mut buffer = vec![0; plain.len()];
    let mut writer = Writer::new(&mut buffer);
    let packet = header.open(&mut writer, open.packet_number()).expect("it fits");
    assert_eq!(writer.position(), header.encoded_len(open.packet_number()));
    writer.bytes(&plain[open.header_len()..]).expect("it fits");
    let finished = packet.finish(&mut writer, 0).expect("it is as long as before");
    finished.protect(&mut buffer, &mask).expect("it is all there");
    assert_eq!(buffer, short.bytes(), "a short header has one encoding");
    assert_eq!(one(&buffer, options), Packet::Short(*short));
}

fn rewrite_retry(retry: &Retry<'_>, options: ParseOptions) {
    let mut buffer = vec![0; retry.without_tag().len() + Retry::TAG_LEN];
    let mut writer = Writer::new(&mut buffer);
    let unused = retry.without_tag()[0];
    let (version, dcid, scid) = (retry.version(), retry.dcid(), retry.scid());
    Retry::write_without_tag(&mut writer, version, dcid, scid, retry.token(), unused)
        .expect("it fits");
    writer.bytes(retry.integrity_tag()).expect("it fits");
    if unused & 0x40 != 0 {
        assert_eq!(writer.written(), [retry.without_tag(), retry.integrity_tag()].concat());
    }
    let Packet::Retry(again) = one(writer.written(), options) else { panic!("not a Retry") };
    assert_eq!((again.token(), again.integrity_tag()), (retry.token(), retry.integrity_tag()));
}

fn rewrite_version_negotiation(vn: &VersionNegotiation<'_>, options: ParseOptions) {
    let mut buffer = vec![0; 7 + 2 * 255 + vn.versions().as_bytes().len()];
    let mut writer = Writer::new(&mut buffer);
    VersionNegotiation::write(&mut writer, vn.dcid(), vn.scid(), vn.versions().iter(), 0x55)
        .expect("it fits");
    assert_eq!(one(writer.written(), options), Packet::VersionNegotiation(*vn));
}

/// Checks the frames in the payload of a packet.
pub(crate) fn frames(payload: &[u8]) {
    let Ok(mut frames) = Frames::new(payload) else { return };
    let mut before = payload.len();
    while let Some(frame) = frames.next() {
        let after = frames.rest().len();
        assert!(after < before, "a frame takes bytes, or the packet ends");
        before = after;
        match frame {
            Ok(Frame::Unknown(unknown)) if unknown.rest.len() > 4 => {
                rewrite_frame(&Frame::Unknown(unknown));
                before = unknown.rest.len() - 4;
                frames.resume(&unknown.rest[4..]);
            }
            Ok(frame) => rewrite_frame(&frame),
            Err(error) => {
                assert!(frames.next().is_none(), "nothing after an error");
                assert!(error.code().name().is_some(), "{error}");
                break;
            }
        }
    }
}

fn rewrite_frame(frame: &Frame<'_>) {
    let mut buffer = vec![0; frame.encoded_len()];
    let mut writer = Writer::new(&mut buffer);
    frame.write(&mut writer).expect("as long as it says");
    assert_eq!(writer.remaining(), 0, "as long as it says: {frame:?}");
    let mut frames = Frames::new(&buffer).expect("it is not empty");
    assert_eq!(frames.next(), Some(Ok(*frame)));
    assert!(frames.rest().is_empty());
    let short = buffer.len() - 1;
    let mut writer = Writer::new(&mut buffer[..short]);
    assert!(frame.write(&mut writer).is_err() && writer.position() == 0, "all or nothing");
    if let Frame::PathAck(PathAck { path_id, ack }) = frame {
        let mut buffer = vec![0; frame.encoded_len()];
        let mut writer = Writer::new(&mut buffer);
        let written =
            write_path_ack(&mut writer, *path_id, ack.ranges(), ack.raw_delay(), ack.ecn());
        let written = written.expect("no longer than before");
        assert_eq!(written.ranges as u64, ack.range_count());
        let Some(Ok(Frame::PathAck(again))) = Frames::new(writer.written()).unwrap().next() else {
            panic!("not a PATH_ACK")
        };
        assert!(again.path_id == *path_id && again.ack.ranges().eq(ack.ranges()));
        assert_eq!((again.ack.raw_delay(), again.ack.ecn()), (ack.raw_delay(), ack.ecn()));
    }
    if let Frame::Ack(ack) = frame {
        assert_eq!(ack.ranges().count() as u64, ack.range_count());
        let mut buffer = vec![0; frame.encoded_len()];
        let mut writer = Writer::new(&mut buffer);
        let written = write_ack(&mut writer, ack.ranges(), ack.raw_delay(), ack.ecn());
        let written = written.expect("no longer than before");
        assert_eq!(written.ranges as u64, ack.range_count());
        let Some(Ok(Frame::Ack(again))) = Frames::new(writer.written()).unwrap().next() else {
            panic!("not an ACK")
        };
        assert!(again.ranges().eq(ack.ranges()));
        assert_eq!((again.raw_delay(), again.ecn()), (ack.raw_delay(), ack.ecn()));
    }
}

/// Checks the content of the quic_transport_parameters extension, once as sent by a client and once
/// as sent by a server.
pub(crate) fn transport_parameters(bytes: &[u8]) {
    for sender in [Side::Client, Side::Server] {
        let Ok(parameters) = TransportParameters::parse(bytes, sender) else { continue };
        assert_eq!(parameters.server.is_some(), sender == Side::Server);
        let mut buffer = vec![0; parameters.encoded_len() + bytes.len() * 8];
        let mut writer = Writer::new(&mut buffer);
        parameters.write(&mut writer).expect("it fits");
        assert_eq!(writer.position(), parameters.encoded_len());
        for unknown in parameters.unknown() {
            unknown.write(&mut writer).expect("it fits");
        }
        assert_eq!(TransportParameters::parse(writer.written(), sender), Ok(parameters));
    }
}
