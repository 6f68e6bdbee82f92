//! Text that the command `equic` and the experiments behind it print, how they fail, and what their results have beside
//! the figures.
//!
//! Only this crate writes to standard output and standard error (progress bars aside, which `indicatif` draws): a name
//! or a reason may be a peer's, and [`output`] escapes what a terminal would act on.
//!
//! * [`output`]: reports, documents, notices, the lines of a command that runs for long. [`failure`]: the reason that a
//!   command ended early, and its exit code (0 done, 1 failed, 2 wrong usage).
//! * [`envelope`]: time, machine and command line of a result. [`signals`]: waiting for the signals that end a command.
//!   [`manager`]: what a service manager wants to hear.
//!
//! ```
//! use equic_console::failure::{Done, Failure};
//! use equic_console::output;
//!
//! fn greet(name: &str) -> Done {
//!     if name.is_empty() {
//!         return Err(Failure::new("nobody to greet").mend("name somebody"));
//!     }
//!     output::line(format_args!("hello, {name}"))
//! }
//!
//! assert!(greet("world").is_ok());
//! assert_eq!(greet("").unwrap_err().to_string(), "nobody to greet\n  name somebody");
//! ```

#![forbid(unsafe_code)]

pub mod envelope;
pub mod failure;
pub mod manager;
pub mod output;
pub mod signals;
