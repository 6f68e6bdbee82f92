//! Tools for authors of protocol plugins, and for tests of plugins:
//!
//! * [`compile`], [`compile_text`]: compile C to an object with clang.
//! * [`Network`]: a client and a server in one thread and virtual time, connected by a link of
//!   `equic-net`. The same seed gives the same run.
//! * [`Pair`]: a network in which a server pushes plugins and a client accepts them.
//! * [`paper`]: experiments of "The Case for Protocol Plugins" (De Coninck and Bonaventure, 2019).
//! * [`tree`]: the plugins of this source tree, by name. [`trial`]: measurements of what each of
//!   them improves. [`hostile`]: malicious plugins, and what must happen to each of them.
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
