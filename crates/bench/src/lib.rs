//! QUIC implementations measured side by side, as processes on one machine.
//!
//! An implementation is a program that does what docs/bench-contract.md says ([`registry`]). A
//! [`Workload`] says what its client is told and what its answer has to be; [`cell::run`] starts a server
//! and a client, each on a CPU of its own, and gives an [`Outcome`]: a [`Sample`], or why there is none.
//! What was asked for and did not come is never a number. [`plan`] is the order of the cells, [`summary`]
//! medians, intervals and ratios. [`record`] is what `equic bench run` keeps of each attempt, and [`result`]
//! everything that is made of it.

pub mod answer;
pub mod cell;
mod error;
pub mod plan;
mod process;
pub mod record;
pub mod registry;
pub mod result;
pub mod summary;
pub mod workload;

pub use answer::{Answer, Effective};
pub use cell::{Outcome, Sample};
pub use error::BenchError;
pub use record::{End, Failure, Figures, Key, Noise, Record};
pub use registry::{Implementation, Registry};
pub use workload::{Size, Workload};
