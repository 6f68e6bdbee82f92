//! Results: how measurements are kept, summed up and shown.
//!
//! Contents, from numbers to pictures:
//!
//! * [`stats`]: one sample of numbers and what can be said about it; [`timeline`]: events into rates.
//! * [`schema`]: the versioned envelope every JSON result travels in, and the machine it was made on.
//! * [`csv`]: rows for a spreadsheet; [`table`]: rows for a terminal; [`number`]: figures with units.
//! * [`plot`]: line plots with phases, distributions and grouped bars, as SVG and PNG files.
//!
//! Start with [`stats::Sample`] and [`schema::Report`]. Nothing here prints, reads a clock or draws a
//! random number of its own: text, time and generator are the caller's. [`table::Style::stdout`],
//! [`schema::Machine::read`] and the `write` methods are the only ones that look outside.
//!
//! ```
//! use equic_report::stats::Sample;
//!
//! let seconds: Sample = [0.31, 0.29, 0.35, 0.30].into_iter().collect();
//! assert_eq!(seconds.median(), Some(0.305));
//! assert_eq!(seconds.percentile(101.0), None);
//! ```

#![forbid(unsafe_code)]

pub mod csv;
pub mod file;
pub mod number;
pub mod plot;
pub mod schema;
pub mod stats;
pub mod table;
pub mod timeline;

pub use file::WriteError;
