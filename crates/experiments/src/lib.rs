//! The demo and the experiments of the papers, as the command `equic` plays them: labs on this machine, whose programs
//! are this same command in network namespaces, and what is made of their figures.
//!
//! * [`demo`]: attacks on a server, stopped in the kernel, in a minute and a half. [`reproduce`]: four papers' experiments
//!   again, beside their numbers.
//! * [`flood`]: what a flood leaves of a server, by who protects it. [`soak`]: does a gateway endure?
//! * `part`: a program of an experiment, which says in JSON lines what becomes of it. [`simulator`]: where `equic-sim` is.
//!
//! Each has `Args`, its options on the command line, and `run`. What they print goes through `equic_console`.
//!
//! ```
//! use clap::Parser;
//! use equic_experiments::demo;
//!
//! #[derive(Parser)]
//! struct Options {
//!     #[command(flatten)]
//!     demo: demo::Args,
//! }
//!
//! // `demo::run(&options.demo)` would play it; it needs root.
//! assert!(Options::try_parse_from(["demo", "--quick"]).is_ok());
//! assert!(Options::try_parse_from(["demo", "--quick", "--seconds", "30"]).is_err(), "either, or");
//! ```

#![forbid(unsafe_code)]

pub mod demo;
pub mod flood;
pub mod identity;
mod part;
pub mod reproduce;
pub mod simulator;
pub mod soak;

use equic_console::{envelope, failure, output, signals};
