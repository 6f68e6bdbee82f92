//! Turns the samples of a run into figures, files, tables and a page.
//!
//! * [`read`]: reads `samples.jsonl`, and the plan and manifest next to it.
//!   [`summarise`](mod@summarise): computes the figures of each cell ([`Summary`]).
//! * [`tables`](mod@tables), `beside`, `latency`: tables for a terminal. [`runner`]: `result.json`
//!   for the Interop Runner's web page, which contains the summary. [`csv`]: files for a
//!   spreadsheet. [`html`]: a self-contained page.
//! * [`compare`](mod@compare): compares two results. [`profile`], [`profiles`], [`parts`]: division
//!   of CPU time into four parts. [`shares`]: division by groups of functions.
//!
//! [`write()`] creates all files of a run from its samples. It can be repeated at any time.

mod beside;
pub mod compare;
mod compare_table;
pub mod csv;
pub mod html;
mod latency;
pub mod parts;
pub mod profile;
pub mod profiles;
pub mod read;
pub mod runner;
pub mod shares;
pub mod show;
pub mod summarise;
pub mod summary;
pub mod tables;

use std::io;
use std::path::{Path, PathBuf};

use equic_report::WriteError;
use equic_report::csv::CsvError;
use equic_report::plot::{MAX_SIDE, MIN_SIDE, PlotError, Svg};

pub use compare::compare;
pub use compare_table::comparison;
pub use read::Run;
pub use summarise::summarise;
pub use summary::{Estimate, Row, Summary};
pub use tables::tables;

/// Reason why a result cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResultError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Error from the operating system.
        #[source]
        source: io::Error,
    },
    /// A folder cannot be created.
    #[error("cannot create {}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Error from the operating system.
        #[source]
        source: io::Error,
    },
    /// The file has no valid sample.
    #[error("{} has no valid sample: {reason}", path.display())]
    Samples {
        /// The file.
        path: PathBuf,
        /// Reason why the file has no valid sample.
        reason: String,
    },
    /// The file is not valid JSON of the expected schema.
    #[error("{} cannot be read: {reason}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Description of the defect of the file.
        reason: String,
    },
    /// A file of the result cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Rows of a CSV file cannot be written.
    #[error(transparent)]
    Csv(#[from] CsvError),
    /// A plot cannot be written.
    #[error(transparent)]
    Plot(#[from] PlotError),
}

/// Name of the folder of plots in the folder of a run.
pub const PLOTS: &str = "plots";
/// Number of pixels of a PNG file per pixel of its SVG file, in each dimension. With more pixels,
/// the PNG file is sharp in print.
const SHARP: f32 = 2.0;

/// Reads a run's folder, and writes `result.json`, `samples.csv`, `summary.csv`, `report.html` and
/// the plots (as SVG files) into it. Each file is replaced atomically. The samples are never
/// changed.
///
/// # Errors
/// [`ResultError`].
pub fn write(dir: &Path) -> Result<Summary, ResultError> {
    let run = Run::read(dir)?;
    let summary = summarise(&run);
    let path = dir.join("result.json");
    let json = serde_json::to_string(&runner::runner_file(&summary))
        .map_err(|error| ResultError::Json { path: path.clone(), reason: error.to_string() })?;
    equic_report::file::write(&path, json.as_bytes())?;
    csv::write(dir, &run, &summary)?;
    let page = html::page(&summary);
    equic_report::file::write(&dir.join("report.html"), page.as_bytes())?;
    let folder = dir.join(PLOTS);
    let plots = html::plots(&page);
    if !plots.is_empty() {
        std::fs::create_dir_all(&folder)
            .map_err(|source| ResultError::Folder { path: folder.clone(), source })?;
    }
    for plot in plots {
        Svg::from_text(plot.svg).write_svg(folder.join(format!("{}.svg", plot.name)))?;
    }
    Ok(summary)
}

/// Draws the plots of a run as PNG files, next to the SVG files that [`write()`] has created.
///
/// # Errors
/// [`PlotError`]: PNG files need a font of the machine, and the feature `png`. SVG files need
/// neither.
pub fn draw(dir: &Path, summary: &Summary) -> Result<(), PlotError> {
    let mut drawn = Ok(());
    for plot in html::plots(&html::page(summary)) {
        let (width, height) = plot.size;
        // The size of a PNG file has limits. A margin of one pixel allows for rounding.
        let least = (MIN_SIDE as f32 + 1.0) / width.min(height);
        let most = (MAX_SIDE as f32 - 1.0) / width.max(height);
        let file = dir.join(PLOTS).join(format!("{}.png", plot.name));
        let one = Svg::from_text(plot.svg).write_png(file, SHARP.max(least).min(most));
        drawn = drawn.and(one);
    }
    drawn
}
