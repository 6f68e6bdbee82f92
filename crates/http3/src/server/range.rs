//! Parses the Range field of a request (RFC 9110 s.14).

use std::ops::Range;

use http::{HeaderMap, header};

/// The part of a body that a request asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The whole body.
    All,
    /// Only this range of the body. The response has status 206 and Content-Range.
    Part(Range<u64>),
    /// A range that the body does not have. The response has status 416.
    Beyond,
}

/// Returns the part of a body that the Range field of a GET request asks for. `length` is the
/// length of the body in bytes. A field that is malformed, has another unit, or asks for several
/// parts is ignored, as RFC 9110 s.14.2 permits.
pub(super) fn wanted(headers: &HeaderMap, length: u64) -> Wanted {
    let mut fields = headers.get_all(header::RANGE).into_iter();
    let (Some(field), None) = (fields.next(), fields.next()) else { return Wanted::All };
    // RFC 9110 s.13.1.5: this server sends no validators, so If-Range cannot match.
    if headers.contains_key(header::IF_RANGE) {
        return Wanted::All;
    }
    field.to_str().ok().and_then(|field| parse(field, length)).unwrap_or(Wanted::All)
}

fn parse(field: &str, length: u64) -> Option<Wanted> {
    let (unit, part) = field.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (first, last) = part.trim().split_once('-')?;
    let range = match (first.is_empty(), last.is_empty()) {
        (true, true) => return None,
        // The field is `-N`, which means the last N bytes.
        (true, false) => length.saturating_sub(number(last)?)..length,
        (false, true) => number(first)?..length,
        (false, false) => {
            let (first, last) = (number(first)?, number(last)?);
            if last < first {
                return None;
            }
            first..last.saturating_add(1).min(length)
        }
    };
    Some(if range.start < range.end { Wanted::Part(range) } else { Wanted::Beyond })
}

fn number(digits: &str) -> Option<u64> {
    let all_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    // A number that does not fit into 64 bits is larger than any body.
    all_digits.then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn of(fields: &[&str], length: u64) -> Wanted {
        let mut headers = HeaderMap::new();
        for field in fields {
            headers.append(header::RANGE, HeaderValue::from_str(field).unwrap());
        }
        wanted(&headers, length)
    }

    #[test]
    fn range_header_selects_parts() {
        for (field, expected) in [
            ("bytes=0-0", 0..1),
            ("bytes=10-19", 10..20),
            ("Bytes=90-", 90..100),
            ("bytes= 90-1000", 90..100),
            ("bytes=-1", 99..100),
            ("bytes=-1000", 0..100),
            ("bytes=0-99999999999999999999999", 0..100),
        ] {
            assert_eq!(of(&[field], 100), Wanted::Part(expected), "{field}");
        }
        for field in ["bytes=100-", "bytes=100-200", "bytes=-0", "bytes=99999999999999999999999-"] {
            assert_eq!(of(&[field], 100), Wanted::Beyond, "{field}");
        }
        assert_eq!(of(&["bytes=0-"], 0), Wanted::Beyond);
    }

    #[test]
    fn range_header_that_is_not_understood_is_ignored() {
        for field in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=5-2",
            "lines=1-2",
            "bytes=1-2,4-5",
            "bytes=a-b",
            "bytes=+1-2",
            "bytes=1--2",
        ] {
            assert_eq!(of(&[field], 100), Wanted::All, "{field}");
        }
        assert_eq!(of(&[], 100), Wanted::All);
        assert_eq!(of(&["bytes=0-1", "bytes=2-3"], 100), Wanted::All);
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, HeaderValue::from_static("bytes=0-1"));
        headers.insert(header::IF_RANGE, HeaderValue::from_static("\"tag\""));
        assert_eq!(wanted(&headers, 100), Wanted::All);
    }
}
