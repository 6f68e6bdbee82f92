//! Draws plots as SVG text and, with the feature `png`, as PNG pixels.
//!
//! * `line.rs`: [`LinePlot`], values over time, with shaded and labelled [`Phase`]s.
//! * `ecdf.rs`: [`EcdfPlot`], distributions. `bar.rs`: [`BarPlot`], grouped bars with intervals.
//! * `frame.rs`: the common parts: title, legend, axes, grid. `axis.rs`: [`Axis`] and its ticks.
//!   `canvas.rs`: shapes as SVG elements. `text.rs`: estimated width of texts.
//! * `png.rs`: conversion of SVG to PNG. `no_png.rs`: its replacement without the feature `png`.
//!
//! Start with [`LinePlot`]. The caller describes a plot, and this module draws it as an [`Svg`].
//! The same description always gives the same text. The colours are those of Okabe and Ito, which
//! colour-blind people can distinguish. Lines also differ in their dashes, for black-and-white
//! print.
//!
//! The `svg` crate writes the SVG elements, and `resvg` renders the same SVG as pixels, with the
//! fonts of the machine. Two alternatives were rejected: plotters draws only at whole pixels (its
//! issue 128) and has no phases, and charming needs a JavaScript engine for PNG.

mod axis;
mod bar;
mod canvas;
mod ecdf;
mod frame;
mod line;
#[cfg_attr(not(feature = "png"), path = "no_png.rs")]
mod png;
mod text;

use std::path::Path;

pub use axis::Axis;
pub use bar::{Bar, BarPlot};
pub use ecdf::EcdfPlot;
pub use line::{LinePlot, Phase, Series, Shade};

/// Error of drawing, rendering or writing a plot.
#[derive(Debug, thiserror::Error)]
pub enum PlotError {
    /// There is no finite value to draw.
    #[error("the plot `{0}` has no finite value to draw: check that anything was measured")]
    Empty(String),
    /// An axis is logarithmic, but no value is above zero.
    #[error("the axis `{0}` is logarithmic, but no value is above zero: make it linear")]
    NothingPositive(String),
    /// The range that the caller has set for an axis is empty, or it is not above zero although the
    /// axis is logarithmic.
    #[error(
        "the range {low} to {high} of the axis `{axis}` is empty, or it is not above zero although the axis is logarithmic"
    )]
    Range {
        /// Title of the axis.
        axis: String,
        /// Lower end of the requested range.
        low: f64,
        /// Upper end of the requested range.
        high: f64,
    },
    /// The plot is too small to be readable, or too large for the memory.
    #[error("a plot of {width} x {height} pixels is out of range: width and height must be {min} to {max}", min = MIN_SIDE, max = MAX_SIDE)]
    Size {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
    },
    /// The program was built without the feature `png`.
    #[error("this build draws no PNG: convert the SVG file, or build with `--features png`")]
    NoPng,
    /// The machine has no fonts, so a PNG would have no text.
    #[error("no font is installed, so a PNG would have no text: apt-get install fonts-dejavu-core")]
    NoFont,
    /// The SVG could not be rendered.
    #[error("cannot render the plot as PNG: {0}")]
    Render(String),
    /// The file could not be written.
    #[error(transparent)]
    Write(#[from] crate::WriteError),
}

/// True if this build can draw PNG files, because it has the feature `png`.
pub const PNG: bool = cfg!(feature = "png");
/// Minimum width and height of a plot, in pixels.
pub const MIN_SIDE: u32 = 200;
/// Maximum width and height of a plot, in pixels. Rendering a PNG of this size takes 400 MB of
/// memory.
pub const MAX_SIDE: u32 = 10_000;

/// A drawn plot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Svg {
    text: String,
}

impl Svg {
    /// Creates a plot from an SVG document that other code has drawn.
    #[must_use]
    pub fn from_text(text: String) -> Svg {
        Svg { text }
    }

    /// Returns the SVG document.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Renders the plot as a PNG file, with `scale` pixels per SVG pixel (2.0 for high-resolution
    /// screens and print) and the fonts of this machine.
    ///
    /// # Errors
    /// Fails with [`PlotError::NoPng`] without the feature `png`, with [`PlotError::NoFont`] on a
    /// machine without fonts, with [`PlotError::Size`] if the scale makes the picture too large or
    /// too small, or with [`PlotError::Render`] if the renderer fails.
    pub fn to_png(&self, scale: f32) -> Result<Vec<u8>, PlotError> {
        png::render(&self.text, scale)
    }

    /// Writes the SVG file. The file is replaced atomically.
    ///
    /// # Errors
    /// Fails with [`PlotError::Write`].
    pub fn write_svg(&self, path: impl AsRef<Path>) -> Result<(), PlotError> {
        Ok(crate::file::write(path.as_ref(), self.text.as_bytes())?)
    }

    /// Writes the result of [`Svg::to_png`] to a file. The file is replaced atomically.
    ///
    /// # Errors
    /// Fails as [`Svg::to_png`] does, and with [`PlotError::Write`].
    pub fn write_png(&self, path: impl AsRef<Path>, scale: f32) -> Result<(), PlotError> {
        Ok(crate::file::write(path.as_ref(), &self.to_png(scale)?)?)
    }

    /// Writes `NAME.svg` into a folder and, if this build draws PNG files ([`PNG`]), `NAME.png`.
    ///
    /// # Errors
    /// Fails as [`Svg::write_svg`] and [`Svg::write_png`] do, but not with [`PlotError::NoPng`].
    pub fn write_into(&self, folder: &Path, name: &str, scale: f32) -> Result<(), PlotError> {
        self.write_svg(folder.join(format!("{name}.svg")))?;
        if PNG { self.write_png(folder.join(format!("{name}.png")), scale) } else { Ok(()) }
    }
}

/// Checks that this machine has the font that drawing PNG files needs. Call it before an
/// experiment, so that the experiment does not fail at its end.
///
/// # Errors
/// Fails as [`Svg::to_png`] does. Without the feature `png`, it always succeeds, because an SVG
/// needs no font.
pub fn check_fonts() -> Result<(), PlotError> {
    if !PNG {
        return Ok(());
    }
    let axis = || Axis::new("x", "");
    let probe = LinePlot::new("probe", axis(), axis()).size(MIN_SIDE, MIN_SIDE);
    probe.series(Series::new("probe", [(0.0, 0.0), (1.0, 1.0)])).draw()?.to_png(1.0).map(drop)
}

/// Returns `true` if a value can be drawn: it must be finite, and small enough that the difference
/// between two such values is finite, too.
fn drawable(value: f64) -> bool {
    value.is_finite() && value.abs() <= 1e100
}

/// Returns the smallest and the largest of the values that can be drawn, or `None` if no value can
/// be drawn.
fn extent(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    values.into_iter().filter(|value| drawable(*value)).fold(None, |extent, value| match extent {
        None => Some((value, value)),
        Some((low, high)) => Some((value.min(low), value.max(high))),
    })
}

#[cfg(test)]
mod png_tests;
#[cfg(test)]
#[path = "tests.rs"]
mod tests;
