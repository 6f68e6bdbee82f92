//! Rules of RFC 9000 and RFC 9368, one by one: the error with which the victim closes the
//! connection when its peer breaks them. `behaviour.rs` has the rules about what the victim sends.

mod behaviour;

use equic_transport::{CloseReason, Event};
use equic_wire::{ConnectionId, Side, TransportErrorCode as Code, Version};

use super::case::{Case, PUPPET, address};
use super::puppet::Space;

/// Bits of a case's configuration.
const CLIENT: u8 = 1;
const CONNECTED: u8 = 2;
const NO_DATAGRAMS: u8 = 8;
const LARGE_CERTIFICATE: u8 = 16;
const UNKNOWN_VERSION: u8 = 32;

fn side(victim: Side) -> u8 {
    if victim == Side::Client { CLIENT } else { 0 }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b' ').collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

impl Case {
    /// Sends a packet with this payload in a datagram of at least `least` bytes.
    fn say(&mut self, space: Space, payload: &[u8], least: usize) {
        let number = self.puppet.number(space, None);
        let mut datagram = Vec::new();
        let place = (space, number, self.puppet.generation);
        self.puppet.packet(place, payload, least, &mut datagram).expect("the payload fits");
        self.deliver(address(PUPPET), datagram);
    }

    /// Returns the error code with which the victim has closed the connection.
    fn code(&mut self) -> Option<Code> {
        let events = std::iter::from_fn(|| self.victim.poll_event());
        let closed = events.filter_map(|event| match event {
            Event::Closed(CloseReason::Local(error)) => Some(error.code),
            _ => None,
        });
        closed.last().map(|code| Code(code.try_into().expect("codes are variable-length integers")))
    }

    fn sent(&self) -> u64 {
        self.victim.stats().packets_sent
    }
}

/// Plays a handshake, and then one 1-RTT packet with these frames. Returns the victim's error.
fn answer(victim: Side, frames: &[u8]) -> Option<Code> {
    let mut case = Case::new(side(victim) | CONNECTED);
    assert_eq!(case.code(), None);
    case.say(Space::OneRtt, frames, 0);
    case.code()
}

// RFC 9000 s.10.3 #1, s.11 #1 #2
#[test]
fn violation_of_a_frame_has_the_code_of_its_rule() {
    use Side::{Client, Server};
    // Stream IDs: 0 and 2 are the client's, 1 and 3 the server's; 2 and 3 are unidirectional.
    let rows = [
        // RFC 9000 s.19.4 #1
        (Server, "04 03 00 00", Code::STREAM_STATE_ERROR),
        (Client, "04 02 00 00", Code::STREAM_STATE_ERROR),
        // RFC 9000 s.19.5 #1
        (Server, "05 01 00", Code::STREAM_STATE_ERROR),
        // RFC 9000 s.19.5 #2
        (Server, "05 02 00", Code::STREAM_STATE_ERROR),
        (Client, "05 03 00", Code::STREAM_STATE_ERROR),
        // RFC 9000 s.19.6 #1
        (Server, "06 ffffffffffffffff 01 00", Code::FRAME_ENCODING_ERROR),
        // RFC 9000 s.19.7 #2
        (Client, "07 00", Code::FRAME_ENCODING_ERROR),
        // RFC 9000 s.19.7 #4
        (Server, "07 01 aa", Code::PROTOCOL_VIOLATION),
        // RFC 9000 s.19.8 #1
        (Server, "08 01 61", Code::STREAM_STATE_ERROR),
        (Server, "08 03 61", Code::STREAM_STATE_ERROR),
        (Client, "08 00 61", Code::STREAM_STATE_ERROR),
        // RFC 9000 s.19.8 #2
        (Server, "0e 00 ffffffffffffffff 01 61", Code::FRAME_ENCODING_ERROR),
        // RFC 9000 s.19.10 #4, s.4.1 #2
        (Server, "0e 00 bfffffff 01 61", Code::FLOW_CONTROL_ERROR),
        // RFC 9000 s.19.10 #1
        (Server, "11 01 05", Code::STREAM_STATE_ERROR),
        // RFC 9000 s.19.10 #2
        (Server, "11 02 05", Code::STREAM_STATE_ERROR),
        // RFC 9000 s.19.11 #1, s.4.6 #1
        (Server, "12 d000000000000001", Code::FRAME_ENCODING_ERROR),
        (Server, "13 d000000000000001", Code::FRAME_ENCODING_ERROR),
        // RFC 9000 s.19.11 #4, s.4.6 #3
        (Server, "08 bffffffc 61", Code::STREAM_LIMIT_ERROR),
        // RFC 9000 s.19.13 #2
        (Server, "15 03 00", Code::STREAM_STATE_ERROR),
        // RFC 9000 s.19.14 #2
        (Server, "16 d000000000000001", Code::FRAME_ENCODING_ERROR),
        // RFC 9000 s.19.16 #1
        (Server, "19 3f", Code::PROTOCOL_VIOLATION),
        // RFC 9000 s.19.20 #2
        (Server, "1e", Code::PROTOCOL_VIOLATION),
        // RFC 9000 s.19.3.1 #1
        (Server, "02 00 00 00 05", Code::FRAME_ENCODING_ERROR),
        // RFC 9000 s.13.1 #2
        (Server, "02 7fff 00 00 00", Code::PROTOCOL_VIOLATION),
        // RFC 9000 s.12.4 #4, s.19.21 #1
        (Server, "7fff", Code::FRAME_ENCODING_ERROR),
    ];
    for (victim, frames, code) in rows {
        assert_eq!(answer(victim, &hex(frames)), Some(code), "{victim:?} {frames}");
    }
    assert_eq!(answer(Server, &hex("01")), None);
}

/// NEW_CONNECTION_ID frames with invalid ID lengths, and with a Retire Prior To field above the
/// sequence number.
#[test]
fn violation_of_a_new_connection_id_frame() {
    let frame = |sequence: u8, prior: u8, length: usize| {
        let head = [0x18, sequence, prior, u8::try_from(length).unwrap()];
        [&head[..], &vec![sequence; length], &[sequence; 16]].concat()
    };
    // RFC 9000 s.19.15 #1 #5 #6
    for frame in [frame(1, 0, 0), frame(1, 0, 21), frame(1, 2, 8)] {
        assert_eq!(answer(Side::Server, &frame), Some(Code::FRAME_ENCODING_ERROR), "{frame:x?}");
    }
    // RFC 9000 s.19.15 #4
    assert_eq!(answer(Side::Server, &[frame(1, 0, 8), frame(1, 0, 8)].concat()), None);
    // RFC 9000 s.5.1.1 #5
    let many: Vec<u8> = (1..20).flat_map(|sequence| frame(sequence, 0, 8)).collect();
    assert_eq!(answer(Side::Server, &many), Some(Code::CONNECTION_ID_LIMIT_ERROR));
}

// RFC 9000 s.19.16 #2
#[test]
fn violation_by_retiring_the_connection_id_of_the_same_packet() {
    let mut case = Case::new(CONNECTED);
    let used = case.victim.local_ids().position(|id| id == case.puppet.victim).unwrap();
    case.say(Space::OneRtt, &[0x19, u8::try_from(used).unwrap()], 0);
    assert_eq!(case.code(), Some(Code::PROTOCOL_VIOLATION));
}

#[test]
fn violation_by_a_frame_in_the_wrong_packet() {
    // RFC 9000 s.12.4 #3, s.12.5 #2, s.17.2.4 #1
    for (space, frames) in [
        (Space::Initial, "08 00 61"),
        (Space::Handshake, "08 00 61"),
        (Space::Handshake, "10 05"),
        (Space::Handshake, "1a 0102030405060708"),
        // RFC 9000 s.12.5 #1
        (Space::Handshake, "1d 00 00"),
    ] {
        let mut case = Case::new(0);
        case.shake_hands();
        assert!(case.puppet.has_seen(Space::Handshake));
        case.say(space, &hex(frames), if space == Space::Initial { 1200 } else { 0 });
        assert_eq!(case.code(), Some(Code::PROTOCOL_VIOLATION), "{space:?} {frames}");
    }
}

/// Completes a handshake in which the client's transport parameters include these. Returns the
/// error of the server.
fn answer_to_parameters(more: &[u8]) -> Option<Code> {
    let mut case = Case::new(0);
    let hello = case.puppet.message((Space::Initial, 0), more, Some(0));
    case.say(Space::Initial, &hello, 1200);
    case.code()
}

#[test]
fn violation_of_a_transport_parameter_has_its_code() {
    for parameters in [
        // RFC 9000 s.18.2 #8
        "0e 01 01",
        // RFC 9000 s.18.2 #10
        "02 10 00112233445566778899aabbccddeeff",
        "00 04 01020304",
        "10 04 01020304",
        // RFC 9000 s.7.4 #1, s.4.6 #1
        "0a 01 15",
        "0b 04 80004000",
        "03 02 44af",
        // RFC 9287 s.3 #1
        "6ab2 01 00",
        // RFC 9368 s.4 #4 #5 #6
        "11 03 000000",
        "11 08 6e756c6c 00000000",
        "11 08 6e756c6c 00000001",
    ] {
        let code = answer_to_parameters(&hex(parameters));
        assert_eq!(code, Some(Code::TRANSPORT_PARAMETER_ERROR), "{parameters}");
    }
    // RFC 9000 s.7.4.2 #1
    assert_eq!(answer_to_parameters(&hex("7fff 02 6162")), None);
    assert_eq!(answer_to_parameters(&hex("11 08 6e756c6c 6e756c6c")), None);
}

fn version_information(chosen: Version, available: &[Version]) -> Vec<u8> {
    let mut bytes = vec![0x11, u8::try_from(4 + 4 * available.len()).unwrap()];
    let versions = [&[chosen], available].concat();
    bytes.extend(versions.into_iter().flat_map(|version| version.0.to_be_bytes()));
    bytes
}

// RFC 9368 s.4 #8 #9
#[test]
fn version_information_of_a_client_must_match_its_packets() {
    let parameters = version_information(Version::V1, &[Version::V1, Version::NULL_CRYPTO]);
    let code = answer_to_parameters(&parameters);
    assert_eq!(code, Some(Code::VERSION_NEGOTIATION_ERROR));
}

/// Completes a handshake in which the server's transport parameters include these. Returns the
/// error of the client. If `negotiated` is set, the client has followed a Version Negotiation
/// packet.
fn answer_to_server(more: &[u8], negotiated: bool) -> Option<Code> {
    let mut case = Case::new(CLIENT | if negotiated { UNKNOWN_VERSION } else { 0 });
    if negotiated {
        let packet = case.puppet.version_negotiation(&[Version::NULL_CRYPTO.0]);
        case.deliver(address(PUPPET), packet);
        let first = case.last[0].clone();
        let dcid = ConnectionId::new(&first[6..6 + usize::from(first[5])]).unwrap();
        assert_eq!(first[1..5], Version::NULL_CRYPTO.0.to_be_bytes());
        case.puppet.begin_again(dcid);
    }
    let hello = case.puppet.message((Space::Initial, 1), &[], None);
    case.say(Space::Initial, &hello, 0);
    let answer = case.puppet.message((Space::Handshake, 2), more, None);
    case.say(Space::Handshake, &answer, 0);
    let finished = case.puppet.message((Space::Handshake, 4), &[], None);
    case.say(Space::Handshake, &finished, 0);
    let code = case.code();
    assert_eq!(code.is_none(), case.victim.is_connected());
    code
}

// RFC 9368 s.4 #11 #12 #13 #14 #16 #17
#[test]
fn version_information_of_a_server_must_match_its_packets() {
    let (null, error) = (Version::NULL_CRYPTO, Some(Code::VERSION_NEGOTIATION_ERROR));
    // RFC 9368 s.4 #12 #17
    for chosen in [Version::V1, Version(0x1a2a_3a4a)] {
        assert_eq!(answer_to_server(&version_information(chosen, &[null, chosen]), false), error);
    }
    // RFC 9368 s.4 #11 #13
    assert_eq!(answer_to_server(&[], true), error);
    // RFC 9368 s.4 #14 #16
    assert_eq!(answer_to_server(&version_information(null, &[]), true), error);
    assert_eq!(answer_to_server(&version_information(null, &[null]), true), None);
    assert_eq!(answer_to_server(&version_information(null, &[null]), false), None);
    assert_eq!(answer_to_server(&[], false), None);
}

// RFC 9221 s.3 #3 #4
#[test]
fn violation_by_a_datagram_frame_that_was_not_agreed_on() {
    let frame = [&[0x30][..], &[7; 100]].concat();
    for (configuration, code) in [(0, None), (NO_DATAGRAMS, Some(Code::PROTOCOL_VIOLATION))] {
        let mut case = Case::new(CONNECTED | configuration);
        case.say(Space::OneRtt, &frame, 0);
        assert_eq!(case.code(), code);
    }
}

// RFC 9000 s.17.2 #9, s.17.3.1 #3
#[test]
fn packet_with_reserved_bits_is_a_violation() {
    for bits in [0x04, 0x08, 0x0c] {
        let mut case = Case::new(0);
        case.shake_hands();
        case.puppet.first_bits = bits;
        case.say(Space::Handshake, &[0x01], 0);
        assert_eq!(case.code(), Some(Code::PROTOCOL_VIOLATION), "{bits:#x}");
    }
    for bits in [0x08, 0x10, 0x18] {
        let mut case = Case::new(CONNECTED);
        case.puppet.first_bits = bits;
        case.say(Space::OneRtt, &[0x01], 0);
        assert_eq!(case.code(), Some(Code::PROTOCOL_VIOLATION), "{bits:#x}");
    }
}
