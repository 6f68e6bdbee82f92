//! Measures QUIC implementations side by side, as processes on one machine or on two.
//!
//! An implementation is a program that follows docs/bench-contract.md ([`registry`]). A
//! [`Workload`] defines the arguments of its client and the required answer. [`cell::run`] starts a
//! server and a client, of the same implementation or of two, each on its own CPUs. It returns
//! figures, or the reason why it has no figures. If the client did not do the requested work, no
//! figure is shown.
//!
//! A cell is a combination of client, server, protocol, workload, path and settings.
//!
//! * [`plan`]: all cells of `equic-lab bench run` in their order, fixed before the first attempt.
//!   [`pair`]: which client runs with which server. [`sweep`] and [`path`]: settings that vary.
//!   [`run`]: carries a plan out. [`record`]: the stored data of each attempt.
//! * [`transfer`], `container`: stock endpoints. [`site`]: where a server or client runs. `ends`,
//!   `attend`, `process`: start and end of programs. [`network`]: namespaces. [`testbed`],
//!   [`agent`]: two machines.
//! * [`extras`], `sampling`, `capture`: recordings in additional attempts whose figures do not
//!   count.
//! * `probe`: the cost of a client before its first request. `clock`: checks the time that a client
//!   reports.
//! * [`claim`]: detects concurrent runs.
//! * [`counters`], [`watch`], [`doctor`], [`manifest`]: facts about the reliability of figures.
//! * [`result`]: everything that is computed from records.

pub mod agent;
pub mod answer;
mod attend;
pub mod builtin;
mod calls;
mod capture;
pub mod cell;
pub mod claim;
mod clock;
mod container;
mod context;
pub mod counters;
mod digest;
pub mod doctor;
mod ends;
mod error;
pub mod extras;
pub mod manifest;
pub mod network;
pub mod pair;
pub mod path;
mod places;
pub mod plan;
pub mod preflight;
mod probe;
mod process;
pub mod record;
pub mod registry;
pub mod result;
pub mod run;
mod sampling;
pub mod site;
mod stall;
pub mod sweep;
pub mod testbed;
pub mod transfer;
pub mod watch;
pub mod workload;

pub use answer::{Answer, Effective, Exchanges, Latency};
pub use error::BenchError;
pub use path::NetPath;
pub use places::Places;
pub use record::{End, Failure, Figures, Key, Noise, RECORDS, Record, WhyNot};
pub use registry::{Implementation, Registry};
pub use workload::{Size, Workload};
