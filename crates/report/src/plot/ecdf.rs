//! Plots of empirical distributions. They show, for each value, the fraction of the sample that
//! does not exceed this value.

use super::canvas::{Anchor, Stroke};
use super::frame::{FOOT, Frame, Sign, TICK, stroke};
use super::line::fit;
use super::{Axis, PlotError, Svg};
use crate::stats::Sample;

/// A plot of empirical distributions, with one step line for each sample.
#[derive(Clone, Debug)]
pub struct EcdfPlot {
    frame: Frame,
    x: Axis,
    samples: Vec<(String, Sample)>,
    counts: bool,
}

impl EcdfPlot {
    /// Creates a plot of 1200 by 600 pixels, with a title and the axis for the values. For
    /// latencies, use a logarithmic axis.
    #[must_use]
    pub fn new(title: impl Into<String>, x: Axis) -> Self {
        Self { frame: Frame::new(title), x, samples: Vec::new(), counts: true }
    }

    super::frame::framed!();

    /// Leaves the number of values out of the legend. Use this, for example, if the values are
    /// percentiles.
    #[must_use]
    pub fn without_counts(mut self) -> Self {
        self.counts = false;
        self
    }

    /// Adds a sample. An empty sample appears only in the legend, marked as empty.
    #[must_use]
    pub fn sample(mut self, label: impl Into<String>, sample: Sample) -> Self {
        self.samples.push((label.into(), sample));
        self
    }

    /// Draws the plot.
    ///
    /// # Errors
    /// Fails with [`PlotError::Empty`] if all samples are empty. Fails with
    /// [`PlotError::NothingPositive`] or [`PlotError::Range`] if the axis does not suit the values,
    /// and with [`PlotError::Size`] if the size of the plot is invalid.
    pub fn draw(&self) -> Result<Svg, PlotError> {
        let mut canvas = self.frame.canvas()?;
        let ends = || {
            let samples = self.samples.iter();
            samples.flat_map(|(_, sample)| sample.sorted().iter().copied())
        };
        if ends().next().is_none() {
            return Err(PlotError::Empty(self.frame.title.clone()));
        }
        let x_fit = fit(&self.x, ends(), false)?;
        let y_axis = Axis::new("share of the sample", "%").range(0.0, 100.0);
        let y_fit = fit(&y_axis, std::iter::empty(), true)?;
        let labels: Vec<String> = self
            .samples
            .iter()
            .map(|(label, sample)| match sample.len() {
                0 => format!("{label} (no values)"),
                _ if !self.counts => label.clone(),
                n => format!("{label} (n = {})", crate::number::count(n as u64)),
            })
            .collect();
        let legend: Vec<(&str, Sign)> = labels
            .iter()
            .enumerate()
            .map(|(index, label)| (label.as_str(), Sign::Line(stroke(index))))
            .collect();
        let top = self.frame.head(&mut canvas, &legend) + 4.0;
        let fitted = self.frame.fit(top, FOOT, (&self.x, x_fit), (&y_axis, y_fit))?;
        fitted.grid(&mut canvas, true);
        for (percent, name) in [(50.0, "median"), (99.0, "p99")] {
            let y = fitted.y.at(percent);
            let mark = Stroke { colour: "#7b8794", width: 1.0, dashes: "4 3" };
            canvas.line((fitted.plot.left, y), (fitted.plot.right, y), mark);
            // The label is below the line, because the space between the p99 line and the upper
            // edge is too small.
            canvas.text(fitted.plot.right - 4.0, y + 15.0, name, Anchor::End, TICK, true);
        }
        fitted.y_axis(&mut canvas);
        fitted.x_axis(&mut canvas);
        let curves: Vec<Vec<Vec<(f64, f64)>>> = self
            .samples
            .iter()
            .map(|(_, sample)| {
                steps(
                    sample,
                    |x, percent| (fitted.x.at(x), fitted.y.at(percent)),
                    fitted.plot.right,
                )
            })
            .collect();
        let strokes = curves.iter().enumerate().rev();
        canvas.curves(fitted.plot, strokes.map(|(index, runs)| (runs.as_slice(), stroke(index))));
        Ok(Svg { text: canvas.finish() })
    }
}

/// Returns the points of a step line for a sample, in pixels. The line goes up at each value, and
/// then horizontally to the next value. The last step extends to `edge`, because the fraction stays
/// at 1.
fn steps(sample: &Sample, at: impl Fn(f64, f64) -> (f64, f64), edge: f64) -> Vec<Vec<(f64, f64)>> {
    let mut run = Vec::new();
    let mut share = 0.0;
    for (value, fraction) in sample.ecdf() {
        run.push(at(value, share * 100.0));
        run.push(at(value, fraction * 100.0));
        share = fraction;
    }
    if let Some(&(_, y)) = run.last() {
        run.push((edge, y));
    }
    vec![run]
}
