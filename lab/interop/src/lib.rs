//! Runs the test cases of the QUIC Interop Runner between any two implementations. They run as
//! processes on one machine with a relay between them, instead of containers and a simulator.
//!
//! An implementation is a program that uses the runner's environment variables ([`registry`]). A
//! [`Case`] defines the arguments of client and server, the files, and the network. [`cell::run`]
//! runs a case for one client and one server. `check` reads the relay's records, decrypted with the
//! key logs ([`trace`]), and decides whether they show the feature. A successful exit status is not
//! enough. [`result`] is the matrix, in the runner's schema.
//!
//! ```
//! use equic_interop::Case;
//!
//! let case = Case::named("handshake").expect("a case of the runner's");
//! assert_eq!(case.name(), "handshake");
//! assert!(Case::named("nonsense").is_none());
//! ```

#![forbid(unsafe_code)]

pub mod case;
pub mod cell;
mod certs;
mod check;
mod error;
mod files;
mod pcap;
mod process;
pub mod registry;
pub mod result;
pub mod trace;
mod words;

pub use case::{Case, Size};
pub use cell::{CaseResult, Outcome};
pub use certs::Certificates;
pub use error::InteropError;
pub use registry::{Implementation, Registry, Role};
