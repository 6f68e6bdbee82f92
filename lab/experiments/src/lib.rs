//! The demo and the experiments of four papers, for the command `equic-lab`. The experiments run in
//! labs on this machine. The programs in a lab's network namespaces are this same command, and
//! `equic`.
//!
//! * [`demo`]: attacks on a server, stopped in the kernel, in a minute and a half. [`reproduce`]:
//!   repeats the experiments of four papers, and compares the results.
//! * [`flood`]: measures what a flood leaves of a server's capacity, by protection. [`soak`]:
//!   endurance test of a gateway.
//! * `part`: a child process of an experiment, which reports its progress as JSON lines.
//!   [`simulator`]: finds `equic-sim`. [`product`]: finds `equic`.
//!
//! The feature `all`, which is on by default, has all of them. Without it, there is only the demo.
//!
//! Each experiment has `Args`, its command-line options, and `run`. All output goes through
//! `equic_console`.
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
#[cfg(feature = "all")]
pub mod flood;
#[cfg(feature = "all")]
pub mod identity;
#[cfg_attr(not(feature = "all"), allow(dead_code))]
mod part;
pub mod product;
#[cfg(feature = "all")]
pub mod reproduce;
#[cfg(feature = "all")]
pub mod simulator;
#[cfg(feature = "all")]
pub mod soak;

#[cfg(feature = "all")]
use equic_console::signals;
use equic_console::{envelope, failure, output};
