//! The integrity tag of Retry packets (RFC 9001 s.5.8, RFC 9369 s.3.3.3).
//!
//! The tag is AES-128-GCM over an empty plaintext, with a published key and nonce. So GCM's hash
//! key and the mask of the tag are constants, and this module computes only GHASH (NIST SP 800-38D
//! s.6.4). It needs neither AES nor a secret.

use rustls::quic::Version;

/// Length of the Retry integrity tag, in bytes.
pub(crate) const RETRY_TAG_LEN: usize = 16;

/// Constants of one QUIC version, computed from the version's published key and nonce.
struct Constants {
    /// The hash key of GCM: a block of zeros, encrypted with AES.
    hash_key: u128,
    /// The mask of the tag: the first counter block (nonce || 00000001), encrypted with AES.
    mask: u128,
}

/// Follows from the key be0c690b9f66575a1d766b54e368c84e and the nonce 461599d35d632bf2239825bb of
/// QUIC version 1 (RFC 9001 s.5.8).
const V1: Constants = Constants {
    hash_key: 0x7295_6a45_4ffa_ff54_85a1_3a12_44d0_1d47,
    mask: 0x555e_4b74_9355_6eea_af75_d35b_d7fb_a5d8,
};

/// Follows from the key 8fb4b01b56ac48e260fbcbcead7ccc92 and the nonce d86969bc2d7c6d9990efb04a of
/// QUIC version 2 (RFC 9369 s.3.3.3).
const V2: Constants = Constants {
    hash_key: 0x65f6_bee1_0d70_0eda_919c_5c69_78e4_7a5d,
    mask: 0x4e90_1396_e3a9_359f_4535_b65e_5ad6_ae51,
};

/// Returns the integrity tag of a Retry packet. `packet` is the Retry packet without its tag.
/// `original` is the Destination Connection ID of the Initial packet that the Retry packet answers,
/// at most 20 bytes.
pub(crate) fn retry_tag(version: Version, original: &[u8], packet: &[u8]) -> [u8; RETRY_TAG_LEN] {
    let constants = if matches!(version, Version::V2) { &V2 } else { &V1 };
    let mut hash = Ghash { key: constants.hash_key, sum: 0, block: [0; 16], filled: 0, length: 0 };
    // The Retry Pseudo-Packet (RFC 9001 figure 8) begins with the length of the original
    // Destination Connection ID.
    hash.update(&[original.len() as u8]);
    hash.update(original);
    hash.update(packet);
    (hash.finish() ^ constants.mask).to_be_bytes()
}

/// Computes GHASH, the hash of GCM, over additional authenticated data, without ciphertext.
struct Ghash {
    key: u128,
    sum: u128,
    block: [u8; 16],
    filled: usize,
    length: u64,
}

impl Ghash {
    fn update(&mut self, mut data: &[u8]) {
        self.length += data.len() as u64;
        while !data.is_empty() {
            let count = data.len().min(16 - self.filled);
            self.block[self.filled..self.filled + count].copy_from_slice(&data[..count]);
            self.filled += count;
            data = &data[count..];
            if self.filled == 16 {
                self.end_block();
            }
        }
    }

    fn end_block(&mut self) {
        self.sum = multiply(self.sum ^ u128::from_be_bytes(self.block), self.key);
        (self.block, self.filled) = ([0; 16], 0);
    }

    fn finish(mut self) -> u128 {
        if self.filled > 0 {
            self.end_block();
        }
        // GHASH ends with a block that has two lengths in bits: that of the additional data, and
        // that of the ciphertext, which is empty here.
        let lengths = u128::from(self.length * 8) << 64;
        multiply(self.sum ^ lengths, self.key)
    }
}

/// Multiplies in GF(2^128) with reflected bits (NIST SP 800-38D s.6.3).
fn multiply(x: u128, y: u128) -> u128 {
    const R: u128 = 0xe1 << 120;
    let (mut product, mut power) = (0, y);
    for bit in (0..128).rev() {
        if x >> bit & 1 == 1 {
            product ^= power;
        }
        power = (power >> 1) ^ if power & 1 == 1 { R } else { 0 };
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::hex;

    #[test]
    fn retry_tag_of_rfc_9001_a_4() {
        let packet =
            hex("ff000000010008f067a5502a4262b5746f6b656e04a265ba2eff4d829058fb3f0f2496ba");
        let (packet, tag) = packet.split_at(packet.len() - RETRY_TAG_LEN);
        assert_eq!(retry_tag(Version::V1, &hex("8394c8f03e515708"), packet), tag);
    }

    #[test]
    fn retry_tag_of_rfc_9369_a_4() {
        let packet =
            hex("cf6b3343cf0008f067a5502a4262b5746f6b656ec8646ce8bfe33952d955543665dcc7b6");
        let (packet, tag) = packet.split_at(packet.len() - RETRY_TAG_LEN);
        assert_eq!(retry_tag(Version::V2, &hex("8394c8f03e515708"), packet), tag);
    }

    #[test]
    fn retry_tag_depends_on_every_bit() {
        let packet = [0x5a; 100];
        let tag = retry_tag(Version::V1, &[1; 20], &packet);
        for bit in 0..packet.len() * 8 {
            let mut other = packet;
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(retry_tag(Version::V1, &[1; 20], &other), tag, "bit {bit}");
        }
        assert_ne!(retry_tag(Version::V1, &[1; 19], &packet), tag);
    }
}
