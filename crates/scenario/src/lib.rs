//! Scenarios: one TOML description of a network, the flows in it, and the seeds of its runs.
//!
//! ```
//! let scenario = equic_scenario::Scenario::parse(r#"
//!     seeds = 3
//!     [network]
//!     topology = "simple"
//!     link = { rate = "10 Mb/s", delay = "50 ms", loss = "1 %" }
//!     [[flow]]
//!     controller = "cubic"
//!     size = "1 MB"
//! "#)?;
//! assert_eq!(scenario.flows[0].size, Some(1_000_000));
//! # Ok::<(), equic_scenario::ScenarioError>(())
//! ```
//!
//! A description that contradicts itself is refused before anything runs, each mistake with its line. All keys are in
//! `docs/simulator.md`.
//!
//! * `model.rs`: the description as types; `keys.rs`: all keys; `read/`: from text; `build.rs`: to a network;
//! * `builtin.rs`: scenarios by name; `problem.rs`: mistakes, with their lines; `locate.rs`: the line of a key;
//! * `results/`, with the feature `results`: what came of runs, in virtual or in real time;
//! * `transport.rs`, with the feature `transport`: how QUIC's endpoints are configured;
//! * `play/`, with the feature `play`: runs in virtual time, and their results;
//! * `command.rs`, with the feature `command`: the command line of `equic sim`.

#![forbid(unsafe_code)]

mod build;
mod builtin;
#[cfg(feature = "command")]
pub mod command;
mod keys;
mod locate;
mod model;
#[cfg(feature = "play")]
pub mod play;
mod problem;
mod quantity;
mod read;
#[cfg(feature = "results")]
pub mod results;
#[cfg(feature = "transport")]
mod transport;

pub use build::Place;
pub use builtin::{BuiltIn, built_in};
pub use equic_sim::{Application, Call, Object, Page, Requests, Streams, Video};
pub use keys::{Key, Section, markdown, sections};
pub use model::{
    Controller, Flow, Link, Network, PluginFile, Protection, Protocol, QuicOptions, Route,
    Scenario, Scheduler, TcpOptions, Tls, TlsVersion, Topology, Traffic, TrafficKind,
};
pub use problem::{Problem, ScenarioError};
pub use read::{Axis, Grid, TraceTexts};
