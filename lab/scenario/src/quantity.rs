//! Parses quantities with units: `10 Mb/s`, `50 ms`, `1.5 MB`, `0.1 %`. Values that are whole
//! numbers of the smallest unit are computed exactly, without floating point.

use std::time::Duration;

/// Names of units, each with its factor.
type Units = &'static [(&'static str, u64)];

const RATES: Units = &[
    ("b/s", 1),
    ("bit/s", 1),
    ("kb/s", 1_000),
    ("kbit/s", 1_000),
    ("Mb/s", 1_000_000),
    ("Mbit/s", 1_000_000),
    ("Gb/s", 1_000_000_000),
    ("Gbit/s", 1_000_000_000),
];

const SIZES: Units = &[
    ("B", 1),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

const TIMES: Units = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// A number as [`decimal`] parses it, as a regular expression.
const DECIMAL: &str = r"[0-9]+(\.[0-9]+)?";

/// Regular expression of a percentage, as [`percent`] parses it.
pub(crate) const PERCENTAGE_PATTERN: &str = r"^\s*0*([0-9]{1,2}(\.[0-9]+)?|100(\.0+)?)\s*%\s*$";

/// Regular expression of a number of packets, as [`packets`] parses it.
pub(crate) const PACKETS_PATTERN: &str = r"^\s*[0-9]+\s*packets?\s*$";

/// Returns the regular expression of a rate, as [`rate`] parses it.
pub(crate) fn rate_pattern() -> String {
    pattern(RATES)
}

/// Returns the regular expression of a size, as [`bytes`] parses it.
pub(crate) fn size_pattern() -> String {
    pattern(SIZES)
}

/// Returns the regular expression of a time, as [`duration`] parses it.
pub(crate) fn time_pattern() -> String {
    pattern(TIMES)
}

/// Returns the regular expression (ECMA-262) of the texts that [`scaled`] parses. It also accepts
/// numbers that are too large, and numbers that are not whole in the smallest unit.
fn pattern(units: Units) -> String {
    let names: Vec<&str> = units.iter().map(|(name, _)| *name).collect();
    format!(r"^\s*{DECIMAL}\s*({})\s*$", names.join("|"))
}

/// Parses a rate such as `10 Mb/s` or `10 Mbit/s` to bits per second. Prefixes are decimal.
pub(crate) fn rate(text: &str) -> Result<u64, String> {
    scaled(text, RATES)
        .map_err(|error| wrong(text, "a rate, such as \"10 Mb/s\" or \"500 kb/s\"", error))
}

/// Parses a size such as `10 MB` or `64 KiB` to bytes.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    scaled(text, SIZES)
        .map_err(|error| wrong(text, "a size, such as \"10 MB\" or \"64 KiB\"", error))
}

/// Parses a duration such as `50 ms`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    scaled(text, TIMES)
        .map(Duration::from_nanos)
        .map_err(|error| wrong(text, "a time, such as \"50 ms\" or \"2.5 s\"", error))
}

/// Parses a percentage from 0 to 100, such as `0.1 %`.
pub(crate) fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim().strip_suffix('%').map(str::trim_end);
    let value = number.filter(|text| decimal(text).is_some()).and_then(|text| text.parse().ok());
    value
        .filter(|value| (0.0..=100.0).contains(value))
        .ok_or_else(|| wrong(text, "a percentage from 0 to 100, such as \"0.1 %\"", Mistake::Form))
}

/// Parses a number of packets such as `100 packets`. Returns `None` if the text does not end with
/// that word.
pub(crate) fn packets(text: &str) -> Option<Result<u32, String>> {
    let text = text.trim();
    let number = text.strip_suffix("packets").or_else(|| text.strip_suffix("packet"))?.trim_end();
    Some(match decimal(number) {
        Some((_, places)) if places > 0 => {
            Err(format!("`{text}` is not a whole number of packets"))
        }
        None if !number.bytes().all(|byte| byte.is_ascii_digit()) || number.is_empty() => {
            Err(format!("`{text}` is not a number of packets, such as \"100 packets\""))
        }
        _ => number.parse().map_err(|_| {
            format!("`{text}` is too large: a queue can have room for at most {} packets", u32::MAX)
        }),
    })
}

/// The reason why a quantity is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    /// The text is not a number with a known unit.
    Form,
    /// The value is too large. The field is the largest permitted value, in the unit that the text
    /// uses.
    TooLarge(u64),
    /// The value is not a whole number of the smallest unit.
    TooFine,
}

fn wrong(text: &str, expected: &str, mistake: Mistake) -> String {
    let text = text.trim();
    let unit = || text.trim_start_matches(|one: char| one.is_ascii_digit() || one == '.').trim();
    match mistake {
        Mistake::Form if text.starts_with('-') => format!("`{text}` is below 0: write {expected}"),
        Mistake::Form => format!("`{text}` is not {expected}"),
        Mistake::TooLarge(most) => format!("`{text}` is too much: at most {most} {}", unit()),
        Mistake::TooFine => format!("`{text}` is not a whole number of the smallest unit"),
    }
}

/// Parses a decimal number without sign or exponent. Returns its digits as an integer, and the
/// number of digits after the point.
fn decimal(text: &str) -> Option<(u64, u32)> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty()
        || !digits(whole)
        || !digits(part)
        || (text.contains('.') && part.is_empty())
    {
        return None;
    }
    let part = part.trim_end_matches('0');
    let digits = format!("{whole}{part}").parse().ok()?;
    Some((digits, u32::try_from(part.len()).ok()?))
}

/// Parses a number that is followed by one of these units. Returns the number times the factor of
/// its unit.
fn scaled(text: &str, units: Units) -> Result<u64, Mistake> {
    let text = text.trim();
    let is_number = |character: char| character.is_ascii_digit() || character == '.';
    let end = text.find(|character: char| !is_number(character)).ok_or(Mistake::Form)?;
    let (number, unit) = (&text[..end], text[end..].trim_start());
    let (_, factor) = units.iter().find(|(name, _)| *name == unit).ok_or(Mistake::Form)?;
    let too_large = Mistake::TooLarge(u64::MAX / factor);
    let (digits, places) = match decimal(number) {
        Some(read) => read,
        // The number has more digits than a `u64`.
        None if number.len() > 19 && number.bytes().all(|byte| byte.is_ascii_digit()) => {
            return Err(too_large);
        }
        None => return Err(Mistake::Form),
    };
    let divisor = 10u128.checked_pow(places).ok_or(Mistake::TooFine)?;
    let product = u128::from(digits) * u128::from(*factor);
    if product % divisor != 0 {
        return Err(Mistake::TooFine);
    }
    u64::try_from(product / divisor).map_err(|_| too_large)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantity_parses_valid_text() {
        assert_eq!(rate("10 Mb/s"), Ok(10_000_000));
        assert_eq!(rate("1Gbit/s"), Ok(1_000_000_000));
        assert_eq!(rate("2.5 kb/s"), Ok(2_500));
        assert_eq!(bytes("10 KB"), Ok(10_000));
        assert_eq!(bytes("64KiB"), Ok(65_536));
        assert_eq!(duration("50 ms"), Ok(Duration::from_millis(50)));
        assert_eq!(duration("0.1 us"), Ok(Duration::from_nanos(100)));
        assert_eq!(duration("0 s"), Ok(Duration::ZERO));
        assert_eq!(percent("0.01 %"), Ok(0.01));
        assert_eq!(packets("100 packets"), Some(Ok(100)));
    }

    #[test]
    fn quantity_rejects_invalid_text() {
        for text in [
            "",
            "10",
            "10 mb/s",
            "-1 Mb/s",
            "1e3 b/s",
            "0.5 b/s",
            "1. Mb/s",
            ".5 Mb/s",
            "99999999999 Gb/s",
        ] {
            assert!(rate(text).is_err(), "{text}");
        }
        for text in ["50", "50 Ms", "0.1 ns", "1 s s", "99999999999999 h"] {
            assert!(duration(text).is_err(), "{text}");
        }
        for text in ["1", "101 %", "-1 %", "NaN %", "1e1 %", "%"] {
            assert!(percent(text).is_err(), "{text}");
        }
        assert!(bytes("1 Mb").is_err() && packets("30 KB").is_none());
        for text in ["x packets", "packets", "1.5 packets", "99999999999 packets", "-1 packets"] {
            assert!(packets(text).is_some_and(|read| read.is_err()), "{text}");
        }
    }

    #[test]
    fn quantity_error_names_the_range() {
        for (error, words) in [
            (duration("10000000000000 s").unwrap_err(), "at most 18446744073 s"),
            (duration("99999999999999999999999 ms").unwrap_err(), "at most 18446744073709 ms"),
            (bytes("99999999999 GB").unwrap_err(), "at most 18446744073 GB"),
            (rate("99999999999 Gb/s").unwrap_err(), "at most 18446744073 Gb/s"),
            (rate("0.5 b/s").unwrap_err(), "not a whole number"),
            (duration("-20 ms").unwrap_err(), "below 0"),
            (packets("99999999999 packets").unwrap().unwrap_err(), "at most 4294967295 packets"),
        ] {
            assert!(error.contains(words), "{error}");
        }
    }
}
