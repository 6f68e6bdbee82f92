//! Plots, as SVG text and PNG pixels.
//!
//! * `line.rs`: [`LinePlot`], time series over shaded and labelled [`Phase`]s.
//! * `ecdf.rs`: [`EcdfPlot`], distributions. `bar.rs`: [`BarPlot`], grouped bars with intervals.
//! * `frame.rs`: what all of them share: title, legend, axes, grid. `axis.rs`: [`Axis`] and where its
//!   ticks are. `canvas.rs`: shapes into SVG elements. `text.rs`: how wide a text will be.
//! * `png.rs`: SVG to PNG.
//!
//! Start with [`LinePlot`]. A plot is described, then turned into an [`Svg`]; the same description
//! gives the same text. Colours are those of Okabe and Ito, told apart by colour-blind people, and
//! lines differ in their dashes too, for print without colour.

mod axis;
mod bar;
mod canvas;
mod ecdf;
mod frame;
mod line;
mod png;
mod text;

use std::path::Path;

pub use axis::Axis;
pub use bar::{Bar, BarPlot};
pub use ecdf::EcdfPlot;
pub use line::{LinePlot, Phase, Series, Shade};

/// A plot could not be drawn, turned into pixels or written.
#[derive(Debug, thiserror::Error)]
pub enum PlotError {
    /// There is no finite value to draw.
    #[error("the plot `{0}` has no finite value to draw; was anything measured?")]
    Empty(String),
    /// An axis is logarithmic, and no value is above zero.
    #[error("the axis `{0}` is logarithmic and has no value above zero; make it linear")]
    NothingPositive(String),
    /// The range set for an axis cannot be one.
    #[error(
        "the range {low} to {high} of the axis `{axis}` is empty, or not above zero as its logarithm needs"
    )]
    Range {
        /// Title of the axis.
        axis: String,
        /// Lower end asked for.
        low: f64,
        /// Upper end asked for.
        high: f64,
    },
    /// The size in pixels is too small to read, or too large to hold.
    #[error("a plot of {width} x {height} pixels is out of range: take {min} to {max} each way", min = MIN_SIDE, max = MAX_SIDE)]
    Size {
        /// Pixels across.
        width: u32,
        /// Pixels down.
        height: u32,
    },
    /// The machine has no font, and without one the PNG would have no text.
    #[error("no font is installed, so a PNG would have no text: apt-get install fonts-dejavu-core")]
    NoFont,
    /// The SVG could not be rendered.
    #[error("cannot render the plot as PNG: {0}")]
    Render(String),
    /// The file could not be written.
    #[error(transparent)]
    Write(#[from] crate::WriteError),
}

/// The shortest side a plot may have, in pixels.
pub const MIN_SIDE: u32 = 200;
/// The longest side a plot may have, in pixels (a PNG of this size takes 400 MB to render).
pub const MAX_SIDE: u32 = 10_000;

/// A drawn plot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Svg {
    text: String,
}

impl Svg {
    /// An SVG document that was made elsewhere.
    #[must_use]
    pub fn from_text(text: String) -> Svg {
        Svg { text }
    }

    /// The SVG document.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The plot as a PNG file, `scale` pixels per SVG pixel (2.0 for sharp screens and print), drawn
    /// with the fonts of this machine.
    ///
    /// # Errors
    /// [`PlotError::NoFont`] on a machine without fonts, [`PlotError::Size`] when the scale makes it too
    /// large or too small, [`PlotError::Render`] when the renderer refuses.
    pub fn to_png(&self, scale: f32) -> Result<Vec<u8>, PlotError> {
        png::render(&self.text, scale, &png::fonts()?)
    }

    /// Writes the SVG file, replaced as a whole.
    ///
    /// # Errors
    /// [`PlotError::Write`].
    pub fn write_svg(&self, path: impl AsRef<Path>) -> Result<(), PlotError> {
        Ok(crate::file::write(path.as_ref(), self.text.as_bytes())?)
    }

    /// Writes the PNG file, replaced as a whole; as [`Svg::to_png`].
    ///
    /// # Errors
    /// As [`Svg::to_png`], and [`PlotError::Write`].
    pub fn write_png(&self, path: impl AsRef<Path>, scale: f32) -> Result<(), PlotError> {
        Ok(crate::file::write(path.as_ref(), &self.to_png(scale)?)?)
    }
}

/// Checks whether a PNG can be made here at all: better known before an experiment than after it.
///
/// # Errors
/// As [`Svg::to_png`].
pub fn check_fonts() -> Result<(), PlotError> {
    let axis = || Axis::new("x", "");
    let probe = LinePlot::new("probe", axis(), axis()).size(MIN_SIDE, MIN_SIDE);
    probe.series(Series::new("probe", [(0.0, 0.0), (1.0, 1.0)])).draw()?.to_png(1.0).map(drop)
}

/// True if a value can be drawn: finite, and so far from the ends of `f64` that differences of two
/// such values are finite too.
fn drawable(value: f64) -> bool {
    value.is_finite() && value.abs() <= 1e100
}

/// The smallest and largest drawable value.
fn extent(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    values.into_iter().filter(|value| drawable(*value)).fold(None, |extent, value| match extent {
        None => Some((value, value)),
        Some((low, high)) => Some((value.min(low), value.max(high))),
    })
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
