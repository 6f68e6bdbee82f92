use equic_wire::{ConnectionId, Side};

use super::keys::{Level, NullKey};
use super::message::{Answer, Hello, MAX_BODY, Malformed, Message};
use std::sync::Arc;

use super::*;
use crate::crypto::session::KeyChange;

#[test]
fn null_crypto_every_bit_counts() {
    let key = NullKey::new(Level::Handshake, Side::Client);
    for length in [0, 1, 7, 31, 32, 33, 200] {
        let (header, payload) = ([0x5a; 21], vec![0xa5; length]);
        let tag = key.tag(7, &header, &payload);
        for bit in 0..length * 8 {
            let mut other = payload.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(key.tag(7, &header, &other), tag, "bit {bit} of {length}");
        }
        for bit in 0..header.len() * 8 {
            let mut other = header;
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(key.tag(7, &other, &payload), tag, "bit {bit} of the header");
        }
        let mut longer = payload.clone();
        longer.push(0);
        assert_ne!(key.tag(7, &header, &longer), tag, "additional zeros change the tag");
        assert_ne!(key.tag(8, &header, &payload), tag);
    }
}

#[test]
fn null_crypto_keys_are_of_one_path() {
    use rustls::quic::PacketKey;
    let key = NullKey::new(Level::OneRtt(0), Side::Client);
    let seal = |path| {
        let mut packet = vec![3; 40];
        let tag = key.encrypt_in_place_for_path(path, 5, &[1], &mut packet).unwrap();
        packet.extend_from_slice(tag.as_ref());
        packet
    };
    for sent in 0..3 {
        for path in 0..3 {
            let mut packet = seal(sent);
            let opened = key.decrypt_in_place_for_path(path, 5, &[1], &mut packet);
            assert_eq!(
                opened.is_ok(),
                sent == path,
                "sealed for path {sent}, opened for path {path}"
            );
        }
    }
    assert!(
        key.decrypt_in_place(5, &[1], &mut seal(0)).is_ok(),
        "path 0 uses the same key as connections without paths"
    );
}

#[test]
fn null_crypto_keys_are_of_one_level_and_sender() {
    let id = |byte| ConnectionId::cut(&[byte; 8]);
    let levels = [
        Level::Initial(id(1)),
        Level::Initial(id(2)),
        Level::ZeroRtt,
        Level::Handshake,
        Level::OneRtt(0),
        Level::OneRtt(1),
    ];
    let mut tags = std::collections::BTreeSet::new();
    for level in levels {
        for side in [Side::Client, Side::Server] {
            assert!(tags.insert(NullKey::new(level, side).tag(0, b"header", b"payload")));
        }
    }
}

#[test]
fn null_crypto_messages_round_trip_and_have_their_size() {
    let messages = [
        Message::ClientHello(Hello {
            parameters: &[7; 80],
            ticket: Some([9; 16]),
            alpn: vec![b"h3", b"equic"],
        }),
        Message::ClientHello(Hello::default()),
        Message::ServerHello,
        Message::NewSessionTicket(true, [3; 16]),
        Message::Answer(Answer { parameters: &[8; 70], early_data: true, alpn: b"h3" }),
        Message::Answer(Answer::default()),
        Message::Finished,
    ];
    for message in &messages {
        for size in [0, 36, 300, 5000] {
            let mut bytes = vec![];
            message.write(size, &mut bytes);
            assert!(bytes.len() >= size && (size < 300 || bytes.len() == size));
            let length = bytes.len();
            assert_eq!(Message::read(&bytes[..length - 1]), Ok(None));
            bytes.extend_from_slice(b"more");
            assert_eq!(Message::read(&bytes), Ok(Some((message.clone(), length))));
        }
    }
    assert_eq!(Message::read(&[3, 0, 0, 0]), Err(Malformed), "an unknown type");
    assert_eq!(Message::read(&[1, 0, 0, 0]), Err(Malformed), "a ClientHello without content");
    let [_, a, b, c] = (MAX_BODY as u32 + 1).to_be_bytes();
    assert_eq!(Message::read(&[20, a, b, c]), Err(Malformed), "the message is too long");
}

fn crypto() -> Arc<InsecureNullCrypto> {
    Arc::new(InsecureNullCrypto::for_simulation_only())
}

#[test]
fn null_crypto_handshake_in_any_pieces() {
    for piece in [1, 2, 3, 100, 100_000] {
        let client = Handshake::client(crypto(), b"client's".to_vec());
        let server = Handshake::server(crypto(), b"server's".to_vec(), &[]);
        let (mut ends, mut changes) = ([client, server], [0, 0]);
        for _ in 0..4 {
            for from in [0, 1] {
                let mut data = Vec::new();
                while let Some(change) = ends[from].write(&mut data) {
                    changes[from] += match change {
                        KeyChange::Handshake { .. } => 1,
                        KeyChange::OneRtt { .. } => 10,
                    };
                }
                for piece in data.chunks(piece) {
                    assert!(ends[1 - from].read(piece).is_ok());
                }
            }
        }
        assert_eq!(changes, [11, 11]);
        assert!(ends.iter().all(|end| !end.is_handshaking()));
        assert_eq!(ends[0].transport_parameters(), Some(&b"server's"[..]));
        assert_eq!(ends[1].transport_parameters(), Some(&b"client's"[..]));
        assert!(ends[0].session().is_none(), "the server accepts no early data");
    }
}

#[test]
fn null_crypto_messages_out_of_order_are_refused() {
    let all = [
        Message::ClientHello(Hello::default()),
        Message::ServerHello,
        Message::NewSessionTicket(true, [0; 16]),
        Message::Answer(Answer::default()),
        Message::Finished,
    ];
    for message in &all {
        let mut bytes = Vec::new();
        message.write(0, &mut bytes);
        let mut server = Handshake::server(crypto(), vec![], &[]);
        assert_eq!(server.read(&bytes).is_ok(), matches!(message, Message::ClientHello(_)));
        let mut client = Handshake::client(crypto(), vec![]);
        assert_eq!(client.read(&bytes).is_ok(), *message == Message::ServerHello);
    }
}

/// The handshake must buffer at most one message, even if the peer sends a message without an end.
#[test]
fn null_crypto_buffer_is_bounded() {
    let mut server = Handshake::server(crypto(), vec![], &[]);
    let [_, a, b, c] = (MAX_BODY as u32).to_be_bytes();
    assert!(server.read(&[1, a, b, c]).is_ok());
    let mut taken = 0;
    while server.read(&[0xff; 1000]).is_ok() {
        taken += 1000;
        assert!(taken <= MAX_BODY, "{taken}");
    }
}
