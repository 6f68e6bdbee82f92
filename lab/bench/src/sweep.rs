//! Sweeps, which measure each value of a setting as a separate cell. They are written as
//! `rcvbuf=106k..6.8M` or `gso=on,off`.

use std::collections::BTreeMap;

use crate::BenchError;

/// Values of the swept settings, by name.
pub type SweepPoint = BTreeMap<String, String>;

/// Maximum number of values of a sweep.
const MAX_VALUES: usize = 32;

/// A setting that can be swept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Knob {
    /// SO_RCVBUF of server and client, in bytes.
    Rcvbuf,
    /// SO_SNDBUF of server and client, in bytes.
    Sndbuf,
    /// Generic segmentation offload (GSO) of the sockets.
    Gso,
    /// Congestion control algorithm.
    Congestion,
    /// Largest UDP payload, in bytes. The MTU of the links is set large enough.
    Mtu,
    /// The cipher suite.
    Cipher,
    /// Offloads of the interfaces: segmentation offload, receive offload, checksums.
    Offload,
    /// Use of the CPU's AES instructions for encryption.
    Aes,
}

impl Knob {
    /// All settings.
    pub const ALL: [Knob; 8] = [
        Knob::Rcvbuf,
        Knob::Sndbuf,
        Knob::Gso,
        Knob::Congestion,
        Knob::Mtu,
        Knob::Cipher,
        Knob::Offload,
        Knob::Aes,
    ];

    /// Returns the name of the setting.
    pub const fn name(self) -> &'static str {
        match self {
            Knob::Rcvbuf => "rcvbuf",
            Knob::Sndbuf => "sndbuf",
            Knob::Gso => "gso",
            Knob::Congestion => "congestion",
            Knob::Mtu => "mtu",
            Knob::Cipher => "cipher",
            Knob::Offload => "offload",
            Knob::Aes => "aes",
        }
    }

    /// Returns true if the setting is a command-line option of the measured programs. The runner
    /// applies the other settings.
    pub const fn is_option(self) -> bool {
        !matches!(self, Knob::Offload | Knob::Aes)
    }

    /// Returns the permitted values. The list is empty if the values are numbers of bytes.
    const fn words(self) -> &'static [&'static str] {
        match self {
            Knob::Gso | Knob::Offload | Knob::Aes => &["on", "off"],
            Knob::Congestion => &["cubic", "newreno", "bbr"],
            Knob::Cipher => &["aes128", "chacha20"],
            Knob::Rcvbuf | Knob::Sndbuf | Knob::Mtu => &[],
        }
    }

    fn value(self, text: &str) -> Result<String, String> {
        let words = self.words();
        if words.is_empty() {
            let bytes = bytes(text).ok_or_else(|| format!("{text:?} is not a number of bytes"))?;
            let (least, most) = match self {
                Knob::Mtu => (1200, 65_000),
                _ => (1, 1 << 30),
            };
            if !(least..=most).contains(&bytes) {
                return Err(format!("{text} is not between {least} and {most} bytes"));
            }
            return Ok(bytes.to_string());
        }
        if words.contains(&text) {
            Ok(text.to_owned())
        } else {
            Err(format!("{text:?} is not one of {}", words.join(", ")))
        }
    }
}

/// A setting with several values.
#[derive(Clone, Debug, PartialEq)]
pub struct Sweep {
    /// The setting.
    pub knob: Knob,
    /// Values of the setting.
    pub values: Vec<String>,
}

impl Sweep {
    /// Parses `NAME=A..B` (A, doubled repeatedly up to B) or `NAME=A,B,C`.
    ///
    /// # Errors
    /// [`BenchError::Sweep`].
    pub fn read(text: &str) -> Result<Sweep, BenchError> {
        let wrong = |why: String| BenchError::Sweep { text: text.to_owned(), why };
        let (name, values) = text
            .split_once('=')
            .ok_or_else(|| wrong("write NAME=A,B,C or NAME=A..B".to_owned()))?;
        let knob = Knob::ALL.into_iter().find(|knob| knob.name() == name).ok_or_else(|| {
            let names: Vec<&str> = Knob::ALL.iter().map(|knob| knob.name()).collect();
            wrong(format!("the settings are {}", names.join(", ")))
        })?;
        let values = match values.split_once("..") {
            Some((from, to)) if knob.words().is_empty() => doubling(from, to).map_err(wrong)?,
            _ => values.split(',').map(str::to_owned).collect(),
        };
        let mut read = Vec::new();
        for value in values {
            let value = knob.value(value.trim()).map_err(wrong)?;
            if read.contains(&value) {
                return Err(wrong(format!("the value {value} occurs twice")));
            }
            read.push(value);
        }
        if read.len() > MAX_VALUES {
            return Err(wrong(format!(
                "there are {} values, but at most {MAX_VALUES} are permitted",
                read.len()
            )));
        }
        Ok(Sweep { knob, values: read })
    }
}

fn doubling(from: &str, to: &str) -> Result<Vec<String>, String> {
    let read = |text: &str| bytes(text).ok_or_else(|| format!("{text:?} is not a number of bytes"));
    let (from, to) = (read(from)?, read(to)?);
    if from == 0 || from > to {
        return Err(format!(
            "the first value ({from} bytes) must be above 0 and at most the last value ({to} bytes)"
        ));
    }
    let steps = std::iter::successors(Some(from), |value| value.checked_mul(2));
    Ok(steps.take_while(|value| *value <= to).map(|value| value.to_string()).collect())
}

/// Returns every combination of the values of several sweeps. Without sweeps, returns one empty
/// combination.
///
/// # Errors
/// [`BenchError::Sweep`]: a setting is swept twice.
pub fn points(sweeps: &[Sweep]) -> Result<Vec<SweepPoint>, BenchError> {
    let mut points = vec![SweepPoint::new()];
    for sweep in sweeps {
        let name = sweep.knob.name();
        if points.iter().any(|point| point.contains_key(name)) {
            let why = "the setting occurs twice".to_owned();
            return Err(BenchError::Sweep { text: name.to_owned(), why });
        }
        let with = |point: &SweepPoint, value: &String| {
            let mut point = point.clone();
            point.insert(name.to_owned(), value.clone());
            point
        };
        points = points
            .iter()
            .flat_map(|point| sweep.values.iter().map(move |value| with(point, value)))
            .collect();
    }
    Ok(points)
}

/// Returns the command-line options of a measured program for these values of settings.
pub fn options(point: &SweepPoint) -> Vec<String> {
    let set = |knob: &Knob| {
        let value = point.get(knob.name())?;
        Some([format!("--{}", knob.name()), value.clone()])
    };
    Knob::ALL.iter().filter(|knob| knob.is_option()).filter_map(set).flatten().collect()
}

/// Parses a number of bytes: `4096`, `106k`, `6.8M`, `1G` (decimal), `64KiB`, `4MiB`, `2GiB`
/// (binary).
pub fn bytes(text: &str) -> Option<u64> {
    const UNITS: [(&str, f64); 9] = [
        ("KiB", 1024.0),
        ("MiB", 1_048_576.0),
        ("GiB", 1_073_741_824.0),
        ("kB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
    ];
    scaled(text, &UNITS)
}

/// Parses a number of bits per second: `100mbit`, `1gbit`, `500kbit`.
pub fn rate(text: &str) -> Option<u64> {
    scaled(&text.to_ascii_lowercase(), &[("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9)])
}

fn scaled(text: &str, units: &[(&str, f64)]) -> Option<u64> {
    let unit = units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)));
    let (digits, factor) = unit.unwrap_or((text, 1.0));
    if !digits.starts_with(|c: char| c.is_ascii_digit())
        || !digits.chars().all(|c| c.is_ascii_digit() || c == '.')
    {
        return None;
    }
    let value = digits.parse::<f64>().ok()? * factor;
    // Above 9e15, a double cannot represent every integer.
    (value <= 9e15 && value.round() >= 1.0).then(|| value.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<String> {
        Sweep::read(text).unwrap().values
    }

    #[test]
    fn sweep_ranges_double_and_lists_are_kept() {
        assert_eq!(
            values("rcvbuf=106k..6.8M"),
            ["106000", "212000", "424000", "848000", "1696000", "3392000", "6784000"]
        );
        assert_eq!(values("rcvbuf=1k..1k"), ["1000"]);
        assert_eq!(values("sndbuf=4MiB,212992"), ["4194304", "212992"]);
        assert_eq!(values("gso=on,off"), ["on", "off"]);
        assert_eq!(values("congestion=cubic,bbr"), ["cubic", "bbr"]);
        assert_eq!(values("mtu=1200,1452,8900"), ["1200", "1452", "8900"]);
    }

    #[test]
    fn sweep_rejects_invalid_text() {
        for (text, why) in [
            ("rcvbuf", "NAME=A,B,C"),
            ("colour=red", "the settings are rcvbuf"),
            ("gso=maybe", "not one of on, off"),
            ("gso=on..off", "not one of on, off"),
            ("gso=", "not one of on, off"),
            ("rcvbuf=2M..1M", "at most the last value"),
            ("rcvbuf=0..1M", "not a number of bytes"),
            ("rcvbuf=1..1G..2G", "not a number of bytes"),
            ("rcvbuf=-1", "not a number of bytes"),
            ("rcvbuf=1e3", "not a number of bytes"),
            ("rcvbuf=2G", "not between 1"),
            ("rcvbuf=1k,1000", "twice"),
            ("mtu=1000", "not between 1200"),
            ("mtu=99999", "not between 1200"),
        ] {
            let error = Sweep::read(text).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains(text), "{error}");
        }
        let many: Vec<String> = (1..=33).map(|value| value.to_string()).collect();
        let many = format!("rcvbuf={}", many.join(","));
        assert!(Sweep::read(&many).unwrap_err().to_string().contains("33 values"));
        let twice = ["gso=on", "gso=off"].map(|text| Sweep::read(text).unwrap());
        assert!(points(&twice).unwrap_err().to_string().contains("twice"));
    }

    #[test]
    fn sweep_points_are_all_combinations() {
        let sweeps =
            ["rcvbuf=1k,2k", "gso=on,off", "aes=off"].map(|text| Sweep::read(text).unwrap());
        let points = points(&sweeps).unwrap();
        assert_eq!(points.len(), 4);
        assert!(points.iter().all(|point| point["aes"] == "off"));
        assert_eq!(options(&points[3]).join(" "), "--rcvbuf 2000 --gso off");
        assert_eq!(super::points(&[]).unwrap(), [SweepPoint::new()]);
        assert!(options(&SweepPoint::new()).is_empty());
    }

    #[test]
    fn sweep_parses_byte_amounts_and_bit_rates() {
        assert_eq!(bytes("100M"), Some(100_000_000));
        assert_eq!(bytes("2GiB"), Some(2 << 30));
        assert_eq!(bytes("1.5k"), Some(1500));
        for text in ["", "M", ".5k", "1.2.3", "1 k", "nan", "inf", "0", "99999999999999999999"] {
            assert_eq!(bytes(text), None, "{text}");
        }
        assert_eq!(rate("100mbit"), Some(100_000_000));
        assert_eq!(rate("2.5Gbit"), Some(2_500_000_000));
        assert_eq!(rate("1M"), None);
    }
}
