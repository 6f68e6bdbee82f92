//! Scenarios: a TOML description of a network, its flows, and the seeds of its runs.
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
//! A description with mistakes is rejected before anything runs. Each mistake is reported with its
//! line. `docs/simulator.md` lists all keys.
//!
//! * `model.rs`: types that represent a description; `keys.rs`: all keys; `read/`: the parser;
//!   `schema.rs`: JSON Schemas; `build.rs`: builds the simulated network;
//! * `builtin.rs`: the built-in scenarios; `problem.rs`: mistakes, with their lines; `locate.rs`:
//!   finds the line of a key;
//! * `results/`, with the feature `results`: results of runs in virtual or real time;
//! * `transport.rs`, with the feature `transport`: the configuration of QUIC endpoints;
//! * `play/`, with the feature `play`: runs in virtual time, and their results;
//! * `command.rs`, with the feature `command`: the command line of `equic-lab sim`.

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
mod schema;
#[cfg(feature = "transport")]
mod transport;

pub use build::Place;
pub use builtin::{BuiltIn, built_in};
pub use equic_sim::{Application, Call, Object, Page, Requests, Streams, Video};
pub use keys::{Key, Section, Values, markdown, sections};
pub use model::{
    Controller, Flow, Link, Network, PluginFile, Protection, Protocol, QuicOptions, Route,
    Scenario, Scheduler, TcpOptions, Tls, TlsVersion, Topology, Traffic, TrafficKind,
};
pub use problem::{Problem, ScenarioError};
pub use read::{Axis, Grid, TraceTexts};
pub use schema::{grid_schema, schema};
