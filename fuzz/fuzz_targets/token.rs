//! Fuzzes Retry tokens, connection IDs and key rings. Nothing may panic. A token or ID must be
//! rejected if it was not made with the key, or if it was changed afterwards.
#![no_main]

use equic_token::{Clock, ConnectionId, Epoch, IdFormat, Key, KeyRing, RetryToken};
use libfuzzer_sys::fuzz_target;

// The first bytes of the input select the values that are sealed, and how the result is changed.
// The rest is what an attacker sends.
fuzz_target!(|data: &[u8]| {
    let Some((head, rest)) = data.split_at_checked(8) else { return };
    let epoch = Epoch::new(head[0] % 7).expect("under 7");
    let ring = KeyRing::new(Clock::Monotonic, epoch, Key::from_bytes([7; 16]));
    let remote = ([192, 0, 2, head[1]], 443).into();
    let dcid = rest.get(..usize::from(head[2] % 24)).unwrap_or(rest);
    let now = u64::from(head[3]) << 32;
    // The key ring would accept these bytes only if they contained the right 64-bit SipHash, which
    // the fuzzer cannot guess.
    assert!(RetryToken::open(&ring, now, remote, dcid, rest).is_err());
    if let Ok(ring) = KeyRing::from_bytes(rest) {
        assert_eq!(ring.to_bytes()[..16], rest[..16]);
    }
    if let Ok(format) = IdFormat::new(usize::from(head[4]), usize::from(head[5])) {
        let _ = format.open(&ring, rest);
        let server = vec![head[1]; format.server_id_len()];
        let id = format.seal(&ring, &server, u128::from(now)).expect("the lengths go together");
        let mut bytes = id.as_bytes().to_vec();
        assert!(format.open(&ring, &bytes).is_ok());
        let at = usize::from(head[6]) % bytes.len();
        bytes[at] ^= head[7].max(1);
        // A change to the authenticated bytes has a chance of 1 in 2^32 to result in the same check
        // value, so such an ID may be accepted. A changed check value must always be rejected.
        assert!(format.open(&ring, &bytes).is_err() || at < bytes.len() - 4);
    }
    let (Ok(original), Ok(retry)) =
        (ConnectionId::new(dcid), ConnectionId::new(rest.get(..9).unwrap_or_default()))
    else {
        return;
    };
    if let Ok(mut token) = RetryToken::new(remote, original, retry, now).seal(&ring) {
        let proof = RetryToken::open(&ring, now, remote, retry.as_bytes(), &token);
        assert_eq!(proof.map(|proof| proof.original), Ok(original));
        token[usize::from(head[6]) % RetryToken::LEN] ^= head[7].max(1);
        assert!(RetryToken::open(&ring, now, remote, retry.as_bytes(), &token).is_err());
    }
});
