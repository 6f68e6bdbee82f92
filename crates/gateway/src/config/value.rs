//! Types and values of settings, and how the XDP program stores them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::check::out_of_range;
use super::convert::nanos;
use super::{Fragments, Policy, Retry, Versions};
use crate::abi;
use crate::quantity::{QuantityError, RATE, Rate, format_duration, parse_duration, parse_size};

/// Type of a setting's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SettingKind {
    /// `true` or `false`.
    Flag,
    /// A whole number from 0 to 4294967295.
    Number,
    /// A rate that is a limit, such as `20/s burst 40`. `off` means no limit.
    Rate,
    /// A rate of bytes, such as `10MB/s burst 1MB`. `off` means no limit.
    ByteRate,
    /// A rate above which something happens.
    Threshold,
    /// A time, such as `30s` or `10m`.
    Duration,
    /// A [`Policy`].
    Policy,
    /// A [`Retry`].
    Retry,
    /// A [`Versions`].
    Versions,
    /// A [`Fragments`].
    Fragments,
}

impl SettingKind {
    /// Returns the type's name for people.
    pub fn name(self) -> &'static str {
        match self {
            SettingKind::Flag => "true or false",
            SettingKind::Number => "number",
            SettingKind::Rate | SettingKind::Threshold => "rate",
            SettingKind::ByteRate => "rate in bytes",
            SettingKind::Duration => "duration",
            SettingKind::Policy
            | SettingKind::Retry
            | SettingKind::Versions
            | SettingKind::Fragments => "name",
        }
    }

    /// Returns the valid names, or an empty slice if the type has other values.
    pub fn names(self) -> &'static [&'static str] {
        match self {
            SettingKind::Policy => Policy::NAMES,
            SettingKind::Retry => Retry::NAMES,
            SettingKind::Versions => Versions::NAMES,
            SettingKind::Fragments => Fragments::NAMES,
            _ => &[],
        }
    }

    /// Parses a value as in `KEY=VALUE`. The error says what is valid.
    pub(super) fn parse(self, text: &str) -> Result<SettingValue, String> {
        fn read<T: FromStr<Err: fmt::Display>>(text: &str) -> Result<T, String> {
            text.parse().map_err(|error: T::Err| error.to_string())
        }
        let text = text.trim();
        Ok(match self {
            SettingKind::Flag => SettingValue::Flag(parse_flag(text)?),
            SettingKind::Number => SettingValue::Number(parse_number(text)?),
            SettingKind::Rate => SettingValue::Rate(rate_of_units(text)?),
            SettingKind::ByteRate => SettingValue::ByteRate(read(text)?),
            SettingKind::Threshold => SettingValue::Threshold(rate_of_units(text)?),
            SettingKind::Duration => {
                SettingValue::Duration(parse_duration(text).map_err(|e| e.to_string())?)
            }
            SettingKind::Policy => SettingValue::Policy(read(text)?),
            SettingKind::Retry => SettingValue::Retry(read(text)?),
            SettingKind::Versions => SettingValue::Versions(read(text)?),
            SettingKind::Fragments => SettingValue::Fragments(read(text)?),
        })
    }
}

fn parse_flag(text: &str) -> Result<bool, String> {
    match text {
        "true" | "on" | "yes" | "1" => Ok(true),
        "false" | "off" | "no" | "0" => Ok(false),
        other => Err(format!("`{other}` is not valid: write `true` or `false`")),
    }
}

/// Parses a rate of packets or connections. Fails if it is one of bytes.
fn rate_of_units(text: &str) -> Result<Rate, String> {
    let rate = text.parse().map_err(|error: QuantityError| match error.expected == RATE {
        true => format!("`{text}` is not a rate: write, for example, {RATES_OF_UNITS} or `off`"),
        false => error.to_string(),
    })?;
    if text.contains('B') {
        return Err(format!(
            "`{text}` is in bytes, but this setting counts packets or connections: write, for example, {RATES_OF_UNITS}"
        ));
    }
    Ok(rate)
}

const RATES_OF_UNITS: &str = "`20/s`, `20/s burst 40`, `300/min`";

fn parse_number(text: &str) -> Result<u32, String> {
    if text == "off" {
        return Ok(0);
    }
    let wrong = || format!("`{text}` is not a whole number from 0 to {}", u32::MAX);
    if text.contains(['B', 'i']) {
        return Err(format!("{}: it counts connections, not bytes", wrong()));
    }
    parse_size(text).ok().and_then(|number| u32::try_from(number).ok()).ok_or_else(wrong)
}

/// SettingValue of a setting. `Display` writes it as in `KEY=VALUE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is a value of the type with the same name")]
pub enum SettingValue {
    Flag(bool),
    Number(u32),
    Rate(Rate),
    ByteRate(Rate),
    Threshold(Rate),
    Duration(Duration),
    Policy(Policy),
    Retry(Retry),
    Versions(Versions),
    Fragments(Fragments),
}

impl SettingValue {
    /// Returns the value as in TOML: names, rates and durations are strings.
    pub fn toml(self) -> String {
        match self {
            SettingValue::Flag(_) | SettingValue::Number(_) => self.to_string(),
            other => format!("\"{other}\""),
        }
    }

    /// Returns the rate, if the value is one.
    pub fn rate(self) -> Option<Rate> {
        match self {
            SettingValue::Rate(rate)
            | SettingValue::ByteRate(rate)
            | SettingValue::Threshold(rate) => Some(rate),
            _ => None,
        }
    }
}

impl fmt::Display for SettingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingValue::Flag(on) => on.fmt(f),
            SettingValue::Number(number) => number.fmt(f),
            SettingValue::Rate(rate) | SettingValue::Threshold(rate) => rate.fmt(f),
            SettingValue::ByteRate(rate) => rate.of_bytes().fmt(f),
            SettingValue::Duration(duration) => f.pad(&format_duration(*duration)),
            SettingValue::Policy(name) => name.fmt(f),
            SettingValue::Retry(name) => name.fmt(f),
            SettingValue::Versions(name) => name.fmt(f),
            SettingValue::Fragments(name) => name.fmt(f),
        }
    }
}

/// In JSON, a value is a bool, a number or a name. A duration is `{"seconds": 2.5}`, a rate
/// `{"per_second": 20.0, "burst": 40}`, and a rate that is off has `null` in both.
impl Serialize for SettingValue {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Seconds {
            seconds: f64,
        }
        #[derive(Serialize)]
        struct Bucket {
            per_second: Option<f64>,
            burst: Option<u64>,
        }
        match self {
            SettingValue::Flag(on) => on.serialize(to),
            SettingValue::Number(number) => number.serialize(to),
            SettingValue::Rate(rate)
            | SettingValue::ByteRate(rate)
            | SettingValue::Threshold(rate) => {
                let on = !rate.is_off();
                let per_second = on.then(|| rate.units_per_second());
                Bucket { per_second, burst: on.then(|| rate.burst()) }.serialize(to)
            }
            SettingValue::Duration(duration) => {
                Seconds { seconds: duration.as_secs_f64() }.serialize(to)
            }
            name => to.collect_str(name),
        }
    }
}

/// Values that a setting may have, in addition to what its type requires.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SettingRange {
    /// All values of the type.
    Any,
    /// From the first duration to the second one.
    Duration(Duration, Duration),
    /// A rate with a burst of at least this size.
    Burst {
        /// Smallest burst.
        smallest: u64,
        /// Consequence of a smaller burst.
        why: &'static str,
        /// Valid values.
        example: &'static str,
    },
    /// A rate of bytes.
    Bytes {
        /// Smallest rate, in bytes per second. At lower rates, the XDP program's 64-bit product of
        /// bytes and their cost could overflow.
        slowest: u32,
        /// Smallest burst, in bytes: the size of the UDP payload in a full Ethernet frame, rounded
        /// up.
        smallest_burst: u64,
    },
}

impl SettingRange {
    /// Returns every reason why the value is not allowed.
    pub(super) fn check(self, value: SettingValue) -> Vec<String> {
        let mut all = Vec::new();
        match (self, value) {
            (SettingRange::Duration(low, high), SettingValue::Duration(duration))
                if !(low..=high).contains(&duration) =>
            {
                let [value, low, high] = [duration, low, high].map(format_duration);
                all.push(out_of_range(value, low, high));
            }
            (SettingRange::Burst { smallest, why, example }, SettingValue::Threshold(rate))
                if !rate.is_off() && rate.burst() < smallest =>
            {
                all.push(format!(
                    "with a burst of {}, {why}: use a burst of {smallest} or more, for example {example}",
                    rate.burst()
                ));
            }
            (SettingRange::Bytes { slowest, smallest_burst }, SettingValue::ByteRate(rate))
                if !rate.is_off() =>
            {
                if rate.burst() < smallest_burst {
                    all.push(format!(
                        "with a burst of {} bytes, the gateway would refuse every larger packet: use a burst of {smallest_burst} bytes or more, for example `10MB/s burst 64KiB`",
                        rate.burst()
                    ));
                }
                if rate.units_per_second() < slowest.into() {
                    all.push(format!(
                        "{} is out of range: the rate must be {slowest} bytes per second or more",
                        rate.of_bytes()
                    ));
                }
            }
            _ => {}
        }
        all
    }
}

/// Describes the range for people; empty for [`SettingRange::Any`].
impl fmt::Display for SettingRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingRange::Any => Ok(()),
            SettingRange::Duration(low, high) => {
                write!(f, "{} to {}", format_duration(*low), format_duration(*high))
            }
            SettingRange::Burst { smallest, .. } => write!(f, "burst of {smallest} or more"),
            SettingRange::Bytes { slowest, smallest_burst } => {
                write!(f, "{slowest}/s or more, burst of {smallest_burst} or more")
            }
        }
    }
}

type Field<T> = fn(&mut abi::equic_service) -> &mut T;

/// Place of a setting's value in the structure that the XDP program reads.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Store {
    /// A bit of `flags`.
    Flag(u32),
    /// The number of a name.
    Byte(Field<u8>),
    /// A number.
    Word(Field<u32>),
    /// A duration in nanoseconds.
    Nanos(Field<u64>),
    /// A rate.
    Rate(Field<abi::equic_rate>),
    /// The rate of new connections of a prefix level, and the bit that enables the level.
    Prefix(u32),
}

impl Store {
    /// Stores a value. Its type must be one of this place; the test `settings_survive_the_kernel`
    /// checks this for each row of the table.
    pub(crate) fn put(self, service: &mut abi::equic_service, value: SettingValue) {
        match (self, value) {
            (Store::Flag(bit), SettingValue::Flag(true)) => service.flags |= bit,
            (Store::Flag(bit), SettingValue::Flag(false)) => service.flags &= !bit,
            (Store::Byte(field), SettingValue::Policy(name)) => *field(service) = name.code(),
            (Store::Byte(field), SettingValue::Retry(name)) => *field(service) = name.code(),
            (Store::Byte(field), SettingValue::Versions(name)) => *field(service) = name.code(),
            (Store::Byte(field), SettingValue::Fragments(name)) => *field(service) = name.code(),
            (Store::Word(field), SettingValue::Number(number)) => *field(service) = number,
            (Store::Nanos(field), SettingValue::Duration(duration)) => {
                *field(service) = nanos(duration)
            }
            (Store::Rate(field), value) => {
                *field(service) = value.rate().unwrap_or(Rate::OFF).to_abi();
            }
            (Store::Prefix(level), SettingValue::Rate(rate)) => {
                service.new_per_prefix[level as usize] = rate.to_abi();
                let bit = 1 << level;
                service.prefix_levels &= !bit;
                service.prefix_levels |= if rate.is_off() { 0 } else { bit };
            }
            _ => {}
        }
    }

    /// Reads a value of this type. Unknown numbers of names are read as the default.
    pub(crate) fn take(
        self,
        kind: SettingKind,
        service: &abi::equic_service,
    ) -> Option<SettingValue> {
        let mut copy = *service;
        Some(match (self, kind) {
            (Store::Flag(bit), SettingKind::Flag) => SettingValue::Flag(service.flags & bit != 0),
            (Store::Byte(field), SettingKind::Policy) => {
                SettingValue::Policy(Policy::of_code(*field(&mut copy)))
            }
            (Store::Byte(field), SettingKind::Retry) => {
                SettingValue::Retry(Retry::of_code(*field(&mut copy)))
            }
            (Store::Byte(field), SettingKind::Versions) => {
                SettingValue::Versions(Versions::of_code(*field(&mut copy)))
            }
            (Store::Byte(field), SettingKind::Fragments) => {
                SettingValue::Fragments(Fragments::of_code(*field(&mut copy)))
            }
            (Store::Word(field), SettingKind::Number) => SettingValue::Number(*field(&mut copy)),
            (Store::Nanos(field), SettingKind::Duration) => {
                SettingValue::Duration(Duration::from_nanos(*field(&mut copy)))
            }
            (Store::Rate(field), SettingKind::Rate) => {
                SettingValue::Rate(Rate::from_abi(*field(&mut copy)))
            }
            (Store::Rate(field), SettingKind::ByteRate) => {
                SettingValue::ByteRate(Rate::from_abi(*field(&mut copy)))
            }
            (Store::Rate(field), SettingKind::Threshold) => {
                SettingValue::Threshold(Rate::from_abi(*field(&mut copy)))
            }
            (Store::Prefix(level), SettingKind::Rate) => {
                SettingValue::Rate(Rate::from_abi(service.new_per_prefix[level as usize]))
            }
            _ => return None,
        })
    }
}
