//! Samples values that must not grow, and computes their trend.

use serde::Serialize;

use crate::failure::{Failure, Result};

/// Share of the test that is ignored at its start, because caches and allocators fill then.
const WARM_UP: f64 = 0.4;
/// Minimum length of the ignored time at the start, in seconds. Incomplete handshakes are kept for
/// 10 s.
const WARM_UP_SECONDS: f64 = 15.0;
/// Growth in bytes that is ignored, because allocators and the kernel allocate memory in chunks.
const ALLOWED_BYTES: f64 = 4.0 * 1024.0 * 1024.0;
/// Growth that is ignored, as a share of the value.
const ALLOWED_SHARE: f64 = 0.05;
/// Growth of the number of descriptors that is ignored, because a sample may include one that is
/// about to be closed.
const ALLOWED_DESCRIPTORS: f64 = 2.0;
/// Minimum number of points from which a slope is computed.
const FEWEST: usize = 6;

/// Unit of the values in a series.
#[derive(Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Unit {
    Bytes,
    Descriptors,
}

/// A sampled value over time.
#[derive(Serialize)]
pub(super) struct Series {
    pub name: String,
    pub unit: Unit,
    /// The samples: seconds since the start of the test, and the value at that time.
    pub points: Vec<(f64, f64)>,
}

/// Trend of a value over time.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Trend {
    /// Number of samples after the warm-up.
    pub points: usize,
    pub median: f64,
    /// Growth between the end of the warm-up and the end of the test, according to the slope.
    pub growth: f64,
    pub allowed: f64,
    pub flat: bool,
}

impl Series {
    pub(super) fn new(name: impl Into<String>, unit: Unit) -> Series {
        Series { name: name.into(), unit, points: Vec::new() }
    }

    pub(super) fn push(&mut self, seconds: f64, value: u64) {
        self.points.push((seconds, value as f64));
    }

    /// Returns the trend of the series: the median of the slopes between all pairs of points (Theil
    /// 1950, Sen 1968). Single outliers hardly affect it.
    pub(super) fn trend(&self) -> Trend {
        let end = self.points.last().map_or(0.0, |(at, _)| *at);
        let begin = (end * WARM_UP).max(WARM_UP_SECONDS);
        let kept: Vec<(f64, f64)> =
            self.points.iter().copied().filter(|(at, _)| *at >= begin).collect();
        let slopes = kept.iter().enumerate().flat_map(|(i, (t0, v0))| {
            kept[i + 1..]
                .iter()
                .filter(move |(t1, _)| t1 > t0)
                .map(move |(t1, v1)| (v1 - v0) / (t1 - t0))
        });
        let growth = median(slopes.collect()) * (end - begin);
        let median = median(kept.iter().map(|(_, value)| *value).collect());
        let allowed = match self.unit {
            Unit::Bytes => ALLOWED_BYTES.max(median * ALLOWED_SHARE),
            Unit::Descriptors => ALLOWED_DESCRIPTORS,
        };
        let flat = kept.len() >= FEWEST && growth <= allowed;
        Trend { points: kept.len(), median, growth, allowed, flat }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns the resident memory of a process, in bytes.
pub(super) fn resident(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let text = std::fs::read_to_string(&path)?;
    text.lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok())
        .map(|kib| kib * 1024)
        .ok_or_else(|| Failure::new(format!("{path} has no line VmRSS")))
}

/// Returns the number of open descriptors of a process.
pub(super) fn descriptors(pid: u32) -> Result<u64> {
    Ok(std::fs::read_dir(format!("/proc/{pid}/fd"))?.count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(value: impl Fn(u32) -> f64) -> Trend {
        let mut series = Series::new("memory", Unit::Bytes);
        series.points = (0..600).map(|second| (f64::from(second), value(second))).collect();
        series.trend()
    }

    #[test]
    fn trend_distinguishes_leaks_from_noise() {
        const MIB: f64 = 1024.0 * 1024.0;
        let noise = |second: u32| f64::from(second * 7919 % 101) / 101.0 * 8.0 * MIB;
        assert!(series(|second| 50.0 * MIB + noise(second)).flat);
        // This series grows at the start, and then stays constant.
        assert!(series(|second| 50.0 * MIB + f64::from(second.min(200)) * MIB).flat);
        // This series has one outlier at its end.
        assert!(series(|second| if second == 599 { 500.0 * MIB } else { 50.0 * MIB }).flat);
        let leak = series(|second| 50.0 * MIB + noise(second) + f64::from(second) * 20_000.0);
        assert!(!leak.flat && leak.growth > 6.0 * MIB, "{leak:?}");
        assert!(!Series::new("nothing", Unit::Bytes).trend().flat);
    }

    #[test]
    fn trend_finds_growing_descriptors() {
        let mut series = Series::new("descriptors", Unit::Descriptors);
        series.points =
            (0..60).map(|second| (f64::from(second), 20.0 + f64::from(second) / 5.0)).collect();
        assert!(!series.trend().flat);
        assert!(descriptors(std::process::id()).unwrap() > 2);
        assert!(resident(std::process::id()).unwrap() > 100_000);
    }
}
