//! A safe interface to BoringSSL's AES-GCM (NIST SP 800-38D, RFC 5116). It supports only what QUIC
//! packets (RFC 9001 s.5.3) and TLS 1.3 records (RFC 8446 s.5.2) need: nonces of 12 bytes and tags
//! of 16 bytes.
//!
//! ```
//! use equic_boringssl::AesGcm;
//!
//! let key = AesGcm::new(&[7; 16]).expect("16 bytes are a key of AES-128");
//! let mut message = *b"message";
//! let tag = key.seal_in_place(&[1; 12], b"header", &mut message).expect("it is short");
//! let mut opened = [0; 7];
//! assert!(key.open_to(&[1; 12], b"header", &message, &tag, &mut opened));
//! assert_eq!(&opened, b"message");
//! ```
//!
//! The crate is empty without its feature `boringssl`. It is also empty on CPUs other than x86-64,
//! because its speed was measured only on x86-64.
//!
//! The caller must never use the same nonce twice with the same key. Two messages with the same key
//! and nonce reveal each other's content and the authentication key. This crate does not check for
//! that.

#![cfg(all(feature = "boringssl", target_arch = "x86_64"))]

use std::fmt;
use std::ptr::{self, NonNull};

use boring_sys as ffi;

/// Length of a nonce in bytes.
pub const NONCE_LEN: usize = 12;
/// Length of a tag in bytes.
pub const TAG_LEN: usize = 16;

/// A key for AES-128-GCM or AES-256-GCM. When the value is dropped, BoringSSL overwrites the key
/// with zeros.
pub struct AesGcm(NonNull<ffi::EVP_AEAD_CTX>);

// SAFETY: this value owns the BoringSSL context, which is not bound to a thread.
unsafe impl Send for AesGcm {}
// SAFETY: BoringSSL's seal and open functions take a constant context and "may be called
// concurrently with [themselves] or any other seal/open function on the same EVP_AEAD_CTX"
// (openssl/aead.h).
unsafe impl Sync for AesGcm {}

impl AesGcm {
    /// Creates a key for AES-128 from 16 bytes, or for AES-256 from 32 bytes. Returns `None` for
    /// any other length, or if memory cannot be allocated.
    pub fn new(key: &[u8]) -> Option<AesGcm> {
        // SAFETY: both functions take no argument and return the address of a static.
        let algorithm = unsafe {
            match key.len() {
                16 => ffi::EVP_aead_aes_128_gcm(),
                32 => ffi::EVP_aead_aes_256_gcm(),
                _ => return None,
            }
        };
        // SAFETY: `algorithm` is a static of BoringSSL, and `key` has `key.len()` bytes.
        let context = unsafe { ffi::EVP_AEAD_CTX_new(algorithm, key.as_ptr(), key.len(), TAG_LEN) };
        NonNull::new(context).map(AesGcm)
    }

    /// Encrypts `data` in place, and returns the tag, which authenticates `header` and `data`.
    /// Returns `None` if BoringSSL refuses, for example for 64 GiB of data. The content of `data`
    /// is then unspecified.
    #[inline]
    pub fn seal_in_place(
        &self,
        nonce: &[u8; NONCE_LEN],
        header: &[u8],
        data: &mut [u8],
    ) -> Option<[u8; TAG_LEN]> {
        let mut tag = [0; TAG_LEN];
        let mut tag_len = 0;
        let place = data.as_mut_ptr();
        // SAFETY: the context is initialised and not freed. Each pointer is passed with the length
        // of its buffer. `out` and `in` are the same writable memory, which BoringSSL allows.
        // `extra_in` is null with length 0.
        let sealed = unsafe {
            ffi::EVP_AEAD_CTX_seal_scatter(
                self.0.as_ptr(),
                place,
                tag.as_mut_ptr(),
                &raw mut tag_len,
                TAG_LEN,
                nonce.as_ptr(),
                NONCE_LEN,
                place,
                data.len(),
                ptr::null(),
                0,
                header.as_ptr(),
                header.len(),
            )
        };
        (sealed == 1 && tag_len == TAG_LEN).then_some(tag)
    }

    /// Decrypts `data` in place. Returns `true` if the tag proves that `data` and `header` are
    /// authentic. Otherwise, the content of `data` is unspecified.
    #[inline]
    pub fn open_in_place(
        &self,
        nonce: &[u8; NONCE_LEN],
        header: &[u8],
        data: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> bool {
        let place = data.as_mut_ptr();
        // SAFETY: `place` points to all of `data`, which may be read and written.
        unsafe { self.open(nonce, header, place, data.len(), tag, place) }
    }

    /// Decrypts `data` into `to`. Returns `true` if the tag proves that `data` and `header` are
    /// authentic, and `to` is as long as `data`. Otherwise, the content of `to` is unspecified.
    #[inline]
    pub fn open_to(
        &self,
        nonce: &[u8; NONCE_LEN],
        header: &[u8],
        data: &[u8],
        tag: &[u8; TAG_LEN],
        to: &mut [u8],
    ) -> bool {
        if data.len() != to.len() {
            return false;
        }
        // SAFETY: both buffers have `data.len()` bytes, and `to` may be written. They do not
        // overlap, because `to` is borrowed mutably.
        unsafe { self.open(nonce, header, data.as_ptr(), data.len(), tag, to.as_mut_ptr()) }
    }

    /// Decrypts `data` into `to`. Returns `true` if the tag proves that `data` and `header` are
    /// authentic.
    ///
    /// # Safety
    /// `data` and `to` must point to `length` bytes each, and `to` must be writable. They must be
    /// the same memory, or must not overlap.
    #[inline]
    unsafe fn open(
        &self,
        nonce: &[u8; NONCE_LEN],
        header: &[u8],
        data: *const u8,
        length: usize,
        tag: &[u8; TAG_LEN],
        to: *mut u8,
    ) -> bool {
        // SAFETY: the context is initialised and not freed. The caller guarantees that `data` and
        // `to` are valid. The other pointers are passed with the lengths of their buffers.
        let opened = unsafe {
            ffi::EVP_AEAD_CTX_open_gather(
                self.0.as_ptr(),
                to,
                nonce.as_ptr(),
                NONCE_LEN,
                data,
                length,
                tag.as_ptr(),
                TAG_LEN,
                header.as_ptr(),
                header.len(),
            )
        };
        opened == 1
    }
}

impl Drop for AesGcm {
    fn drop(&mut self) {
        // SAFETY: the context came from `EVP_AEAD_CTX_new`, and is not used after this.
        unsafe { ffi::EVP_AEAD_CTX_free(self.0.as_ptr()) }
    }
}

impl fmt::Debug for AesGcm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AesGcm").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
    use rand::{Rng as _, RngCore as _, SeedableRng as _, rngs::StdRng};

    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.chars().map(|c| c.to_digit(16).unwrap() as u8).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    /// Checks test cases 4 and 16 of McGrew and Viega, "The Galois/Counter Mode of Operation
    /// (GCM)", Appendix B.
    #[test]
    fn aes_gcm_matches_published_vectors() {
        let header = bytes("feedfacedeadbeeffeedfacedeadbeefabaddad2");
        let nonce: [u8; NONCE_LEN] = bytes("cafebabefacedbaddecaf888").try_into().unwrap();
        let plain = bytes(
            "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525\
             b16aedf5aa0de657ba637b39",
        );
        let cases = [
            (
                "feffe9928665731c6d6a8f9467308308",
                "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e21d514b25466931c7d8f6a5aac84aa05\
                 1ba30b396a0aac973d58e091",
                "5bc94fbc3221a5db94fae95ae7121a47",
            ),
            (
                "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308",
                "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838\
                 c5f61e6393ba7a0abcc9f662",
                "76fc6ece0f4e1768cddf8853bb2d551b",
            ),
        ];
        for (key, cipher, tag) in cases {
            let key = AesGcm::new(&bytes(key)).unwrap();
            let mut data = plain.clone();
            let made = key.seal_in_place(&nonce, &header, &mut data).unwrap();
            assert_eq!((&data, &made[..]), (&bytes(cipher), &bytes(tag)[..]));
            assert!(key.open_in_place(&nonce, &header, &mut data, &made));
            assert_eq!(data, plain);
        }
    }

    /// For all lengths of packets and for two long messages, this crate must produce the same
    /// ciphertext and tag as AWS-LC, and must decrypt them.
    #[test]
    fn aes_gcm_gives_the_same_output_as_aws_lc() {
        let mut rng = StdRng::seed_from_u64(0x5eed);
        for algorithm in [&AES_128_GCM, &AES_256_GCM] {
            let mut key = vec![0; algorithm.key_len()];
            rng.fill_bytes(&mut key);
            let ours = AesGcm::new(&key).unwrap();
            let theirs = LessSafeKey::new(UnboundKey::new(algorithm, &key).unwrap());
            for length in (0..1600).chain([16_384, 65_000]) {
                let (mut plain, mut header) = (vec![0; length], vec![0; rng.random_range(0..50)]);
                rng.fill_bytes(&mut plain);
                rng.fill_bytes(&mut header);
                let nonce: [u8; NONCE_LEN] = rng.random();
                let mut data = plain.clone();
                let tag = ours.seal_in_place(&nonce, &header, &mut data).unwrap();
                let mut wanted = plain.clone();
                let wanted_tag = theirs
                    .seal_in_place_separate_tag(
                        Nonce::assume_unique_for_key(nonce),
                        Aad::from(&header),
                        &mut wanted,
                    )
                    .unwrap();
                assert_eq!((&data, &tag[..]), (&wanted, wanted_tag.as_ref()), "{length}");
                let mut to = vec![0; length];
                assert!(ours.open_to(&nonce, &header, &data, &tag, &mut to), "{length}");
                assert_eq!(to, plain);
                assert!(ours.open_in_place(&nonce, &header, &mut data, &tag), "{length}");
                assert_eq!(data, plain);
            }
        }
    }

    #[test]
    fn aes_gcm_refuses_any_changed_input() {
        let key = AesGcm::new(&[7; 16]).unwrap();
        let (nonce, header) = ([3; NONCE_LEN], [5; 9]);
        for length in [0, 1, 15, 16, 17, 100, 1424] {
            let mut data = vec![9; length];
            let tag = key.seal_in_place(&nonce, &header, &mut data).unwrap();
            let opens =
                |nonce: &[u8; NONCE_LEN], header: &[u8], data: &[u8], tag: &[u8; TAG_LEN]| {
                    let mut to = vec![0; data.len()];
                    let opens = key.open_to(nonce, header, data, tag, &mut to);
                    assert_eq!(key.open_in_place(nonce, header, &mut data.to_vec(), tag), opens);
                    opens
                };
            assert!(opens(&nonce, &header, &data, &tag));
            assert!(!opens(&[4; NONCE_LEN], &header, &data, &tag));
            assert!(!opens(&nonce, &header[1..], &data, &tag));
            assert!(!opens(&nonce, &[6; 9], &data, &tag));
            for at in 0..TAG_LEN {
                let mut tag = tag;
                tag[at] ^= 1;
                assert!(!opens(&nonce, &header, &data, &tag));
            }
            for at in 0..length {
                let mut data = data.clone();
                data[at] ^= 0x80;
                assert!(!opens(&nonce, &header, &data, &tag), "{length}: {at}");
            }
            if length > 0 {
                assert!(!opens(&nonce, &header, &data[1..], &tag));
            }
            // Decryption must fail if the output buffer is not exactly as long as the data.
            assert!(!key.open_to(&nonce, &header, &data, &tag, &mut vec![0; length + 1]));
            if length > 0 {
                assert!(!key.open_to(&nonce, &header, &data, &tag, &mut vec![0; length - 1]));
            }
        }
    }

    #[test]
    fn aes_gcm_key_has_16_or_32_bytes() {
        for length in 0..70 {
            assert_eq!(AesGcm::new(&vec![1; length]).is_some(), matches!(length, 16 | 32));
        }
        assert_eq!(format!("{:?}", AesGcm::new(&[1; 16]).unwrap()), "AesGcm { .. }");
    }

    /// Several threads use one key at the same time, as QUIC connections in several threads do.
    #[test]
    fn aes_gcm_key_can_be_shared_by_threads() {
        let key = AesGcm::new(&[7; 32]).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let key = &key;
                scope.spawn(move || {
                    for round in 0..2000u32 {
                        let mut nonce = [thread; NONCE_LEN];
                        nonce[..4].copy_from_slice(&round.to_be_bytes());
                        let plain = vec![thread; 100 + round as usize % 1400];
                        let mut data = plain.clone();
                        let tag = key.seal_in_place(&nonce, &[thread], &mut data).unwrap();
                        assert!(key.open_in_place(&nonce, &[thread], &mut data, &tag));
                        assert_eq!(data, plain);
                    }
                });
            }
        });
    }
}
