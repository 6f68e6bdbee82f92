//! Line plots of values over time, with named phases in the background.

use super::axis::Fit;
use super::canvas::{Anchor, Area, Canvas, Stroke};
use super::frame::{FOOT, Fitted, Frame, LABEL, Sign, stroke};
use super::{Axis, PlotError, Svg, drawable, extent, text};

/// Background shade of a phase. Each shade has a meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shade {
    /// White: normal operation.
    #[default]
    None,
    /// Grey: different from normal operation, but neither good nor bad.
    Neutral,
    /// Red: a failure or an attack.
    Alarm,
    /// Yellow: a countermeasure has been started.
    Caution,
    /// Blue: a countermeasure is active and works.
    Safe,
}

impl Shade {
    /// Returns two colours for the phase: one behind the values, and one behind the label above
    /// them.
    fn fills(self) -> (&'static str, &'static str) {
        match self {
            Self::None => ("#ffffff", "#f1f4f7"),
            Self::Neutral => ("#f3f5f7", "#dfe4ea"),
            Self::Alarm => ("#fdf0ec", "#f6cfc2"),
            Self::Caution => ("#fdf7e6", "#f3e2ae"),
            Self::Safe => ("#edf5fb", "#c6dff1"),
        }
    }
}

/// A named section of the x axis, for example "attack, no gateway".
#[derive(Clone, Debug)]
pub struct Phase {
    label: String,
    start: f64,
    end: f64,
    shade: Shade,
}

impl Phase {
    /// Creates a phase from `start` to `end`, in the unit of the x axis.
    #[must_use]
    pub fn new(label: impl Into<String>, start: f64, end: f64) -> Self {
        Self { label: label.into(), start, end, shade: Shade::None }
    }

    /// Sets the shade of the phase.
    #[must_use]
    pub fn shade(mut self, shade: Shade) -> Self {
        self.shade = shade;
        self
    }
}

/// A line of a plot, with its name in the legend and its points.
#[derive(Clone, Debug)]
pub struct Series {
    label: String,
    points: Vec<(f64, f64)>,
}

impl Series {
    /// Creates a line through the points (x, y), in this order. A point with a coordinate that is
    /// not finite leaves a gap.
    #[must_use]
    pub fn new(label: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self { label: label.into(), points: points.into_iter().collect() }
    }
}

/// A line plot, whose x axis is usually the time.
#[derive(Clone, Debug)]
pub struct LinePlot {
    frame: Frame,
    x: Axis,
    y: Axis,
    phases: Vec<Phase>,
    series: Vec<Series>,
}

impl LinePlot {
    /// Creates a plot of 1200 by 600 pixels, with a title and two axes.
    #[must_use]
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self { frame: Frame::new(title), x, y, phases: Vec::new(), series: Vec::new() }
    }

    super::frame::framed!();

    /// Adds a phase.
    #[must_use]
    pub fn phase(mut self, phase: Phase) -> Self {
        self.phases.push(phase);
        self
    }

    /// Adds a line.
    #[must_use]
    pub fn series(mut self, series: Series) -> Self {
        self.series.push(series);
        self
    }

    /// Draws the plot.
    ///
    /// # Errors
    /// Fails with [`PlotError::Empty`] if no point is finite. Fails with
    /// [`PlotError::NothingPositive`] or [`PlotError::Range`] if an axis does not suit the values,
    /// and with [`PlotError::Size`] if the size of the plot is invalid.
    pub fn draw(&self) -> Result<Svg, PlotError> {
        let mut canvas = self.frame.canvas()?;
        let phases = self.phases.iter().filter(|phase| {
            drawable(phase.start) && drawable(phase.end) && phase.start < phase.end
        });
        let phases: Vec<&Phase> = phases.collect();
        let points = || {
            let all = self.series.iter().flat_map(|series| &series.points);
            all.copied().filter(|(x, y)| drawable(*x) && drawable(*y))
        };
        if points().next().is_none() {
            return Err(PlotError::Empty(self.frame.title.clone()));
        }
        let ends = phases.iter().flat_map(|phase| [phase.start, phase.end]);
        let x_fit = fit(&self.x, points().map(|point| point.0).chain(ends), false)?;
        let y_fit = fit(&self.y, points().map(|point| point.1), true)?;
        let signs = self.series.iter().enumerate();
        let legend: Vec<(&str, Sign)> = signs
            .map(|(index, series)| (series.label.as_str(), Sign::Line(stroke(index))))
            .collect();
        let below = self.frame.head(&mut canvas, &legend);
        let lines = self.strip_lines(&phases);
        let top = below + strip_height(lines);
        let fitted = self.frame.fit(top, FOOT, (&self.x, x_fit), (&self.y, y_fit))?;
        draw_phases(&mut canvas, &fitted, &phases, lines);
        fitted.grid(&mut canvas, false);
        fitted.y_axis(&mut canvas);
        fitted.x_axis(&mut canvas);
        let curves: Vec<_> =
            self.series.iter().map(|series| runs(&series.points, &fitted)).collect();
        // The first line is the most important one, so it is drawn last, above the others.
        let strokes = curves.iter().enumerate().rev();
        canvas.curves(fitted.plot, strokes.map(|(index, runs)| (runs.as_slice(), stroke(index))));
        Ok(Svg { text: canvas.finish() })
    }

    /// Returns how many text lines the labels of the phases need: 0, 1 or 2.
    fn strip_lines(&self, phases: &[&Phase]) -> usize {
        let Some((low, high)) = extent(phases.iter().flat_map(|phase| [phase.start, phase.end]))
        else {
            return 0;
        };
        // The width of the plot depends on its margins, which are not known yet. So a lower bound
        // is used.
        let width = f64::from(self.frame.width) - 120.0;
        let lines = phases.iter().map(|phase| {
            let room = (phase.end - phase.start) / (high - low) * width - 12.0;
            text::wrap(&phase.label, room, LABEL.size, 2).len()
        });
        lines.max().unwrap_or(0)
    }
}

fn strip_height(lines: usize) -> f64 {
    if lines == 0 { 0.0 } else { 10.0 + 17.0 * lines as f64 }
}

/// Fits an axis to all values that it has to show.
pub(super) fn fit(
    axis: &Axis,
    values: impl Iterator<Item = f64>,
    vertical: bool,
) -> Result<Fit, PlotError> {
    let (shown, zeros): (Vec<f64>, Vec<f64>) =
        values.filter(|value| drawable(*value)).partition(|value| !axis.log || *value > 0.0);
    let nothing = || PlotError::NothingPositive(axis.title.clone());
    Ok(Fit {
        // If the caller has set a range for the axis, that range replaces the extent.
        extent: extent(shown).or(axis.range).ok_or_else(nothing)?,
        zeros: !zeros.is_empty(),
        from_zero: vertical,
        whole_ticks: vertical,
        spacing: if vertical { 58.0 } else { 110.0 },
    })
}

fn draw_phases(canvas: &mut Canvas, fitted: &Fitted, phases: &[&Phase], lines: usize) {
    let plot = fitted.plot;
    for phase in phases {
        let side = |value| fitted.x.at(value).clamp(plot.left, plot.right);
        let (left, right) = (side(phase.start), side(phase.end));
        if right - left < 1.0 {
            continue;
        }
        let (back, strip) = phase.shade.fills();
        canvas.rectangle(Area { left, right, ..plot }, back);
        let top = plot.top - strip_height(lines);
        canvas.rectangle(
            Area { left: left + 1.0, right: right - 1.0, top, bottom: plot.top - 2.0 },
            strip,
        );
        let label = text::wrap(&phase.label, right - left - 12.0, LABEL.size, lines);
        // The label is centred vertically in its strip, whether it has one line or two.
        let first = top + strip_height(lines) / 2.0 + 4.0 - 8.5 * (label.len() as f64 - 1.0);
        for (index, line) in label.iter().enumerate() {
            let y = first + 17.0 * index as f64;
            canvas.text(f64::midpoint(left, right), y, line, Anchor::Middle, LABEL, true);
        }
    }
    let border = Stroke { colour: "#9aa5b1", width: 1.0, dashes: "3 3" };
    let mut borders: Vec<f64> =
        phases.iter().flat_map(|phase| [phase.start, phase.end]).map(|x| fitted.x.at(x)).collect();
    borders.sort_unstable_by(f64::total_cmp);
    borders.dedup_by(|a, b| (*a - *b).abs() < 0.5);
    for x in borders.into_iter().filter(|x| *x > plot.left + 1.0 && *x < plot.right - 1.0) {
        canvas.line((x, plot.top), (x, plot.bottom), border);
    }
}

/// Converts points to pixels. Splits them into runs of connected points: a point that cannot be
/// drawn ends a run.
fn runs(points: &[(f64, f64)], fitted: &Fitted) -> Vec<Vec<(f64, f64)>> {
    points
        .split(|(x, y)| !drawable(*x) || !drawable(*y))
        .filter(|run| !run.is_empty())
        .map(|run| run.iter().map(|&(x, y)| (fitted.x.at(x), fitted.y.at(y))).collect())
        .collect()
}
