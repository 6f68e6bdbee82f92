//! Tests of the packet keys. They compare these keys with rustls's.

use rand::{Rng as _, RngCore as _, SeedableRng as _, rngs::StdRng};
use rustls::quic::{Keys, Version};
use rustls::{CipherSuite, Side};

use super::key::{Cipher, TAG_LEN};
use super::*;

/// Returns the keys of Initial packets for each cipher suite: ours and rustls's.
fn pairs() -> impl Iterator<Item = (CipherSuite, [Keys; 2], [Keys; 2])> {
    let keys = |suite: &SupportedCipherSuite| {
        let suite = suite.tls13().unwrap().quic_suite().unwrap();
        [Side::Client, Side::Server].map(|side| suite.keys(&[7; 8], side, Version::V1))
    };
    let is_tls13 = |suite: &SupportedCipherSuite| suite.tls13().is_some();
    let ours = aws_lc_provider().cipher_suites.into_iter().filter(is_tls13);
    let theirs = default_provider().cipher_suites.into_iter().filter(is_tls13);
    ours.zip(theirs).map(move |(ours, theirs)| {
        assert_eq!(ours.suite(), theirs.suite());
        (ours.suite(), keys(&ours), keys(&theirs))
    })
}

fn sealed(key: &dyn PacketKey, path: u32, number: u64, header: &[u8], data: &[u8]) -> Vec<u8> {
    let mut payload = data.to_vec();
    let tag = match path {
        0 => key.encrypt_in_place(number, header, &mut payload),
        path => key.encrypt_in_place_for_path(path, number, header, &mut payload),
    };
    payload.extend_from_slice(tag.unwrap().as_ref());
    payload
}

#[test]
fn aead_seals_like_rustls() {
    let mut rng = StdRng::seed_from_u64(0x5eed);
    let mut suites = 0;
    for (suite, [ours, _], [theirs, peer]) in pairs() {
        suites += 1;
        for round in 0..200 {
            let mut data = vec![0; rng.random_range(0..1500)];
            let mut header = vec![0; rng.random_range(1..30)];
            rng.fill_bytes(&mut data);
            rng.fill_bytes(&mut header);
            let number = rng.next_u64() >> rng.random_range(2..64);
            let path = if round % 2 == 0 { 0 } else { rng.next_u32() };
            let packet = sealed(&*ours.local.packet, path, number, &header, &data);
            let wanted = sealed(&*theirs.local.packet, path, number, &header, &data);
            assert_eq!(packet, wanted, "{suite:?} {path} {number}");
            let mut answer = sealed(&*peer.local.packet, path, number, &header, &data);
            let key = &ours.remote.packet;
            let opened = match path {
                0 => key.decrypt_in_place(number, &header, &mut answer),
                path => key.decrypt_in_place_for_path(path, number, &header, &mut answer),
            };
            assert_eq!(opened.unwrap(), data, "{suite:?} {path} {number}");
        }
    }
    assert_eq!(suites, 3);
}

/// Opening a packet into another buffer gives the same result as opening it in place.
fn is_opened_to_other_memory<C: Cipher>(key: &SharedKey<C>, rng: &mut StdRng) {
    let opener = key.offered();
    for _ in 0..200 {
        let mut data = vec![0; rng.random_range(0..1500)];
        let mut header = vec![0; rng.random_range(1..30)];
        rng.fill_bytes(&mut data);
        rng.fill_bytes(&mut header);
        let (path, number) = (rng.next_u32(), rng.next_u64() >> 2);
        let mut packet = sealed(key, path, number, &header, &data);
        let mut to = vec![0; data.len()];
        assert!(opener.open_to(path, number, &header, &packet, &mut to));
        assert_eq!(to, data);
        assert!(!opener.open_to(path ^ 1, number, &header, &packet, &mut to));
        assert!(!opener.open_to(path, number ^ 1, &header, &packet, &mut to));
        assert!(!opener.open_to(path, number, &header[1..], &packet, &mut to));
        let at = rng.random_range(0..packet.len());
        packet[at] ^= 1 << rng.random_range(0..8);
        assert!(!opener.open_to(path, number, &header, &packet, &mut to));
        let mut in_place = packet.clone();
        let opened = key.decrypt_in_place_for_path(path, number, &header, &mut in_place);
        assert!(opened.is_err());
    }
    for length in 0..TAG_LEN {
        assert!(!opener.open_to(0, 0, &[], &vec![0; length], &mut []));
    }
    // The buffer must have exactly the length of the plaintext.
    let packet = sealed(key, 0, 0, &[], b"data");
    assert!(opener.open_to(0, 0, &[], &packet, &mut [0; 4]));
    assert!(!opener.open_to(0, 0, &[], &packet, &mut [0; 3]));
    assert!(!opener.open_to(0, 0, &[], &packet, &mut [0; 5]));
}

#[test]
fn aead_opens_into_another_buffer() {
    let mut rng = StdRng::seed_from_u64(0x5eed);
    for algorithm in [&AES_128_GCM, &AES_256_GCM, &CHACHA20_POLY1305] {
        let iv = Iv::from(rng.random::<[u8; 12]>());
        let secret = &[7; 32][..algorithm.key_len()];
        let key = LessSafeKey::new(UnboundKey::new(algorithm, secret).unwrap());
        is_opened_to_other_memory(&SharedKey::new(key, &iv), &mut rng);
        #[cfg(all(feature = "boringssl", target_arch = "x86_64"))]
        match boringssl(algorithm, secret) {
            Some(key) => is_opened_to_other_memory(&SharedKey::new(key, &iv), &mut rng),
            None => assert_eq!(algorithm, &CHACHA20_POLY1305),
        }
    }
}

/// The provider's keys call the library of the feature. The ciphertext does not show that, because
/// both libraries compute the same.
#[test]
fn aead_calls_the_library_of_the_feature() {
    let wanted = cfg!(all(feature = "boringssl", target_arch = "x86_64"));
    assert_eq!(AWS_LC_PROVIDER_LIBRARIES.contains("BoringSSL"), wanted);
    for (keys, by_boringssl) in [(&AES_128, wanted), (&AES_256, wanted), (&CHACHA20, false)] {
        let keys = keys.as_ref().unwrap();
        let made = keys.make(&[7; 32][..keys.aead_key_len()], &Iv::from([0; 12])).unwrap();
        assert_eq!(!matches!(made, Made::AwsLc(_)), by_boringssl, "{:?}", keys.algorithm);
    }
}

/// With the feature, BoringSSL provides AES-GCM, and only for keys of the right length.
#[cfg(all(feature = "boringssl", target_arch = "x86_64"))]
#[test]
fn aead_aes_gcm_is_from_boringssl() {
    for (algorithm, wanted) in [(&AES_128_GCM, 16), (&AES_256_GCM, 32), (&CHACHA20_POLY1305, 0)] {
        for length in [0, 15, 16, 17, 32] {
            let made = boringssl(algorithm, &[7; 32][..length]).is_some();
            assert_eq!(made, length == wanted && wanted > 0, "{algorithm:?} {length}");
        }
    }
}

#[test]
fn aead_rejects_every_change() {
    for (suite, [ours, _], [_, peer]) in pairs() {
        let header = [0x41, 7, 8, 9];
        let packet = sealed(&*peer.local.packet, 1, 3, &header, b"data");
        let open = |path, number, header: &[u8], mut packet: Vec<u8>| {
            let key = &ours.remote.packet;
            key.decrypt_in_place_for_path(path, number, header, &mut packet).is_ok()
        };
        assert!(open(1, 3, &header, packet.clone()), "{suite:?}");
        assert!(!open(1, 4, &header, packet.clone()));
        assert!(!open(1, 3 | 1 << 32, &header, packet.clone()));
        assert!(!open(0, 3, &header, packet.clone()));
        assert!(!open(1, 3, &header[..3], packet.clone()));
        for at in 0..packet.len() {
            let mut changed = packet.clone();
            changed[at] ^= 0x10;
            assert!(!open(1, 3, &header, changed), "{suite:?} {at}");
        }
        for length in 0..packet.len() {
            assert!(!open(1, 3, &header, packet[..length].to_vec()), "{suite:?} {length}");
        }
    }
}

#[test]
fn aead_limits_and_lengths_are_those_of_rustls() {
    for (suite, ours, theirs) in pairs() {
        for (ours, theirs) in ours.iter().zip(&theirs) {
            let of = |key: &dyn PacketKey| {
                (key.confidentiality_limit(), key.integrity_limit(), key.tag_len())
            };
            assert_eq!(of(&*ours.local.packet), of(&*theirs.local.packet), "{suite:?}");
            assert_eq!(of(&*ours.remote.packet), of(&*theirs.remote.packet), "{suite:?}");
        }
    }
}

/// The default provider uses our keys. Otherwise these tests would compare rustls's keys with
/// themselves.
#[test]
fn aead_is_ours_by_default() {
    let makers = |provider: &CryptoProvider| -> Vec<*const ()> {
        let tls13 = provider.cipher_suites.iter().filter_map(SupportedCipherSuite::tls13);
        tls13.map(|suite| std::ptr::from_ref(suite.quic.unwrap()).cast()).collect()
    };
    let (ours, theirs) = (makers(&aws_lc_provider()), makers(&default_provider()));
    assert!(ours.len() == 3 && ours.iter().all(|maker| !theirs.contains(maker)));
    assert_eq!(makers(&crate::config::built_in().unwrap()), ours);
}

#[test]
fn aead_rest_of_the_provider_is_rustls() {
    let (ours, theirs) = (aws_lc_provider(), default_provider());
    let ids = |provider: &CryptoProvider| -> Vec<CipherSuite> {
        provider.cipher_suites.iter().map(SupportedCipherSuite::suite).collect()
    };
    assert_eq!(ids(&ours), ids(&theirs));
    assert_eq!(ours.kx_groups.len(), theirs.kx_groups.len());
}
