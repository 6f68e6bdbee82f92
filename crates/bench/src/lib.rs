//! QUIC implementations measured side by side, as processes on one machine or on two.
//!
//! An implementation is a program that does what docs/bench-contract.md says ([`registry`]). A
//! [`Workload`] says what its client is told and what its answer has to be; [`cell::run`] starts a server
//! and a client, of the same implementation or of two, each on CPUs of its own, and gives figures, or why
//! there are none. What was asked for and did not come is never a number.
//!
//! * [`plan`]: all cells of `equic bench run` in their order, frozen; [`pair`]: which client meets which
//!   server; [`sweep`] and [`path`]: what varies. [`run`]: carrying a plan out; [`record`]: what is kept of
//!   each attempt.
//! * [`transfer`], `container`: stock endpoints. [`site`]: where an end runs; `ends`, `attend`, `process`: programs, how they begin and end. [`network`]: namespaces;
//!   [`testbed`], [`agent`]: two machines.
//! * [`extras`], `sampling`, `capture`: what is kept of attempts that do not count.
//! * `probe`: what a client costs before its first request; `clock`: the client's clock against what is seen.
//! * [`claim`]: runs at the same time.
//! * [`counters`], [`watch`], [`doctor`], [`manifest`]: how far the figures can be trusted.
//! * [`result`]: everything that is made of records.

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
