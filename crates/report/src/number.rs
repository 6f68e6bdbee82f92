//! Formats numbers for people: with three significant digits, a space, and a unit.
//!
//! Measured quantities are formatted by [`si`] and similar functions: `1.23 k/s`, `4.50 ms`, `12.3
//! MB`. Counts are formatted exactly by [`count`], with separators: `1,234,567`. Prefixes are
//! decimal (k = 1,000). [`MISSING`] replaces a value that is not finite, or that was not measured.
//!
//! All numbers have three digits, so that the values in a column are easy to compare. Rounding
//! never overstates a result: 99.97 % is `>99.9 %`, not `100 %`, and 0.01 % is `<0.1 %`, not `0.0
//! %`.

use std::time::Duration;

/// Text that is shown in place of a missing number.
pub const MISSING: &str = "-";

const LARGE: [&str; 6] = ["", "k", "M", "G", "T", "P"];
const SMALL: [&str; 4] = ["", "m", "\u{b5}", "n"];

/// Formats `value` with three significant digits and a decimal prefix before `unit`:
/// `si(1234.0, "/s")` is `1.23 k/s`, `si(0.0045, "s")` is `4.50 ms`, `si(12.0, "")` is `12.0`.
#[must_use]
pub fn si(value: f64, unit: &str) -> String {
    if !value.is_finite() {
        return MISSING.to_owned();
    }
    let (scaled, prefix) = prefixed(value);
    join(&three_digits(scaled), &format!("{prefix}{unit}"))
}

/// Formats a rate per second: `1.23 k/s`.
#[must_use]
pub fn rate(per_second: f64) -> String {
    si(per_second, "/s")
}

/// Formats an amount of data: `12.3 MB`. Below 1 kB, the number is exact: `512 B`.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    if bytes < 1000 { format!("{bytes} B") } else { si(bytes as f64, "B") }
}

/// Formats a bit rate: `1.23 Gbit/s`.
#[must_use]
pub fn bit_rate(bits_per_second: f64) -> String {
    si(bits_per_second, "bit/s")
}

/// Formats a measured value. `unit` is the unit as records and schemas name it: `bit/s`, `1/s`
/// (`1.23 k/s`), `s`, `B`, or another. A value that is not finite is shown as such, because it is a
/// bug of the program that recorded it.
#[must_use]
pub fn measured(value: f64, unit: &str) -> String {
    match unit {
        _ if !value.is_finite() => join(&value.to_string(), unit),
        "1/s" => rate(value),
        "s" => seconds(value),
        _ => si(value, unit),
    }
}

/// Formats a duration in seconds: `340 ns`, `4.50 ms`, `12.3 s`. From two minutes on, the format is
/// `2 min 05 s`, and from an hour on, `1 h 05 min`.
#[must_use]
pub fn seconds(seconds: f64) -> String {
    if !seconds.is_finite() {
        return MISSING.to_owned();
    }
    let whole = seconds.abs().round();
    if whole < 120.0 {
        return si(seconds, "s");
    }
    let sign = if seconds < 0.0 { "-" } else { "" };
    if whole < 3600.0 {
        return format!("{sign}{} min {:02} s", (whole / 60.0).floor(), whole % 60.0);
    }
    let minutes = (whole / 60.0).round();
    format!("{sign}{} h {:02} min", (minutes / 60.0).floor(), minutes % 60.0)
}

/// Formats a duration like [`seconds`].
#[must_use]
pub fn duration(duration: Duration) -> String {
    seconds(duration.as_secs_f64())
}

/// Formats an exact count: `1,234,567`.
#[must_use]
pub fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a count with a noun in the singular or plural: `1 service`, `1,200 services`.
#[must_use]
pub fn counted(number: u64, one: &str, several: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { several })
}

/// Formats a fraction as a percentage: `12.3 %`. Only an exact 0 is shown as `0 %`, and only an
/// exact 1 as `100 %`.
#[must_use]
pub fn percent(fraction: f64) -> String {
    let percent = fraction * 100.0;
    if !percent.is_finite() {
        return MISSING.to_owned();
    }
    if percent == 0.0 || percent == 100.0 {
        return format!("{} %", percent.abs());
    }
    if percent > 0.0 && percent < 0.1 {
        return "<0.1 %".to_owned();
    }
    if percent > 99.9 && percent < 100.0 {
        return ">99.9 %".to_owned();
    }
    if percent.abs() < 999.5 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

/// Formats `part` of `whole` as a percentage, or returns [`MISSING`] if `whole` is zero:
/// `percent_of(1, 8)` is `12.5 %`.
#[must_use]
pub fn percent_of(part: u64, whole: u64) -> String {
    percent(part as f64 / whole as f64)
}

/// Formats the relative change from `old` to `new`: `+30.9 %`, `-65.0 %`. Returns [`MISSING`] if
/// `old` is zero.
#[must_use]
pub fn change(old: f64, new: f64) -> String {
    let percent = (new - old) / old.abs() * 100.0;
    if percent.is_finite() { format!("{percent:+.1} %") } else { MISSING.to_owned() }
}

/// Scales a value into the range of a decimal prefix. The value is rounded to three digits before
/// the prefix is chosen, so that 999.9 becomes `1.00 k` and not `1000`.
fn prefixed(value: f64) -> (f64, &'static str) {
    let magnitude = value.abs();
    if magnitude == 0.0 {
        return (0.0, "");
    }
    if magnitude >= 0.9995 {
        let mut scaled = value;
        let mut index = 0;
        while scaled.abs() >= 999.5 && index + 1 < LARGE.len() {
            scaled /= 1000.0;
            index += 1;
        }
        return (scaled, LARGE[index]);
    }
    let mut scaled = value;
    let mut index = 0;
    while scaled.abs() < 0.9995 && index + 1 < SMALL.len() {
        scaled *= 1000.0;
        index += 1;
    }
    (scaled, SMALL[index])
}

/// Formats a number from 1 to 999 with three significant digits. Larger numbers get no decimals,
/// and smaller numbers get two.
fn three_digits(value: f64) -> String {
    let magnitude = value.abs();
    let decimals = if value == 0.0 || magnitude >= 99.95 {
        0
    } else if magnitude >= 9.995 {
        1
    } else {
        2
    };
    let text = format!("{value:.decimals$}");
    // A negative number that is too small to show would become "-0.00".
    if text.trim_start_matches(['-', '0', '.']).is_empty() {
        text.trim_start_matches('-').to_owned()
    } else {
        text
    }
}

fn join(figure: &str, unit: &str) -> String {
    if unit.is_empty() { figure.to_owned() } else { format!("{figure} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn si_has_three_digits_and_a_prefix() {
        for (value, unit, expected) in [
            (0.0, "/s", "0 /s"),
            (1.0, "/s", "1.00 /s"),
            (12.0, "", "12.0"),
            (999.4, "", "999"),
            (999.5, "", "1.00 k"),
            (999_499.0, "", "999 k"),
            (999_500.0, "", "1.00 M"),
            (1234.0, "/s", "1.23 k/s"),
            (9.994, "", "9.99"),
            (9.996, "", "10.0"),
            (99.96, "", "100"),
            (0.0045, "s", "4.50 ms"),
            (0.9996, "s", "1.00 s"),
            (0.000_001_5, "s", "1.50 \u{b5}s"),
            (0.000_000_000_04, "s", "0.04 ns"),
            (-1e-15, "s", "0.00 ns"),
            (-1500.0, "/s", "-1.50 k/s"),
            (1e21, "B", "1000000 PB"),
            (f64::NAN, "/s", MISSING),
            (f64::INFINITY, "/s", MISSING),
        ] {
            assert_eq!(si(value, unit), expected, "{value}");
        }
    }

    #[test]
    fn bytes_are_exact_while_small() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1000), "1.00 kB");
        assert_eq!(bytes(12_345_678), "12.3 MB");
        assert_eq!(bytes(u64::MAX), "18447 PB");
        assert_eq!(bit_rate(9.87e9), "9.87 Gbit/s");
    }

    #[test]
    fn measured_values_have_readable_units() {
        for (value, unit, expected) in [
            (3_577_256_564.361_710_5, "bit/s", "3.58 Gbit/s"),
            (9913.4, "1/s", "9.91 k/s"),
            (0.004_5, "s", "4.50 ms"),
            (125.0, "s", "2 min 05 s"),
            (45_678.9, "B", "45.7 kB"),
            (-3.0, "bit/s", "-3.00 bit/s"),
            (f64::NAN, "bit/s", "NaN bit/s"),
            (f64::INFINITY, "s", "inf s"),
            (12.0, "", "12.0"),
        ] {
            assert_eq!(measured(value, unit), expected);
        }
    }

    #[test]
    fn durations_have_readable_units() {
        for (value, expected) in [
            (0.0, "0 s"),
            (3.4e-7, "340 ns"),
            (12.34, "12.3 s"),
            (119.4, "119 s"),
            (119.6, "2 min 00 s"),
            (125.0, "2 min 05 s"),
            (3599.4, "59 min 59 s"),
            (3599.6, "1 h 00 min"),
            (3900.0, "1 h 05 min"),
            (86_399.0, "24 h 00 min"),
            (-125.0, "-2 min 05 s"),
            (f64::NAN, MISSING),
        ] {
            assert_eq!(seconds(value), expected, "{value}");
        }
        assert_eq!(duration(Duration::from_micros(4500)), "4.50 ms");
    }

    #[test]
    fn counts_keep_every_digit() {
        for (value, expected) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (1_234_567, "1,234,567"),
            (100_000, "100,000"),
        ] {
            assert_eq!(count(value), expected);
        }
    }

    #[test]
    fn percentages_do_not_round_to_0_or_100() {
        for (fraction, expected) in [
            (0.0, "0 %"),
            (1.0, "100 %"),
            (0.1234, "12.3 %"),
            (0.9997, ">99.9 %"),
            (0.999, "99.9 %"),
            (0.0001, "<0.1 %"),
            (2.5, "250.0 %"),
            (12.345, "1234 %"),
            (-0.05, "-5.0 %"),
            (f64::NAN, MISSING),
        ] {
            assert_eq!(percent(fraction), expected, "{fraction}");
        }
        assert_eq!(percent_of(1, 8), "12.5 %");
        assert_eq!(percent_of(0, 0), MISSING);
        assert_eq!(change(100.0, 130.9), "+30.9 %");
        assert_eq!(change(100.0, 35.0), "-65.0 %");
        assert_eq!(change(-10.0, -5.0), "+50.0 %");
        assert_eq!(change(0.0, 1.0), MISSING);
    }
}
