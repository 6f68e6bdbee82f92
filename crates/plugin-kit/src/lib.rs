//! For authors of protocol plugins, and for tests of plugins:
//!
//! * [`compile`], [`compile_text`]: C to an object, by clang;
//! * [`Network`]: a client and a server in one thread and virtual time, over a link of `equic-net`; the same seed
//!   gives the same run;
//! * [`Pair`]: the same with the exchange of plugins, so that a server pushes and a client takes;
//! * [`paper`]: experiments of the paper that plugins come from;
//! * [`tree`]: the plugins of this source tree, by name; [`trial`]: what each of them is good for, in figures;
//!   [`hostile`]: plugins that mean harm, and what must become of them;
//! * [`limits`]: the plugins that cost their host the most time and memory.
//!
//! The command `equic plugin` is built on this crate.
//!
//! ```
//! use equic_plugin_kit::tree::Source;
//!
//! let source = Source::find("ack-path").expect("a plugin of the tree");
//! assert!(source.lines() > 0);
//! source.load().expect("clang compiles it, and it is accepted");
//! ```

#![forbid(unsafe_code)]

mod clang;
pub mod hostile;
pub mod limits;
mod network;
mod object;
mod pair;
pub mod paper;
pub mod tree;
pub mod trial;

pub use clang::{BuildError, compile, compile_text, compile_text_with, compile_with, flags};
pub use network::{Beginning, Carried, End, Network, Prepare, StartError, Stuck, sent_hash};
pub use pair::{Pair, Standing, TrialError};
