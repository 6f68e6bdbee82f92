//! Compares BoringSSL's AES-GCM, as used for packets, with that of AWS-LC. For the same message,
//! both must produce the same ciphertext and tag. For any input, both must decrypt it to the same
//! text, or both must reject it. Messages are decrypted in place and into another buffer.
//!
//! BoringSSL contains one table twice, which AddressSanitizer reports as an error. Disable this
//! check:
//!
//!     ASAN_OPTIONS=detect_odr_violation=0 cargo +nightly fuzz run aes_gcm
#![no_main]

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use equic_boringssl::{AesGcm, NONCE_LEN, TAG_LEN};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((first, rest)) = input.split_first_chunk::<2>() else { return };
    let (algorithm, length) =
        if first[0] % 2 == 0 { (&AES_128_GCM, 16) } else { (&AES_256_GCM, 32) };
    let Some((secret, rest)) = rest.split_at_checked(length) else { return };
    let Some((nonce, rest)) = rest.split_first_chunk::<NONCE_LEN>() else { return };
    let (header, message) = rest.split_at(rest.len().min(first[1].into()));
    let ours = AesGcm::new(secret).expect("a key of the right length");
    let theirs = LessSafeKey::new(UnboundKey::new(algorithm, secret).expect("a key as well"));
    let fresh = || Nonce::assume_unique_for_key(*nonce);

    let (mut sealed, mut wanted) = (message.to_vec(), message.to_vec());
    let tag = ours.seal_in_place(nonce, header, &mut sealed).expect("a short message");
    let wanted_tag = theirs
        .seal_in_place_separate_tag(fresh(), Aad::from(header), &mut wanted)
        .expect("a short message");
    assert_eq!((&sealed, &tag[..]), (&wanted, wanted_tag.as_ref()));
    let mut opened = vec![0; message.len()];
    assert!(ours.open_to(nonce, header, &sealed, &tag, &mut opened));
    assert_eq!(opened, message);
    assert!(ours.open_in_place(nonce, header, &mut sealed, &tag));
    assert_eq!(sealed, message);

    // The input is used as ciphertext and tag. Both implementations must decrypt it, or both must
    // reject it.
    if let Some((data, tag)) = message.split_last_chunk::<TAG_LEN>() {
        let (mut here, mut there) = (data.to_vec(), data.to_vec());
        let mut elsewhere = vec![0; data.len()];
        let opens = ours.open_in_place(nonce, header, &mut here, tag);
        let theirs =
            theirs.open_in_place_separate_tag(fresh(), Aad::from(header), tag, &mut there).is_ok();
        assert_eq!(opens, theirs);
        assert_eq!(ours.open_to(nonce, header, data, tag, &mut elsewhere), opens);
        assert!(!ours.open_to(nonce, header, data, tag, &mut vec![0; data.len() + 1]));
        if opens {
            assert_eq!((&here, &elsewhere), (&there, &there));
        }
    }
});
