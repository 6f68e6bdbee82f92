//! Stores, summarises and displays the results of measurements.
//!
//! The modules, from numbers to pictures:
//!
//! * [`stats`]: statistics of a sample of numbers; [`timeline`]: rates from events.
//! * [`schema`]: the versioned envelope of all JSON results, with a description of the machine.
//! * [`csv`]: rows for a spreadsheet; [`table`]: rows for a terminal; [`number`]: numbers with
//!   units.
//! * `plot`, with the feature `plots`: line plots with phases, distributions and grouped bars, as
//!   SVG files and, with the feature `png`, as PNG files.
//!
//! Start with [`stats::Sample`] and [`schema::Report`]. The crate does not print, read a clock or
//! draw random numbers by itself. Instead, the caller passes in the time and the random number
//! generator, and prints the text. Only [`table::Style::stdout`], [`schema::Machine::read`] and the
//! `write` methods use the operating system.
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
#[cfg(feature = "plots")]
pub mod plot;
pub mod schema;
pub mod stats;
pub mod table;
pub mod timeline;

pub use file::WriteError;
