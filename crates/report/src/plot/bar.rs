//! Grouped bars.

use super::axis::{Fit, Scale};
use super::canvas::{Anchor, Area, Canvas, Font, Stroke};
use super::frame::{Frame, LABEL, Sign, TICK, colour};
use super::{Axis, PlotError, Svg, drawable, extent, text};
use crate::stats::Interval;

/// A bar of a bar chart: its value, and optionally the interval of the value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bar {
    value: Option<f64>,
    interval: Option<Interval>,
}

impl Bar {
    /// Creates a bar with this value. A value that is not finite is not drawn.
    #[must_use]
    pub fn new(value: f64) -> Self {
        Self { value: drawable(value).then_some(value), interval: None }
    }

    /// Creates a gap in place of a value that was not measured.
    #[must_use]
    pub fn missing() -> Self {
        Self::default()
    }

    /// Adds an interval to the bar, which is drawn as a whisker.
    #[must_use]
    pub fn interval(mut self, interval: Interval) -> Self {
        self.interval = (drawable(interval.low) && drawable(interval.high)).then_some(interval);
        self
    }
}

impl From<f64> for Bar {
    fn from(value: f64) -> Self {
        Self::new(value)
    }
}

/// A bar chart. Each group along the x axis has one bar for each series. The y axis is linear and
/// includes zero, because readers compare the lengths of bars.
#[derive(Clone, Debug)]
pub struct BarPlot {
    frame: Frame,
    y: Axis,
    series: Vec<String>,
    groups: Vec<(String, Vec<Bar>)>,
}

impl BarPlot {
    /// Creates a chart of 1200 by 600 pixels, with a title, the axis for the values, and the names
    /// of the series.
    #[must_use]
    pub fn new<S: Into<String>>(
        title: impl Into<String>,
        y: Axis,
        series: impl IntoIterator<Item = S>,
    ) -> Self {
        // Bars need a linear axis, because a logarithmic axis has no zero for the bars to start
        // from.
        let y = Axis { log: false, ..y };
        let series = series.into_iter().map(Into::into).collect();
        Self { frame: Frame::new(title), y, series, groups: Vec::new() }
    }

    super::frame::framed!();

    /// Adds a group with one bar for each series. Bars beyond the number of series are ignored. If
    /// there are too few bars, the others are [`Bar::missing`].
    #[must_use]
    pub fn group<B: Into<Bar>>(
        mut self,
        label: impl Into<String>,
        bars: impl IntoIterator<Item = B>,
    ) -> Self {
        let mut bars: Vec<Bar> = bars.into_iter().map(Into::into).take(self.series.len()).collect();
        bars.resize_with(self.series.len(), Bar::missing);
        self.groups.push((label.into(), bars));
        self
    }

    /// Draws the chart.
    ///
    /// # Errors
    /// Fails with [`PlotError::Empty`] if no bar has a value. Fails with [`PlotError::Range`] or
    /// [`PlotError::Size`] if the axis or the size of the chart is invalid.
    pub fn draw(&self) -> Result<Svg, PlotError> {
        let mut canvas = self.frame.canvas()?;
        let bars = self.groups.iter().flat_map(|(_, bars)| bars);
        let values = bars.filter_map(|bar| {
            let value = bar.value?;
            let Interval { low, high } =
                bar.interval.unwrap_or(Interval { low: value, high: value });
            Some([value, low, high])
        });
        let extent =
            extent(values.flatten()).ok_or_else(|| PlotError::Empty(self.frame.title.clone()))?;
        let y_fit = Fit { extent, zeros: false, from_zero: true, whole_ticks: true, spacing: 58.0 };
        let names = self.series.iter().enumerate();
        let legend: Vec<(&str, Sign)> = names
            .map(|(index, name)| (name.as_str(), Sign::Box(colour(index))))
            // A single series needs no legend, because the axis already names it.
            .filter(|_| self.series.len() > 1)
            .collect();
        // This leaves room for the number above the highest bar.
        let top = self.frame.head(&mut canvas, &legend) + 18.0;
        // On the x axis, each group is one unit wide.
        let count = self.groups.len() as f64;
        let x_axis = Axis::new("", "").range(0.0, count);
        let x_fit = Fit { extent: (0.0, count), from_zero: false, whole_ticks: false, ..y_fit };
        let fitted = self.frame.fit(top, 62.0, (&x_axis, x_fit), (&self.y, y_fit))?;
        fitted.grid(&mut canvas, false);
        for (index, (label, bars)) in self.groups.iter().enumerate() {
            let left = fitted.x.at(index as f64);
            let right = fitted.x.at(index as f64 + 1.0);
            let lines = text::wrap(label, right - left - 8.0, LABEL.size, 2);
            for (line, y) in lines.iter().zip([22.0, 39.0]) {
                let y = fitted.plot.bottom + y;
                canvas.text(f64::midpoint(left, right), y, line, Anchor::Middle, LABEL, true);
            }
            self.bars(&mut canvas, bars, Area { left, right, ..fitted.plot }, &fitted.y);
        }
        fitted.y_axis(&mut canvas);
        Ok(Svg { text: canvas.finish() })
    }

    /// Draws the bars of one group, side by side in its area.
    fn bars(&self, canvas: &mut Canvas, bars: &[Bar], area: Area, y: &Scale) {
        let gap = area.width() * 0.12;
        // Wide bars are not easier to read, so the width is limited.
        let width = ((area.width() - 2.0 * gap) / bars.len() as f64).min(90.0);
        let start = area.middle() - width * bars.len() as f64 / 2.0;
        let base = y.at(0.0).clamp(area.top, area.bottom);
        for (index, bar) in bars.iter().enumerate() {
            let left = start + width * index as f64;
            let right = left + width;
            let middle = f64::midpoint(left, right);
            let Some(value) = bar.value else {
                canvas.rimmed_text(middle, base - 6.0, "n/a", TICK);
                continue;
            };
            let end = y.at(value).clamp(area.top, area.bottom);
            let space = (width * 0.06).min(3.0);
            let (top, bottom) = (end.min(base), end.max(base));
            let body = Area { left: left + space, right: right - space, top, bottom };
            canvas.rectangle(body, colour(index));
            let mut tip = end;
            if let Some(Interval { low, high }) = bar.interval {
                let low = y.at(low).clamp(area.top, area.bottom);
                let high = y.at(high).clamp(area.top, area.bottom);
                whisker(canvas, middle, low, high, width);
                tip = if value < 0.0 { end.max(low) } else { end.min(high) };
            }
            let figure = crate::number::si(value, &self.y.unit);
            let room = text::width(&figure, TICK.size, false);
            let font = Font { size: if room > width * 1.05 { 11.0 } else { 13.0 }, ..LABEL };
            // A number is left out if it would overlap its neighbour.
            if room * font.size / 13.0 <= width * 1.25 || bars.len() == 1 {
                let at = if value < 0.0 { tip + 15.0 } else { tip - 6.0 };
                canvas.rimmed_text(middle, at, &figure, font);
            }
        }
    }
}

fn whisker(canvas: &mut Canvas, middle: f64, low: f64, high: f64, width: f64) {
    let stroke = Stroke { colour: "#1f2933", width: 1.5, dashes: "" };
    let half = (width * 0.12).min(7.0);
    canvas.line((middle, low), (middle, high), stroke);
    for y in [low, high] {
        canvas.line((middle - half, y), (middle + half, y), stroke);
    }
}
