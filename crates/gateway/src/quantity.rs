//! Parses and displays quantities as text: rates, durations and sizes.
//!
//! Examples are `20/s burst 40`, `300/min`, `10MB/s burst 1MB` and `off` for rates, `1s`, `250ms`
//! and `10m` for durations, and `64KiB` for sizes. The output of [`Display`](std::fmt::Display)
//! parses to the same value.
#![forbid(unsafe_code)]

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::abi;

const NANOS: u128 = 1_000_000_000;

/// Error for a text that is not a valid quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {expected}")]
pub struct QuantityError {
    /// The text as the caller wrote it.
    pub text: String,
    /// Description of the expected form, with an example.
    pub expected: String,
}

fn wrong(text: &str, expected: impl Into<String>) -> QuantityError {
    QuantityError { text: text.trim().to_owned(), expected: expected.into() }
}

/// A token bucket: a number of units per interval, and a burst. It can also be off.
///
/// Written as `20/s burst 40`. Without `burst`, the burst is the number of units per interval, at
/// least 1. So `20/s` allows 20 units at once. Numbers of bytes may have a size suffix (`10MB/s`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Rate {
    /// Number of units per interval. 0 means that the rate is off.
    amount: u64,
    interval: Interval,
    burst: u64,
}

/// Interval over which a rate counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Interval {
    /// `/s`
    #[default]
    Second,
    /// `/min`
    Minute,
    /// `/h`
    Hour,
}

impl Interval {
    fn seconds(self) -> u64 {
        match self {
            Interval::Second => 1,
            Interval::Minute => 60,
            Interval::Hour => 3600,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Interval::Second => "s",
            Interval::Minute => "min",
            Interval::Hour => "h",
        }
    }
}

impl Rate {
    /// No limit.
    pub const OFF: Rate = Rate { amount: 0, interval: Interval::Second, burst: 0 };

    /// Returns a rate of `amount` units per second. At most `burst` units (at least 1) may arrive
    /// at once. Returns [`Rate::OFF`] if `amount` is 0.
    pub const fn per_second(amount: u64, burst: u64) -> Rate {
        if amount == 0 {
            return Rate::OFF;
        }
        Rate { amount, interval: Interval::Second, burst: if burst == 0 { 1 } else { burst } }
    }

    /// Returns true if the rate is off, which means no limit.
    pub fn is_off(self) -> bool {
        self.amount == 0
    }

    /// Returns the number of units per second, or 0 if the rate is off.
    pub fn units_per_second(self) -> f64 {
        self.amount as f64 / self.interval.seconds() as f64
    }

    /// Displays the rate in bytes: `10MB/s burst 1MB`. `Display` writes plain numbers.
    pub fn of_bytes(self) -> impl fmt::Display {
        struct Bytes(Rate);
        impl fmt::Display for Bytes {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0.text(|amount| DisplaySize(amount).to_string()))
            }
        }
        Bytes(self)
    }

    fn text(self, number: impl Fn(u64) -> String) -> String {
        if self.is_off() {
            return "off".to_owned();
        }
        let mut text = format!("{}/{}", number(self.amount), self.interval.name());
        if self.burst != self.amount {
            text += &format!(" burst {}", number(self.burst));
        }
        text
    }

    /// Returns the number of units that may arrive at once, or 0 if the rate is off.
    pub fn burst(self) -> u64 {
        self.burst
    }

    /// Returns the rate as the XDP program stores it (docs/policy.md, "Rates"). It saturates: above
    /// 10^15 units per second, a unit costs 1, the smallest fixed-point number.
    pub fn to_abi(self) -> abi::equic_rate {
        if self.is_off() {
            return abi::equic_rate::default();
        }
        let interval = NANOS * u128::from(self.interval.seconds());
        let clamp = |value: u128| u64::try_from(value).unwrap_or(u64::MAX);
        let cost = (interval << abi::EQUIC_RATE_SHIFT) / u128::from(self.amount);
        // This is at least the cost that the XDP program computes for `burst` units. With a smaller
        // value, rounding could lose one unit.
        let spent = (u128::from(self.burst) * cost) >> abi::EQUIC_RATE_SHIFT;
        let burst = (u128::from(self.burst) * interval / u128::from(self.amount)).max(spent);
        abi::equic_rate { cost_ns: clamp(cost).max(1), burst_ns: clamp(burst).max(1) }
    }

    /// Returns the rate for a value in the XDP program's maps, in the smallest interval that gives
    /// a whole number of units.
    pub fn from_abi(rate: abi::equic_rate) -> Rate {
        if rate.cost_ns == 0 {
            return Rate::OFF;
        }
        let cost = u128::from(rate.cost_ns);
        let over = |interval: Interval| {
            let nanos = (NANOS * u128::from(interval.seconds())) << abi::EQUIC_RATE_SHIFT;
            let amount = (nanos + cost / 2) / cost;
            // The interval is right if the truncating division in `to_abi` gives the same cost.
            let exact = amount > 0 && nanos / amount == cost;
            (amount, exact)
        };
        let choices = [Interval::Second, Interval::Minute, Interval::Hour];
        let interval = choices.into_iter().find(|i| over(*i).1).unwrap_or_else(|| {
            choices.into_iter().find(|i| over(*i).0 > 0).unwrap_or(Interval::Hour)
        });
        let amount = u64::try_from(over(interval).0.max(1)).unwrap_or(u64::MAX);
        let nanos = NANOS * u128::from(interval.seconds());
        let burst = (u128::from(rate.burst_ns) * u128::from(amount) + nanos / 2) / nanos;
        Rate { amount, interval, burst: u64::try_from(burst.max(1)).unwrap_or(u64::MAX) }
    }
}

pub(crate) const RATE: &str =
    "a rate: write, for example, `20/s`, `20/s burst 40`, `300/min`, `10MB/s burst 1MB` or `off`";

impl FromStr for Rate {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Rate, QuantityError> {
        let whole = text.trim();
        if whole == "off" || whole == "0" {
            return Ok(Rate::OFF);
        }
        let error = || wrong(whole, RATE);
        let (rate, burst) = match whole.split_once("burst") {
            Some((rate, burst)) => (rate.trim_end(), Some(burst.trim())),
            None => (whole, None),
        };
        let (amount, per) = rate.split_once('/').ok_or_else(error)?;
        let interval = match per.trim() {
            "s" | "sec" | "second" => Interval::Second,
            "m" | "min" | "minute" => Interval::Minute,
            "h" | "hour" => Interval::Hour,
            _ => return Err(error()),
        };
        let amount = parse_size(amount).map_err(|_| error())?;
        if amount == 0 {
            return Err(wrong(whole, "a rate above zero (write `off` for no limit)"));
        }
        let burst = match burst {
            Some(burst) => parse_size(burst).map_err(|_| error())?,
            None => amount,
        };
        if burst == 0 {
            return Err(wrong(whole, "a rate with a burst of at least 1"));
        }
        Ok(Rate { amount, interval, burst })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text(|amount| amount.to_string()))
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Rate, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

const SIZE: &str = "a number: write, for example, `1500`, `64KiB` or `10MB`";
const SUFFIXES: [(&str, u64); 12] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("B", 1),
    ("k", 1_000),
    ("K", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
];

/// Parses a whole number with an optional suffix: `1500`, `10MB` (powers of ten), `64KiB` (powers
/// of two).
///
/// # Errors
/// Fails if the text is not such a number, or if the number is over 2^64 - 1.
pub fn parse_size(text: &str) -> Result<u64, QuantityError> {
    let error = || wrong(text, SIZE);
    let whole = text.trim();
    let (digits, unit) = SUFFIXES
        .iter()
        .find_map(|(suffix, unit)| Some((whole.strip_suffix(suffix)?, *unit)))
        .unwrap_or((whole, 1));
    let digits = digits.trim_end().replace('_', "");
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(error());
    }
    digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit)).ok_or_else(error)
}

struct DisplaySize(u64);

impl fmt::Display for DisplaySize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (suffix, unit) in [("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)] {
            // Sizes below 100,000 are clearer without a suffix: 1500, 64000.
            if self.0 >= 100_000 && self.0.is_multiple_of(unit) && self.0 / unit >= 1 {
                return write!(f, "{}{suffix}", self.0 / unit);
            }
        }
        write!(f, "{}", self.0)
    }
}

const DURATION: &str =
    "a duration: write, for example, `250ms`, `1s`, `1.5s`, `10m`, `2h`, `1d` or `1h30m`";
const UNITS: [(&str, u64); 8] = [
    ("ms", 1_000_000),
    ("us", 1_000),
    ("µs", 1_000),
    ("ns", 1),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// Parses `250ms`, `1.5s`, `10m`, `1h30m`, `1d`. A number without a unit is an error, unless it is
/// 0.
///
/// # Errors
/// Fails if the text is not such a duration, or if the duration is over 584 years.
pub fn parse_duration(text: &str) -> Result<Duration, QuantityError> {
    let error = || wrong(text, DURATION);
    let mut rest = text.trim();
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    let mut total = 0u64;
    if rest.is_empty() {
        return Err(error());
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(error)?;
        let (number, tail) = rest.split_at(end);
        let stop = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, after) = tail.split_at(stop);
        let unit = unit.trim().trim_end_matches("in").trim_end_matches("ec");
        let unit = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(error)?.1;
        total = scaled(number, unit).and_then(|n| total.checked_add(n)).ok_or_else(error)?;
        rest = after;
    }
    Ok(Duration::from_nanos(total))
}

/// Returns `number` times `unit`. The number may have a fraction of at most 9 digits.
fn scaled(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.len() > 9 || (number.contains('.') && fraction.is_empty()) {
        return None;
    }
    let mut nanos = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    if !fraction.is_empty() {
        let part = u128::from(fraction.parse::<u64>().ok()?) * u128::from(unit);
        nanos = nanos.checked_add(u64::try_from(part / 10u128.pow(fraction.len() as u32)).ok()?)?;
    }
    Some(nanos)
}

/// Formats a duration so that [`parse_duration`] can parse it, in the largest unit that is exact.
pub fn format_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let units = [("d", 86_400 * NANOS), ("h", 3_600 * NANOS), ("m", 60 * NANOS), ("s", NANOS)];
    let small = [("ms", 1_000_000), ("us", 1_000), ("ns", 1)];
    units
        .into_iter()
        .chain(small)
        .find(|(_, unit)| nanos != 0 && nanos.is_multiple_of(*unit))
        .map_or_else(|| "0s".to_owned(), |(name, unit)| format!("{}{name}", nanos / unit))
}

/// Serializes a rate as [`Rate::of_bytes`] displays it. For `#[serde(serialize_with =
/// "rate_of_bytes")]`.
pub(crate) fn rate_of_bytes<S: Serializer>(rate: &Rate, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&rate.of_bytes())
}

/// Serializes and parses a duration as text. For `#[serde(with = "duration")]`.
pub(crate) mod duration {
    use super::{
        Deserialize, Deserializer, Duration, Serializer, de, format_duration, parse_duration,
    };

    pub(crate) fn serialize<S: Serializer>(
        value: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format_duration(*value))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Duration, D::Error> {
        parse_duration(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

#[cfg(test)]
#[path = "quantity_tests.rs"]
mod tests;
