//! Computes the checksum CRC32c (RFC 3720 appendix B.4, Castagnoli's polynomial). It is the
//! `datagram_payload_checksum` of draft-ietf-quic-qlog-quic-events s.10.

/// The CRC32c polynomial, with the lowest bit first.
const POLYNOMIAL: u32 = 0x82f6_3b78;

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut rest = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            rest = if rest & 1 == 1 { (rest >> 1) ^ POLYNOMIAL } else { rest >> 1 };
            bit += 1;
        }
        table[byte] = rest;
        byte += 1;
    }
    table
};

/// Returns the CRC32c of `bytes`.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        let [low, ..] = crc.to_le_bytes();
        (crc >> 8) ^ TABLE[usize::from(low ^ byte)]
    })
}

#[cfg(test)]
mod tests {
    use super::crc32c;

    /// Checks the examples of RFC 3720 B.4.
    #[test]
    fn qlog_checksum_examples_of_the_rfc() {
        let ascending: Vec<u8> = (0..32).collect();
        for (bytes, expected) in [
            (&[0; 32][..], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (&ascending, 0x46dd_794e),
            (b"123456789", 0xe306_9283),
            (b"", 0),
        ] {
            assert_eq!(crc32c(bytes), expected);
        }
    }
}
