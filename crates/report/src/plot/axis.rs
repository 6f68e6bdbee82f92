//! Axes of plots, which convert values to pixels and choose the positions of ticks.

use super::{PlotError, drawable};

/// The axis of a plot: title, unit, scale and range of values.
#[derive(Clone, Debug)]
pub struct Axis {
    pub(super) title: String,
    pub(super) unit: String,
    pub(super) log: bool,
    pub(super) range: Option<(f64, f64)>,
}

impl Axis {
    /// Creates a linear axis. `unit` is the unit of the values without a prefix: `s`, `B`, `/s`,
    /// `%`, or empty. The axis chooses a suitable decimal prefix (`k/s`, `ms`).
    #[must_use]
    pub fn new(title: impl Into<String>, unit: impl Into<String>) -> Self {
        Self { title: title.into(), unit: unit.into(), log: false, range: None }
    }

    /// Makes the axis logarithmic. Values of zero and below are drawn at its lower edge, which is
    /// labelled 0. So, for example, a server that gives no answers stays visible.
    #[must_use]
    pub fn log(mut self) -> Self {
        self.log = true;
        self
    }

    /// Sets the range of the axis, in the unit of the values. By default, the range fits the
    /// values.
    #[must_use]
    pub fn range(mut self, low: f64, high: f64) -> Self {
        self.range = Some((low, high));
        self
    }
}

/// One tick.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    /// Position along the axis, in pixels.
    pub at: f64,
    /// Label of the tick. It is empty for a minor tick.
    pub label: String,
}

/// An axis whose range fits its values and the space on the picture.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    log: bool,
    /// Value at the lower end of the axis. `high` is the value at the upper end.
    low: f64,
    high: f64,
    /// Pixel at the lower end of the axis. `to` is the pixel at the upper end.
    from: f64,
    to: f64,
    pub ticks: Vec<Tick>,
    /// Title of the axis, including unit and prefix.
    pub title: String,
}

/// Values and options from which the range of an axis is computed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fit {
    /// Smallest and largest value to show. On a logarithmic axis, only values above zero are
    /// considered.
    pub extent: (f64, f64),
    /// For a logarithmic axis: `true` if some values are zero or below.
    pub zeros: bool,
    /// For a linear axis: `true` if the axis begins at zero. If a value is negative, the axis
    /// begins below zero instead.
    pub from_zero: bool,
    /// True if there must be ticks at both ends of the axis.
    pub whole_ticks: bool,
    /// Approximate distance between labelled ticks, in pixels.
    pub spacing: f64,
}

impl Scale {
    pub(super) fn new(axis: &Axis, fit: Fit, from: f64, to: f64) -> Result<Self, PlotError> {
        if let Some((low, high)) = axis.range {
            let valid = drawable(low) && drawable(high) && low < high && (!axis.log || low > 0.0);
            if !valid {
                return Err(PlotError::Range { axis: axis.title.clone(), low, high });
            }
        }
        let ticks = ((to - from).abs() / fit.spacing).max(2.0);
        Ok(if axis.log {
            Self::log(axis, fit, from, to, ticks)
        } else {
            Self::linear(axis, fit, from, to, ticks)
        })
    }

    /// Returns the pixel position of a value. On a logarithmic axis, values of zero and below are
    /// at the lower end.
    pub(super) fn at(&self, value: f64) -> f64 {
        let part = if self.log {
            (value.max(self.low) / self.low).log10() / (self.high / self.low).log10()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + part * (self.to - self.from)
    }

    fn linear(axis: &Axis, fit: Fit, from: f64, to: f64, ticks: f64) -> Self {
        let (mut low, mut high) = axis.range.unwrap_or(fit.extent);
        if axis.range.is_none() {
            if fit.from_zero {
                low = low.min(0.0);
                high = high.max(0.0);
            }
            if high - low <= low.abs().max(high.abs()) * 1e-9 {
                let room = if low == 0.0 { 1.0 } else { low.abs() * 0.5 };
                (low, high) =
                    (if fit.from_zero && low == 0.0 { 0.0 } else { low - room }, high + room);
            }
        }
        let step = nice((high - low) / ticks);
        if axis.range.is_none() && fit.whole_ticks {
            low = (low / step + 1e-9).floor() * step;
            high = (high / step - 1e-9).ceil() * step;
        }
        let (divisor, unit) = prefix(&axis.unit, low.abs().max(high.abs()));
        let title = match unit.as_str() {
            "" => axis.title.clone(),
            unit => format!("{} ({unit})", axis.title),
        };
        let mut scale = Self { log: false, low, high, from, to, ticks: Vec::new(), title };
        let (step_shown, largest) = (step / divisor, low.abs().max(high.abs()) / divisor);
        let first = (low / step - 1e-9).ceil();
        let last = (high / step + 1e-9).floor();
        // Each tick is an index times the step. Adding up steps would shift the later ticks by
        // rounding errors.
        let count = (last - first).clamp(0.0, 1000.0) as u32;
        scale.ticks = (0..=count)
            .map(|index| {
                let value = (first + f64::from(index)) * step;
                Tick { at: scale.at(value), label: figure(value / divisor, step_shown, largest) }
            })
            .collect();
        scale
    }

    fn log(axis: &Axis, fit: Fit, from: f64, to: f64, ticks: f64) -> Self {
        let (mut low, mut high) = axis.range.unwrap_or(fit.extent);
        // The range is limited to 15 decades. Smaller values are not distinguishable from zero.
        low = low.max(high * 1e-15);
        let floor = fit.zeros && axis.range.is_none();
        if axis.range.is_none() {
            low = one_two_five(low, false);
            high = one_two_five(high, true);
            if low >= high {
                low = one_two_five(low * 0.49, false);
            }
            if floor {
                low = decade(low) * 0.1;
            }
        }
        let unit = axis.unit.as_str();
        let title = match unit {
            "" => format!("{} (log scale)", axis.title),
            "/s" => format!("{} (1/s, log scale)", axis.title),
            unit => format!("{} ({unit}, log scale)", axis.title),
        };
        let mut scale = Self { log: true, low, high, from, to, ticks: Vec::new(), title };
        let decades = (high / low).log10();
        let every = (decades / ticks).ceil().max(1.0) as i32;
        let between = decades <= ticks / 2.5;
        let first = low.log10().floor() as i32;
        let last = high.log10().ceil() as i32;
        for exponent in first..=last {
            for digit in 1..10_u8 {
                let value = 10_f64.powi(exponent) * f64::from(digit);
                if value < low * (1.0 - 1e-9) || value > high * (1.0 + 1e-9) {
                    continue;
                }
                let labelled = (digit == 1 && exponent.rem_euclid(every) == 0)
                    || (between && (digit == 2 || digit == 5));
                // The lowest decade is used for the edge that means zero. It contains no values, so
                // it gets no ticks.
                if floor && value < low * 9.99 {
                    continue;
                }
                if labelled {
                    scale.ticks.push(Tick { at: scale.at(value), label: log_label(value, unit) });
                } else if every == 1 && decades < 8.0 {
                    scale.ticks.push(Tick { at: scale.at(value), label: String::new() });
                }
            }
        }
        if floor {
            scale.ticks.insert(0, Tick { at: from, label: "0".to_owned() });
        }
        scale
    }
}

/// Rounds `step` up to 1, 2 or 5 times a power of ten.
fn nice(step: f64) -> f64 {
    one_two_five(step, true)
}

/// Returns the closest number of the form 1, 2 or 5 times a power of ten: not below the value if
/// `above`, otherwise not above it.
fn one_two_five(value: f64, above: bool) -> f64 {
    let power = decade(value);
    let candidates = [1.0, 2.0, 5.0, 10.0];
    let digits = value / power;
    let digit = if above {
        candidates.into_iter().find(|digit| *digit >= digits * (1.0 - 1e-9)).unwrap_or(10.0)
    } else {
        candidates.into_iter().rev().find(|digit| *digit <= digits * (1.0 + 1e-9)).unwrap_or(1.0)
    };
    digit * power
}

/// Returns the largest power of ten that is not above a positive value.
fn decade(value: f64) -> f64 {
    let power = 10_f64.powi(value.log10().floor() as i32);
    // The computed `log10` of the largest float below 1000 is 3, which would give a decade above
    // the value.
    if power > value * (1.0 + 1e-12) { power / 10.0 } else { power }
}

/// Chooses the unit prefix for an axis whose largest value is `largest`. Returns the divisor for
/// values, and the unit with its prefix.
fn prefix(unit: &str, largest: f64) -> (f64, String) {
    let prefixed = |prefix: &str| format!("{prefix}{unit}");
    // Only seconds get prefixes below 1. Seconds and percentages get no prefix above 1, because
    // kiloseconds and kilopercent are unusual. Counts get no prefix.
    let small = unit == "s";
    let large = !matches!(unit, "" | "%" | "s" | "min" | "h");
    let steps = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    if large && let Some((divisor, letter)) = steps.iter().find(|(step, _)| largest >= *step * 1.5)
    {
        return (*divisor, prefixed(letter));
    }
    if small && largest > 0.0 && largest < 0.5 {
        let steps = [(1e-3, "m"), (1e-6, "\u{b5}"), (1e-9, "n")];
        let (divisor, letter) =
            steps.iter().find(|(step, _)| largest >= *step * 0.5).unwrap_or(&(1e-9, "n"));
        return (*divisor, prefixed(letter));
    }
    (1.0, if unit == "/s" { "1/s".to_owned() } else { unit.to_owned() })
}

/// Formats the label of a tick. It has enough decimals to distinguish multiples of `step`, and
/// thousands separators. If a plain number would be too long, uses a power of ten.
fn figure(value: f64, step: f64, largest: f64) -> String {
    // The factor corrects rounding errors: the computed logarithm of 0.001 may be below -3.
    let magnitude = |value: f64| (value * (1.0 + 1e-9)).log10().floor();
    if step < 1e-9 || largest >= 1e15 {
        let digits = (magnitude(largest) - magnitude(step)).clamp(0.0, 15.0) as usize;
        return if value == 0.0 { "0".to_owned() } else { format!("{value:.digits$e}") };
    }
    let decimals = (-magnitude(step)).max(0.0) as usize;
    let text = format!("{:.decimals$}", value.abs());
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let mut shown = crate::number::count(whole.parse().unwrap_or(0));
    if !fraction.is_empty() {
        shown = format!("{shown}.{fraction}");
    }
    if value < 0.0 && text.bytes().any(|byte| (b'1'..=b'9').contains(&byte)) {
        shown.insert(0, '-');
    }
    shown
}

/// Formats the label of a tick on a logarithmic axis: `1 ms`, `200 k`, `0.5 %`, `1e20 B`.
fn log_label(value: f64, unit: &str) -> String {
    const STEPS: [(f64, &str); 9] = [
        (1e15, "P"),
        (1e12, "T"),
        (1e9, "G"),
        (1e6, "M"),
        (1e3, "k"),
        (1.0, ""),
        (1e-3, "m"),
        (1e-6, "\u{b5}"),
        (1e-9, "n"),
    ];
    // The title of the axis already contains the unit of a rate. So the ticks are labelled `10 k`
    // instead of `10 k/s`.
    let unit = if unit == "/s" { "" } else { unit };
    // Seconds get no prefix above 1, because kiloseconds are unusual.
    let fits = |step: f64| value >= step * 0.999_999 && (unit != "s" || step <= 1.0);
    let step = STEPS.iter().find(|(step, _)| fits(*step));
    let text = match step {
        Some(&(divisor, letter)) if unit != "%" && value < 1e18 => {
            let figure = crate::number::count((value / divisor).round() as u64);
            format!("{figure} {letter}{unit}")
        }
        // One significant digit is enough for a tick. Rounding errors, as in 0.20000000000000001,
        // must not be visible.
        _ if (1e-4..1e6).contains(&value) => {
            let decimals = (-(value * (1.0 + 1e-9)).log10().floor()).max(0.0) as usize;
            format!("{value:.decimals$} {unit}")
        }
        _ => format!("{value:.0e} {unit}"),
    };
    text.trim_end().to_owned()
}

#[cfg(test)]
#[path = "axis_tests.rs"]
mod tests;
