//! Tests connection IDs: which server made them, and how long they are valid while keys rotate.

use std::collections::BTreeSet;

use equic_token::{Clock, Epoch, IdError, IdFormat, IdGenerator, Key, KeyRing};
use proptest::prelude::*;

fn ring() -> KeyRing {
    KeyRing::new(Clock::Monotonic, Epoch::new(3).unwrap(), Key::from_bytes([7; 16]))
}

/// Returns every possible format.
fn formats() -> impl Iterator<Item = IdFormat> {
    (0..=30).flat_map(|len| (0..=20).filter_map(move |server| IdFormat::new(len, server).ok()))
}

fn generator(format: IdFormat) -> IdGenerator {
    let server: Vec<u8> = (0xa0..).take(format.server_id_len()).collect();
    IdGenerator::new(format, &server, ring()).unwrap()
}

#[test]
fn id_formats_are_those_that_rfc_and_draft_allow() {
    assert_eq!(formats().map(IdFormat::len).min(), Some(8));
    assert_eq!(formats().map(IdFormat::len).max(), Some(20));
    assert_eq!(formats().map(IdFormat::server_id_len).max(), Some(8));
    for (len, server) in
        [(7, 0), (21, 0), (8, 1), (16, 9), (15, 8), (usize::MAX, 0), (20, usize::MAX)]
    {
        assert_eq!(IdFormat::new(len, server), Err(IdError::Format), "{len}, {server}");
    }
    let wrong = IdGenerator::new(IdFormat::new(16, 2).unwrap(), &[1; 3], ring());
    assert_eq!(wrong.err(), Some(IdError::Format));
}

#[test]
fn id_contains_its_length_server_and_epoch() {
    for format in formats() {
        let id = generator(format).generate();
        let bytes = id.as_bytes();
        assert_eq!(bytes.len(), format.len());
        // The first byte has the config rotation bits and the length of the rest
        // (draft-ietf-quic-load-balancers s.3).
        assert_eq!((bytes[0] >> 5, usize::from(bytes[0] & 0x1f)), (3, format.len() - 1));
        let proven = format.open(&ring(), bytes).unwrap();
        assert_eq!(proven.epoch.number(), 3);
        let server: Vec<u8> = (0xa0..).take(format.server_id_len()).collect();
        assert_eq!(proven.server_id[..format.server_id_len()], server);
        assert_eq!(bytes[1..=format.server_id_len()], server);
    }
}

#[test]
fn id_with_any_changed_bit_is_refused() {
    for format in formats() {
        let id = generator(format).generate();
        for bit in 0..id.len() * 8 {
            let mut other = id.as_bytes().to_vec();
            other[bit / 8] ^= 1 << (bit % 8);
            let error = format.open(&ring(), &other).expect_err("it was changed");
            let expected = match bit {
                0..=4 => IdError::Malformed,
                5..=7 => IdError::UnknownEpoch,
                _ => IdError::Forged,
            };
            assert_eq!(error, expected, "{format:?}, bit {bit}");
        }
        for len in 0..id.len() {
            let cut = format.open(&ring(), &id.as_bytes()[..len]);
            assert_eq!(cut, Err(IdError::Malformed));
        }
        let longer = [id.as_bytes(), &[0]].concat();
        assert_eq!(format.open(&ring(), &longer), Err(IdError::Malformed));
    }
}

/// The check value must depend on the first byte. That byte is not hashed, but it selects the key
/// and the length. With another key or length, the ID must be invalid.
#[test]
fn id_check_value_covers_the_first_byte() {
    let ring = KeyRing::new(Clock::Monotonic, ring().epoch(), Key::from_bytes([3; 16]));
    let id = generator(IdFormat::new(16, 2).unwrap()).generate();
    assert_eq!(IdFormat::new(16, 2).unwrap().open(&ring, id.as_bytes()), Err(IdError::Forged));
    // The same bytes as an ID of a shorter format: the last four of these bytes must not be
    // accepted as the check value.
    for len in 8..16 {
        let mut shorter = id.as_bytes()[..len].to_vec();
        shorter[0] = shorter[0] & 0xe0 | (len - 1) as u8;
        let format = IdFormat::new(len, 0).unwrap();
        assert_eq!(format.open(&self::ring(), &shorter), Err(IdError::Forged), "{len}");
    }
}

#[test]
fn id_never_repeats() {
    // Random nonces of three bytes would collide after a few thousand IDs, so this test would find
    // them.
    let generator = generator(IdFormat::new(8, 0).unwrap());
    let ids: BTreeSet<_> = (0..50_000).map(|_| generator.generate()).collect();
    assert_eq!(ids.len(), 50_000);
    let clone = generator.clone();
    assert!((0..1000).all(|_| !ids.contains(&clone.generate())), "clones share the numbers");
}

#[test]
fn id_stays_valid_during_key_rotations() {
    let format = IdFormat::new(12, 1).unwrap();
    let mut ring = ring();
    let generator = IdGenerator::new(format, &[1], ring.clone()).unwrap();
    let old = generator.generate();
    let verdicts: Vec<_> = (0..7)
        .map(|_| {
            ring.announce(Key::random().unwrap()).unwrap();
            ring.advance().unwrap();
            generator.set_ring(ring.clone());
            let new = generator.generate();
            assert_eq!(format.open(&ring, new.as_bytes()).map(|id| id.epoch), Ok(ring.epoch()));
            assert_eq!(generator.open(new.as_bytes()), format.open(&ring, new.as_bytes()));
            format.open(&ring, old.as_bytes()).map(|id| id.server_id[0])
        })
        .collect();
    assert_eq!(verdicts[..5], [Ok(1); 5]);
    assert_eq!(verdicts[5..], [Err(IdError::UnknownEpoch), Err(IdError::Forged)]);
}

/// After a restart, a gateway remembers only the epoch of its old keys. IDs from before the restart
/// must then have an unknown epoch.
#[test]
fn id_from_before_a_restart_is_told_from_a_forged_one() {
    let format = IdFormat::new(12, 1).unwrap();
    let old = IdGenerator::new(format, &[1], ring()).unwrap().generate();
    let ring = KeyRing::new(Clock::Monotonic, ring().epoch().next(), Key::random().unwrap());
    assert_eq!(format.open(&ring, old.as_bytes()), Err(IdError::UnknownEpoch));
    let mut forged = old.as_bytes().to_vec();
    forged[0] = ring.epoch().number() << 5 | forged[0] & 0x1f;
    assert_eq!(format.open(&ring, &forged), Err(IdError::Forged));
}

proptest! {
    #[test]
    fn id_of_any_bytes_causes_no_panic(id: Vec<u8>, len in 8usize..=20) {
        let format = IdFormat::new(len, 0).unwrap();
        prop_assert!(format.open(&ring(), &id).is_err());
    }
}

/// The reset token that the gateway sends for a dead server must equal the token that the server
/// gave its client.
#[test]
fn reset_token_depends_on_id_service_and_key() {
    let format = IdFormat::new(12, 2).unwrap();
    let generator = IdGenerator::new(format, &[5, 0], ring()).unwrap();
    let (one, other) = (generator.generate(), generator.generate());
    let token = |id: &[u8]| format.reset_token(&ring(), "web", id);
    assert_eq!(generator.reset_token("web", one.as_bytes()), token(one.as_bytes()));
    assert_ne!(token(one.as_bytes()), token(other.as_bytes()));
    // The reset token of one service must not end a connection to another service.
    for other in ["", "we", "webb", "dns"] {
        assert_ne!(generator.reset_token(other, one.as_bytes()), token(one.as_bytes()), "{other}");
    }
    let long = "a name of more than 31 characters is cut";
    assert_eq!(
        generator.reset_token(long, one.as_bytes()),
        generator.reset_token(&long[..31], one.as_bytes())
    );
    let halves = token(one.as_bytes()).unwrap();
    assert_ne!(halves[..8], halves[8..]);
    let mut forged = one.as_bytes().to_vec();
    forged[7] ^= 1;
    assert_eq!(token(&forged), Err(IdError::Forged));
    let mut ring = ring();
    let mark = ring.mark();
    for _ in 0..5 {
        ring.announce(Key::random().unwrap()).unwrap();
        assert_eq!(format.reset_token(&ring, "web", one.as_bytes()), token(one.as_bytes()));
        ring.advance().unwrap();
        assert_ne!(ring.mark(), mark);
    }
    ring.announce(Key::random().unwrap()).unwrap();
    assert_eq!(format.reset_token(&ring, "web", one.as_bytes()), Err(IdError::UnknownEpoch));
}

/// A server must not make reset tokens for another server's IDs, because it could end the
/// connections of that server.
#[test]
fn reset_token_of_another_server_cannot_be_made() {
    let format = IdFormat::new(12, 2).unwrap();
    let [one, other] = [[5, 0], [5, 1]].map(|id| IdGenerator::new(format, &id, ring()).unwrap());
    let id = one.generate();
    assert!(one.reset_token("web", id.as_bytes()).is_ok());
    assert_eq!(other.reset_token("web", id.as_bytes()), Err(IdError::Forged));
}

/// The expected values come from another implementation of SipHash.
#[test]
fn reset_token_matches_a_known_value() {
    let ring = KeyRing::new(Clock::Monotonic, Epoch::new(2).unwrap(), Key::from_bytes([7; 16]));
    let id = [0x4b, 0x5, 0x0, 0xe, 0x1d, 0x2c, 0x3b, 0x4a, 0xea, 0x68, 0xf6, 0x50];
    let token = IdFormat::new(12, 2).unwrap().reset_token(&ring, "quic", &id).unwrap();
    assert_eq!(token, 0xc793_f0a7_005e_ead5_7445_ac57_47c3_7cc6_u128.to_be_bytes());
}

/// An observer of two networks must not be able to link connection IDs by the server ID (RFC 9000
/// s.9.5).
#[test]
fn id_hides_the_server_and_is_read_with_the_ring() {
    let plain = IdFormat::new(12, 2).unwrap();
    assert_eq!(plain.hiding(3), Err(IdError::Format));
    assert_eq!(plain.hiding(0), Ok(plain));
    for hidden in [1, 2] {
        let format = plain.hiding(hidden).unwrap();
        let server = [9, 200];
        let ids = IdGenerator::new(format, &server, ring()).unwrap();
        let mut seen = [[0u32; 256]; 2];
        for _ in 0..4096 {
            let id = ids.generate();
            let bytes = id.as_bytes();
            assert_eq!(ids.open(bytes).unwrap().server_id[..2], server);
            // The check value covers the encrypted bytes, so a process that only checks IDs need
            // not know that bytes are encrypted.
            assert!(plain.open(&ring(), bytes).is_ok());
            for (at, seen) in seen.iter_mut().enumerate() {
                seen[usize::from(bytes[1 + at])] += 1;
            }
        }
        for (at, seen) in seen.iter().enumerate() {
            let most = seen.iter().max().unwrap();
            if at < 2 - hidden {
                assert_eq!(
                    (*most, seen[usize::from(server[at])]),
                    (4096, 4096),
                    "byte {at} is shown"
                );
            } else {
                // On average, each byte value occurs 16 times, with a standard deviation of 4.
                assert!(*most < 50, "byte {at}: one value {most} times");
            }
        }
        // Another ring must not decrypt anything.
        let other = KeyRing::new(Clock::Unix, ring().epoch(), Key::from_bytes([77; 16]));
        let id = ids.generate();
        assert_eq!(format.open(&other, id.as_bytes()), Err(IdError::Forged));
        for byte in 0..id.len() {
            let mut forged = id.as_bytes().to_vec();
            forged[byte] ^= 1;
            assert!(ids.open(&forged).is_err(), "byte {byte}");
        }
    }
}
