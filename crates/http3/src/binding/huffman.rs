//! The Huffman code of field lines (RFC 7541 appendix B).

use std::sync::OnceLock;

/// Length of the longest code, in bits.
const LONGEST: usize = 30;

/// Length of each byte's code, in bits. The code is canonical: codes of the same length are
/// consecutive numbers in the order of their bytes, and shorter codes have the smaller values.
#[rustfmt::skip]
const BITS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];

/// The Huffman codes that have the same length.
#[derive(Clone, Copy, Default)]
struct Length {
    first: u32,
    count: u32,
    /// Index in `Table::bytes` of the byte that has the first code of this length.
    start: u32,
}

struct Table {
    lengths: [Length; LONGEST + 1],
    /// The bytes in the order of their codes.
    bytes: Vec<u8>,
}

fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut table = Table { lengths: Default::default(), bytes: Vec::with_capacity(256) };
        let mut first = 0;
        for (bits, length) in table.lengths.iter_mut().enumerate() {
            let start = table.bytes.len();
            let coded = (0..=u8::MAX).filter(|byte| usize::from(BITS[usize::from(*byte)]) == bits);
            table.bytes.extend(coded);
            let count = (table.bytes.len() - start) as u32;
            *length = Length { first, count, start: start as u32 };
            first = (first + count) << 1;
        }
        table
    })
}

/// Calls `visit` with each byte of an encoded string. Returns `false` if the string is invalid (RFC
/// 7541 s.5.2): it contains the code of EOS, or its padding is longer than seven bits or has a zero
/// bit.
pub(super) fn decode(encoded: &[u8], mut visit: impl FnMut(u8)) -> bool {
    let table = table();
    let (mut code, mut bits) = (0, 0);
    for at in 0..encoded.len() * 8 {
        code = code << 1 | u32::from(encoded[at / 8] >> (7 - at % 8) & 1);
        bits += 1;
        let Some(length) = table.lengths.get(bits) else { return false };
        // A code is never less than the first one of its length.
        let index: u32 = code - length.first;
        if index < length.count {
            visit(table.bytes[(length.start + index) as usize]);
            (code, bits) = (0, 0);
        }
    }
    bits < 8 && code + 1 == 1 << bits
}

/// Returns `true` if an encoded string contains this byte. If the string is invalid, only the bytes
/// before the invalid code count.
pub(super) fn contains(encoded: &[u8], wanted: u8) -> bool {
    let mut found = false;
    decode(encoded, |byte| found |= byte == wanted);
    found
}

/// Returns the largest number of decoded bytes for an encoded string of this length. The shortest
/// codes have five bits.
pub(super) fn longest(encoded: usize) -> usize {
    encoded.saturating_mul(8) / 5
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huffman_strings_are_searched() {
        // "www.example.com" and "no-cache" (RFC 7541 appendix C.4), "/a#b" and "#".
        let example = [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff];
        let fragment = [0x60, 0x7f, 0xf5, 0x1f];
        let hash = [0xff, 0xaf];
        assert_eq!(b"www.example.com".map(|byte| contains(&example, byte)), [true; 15]);
        assert_eq!(b"bdfgh#/ ".map(|byte| contains(&example, byte)), [false; 8]);
        let no_cache = [0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf];
        assert!(contains(&no_cache, b'-') && !contains(&no_cache, b'#'));
        assert!(contains(&fragment, b'#') && contains(&hash, b'#'));
        assert!(!contains(&[], b'#') && !contains(&[0xff; 8], b'#'));
    }

    #[test]
    fn huffman_strings_are_decoded() {
        let decoded = |encoded: &[u8]| {
            let mut bytes = Vec::new();
            decode(encoded, |byte| bytes.push(byte)).then_some(bytes)
        };
        // RFC 7541 appendix C.4.
        let example = [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff];
        assert_eq!(decoded(&example).as_deref(), Some(&b"www.example.com"[..]));
        // Eight codes of five bits, which need no padding, and codes of up to 30 bits.
        assert_eq!(decoded(&[0; 5]).as_deref(), Some(&b"00000000"[..]));
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xf3]).as_deref(), Some(&b"\n"[..]));
        assert_eq!(decoded(&[]).as_deref(), Some(&b""[..]));
        assert_eq!([longest(0), longest(1), longest(5)], [0, 1, 8]);
        for (encoded, what) in [
            (&[0xff][..], "eight bits of padding"),
            (&[0x1c], "padding that is not all ones"),
            (&[0xff, 0xff, 0xff, 0xff], "EOS"),
            (&[0xff, 0xff, 0xff, 0xf8], "a code that is cut short"),
        ] {
            assert_eq!(decoded(encoded), None, "{what}");
        }
    }

    #[test]
    fn huffman_code_is_complete() {
        // The codes and the code of EOS fill the code space exactly (RFC 7541 s.5.2).
        let taken: u64 = BITS.iter().map(|bits| 1 << (LONGEST - usize::from(*bits))).sum();
        assert_eq!(taken, (1 << LONGEST) - 1);
        assert_eq!(table().bytes.len(), 256);
    }
}
