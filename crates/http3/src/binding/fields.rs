//! Checks of QPACK-encoded field sections (RFC 9204 s.4.5) that `h3` does not make:
//!
//! * the order and number of pseudo-header fields (RFC 9114 s.4.3);
//! * the size of a request's field section (s.4.2.2);
//! * trailers;
//! * references to the dynamic table, which is always empty.

use std::borrow::Cow;

use equic_wire::Reader;
use http::{HeaderName, HeaderValue};

use super::huffman;
use super::static_table::ENTRIES;
use super::violation::Violation;
use crate::message;

/// The kind of field section: header fields of a request or of a response, or trailers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    Request,
    Response,
    Trailers,
}

/// The result of checking a field section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SectionCheck {
    /// The header fields of an interim response (RFC 9114 s.4.1).
    Interim,
    /// The section is larger than the limit.
    TooLong,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Method,
    Scheme,
    Authority,
    Path,
    Status,
    Regular,
    /// An unknown pseudo-header field.
    Unknown,
}

/// Overhead that each field line adds to the size of a section, in bytes (RFC 9114 s.4.2.2).
const LINE: u64 = 32;

/// The names of the pseudo-header fields in the Huffman code of RFC 7541 appendix B.
const HUFFMAN: [(Name, &[u8]); 5] = [
    (Name::Method, &[0xb9, 0x49, 0x53, 0x39, 0xe4]),
    (Name::Scheme, &[0xb8, 0x82, 0x4e, 0x5a, 0x4b]),
    (Name::Authority, &[0xb8, 0x3b, 0x53, 0x39, 0xec, 0x32, 0x7d, 0x7f]),
    (Name::Path, &[0xb9, 0x58, 0xd3, 0x3f]),
    (Name::Status, &[0xb8, 0x84, 0x8d, 0x36, 0xa3]),
];

/// The code of a colon in the Huffman code of RFC 7541 appendix B. It has seven bits, stored in the
/// upper bits of this byte.
const HUFFMAN_COLON: u8 = 0x5c;

/// The name or value of a field line, still encoded.
#[derive(Clone, Copy)]
enum Text<'a> {
    Plain(&'a [u8]),
    Huffman(&'a [u8]),
}

impl<'a> Text<'a> {
    /// Returns an upper bound of the decoded length, in bytes.
    fn longest(self) -> u64 {
        match self {
            Text::Plain(bytes) => bytes.len() as u64,
            Text::Huffman(encoded) => huffman::longest(encoded.len()) as u64,
        }
    }

    fn decode(self) -> Result<Cow<'a, [u8]>, Violation> {
        let encoded = match self {
            Text::Plain(bytes) => return Ok(Cow::Borrowed(bytes)),
            Text::Huffman(encoded) => encoded,
        };
        let mut bytes = Vec::with_capacity(huffman::longest(encoded.len()));
        match huffman::decode(encoded, |byte| bytes.push(byte)) {
            true => Ok(Cow::Owned(bytes)),
            false => Err(Violation::HuffmanCode),
        }
    }

    fn len(self) -> Result<u64, Violation> {
        match self {
            Text::Plain(bytes) => Ok(bytes.len() as u64),
            Text::Huffman(_) => Ok(self.decode()?.len() as u64),
        }
    }
}

/// A field line: a name and a value.
#[derive(Clone, Copy)]
struct Line<'a> {
    kind: Name,
    name: Text<'a>,
    value: Text<'a>,
}

impl Line<'_> {
    /// Returns `true` if this field line is the status of an interim response.
    fn is_interim(&self) -> bool {
        let begins_with_one = match self.value {
            // An interim status begins with the digit 1, whose Huffman code is 00001 (RFC 7541
            // appendix B).
            Text::Huffman(value) => value.first().is_some_and(|byte| byte >> 3 == 1),
            Text::Plain(value) => value.first() == Some(&b'1'),
        };
        self.kind == Name::Status && begins_with_one
    }

    /// Checks a trailer field in the same way as the crate `http` checks a header field. This is
    /// needed here because the server never asks `h3` for the trailers of a request, so `http` does
    /// not see them.
    // RFC 9114 s.10.3 #1 #2
    fn check_trailer(&self) -> Result<(), Violation> {
        let name =
            HeaderName::from_lowercase(&self.name.decode()?).map_err(|_| Violation::TrailerName)?;
        let value =
            HeaderValue::from_bytes(&self.value.decode()?).map_err(|_| Violation::TrailerValue)?;
        message::check_field(&name, &value)
    }
}

/// Checks a field section. `limit` is its largest permitted size, counted as in RFC 9114 s.4.2.2.
pub(super) fn check(
    block: &[u8],
    section: Section,
    limit: Option<u64>,
) -> Result<SectionCheck, Violation> {
    let mut input = prefix(block)?;
    let lines = input;
    let mut seen: Vec<Name> = Vec::new();
    let (mut regular, mut found, mut at_most) = (false, SectionCheck::Other, 0);
    while !input.is_empty() {
        let line = line(&mut input)?;
        at_most += LINE + line.name.longest() + line.value.longest();
        if section == Section::Trailers && line.kind == Name::Regular {
            line.check_trailer()?;
        }
        if line.kind == Name::Regular {
            regular = true;
            continue;
        }
        // RFC 9114 s.4.3: a pseudo-header field must not follow a regular field.
        if regular {
            return Err(Violation::PseudoHeaderOrder);
        }
        if !may_have(section, line.kind) {
            return Err(Violation::PseudoHeaderNotPermitted);
        }
        if seen.contains(&line.kind) {
            return Err(Violation::DuplicatePseudoHeader);
        }
        seen.push(line.kind);
        if line.is_interim() {
            found = SectionCheck::Interim;
        }
    }
    // RFC 9114 s.4.3.1, s.4.3.2: these pseudo-header fields are mandatory. Further ones depend on
    // the request's method, and are checked in `message`.
    let needed = match section {
        Section::Request => Some(Name::Method),
        Section::Response => Some(Name::Status),
        Section::Trailers => None,
    };
    if needed.is_some_and(|needed| !seen.contains(&needed)) {
        return Err(Violation::MissingPseudoHeader);
    }
    // The section is decoded to find its size only if it may exceed the limit, which is rare.
    match limit {
        Some(limit) if at_most > limit && size(lines)? > limit => Ok(SectionCheck::TooLong),
        _ => Ok(found),
    }
}

/// Reads the prefix of a field section, and returns the rest: the field lines.
fn prefix(block: &[u8]) -> Result<Reader<'_>, Violation> {
    let mut input = Reader::new(block);
    let first = byte(&mut input)?;
    // RFC 9204 s.4.5.1.1 #1: the dynamic table has a capacity of 0, so the Required Insert Count
    // must be 0.
    if integer(&mut input, first, 8)? != 0 {
        return Err(Violation::DynamicTableReference);
    }
    let base = byte(&mut input)?;
    // RFC 9204 s.4.5.1.2: the base must not be negative.
    if base & 0x80 != 0 {
        return Err(Violation::NegativeBase);
    }
    integer(&mut input, base, 7)?;
    Ok(input)
}

/// Returns the size of a field section as RFC 9114 s.4.2.2 counts it.
fn size(mut lines: Reader<'_>) -> Result<u64, Violation> {
    let mut size = 0;
    while !lines.is_empty() {
        let line = line(&mut lines)?;
        size += LINE + line.name.len()? + line.value.len()?;
    }
    Ok(size)
}

fn may_have(section: Section, name: Name) -> bool {
    match section {
        Section::Request => {
            matches!(name, Name::Method | Name::Scheme | Name::Authority | Name::Path)
        }
        Section::Response => name == Name::Status,
        Section::Trailers => false,
    }
}

/// Reads the next field line.
fn line<'a>(input: &mut Reader<'a>) -> Result<Line<'a>, Violation> {
    let first = byte(input)?;
    if first & 0x80 != 0 {
        // RFC 9204 s.4.5.2: the line is an index into the table.
        let (kind, name, value) = of_static(input, first, first & 0x40 != 0, 6)?;
        return Ok(Line { kind, name: Text::Plain(name), value: Text::Plain(value) });
    }
    let (kind, name) = if first & 0x40 != 0 {
        // RFC 9204 s.4.5.4: the line has a name from the table and a literal value.
        let (kind, name, _) = of_static(input, first, first & 0x10 != 0, 4)?;
        (kind, Text::Plain(name))
    } else if first & 0x20 != 0 {
        // RFC 9204 s.4.5.6: the line has a literal name and a literal value.
        let huffman = first & 0x08 != 0;
        let length = integer(input, first, 3)?;
        let name = bytes(input, length)?;
        (literal_name(name, huffman), text(name, huffman))
    } else {
        return Err(Violation::DynamicTableReference);
    };
    let first = byte(input)?;
    let length = integer(input, first, 7)?;
    let value = text(bytes(input, length)?, first & 0x80 != 0);
    // RFC 9114 s.4.3.1: `:path` holds the path and query of a URI. A fragment in it is an error.
    // The check is made here, because the crate `http` would cut off the fragment without an error.
    let has_fragment = |value| match value {
        Text::Huffman(encoded) => huffman::contains(encoded, b'#'),
        Text::Plain(bytes) => bytes.contains(&b'#'),
    };
    if kind == Name::Path && has_fragment(value) {
        return Err(Violation::PathWithFragment);
    }
    Ok(Line { kind, name, value })
}

fn text(bytes: &[u8], huffman: bool) -> Text<'_> {
    if huffman { Text::Huffman(bytes) } else { Text::Plain(bytes) }
}

/// Reads an index into QPACK's static table. Returns the kind, the name and the value of that
/// entry.
fn of_static(
    input: &mut Reader<'_>,
    first: u8,
    is_static: bool,
    prefix: u8,
) -> Result<(Name, &'static [u8], &'static [u8]), Violation> {
    let index = integer(input, first, prefix)?;
    let entry = usize::try_from(index).ok().and_then(|index| ENTRIES.get(index));
    match entry {
        Some((name, value)) if is_static => Ok((name_of(index), name.as_bytes(), value.as_bytes())),
        _ if !is_static => Err(Violation::DynamicTableReference),
        _ => Err(Violation::StaticTableIndex),
    }
}

/// Returns the pseudo-header field at this index of QPACK's static table (RFC 9204 appendix A).
fn name_of(index: u64) -> Name {
    match index {
        0 => Name::Authority,
        1 => Name::Path,
        15..=21 => Name::Method,
        22 | 23 => Name::Scheme,
        24..=28 | 63..=71 => Name::Status,
        _ => Name::Regular,
    }
}

fn literal_name(name: &[u8], huffman: bool) -> Name {
    if huffman {
        return match name.first() {
            Some(first) if first >> 1 == HUFFMAN_COLON => {
                let known = HUFFMAN.iter().find(|(_, encoded)| *encoded == name);
                known.map_or(Name::Unknown, |(name, _)| *name)
            }
            _ => Name::Regular,
        };
    }
    match name {
        b":method" => Name::Method,
        b":scheme" => Name::Scheme,
        b":authority" => Name::Authority,
        b":path" => Name::Path,
        b":status" => Name::Status,
        [b':', ..] => Name::Unknown,
        _ => Name::Regular,
    }
}

fn byte(input: &mut Reader<'_>) -> Result<u8, Violation> {
    input.u8().map_err(|_| Violation::TruncatedFieldSection)
}

fn bytes<'a>(input: &mut Reader<'a>, length: u64) -> Result<&'a [u8], Violation> {
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    input.bytes(length).map_err(|_| Violation::TruncatedFieldSection)
}

/// Largest integer that a QPACK decoder must be able to decode (RFC 9204 s.4.1.1).
const MAX_INTEGER: u64 = (1 << 62) - 1;

/// Reads an integer with a prefix (RFC 9204 s.4.1.1 #1) of up to 62 bits. Accepts encodings of the
/// same length as `h3` does.
fn integer(input: &mut Reader<'_>, first: u8, prefix: u8) -> Result<u64, Violation> {
    let most = (1 << prefix) - 1;
    let mut value = u64::from(first) & most;
    if value < most {
        return Ok(value);
    }
    // Nine bytes have room for 63 bits, so the sum cannot overflow.
    for shift in (0..63).step_by(7) {
        let next = byte(input)?;
        value += u64::from(next & 0x7f) << shift;
        if next & 0x80 == 0 {
            if value > MAX_INTEGER {
                break;
            }
            return Ok(value);
        }
    }
    // RFC 9204 s.7.4: this is an error of the stream, not of the connection.
    Err(Violation::IntegerTooLarge)
}

#[cfg(test)]
mod tests {
    use h3::error::Code;

    use super::*;

    /// The value "/a#b" in Huffman code.
    const PATH_WITH_FRAGMENT: &[u8] = &[0x84, 0x60, 0x7f, 0xf5, 0x1f];

    /// The field section of GET https://a/: two entries of the static table, then a name from that
    /// table with the value "a", then the entry for the path "/".
    const GET: &[u8] = &[0, 0, 0xd1, 0xd7, 0x50, 1, b'a', 0xc1];

    fn check(block: &[u8], section: Section) -> Result<SectionCheck, Violation> {
        super::check(block, section, None)
    }

    fn with(lines: &[u8]) -> Vec<u8> {
        [GET, lines].concat()
    }

    #[test]
    fn field_section_that_is_valid() {
        assert_eq!(check(GET, Section::Request), Ok(SectionCheck::Other));
        // The name content-type from the static table, then a field with a literal name.
        let more = with(&[0x5f, 0x1d, 1, b'x', 0x23, b'a', b'b', b'c', 0]);
        assert_eq!(check(&more, Section::Request), Ok(SectionCheck::Other));
        assert_eq!(check(&[0, 0, 0xd9], Section::Response), Ok(SectionCheck::Other));
        assert_eq!(check(&[0, 0], Section::Trailers), Ok(SectionCheck::Other));
    }

    #[test]
    fn interim_responses_are_recognised() {
        // These sections have status 103 from the table, then status 100 as literal digits, first
        // plain and then in Huffman code.
        let sections: [&[u8]; 3] = [
            &[0, 0, 0xd8],
            &[0, 0, 0x5f, 9, 3, b'1', b'0', b'0'],
            &[0, 0, 0x5f, 9, 0x82, 0x08, 0x01],
        ];
        for section in sections {
            assert_eq!(check(section, Section::Response), Ok(SectionCheck::Interim), "{section:?}");
        }
        let ok = [0, 0, 0x5f, 9, 0x82, 0x10, 0x01];
        assert_eq!(check(&ok, Section::Response), Ok(SectionCheck::Other));
    }

    // RFC 9114 s.4.3 #2 #3 #4 #6
    #[test]
    fn pseudo_headers_twice_late_or_misplaced_are_malformed() {
        let method = [0x27, 0, b':', b'm', b'e', b't', b'h', b'o', b'd', 1, b'X'];
        let huffman = [0x2d, 0xb9, 0x49, 0x53, 0x39, 0xe4, 1, b'X'];
        let host = [0x23, b'a', b'b', b'c', 0];
        let late = [&[0, 0, 0xd1, 0xd7][..], &host, &[0xc1]].concat();
        for (section, what) in [
            (with(&[0xd1]), "indexed"),
            (with(&[0x5f, 0, 1, b'X']), "by name"),
            (with(&method), "literal"),
            (with(&huffman), "in Huffman code"),
            (late, "late"),
            (with(&[0xd9]), "a status in a request"),
            (with(&[0x22, b':', b'x', 0]), "unknown"),
            (with(&[0x2a, 0xb9, 0x49, 0]), "unknown in Huffman code"),
            (vec![0, 0, 0xd1, 0xd7, 0x50, 1, b'a', 0x51, 2, b'#', b'x'], "a fragment"),
            (
                [&[0, 0, 0xd1, 0xd7, 0x50, 1, b'a', 0x51][..], PATH_WITH_FRAGMENT].concat(),
                "a fragment in Huffman code",
            ),
            (vec![0, 0], "nothing"),
        ] {
            let error = check(&section, Section::Request).unwrap_err();
            assert_eq!(error.code(), Code::H3_MESSAGE_ERROR, "{what}: {error:?}");
        }
        for (section, block) in
            [(Section::Response, &[0, 0, 0xd9, 0xd9][..]), (Section::Trailers, &[0, 0, 0xc1])]
        {
            assert!(check(block, section).unwrap_err().is_stream_error(), "{section:?}");
        }
    }

    // RFC 9204 s.2.1.2 #2, s.2.2.1 #2, s.2.2.3 #1, s.3.1 #1, s.4.5.1.1 #1, s.4.5.1.2 #1 #2
    #[test]
    fn qpack_errors_close_the_connection() {
        let blocks: [&[u8]; 10] = [
            &[],
            &[0],
            &[1, 0],
            &[0, 0x80],
            &[0, 0, 0x80],
            &[0, 0, 0x10],
            &[0, 0, 0x00],
            &[0, 0, 0x40, 0],
            &[0, 0, 0xff, 36],
            &[0, 0, 0x23, b'a'],
        ];
        for block in blocks {
            let error = check(block, Section::Request).unwrap_err();
            assert_eq!(error.code(), Code::QPACK_DECOMPRESSION_FAILED, "{block:?}");
        }
    }

    /// Encodes an integer in at least `bytes` bytes. All prefix bits are ones, and `more` is the
    /// value of the bytes after the prefix.
    fn prefixed(first: u8, mut more: u64, bytes: usize) -> Vec<u8> {
        let mut encoded = vec![first];
        while more >= 0x80 || encoded.len() < bytes {
            encoded.push(0x80 | (more & 0x7f) as u8);
            more >>= 7;
        }
        encoded.push(more as u8);
        encoded
    }

    // RFC 9204 s.4.1.1 #1
    #[test]
    fn qpack_integers_have_62_bits() {
        for (base, fits) in [
            (prefixed(0x7f, 0, 1), true),
            (prefixed(0x7f, 1 << 35, 1), true),
            (prefixed(0x7f, 1 << 36, 1), true),
            (prefixed(0x7f, MAX_INTEGER - 0x7f, 1), true),
            (prefixed(0x7f, MAX_INTEGER - 0x7e, 1), false),
            (prefixed(0x7f, (1 << 63) - 1, 1), false),
            (prefixed(0x7f, u64::MAX, 1), false),
            // Padded with leading zeros: first to the largest number of bytes that `h3` reads, then
            // to one byte more.
            (prefixed(0x7f, 5, 9), true),
            (prefixed(0x7f, 5, 10), false),
        ] {
            // RFC 9204 s.4.5.1.2: without references to the dynamic table, the base has no meaning.
            let block = [&[0][..], &base, &GET[2..]].concat();
            let expected =
                if fits { Ok(SectionCheck::Other) } else { Err(Violation::IntegerTooLarge) };
            assert_eq!(check(&block, Section::Request), expected, "{base:x?}");
        }
    }

    #[test]
    fn qpack_integers_may_have_leading_zeros_everywhere() {
        let literal_name = [b"abcdefg".as_slice(), &[1, b'x']].concat();
        let literal_value = [[b'x'; 127].as_slice(), &[]].concat();
        for (line, what) in [
            (prefixed(0xff, 80 - 63, 9), "an index"),
            ([prefixed(0x5f, 80 - 15, 9), vec![1, b'x']].concat(), "a name's index"),
            ([prefixed(0x27, 0, 9), literal_name].concat(), "the length of a name"),
            ([vec![0x5f, 65], prefixed(0x7f, 0, 9), literal_value].concat(), "that of a value"),
        ] {
            assert_eq!(check(&with(&line), Section::Request), Ok(SectionCheck::Other), "{what}");
        }
        let required = [prefixed(0xff, 0, 9), GET[1..].to_vec()].concat();
        let error = check(&required, Section::Request).unwrap_err();
        assert_eq!(error.code(), Code::QPACK_DECOMPRESSION_FAILED, "{error:?}");
        for line in
            [prefixed(0xff, 1 << 40, 1), [vec![0x5f, 65], prefixed(0x7f, 1 << 40, 1)].concat()]
        {
            let error = check(&with(&line), Section::Request).unwrap_err();
            assert_eq!(error.code(), Code::QPACK_DECOMPRESSION_FAILED, "{error:?}");
        }
    }

    /// RFC 9114 s.4.2.2: the size is the sum of the lengths of names and values, plus 32 for each
    /// line.
    #[test]
    fn field_section_size_counts_names_values_and_32_bytes_each() {
        let sized = |lines: &[u8], limit| super::check(&with(lines), Section::Request, Some(limit));
        // The request has these fields: :method GET, :scheme https, :authority a, :path /.
        let base = (32 + 7 + 3) + (32 + 7 + 5) + (32 + 10 + 1) + (32 + 5 + 1);
        let literal = [&[0x23][..], b"abc", &[2], b"de"].concat();
        // "www.example.com" in Huffman code (RFC 7541 appendix C.4), as a name and as a value.
        let example = [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff];
        let coded = [&[0x2f, 5][..], &example, &[0x8c], &example].concat();
        for (lines, more, what) in [
            (vec![], 0, "pseudo-header fields"),
            (vec![0xc2], 32 + 3 + 1, "an entry of the table"),
            (vec![0x52, 3, b'1', b'2', b'3'], 32 + 3 + 3, "a name of the table"),
            (literal, 32 + 3 + 2, "a literal"),
            (coded, 32 + 15 + 15, "Huffman code"),
        ] {
            assert_eq!(sized(&lines, base + more), Ok(SectionCheck::Other), "{what}");
            assert_eq!(sized(&lines, base + more - 1), Ok(SectionCheck::TooLong), "{what}");
        }
        // The code of EOS is an error. This check reports the error only if it decodes the section
        // to find its size. Otherwise `h3` reports it.
        let eos = [&[0x23][..], b"abc", &[0x84, 0xff, 0xff, 0xff, 0xff]].concat();
        assert_eq!(sized(&eos, 10_000), Ok(SectionCheck::Other));
        let error = sized(&eos, 100).unwrap_err();
        assert_eq!(error.code(), Code::QPACK_DECOMPRESSION_FAILED, "{error:?}");
    }

    #[test]
    fn trailers_are_checked_like_header_fields() {
        let trailers = |lines: &[u8]| check(&[&[0, 0], lines].concat(), Section::Trailers);
        // These trailers are valid: an entry of the table, a name from the table, a name in Huffman
        // code, and a literal name.
        for line in [&[0xc2][..], &[0x52, 1, b'x'], &[0x29, 0x1f, 0x81, 0x1f], &[0x21, b'a', 0]] {
            assert_eq!(trailers(line), Ok(SectionCheck::Other), "{line:x?}");
        }
        for (line, what) in [
            (&[0x21, b'A', 0][..], "an uppercase name"),
            (&[0x29, 0x87, 0], "an uppercase name in Huffman code"),
            (&[0x20, 0], "an empty name"),
            (&[0x52, 1, 0], "NUL in a value"),
            (&[0x21, b'a', 0x84, 0xff, 0xff, 0xff, 0xf3], "LF in Huffman code"),
            (&[0x22, b't', b'e', 1, b'x'], "te"),
        ] {
            let error = trailers(line).unwrap_err();
            assert_eq!(error.code(), Code::H3_MESSAGE_ERROR, "{what}: {error:?}");
        }
        let padding = trailers(&[0x29, 0x1c, 0]).unwrap_err();
        assert_eq!(padding.code(), Code::QPACK_DECOMPRESSION_FAILED, "{padding:?}");
    }
}
