//! Tests Retry tokens under attack and during the rotation of keys.

use std::net::SocketAddr;
use std::time::Duration;

use equic_token::{
    Clock, ConnectionId, Epoch, Key, KeyRing, RetryToken, RingError, SealError, TokenError,
};
use proptest::prelude::*;

const NOW: u64 = 1_000_000_000;

fn ring() -> KeyRing {
    KeyRing::new(Clock::Monotonic, Epoch::new(2).unwrap(), Key::from_bytes([7; 16]))
}

fn id(bytes: &[u8]) -> ConnectionId {
    ConnectionId::new(bytes).unwrap()
}

fn client() -> SocketAddr {
    "192.0.2.1:4711".parse().unwrap()
}

fn sealed(ring: &KeyRing) -> [u8; RetryToken::LEN] {
    RetryToken::new(client(), id(&[1; 9]), id(&[2; 8]), NOW).seal(ring).unwrap()
}

fn open(ring: &KeyRing, token: &[u8]) -> Result<RetryToken, TokenError> {
    RetryToken::open(ring, NOW, client(), &[2; 8], token)
}

#[test]
fn token_contains_the_ids_of_the_transport_parameters() {
    let proof = open(&ring(), &sealed(&ring())).unwrap();
    assert_eq!((proof.original, proof.retry_source), (id(&[1; 9]), id(&[2; 8])));
    assert_eq!(proof.issued, NOW);
}

/// A server without a key must be able to read the original connection ID
/// (draft-ietf-quic-retry-offload s.3).
#[test]
fn token_begins_as_in_the_draft() {
    let token = sealed(&ring());
    assert_eq!(token[0], 9, "type 0 and the length");
    assert_eq!(token[1..10], [1; 9]);
}

#[test]
fn token_with_any_changed_bit_or_length_is_refused() {
    let token = sealed(&ring());
    for bit in 0..token.len() * 8 {
        let mut other = token;
        other[bit / 8] ^= 1 << (bit % 8);
        let error = open(&ring(), &other).expect_err("it was changed");
        if bit == 7 {
            assert_eq!(error, TokenError::NewToken);
        } else {
            assert_ne!(error, TokenError::NewToken, "bit {bit}");
        }
    }
    for length in 0..token.len() {
        assert_eq!(open(&ring(), &token[..length]), Err(TokenError::Malformed), "{length} bytes");
    }
    let longer = [&token[..], &[0]].concat();
    assert_eq!(open(&ring(), &longer), Err(TokenError::Malformed));
    assert_eq!(open(&ring(), &[0; 65_536]), Err(TokenError::Malformed));
    assert_eq!(open(&ring(), &[0xff; 65_536]), Err(TokenError::NewToken));
}

#[test]
fn token_is_bound_to_address_port_and_connection_id() {
    let token = sealed(&ring());
    let open = |remote: &str, dcid: &[u8]| {
        RetryToken::open(&ring(), NOW, remote.parse().unwrap(), dcid, &token).map(|_| ())
    };
    assert_eq!(open("192.0.2.1:4711", &[2; 8]), Ok(()));
    assert_eq!(open("[::ffff:192.0.2.1]:4711", &[2; 8]), Ok(()), "as a dual-stack socket has it");
    for other in ["192.0.2.2:4711", "192.0.2.1:4712", "[::192.0.2.1]:4711", "[2001:db8::1]:4711"] {
        assert_eq!(open(other, &[2; 8]), Err(TokenError::Forged), "{other}");
    }
    for dcid in [
        &[2; 7][..],
        &[2; 9],
        &[1; 9],
        &[],
        &[2, 2, 2, 2, 2, 2, 2, 3],
        &[2, 2, 2, 2, 2, 2, 2, 2, 0],
    ] {
        assert_eq!(open("192.0.2.1:4711", dcid), Err(TokenError::Forged), "{dcid:?}");
    }
    assert_eq!(open("192.0.2.1:4711", &[2; 21]), Err(TokenError::Forged));
    // The content that `authenticate` returns must include the client's address, for stacks that do
    // not report the source of a packet.
    let content = RetryToken::authenticate(&ring(), NOW, &token).unwrap();
    assert_eq!((content.client, content.retry_source), (client(), id(&[2; 8])));
}

#[test]
fn token_is_valid_for_its_lifetime() {
    let ring = ring().with_lifetime(Duration::from_secs(3));
    let token = sealed(&ring);
    let at = |now| RetryToken::open(&ring, now, client(), &[2; 8], &token).map(|_| ());
    assert_eq!(at(NOW), Ok(()));
    assert_eq!(at(NOW + 3000), Ok(()));
    assert_eq!(at(NOW + 3001), Err(TokenError::Expired));
    assert_eq!(at(u64::MAX), Err(TokenError::Expired));
    assert_eq!(at(NOW - 2000), Ok(()), "clocks may differ by two seconds");
    assert_eq!(at(NOW - 2001), Err(TokenError::Early));
    assert_eq!(at(0), Err(TokenError::Early));
}

#[test]
fn token_is_not_sealed_for_invalid_ids() {
    let seal = |original: &[u8], retry: &[u8]| {
        RetryToken::new(client(), id(original), id(retry), NOW).seal(&ring()).map(|_| ())
    };
    assert_eq!(seal(&[1; 7], &[2; 8]), Err(SealError::ConnectionId));
    assert_eq!(seal(&[1; 8], &[2; 7]), Err(SealError::ConnectionId));
    assert_eq!(seal(&[1; 8], &[1; 8]), Err(SealError::ConnectionId));
    assert_eq!(seal(&[1; 8], &[1; 9]), Ok(()));
    assert_eq!(seal(&[1; 20], &[2; 20]), Ok(()));
}

#[test]
fn keys_rotate_without_a_gap() {
    let mut gateway = ring();
    let mut server = KeyRing::from_bytes(&*gateway.to_bytes()).unwrap();
    let before = sealed(&gateway);
    let mut tokens = vec![before];
    for turn in 0..21 {
        assert_eq!(gateway.advance(), Err(RingError::NothingAnnounced));
        gateway.announce(Key::random().unwrap()).unwrap();
        assert_eq!(gateway.announce(Key::random().unwrap()), Err(RingError::Announced));
        // The gateway still uses the old key, because not every server has the new ring.
        tokens.push(sealed(&gateway));
        assert_eq!(open(&server, &tokens[tokens.len() - 1]).map(|_| ()), Ok(()), "turn {turn}");
        server = KeyRing::from_bytes(&*gateway.to_bytes()).unwrap();
        gateway.advance().unwrap();
        // The server must accept tokens of the new key, although its ring does not say yet that the
        // key is in use.
        tokens.push(sealed(&gateway));
        for token in tokens.iter().rev().take(3) {
            assert_eq!(open(&server, token).map(|_| ()), Ok(()), "turn {turn}");
        }
    }
    assert_eq!(
        open(&gateway, &before),
        Err(TokenError::Forged),
        "its epoch is another key's by now"
    );
    let known = (0..7).filter(|number| gateway.knows(Epoch::new(*number).unwrap())).count();
    assert_eq!(known, 6);
}

/// After enough rotations, the epoch of a token is unknown. One rotation later, the epoch has a new
/// key, and the token looks forged.
#[test]
fn token_of_a_rotated_out_key_is_told_from_a_forged_one() {
    let mut ring = ring();
    let token = sealed(&ring);
    let verdicts: Vec<_> = (0..7)
        .map(|_| {
            ring.announce(Key::random().unwrap()).unwrap();
            ring.advance().unwrap();
            open(&ring, &token).map(|_| ())
        })
        .collect();
    assert_eq!(verdicts[..5], [Ok(()); 5]);
    assert_eq!(verdicts[5..], [Err(TokenError::UnknownEpoch), Err(TokenError::Forged)]);
}

#[test]
fn keys_that_are_retired_open_no_token() {
    let mut ring = ring();
    let (token, old) = (sealed(&ring), ring.epoch());
    assert!(!ring.retire(old), "the current key stays");
    ring.announce(Key::random().unwrap()).unwrap();
    ring.advance().unwrap();
    assert_eq!(open(&ring, &token).map(|_| ()), Ok(()));
    assert!(ring.retire(old));
    assert_eq!(open(&ring, &token), Err(TokenError::UnknownEpoch));
    let another = KeyRing::generate(Clock::Monotonic).unwrap();
    assert!(open(&another, &token).is_err(), "another ring's");
}

#[test]
fn key_ring_round_trips_and_changed_bytes_are_refused() {
    let mut ring = ring().with_lifetime(Duration::from_millis(1234));
    ring.announce(Key::from_bytes([9; 16])).unwrap();
    let bytes = ring.to_bytes();
    let copy = KeyRing::from_bytes(&*bytes).unwrap();
    assert_eq!(*copy.to_bytes(), *bytes);
    assert_eq!((copy.lifetime(), copy.epoch()), (Duration::from_millis(1234), ring.epoch()));
    // Each case changes one part of the ring: the magic bytes, version, clock, epoch, a missing
    // key, or reserved bits.
    for (at, value) in [
        (0, 0),
        (4, 2),
        (5, 2),
        (6, 7),
        (6, 5),
        (7, 0),
        (7, 0xff),
        (7, 0x8c),
        (7, 0x0d),
        (12, 1),
        (15, 1),
    ] {
        let mut other = bytes.clone();
        other[at] = value;
        assert!(KeyRing::from_bytes(&*other).is_err(), "byte {at} = {value}");
    }
    assert!(KeyRing::from_bytes(&[0; KeyRing::LEN]).is_err());
    assert!(KeyRing::from_bytes(&bytes[1..]).is_err());
    assert!(KeyRing::from_bytes(&[&bytes[..], &[0]].concat()).is_err());
    let mut zero = bytes.clone();
    zero[16 + 2 * 16..][..16].fill(0);
    assert!(KeyRing::from_bytes(&*zero).is_err(), "nobody wrote the key");
}

#[test]
fn keys_are_not_shown_by_debug_output() {
    let key = Key::from_bytes(*b"a secret of mine");
    let shown =
        format!("{key:?} {:?}", KeyRing::new(Clock::Unix, Epoch::new(0).unwrap(), key.clone()));
    assert!(shown.contains("Key(..)") && shown.contains("current: 0"), "{shown}");
    for secret in ["secret", "97, 32", "6120", "61, 20"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

proptest! {
    #[test]
    fn token_round_trips(
        original in prop::collection::vec(any::<u8>(), 8..=20),
        retry in prop::collection::vec(any::<u8>(), 8..=20),
        address: std::net::IpAddr,
        port: u16,
        now in 0..1u64 << 48,
    ) {
        prop_assume!(original != retry);
        let remote = SocketAddr::new(address, port);
        let token = RetryToken::new(remote, id(&original), id(&retry), now);
        let bytes = token.seal(&ring()).unwrap();
        prop_assert_eq!(RetryToken::authenticate(&ring(), now, &bytes), Ok(token));
        prop_assert_eq!(RetryToken::open(&ring(), now, remote, &retry, &bytes), Ok(token));
    }

    #[test]
    fn token_of_any_bytes_causes_no_panic(token: Vec<u8>, dcid: Vec<u8>, now: u64) {
        prop_assert!(RetryToken::open(&ring(), now, client(), &dcid, &token).is_err());
    }
}
