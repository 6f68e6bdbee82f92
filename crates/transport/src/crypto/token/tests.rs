use std::collections::BTreeSet;

use rand::SeedableRng;
use rand::rngs::StdRng;

use super::*;

const NOW: Duration = Duration::from_secs(1_800_000_000);
const LIFETIME: Duration = Duration::from_secs(15);

fn key(secret: u8) -> TokenSealer {
    let suite = rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256.tls13().unwrap();
    TokenSealer::new(suite.quic_suite().unwrap(), [secret; TOKEN_KEY_LEN].into())
}

fn future(address: &str, version: KnownVersion) -> Token {
    Token::Future {
        address: address.parse().unwrap(),
        version,
        validity: Validity::new(NOW, LIFETIME),
    }
}

fn tokens() -> [Token; 4] {
    let id = |bytes: &[u8]| ConnectionId::new(bytes).unwrap();
    let validity = Validity::new(NOW, LIFETIME);
    [
        Token::Retry {
            remote: "192.0.2.1:443".parse().unwrap(),
            original: id(&[7; 20]),
            retry: id(&[8; 20]),
            validity,
        },
        Token::Retry {
            remote: "[2001:db8::1]:1".parse().unwrap(),
            original: id(&[1; 8]),
            retry: id(&[2]),
            validity: Validity::new(Duration::MAX, Duration::MAX),
        },
        future("192.0.2.1", KnownVersion::V1),
        future("2001:db8::1", KnownVersion::V2),
    ]
}

/// Returns the name of a token's batch, which only the holder of the secret can read.
fn batch(key: &TokenSealer, token: &[u8]) -> BatchName {
    let (salt, sealed) = token.split_first_chunk::<SALT_LEN>().unwrap();
    let mut salt = *salt;
    key.mask_salt(&mut salt, sealed).unwrap();
    *salt.last_chunk().unwrap()
}

// RFC 9000 s.8.1.1 #1
#[test]
fn token_that_was_sealed_is_opened() {
    let mut rng = StdRng::seed_from_u64(1);
    for token in tokens() {
        let bytes = key(1).seal(&token, &mut rng).unwrap();
        assert!(bytes.len() <= MAX_TOKEN);
        assert_eq!(key(1).open(&bytes), Some(token));
        assert_eq!(bytes[0] >= FUTURE_BIT, matches!(token, Token::Future { .. }));
        assert_eq!(key(2).open(&bytes), None, "another secret does not open the token");
        assert_ne!(key(1).seal(&token, &mut rng).unwrap(), bytes, "two tokens differ");
    }
}

// RFC 9000 s.8.1.3 #5
#[test]
fn token_keys_are_of_a_batch_and_are_remembered() {
    let mut rng = StdRng::seed_from_u64(3);
    let (mut here, there) = (key(1), key(1));
    let [token, ..] = tokens();
    let first = here.seal(&token, &mut rng).unwrap();
    let second = here.seal(&token, &mut rng).unwrap();
    assert_eq!(batch(&here, &first), batch(&there, &second));
    assert_ne!(first[SALT_LEN..], second[SALT_LEN..], "each token has its own nonce");
    here.own.as_mut().unwrap().left = 0;
    let later = here.seal(&token, &mut rng).unwrap();
    assert_ne!(batch(&here, &first), batch(&here, &later));
    assert_eq!(here.own.as_ref().unwrap().left, BATCH - 1);
    // Both endpoints must open tokens of an earlier batch, and tokens that the other endpoint has
    // sealed.
    for end in [&here, &there] {
        for bytes in [&first, &later, &second, &first] {
            assert_eq!(end.open(bytes), Some(token));
        }
    }
    let count = |end: &TokenSealer| end.known.lock().unwrap().len();
    assert_eq!((count(&here), count(&there)), (1, 2));
    // Invalid tokens must evict no keys. Valid tokens may evict the least recently used keys.
    for _ in 0..3 * KNOWN {
        let mut forged = first.clone();
        rng.fill_bytes(&mut forged[NUMBER_LEN..SALT_LEN]);
        assert_eq!(there.open(&forged), None);
    }
    assert_eq!(count(&there), 2);
    for _ in 0..3 * KNOWN {
        here.own.as_mut().unwrap().left = 0;
        assert_eq!(there.open(&here.seal(&token, &mut rng).unwrap()), Some(token));
    }
    assert_eq!(count(&there), KNOWN);
    assert_eq!(there.open(&first), Some(token), "the key is derived again");
}

// RFC 9000 s.8.1.4 #1 #2
#[test]
fn token_is_void_if_any_bit_changes() {
    let mut rng = StdRng::seed_from_u64(2);
    let bytes = key(1).seal(&tokens()[0], &mut rng).unwrap();
    for bit in 0..bytes.len() * 8 {
        let mut other = bytes.clone();
        other[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(key(1).open(&other), None, "bit {bit}");
    }
    for len in 0..bytes.len() {
        assert_eq!(key(1).open(&bytes[..len]), None, "{len} bytes");
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert_eq!(key(1).open(&longer), None);
    assert_eq!(key(1).open(&[0; 1200]), None);
}

/// Returns the fraction of bits in which two tokens differ.
fn differing(one: &[u8], other: &[u8]) -> f64 {
    let bits: u32 = one.iter().zip(other).map(|(one, other)| (one ^ other).count_ones()).sum();
    f64::from(bits) / (one.len() * 8) as f64
}

/// RFC 9000 s.8.1.3: an observer must not be able to link a token to the connection on which it was
/// issued. So tokens for one address must look like random numbers, both within a batch and across
/// a change of the batch.
// RFC 9000 s.8.1.3 #4
#[test]
fn token_shows_neither_order_nor_batch() {
    const COUNT: usize = 4096;
    let mut rng = StdRng::seed_from_u64(4);
    let mut sealer = key(1);
    let mut given = Vec::new();
    for number in 0..COUNT {
        if number == COUNT / 2 {
            sealer.own.as_mut().unwrap().left = 0;
        }
        // The server also seals Retry tokens between the NEW_TOKEN tokens.
        let [retry, ..] = tokens();
        sealer.seal(&retry, &mut rng).unwrap();
        given.push(sealer.seal(&future("192.0.2.1", KnownVersion::V1), &mut rng).unwrap());
    }
    let length = given[0].len();
    assert!(given.iter().all(|token| token.len() == length && token[0] & FUTURE_BIT != 0));

    // Each bit except the first must be set in half of the tokens. The standard deviation of this
    // fraction is 1/128.
    for bit in 1..length * 8 {
        let set = given.iter().filter(|token| token[bit / 8] & 0x80 >> (bit % 8) != 0).count();
        let share = set as f64 / COUNT as f64;
        assert!((share - 0.5).abs() < 5.0 / 128.0, "bit {bit} is set in {share}");
    }

    // Consecutive tokens must differ in half of their bits, like tokens of different batches.
    let mean = |distance: usize| {
        let pairs = given.iter().zip(&given[distance..]);
        pairs.map(|(one, other)| differing(&one[1..], &other[1..])).sum::<f64>()
            / (COUNT - distance) as f64
    };
    for distance in [1, 2, COUNT / 2] {
        let mean = mean(distance);
        assert!((mean - 0.5).abs() < 0.002, "{distance} apart: {mean} of the bits differ");
    }

    // No word of the tokens may increase or decrease steadily. From one token to the next, it must
    // increase in half of the cases.
    for at in 0..length - 8 {
        let word = |token: &[u8]| u64::from_be_bytes(token[at..at + 8].try_into().unwrap()) << 1;
        let rises = given.windows(2).filter(|pair| word(&pair[0]) < word(&pair[1])).count();
        // The standard deviation of the number of increases is sqrt(COUNT / 12) = 18.
        assert!(rises.abs_diff(COUNT / 2) < 100, "{rises} rises at byte {at}");
    }

    // No value of four bytes at the same position of the salt may repeat more often than random
    // values would. 4096 tokens form 2^23 pairs, and there are 2^32 values, so about 0.002
    // repetitions are expected.
    for at in 1..=SALT_LEN - 4 {
        let words: BTreeSet<&[u8]> = given.iter().map(|token| &token[at..at + 4]).collect();
        assert!(words.len() >= COUNT - 4, "{} words at byte {at}", words.len());
    }
}

#[test]
fn token_validity_is_bounded_by_both_servers_and_by_skew() {
    let second = Duration::from_secs(1);
    let validity = Validity::new(NOW, LIFETIME);
    for (now, lifetime, valid) in [
        (NOW, LIFETIME, true),
        (NOW + LIFETIME - second, LIFETIME, true),
        (NOW + LIFETIME, LIFETIME, false),
        // The server that opens the token has a longer lifetime configured.
        (NOW + LIFETIME, LIFETIME * 4, false),
        (NOW + second * 5, second * 5, false),
        // The clock of the server that opens the token is behind.
        (NOW - CLOCK_SKEW, LIFETIME, true),
        (NOW - CLOCK_SKEW - second, LIFETIME, false),
        (Duration::ZERO, LIFETIME, false),
    ] {
        assert_eq!(validity.holds(now, lifetime), valid, "{now:?} {lifetime:?}");
    }
}
