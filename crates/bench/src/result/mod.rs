//! From the samples of a run to figures, files, tables and a page.
//!
//! * [`read`]: `samples.jsonl`, and the plan and manifest beside it. [`summarise`](mod@summarise): what
//!   they say of each cell ([`Summary`]).
//! * [`tables`](mod@tables), `beside`, `latency`: for a terminal. [`runner`]: `result.json` for the Interop Runner's web page,
//!   with the summary in it. [`csv`]: for a spreadsheet. [`html`]: a page that needs nothing else.
//! * [`compare`](mod@compare): two results. [`tumi8`]: the data of "QUIC on the Highway". [`profile`], [`profiles`],
//!   [`parts`]: where CPU time goes, in four parts; [`shares`]: the same by groups of functions.
//!
//! [`write()`] makes all files of a run from its samples, as often as one likes.

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
pub mod tumi8;

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

/// Reason for which a result cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResultError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Error from the system.
        #[source]
        source: io::Error,
    },
    /// A folder cannot be made.
    #[error("cannot make {}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Error from the system.
        #[source]
        source: io::Error,
    },
    /// There is nothing in it.
    #[error("{} has no sample that can be read: {reason}", path.display())]
    Samples {
        /// The file.
        path: PathBuf,
        /// Defect of the file.
        reason: String,
    },
    /// It is not what it should be.
    #[error("{} cannot be read: {reason}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Defect of the file.
        reason: String,
    },
    /// A file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Rows cannot be written.
    #[error(transparent)]
    Csv(#[from] CsvError),
    /// A plot cannot be written.
    #[error(transparent)]
    Plot(#[from] PlotError),
}

/// The folder of plots in the folder of a run.
pub const PLOTS: &str = "plots";
/// Pixels of a PNG for each pixel of its SVG: sharp in print.
const SHARP: f32 = 2.0;

/// Reads a run's folder and writes `result.json`, `samples.csv`, `summary.csv`, `report.html` and the plots
/// (as SVG files) there, each file as a whole.
///
/// # Errors
/// [`ResultError`]; the samples are never touched.
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

/// Draws the plots of a run as PNG files, next to the SVG files that [`write()`] left there.
///
/// # Errors
/// [`PlotError`]: they need a font of the machine. The SVG files do not.
pub fn draw(dir: &Path, summary: &Summary) -> Result<(), PlotError> {
    let mut drawn = Ok(());
    for plot in html::plots(&html::page(summary)) {
        let (width, height) = plot.size;
        // The least and the most that a PNG may have, less a pixel for rounding.
        let least = (MIN_SIDE as f32 + 1.0) / width.min(height);
        let most = (MAX_SIDE as f32 - 1.0) / width.max(height);
        let file = dir.join(PLOTS).join(format!("{}.png", plot.name));
        let one = Svg::from_text(plot.svg).write_png(file, SHARP.max(least).min(most));
        drawn = drawn.and(one);
    }
    drawn
}
