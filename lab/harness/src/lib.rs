//! Starts the programs of an experiment in their network namespaces and on their CPUs. Ends them,
//! and ensures that no process is left. The benchmark, the interoperability tests, the demo and the
//! papers' experiments use this crate.
//!
//! * [`Program`]: a program in its own process group, which is killed when the program ends.
//!   [`ProcessPlacement`] has the program's namespace, CPUs, environment and priority.
//! * [`allowed_cpus`]: the available CPUs. [`cpu_seconds`]: the CPU time that some work takes.
//! * [`until_interrupted`]: runs an experiment, and removes its labs if a signal ends it.
//!
//! ```
//! use std::process::Stdio;
//! use std::time::Duration;
//!
//! use equic_harness::{ProcessPlacement, Program, Streams, allowed_cpus};
//!
//! # fn main() -> std::io::Result<()> {
//! let cpus = allowed_cpus()?;
//! let words = ["sleep", "1000"].map(str::to_owned);
//! let placement = ProcessPlacement { cpus: &cpus[..1], ..ProcessPlacement::default() };
//! let mut program = Program::start(&words, &placement, Streams::null())?;
//! assert!(!program.has_ended());
//! let ended = program.stop(Duration::from_secs(10))?;
//! assert!(!ended.status.success(), "it was asked to end");
//! # Ok(())
//! # }
//! ```

mod cpus;
mod interrupt;
mod process;
mod standing;

pub use cpus::{allowed_cpus, cpu_seconds};
pub use interrupt::until_interrupted;
pub use process::{Ended, ProcessPlacement, Program, Streams};
