//! Output and failures of the commands `equic` and `equic-lab`, and the metadata of their results.
//!
//! Only this crate writes to standard output and standard error (except for progress bars, which
//! `indicatif` draws). Names and reasons may come from a peer, so [`output`] escapes everything
//! that a terminal would interpret.
//!
//! * [`output`]: reports, documents, notices, and the lines of long-running commands. [`failure`]:
//!   the reason that a command ended early, and its exit code (0 done, 1 failed, 2 wrong usage or configuration).
//! * [`envelope`]: time, machine and command line of a result. [`signals`]: waiting for the signals
//!   that end a command. [`manager`]: messages to the service manager. [`program`]: paths of this
//!   project's other programs.
//!
//! ```
//! use equic_console::failure::{Result, Failure};
//! use equic_console::output;
//!
//! fn greet(name: &str) -> Result {
//!     if name.is_empty() {
//!         return Err(Failure::new("nobody to greet").help("name somebody"));
//!     }
//!     output::line(format_args!("hello, {name}"))
//! }
//!
//! assert!(greet("world").is_ok());
//! assert_eq!(greet("").unwrap_err().to_string(), "nobody to greet\n  name somebody");
//! ```

#![forbid(unsafe_code)]

use std::sync::LazyLock;

pub mod envelope;
pub mod failure;
pub mod manager;
pub mod output;
pub mod program;
pub mod signals;

/// Returns the version that `--version` prints, with the crypto libraries of this build, such as
/// `0.1.0 (AWS-LC, packets: BoringSSL)`.
#[must_use]
pub fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        format!("{} ({})", env!("CARGO_PKG_VERSION"), equic_quic::AWS_LC_PROVIDER_LIBRARIES)
    });
    &VERSION
}
