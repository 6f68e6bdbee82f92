//! Code that the commands `equic` and `equic-lab` share.
//!
//! * [`start`]: usage errors and the log; [`manual`]: man pages and completions.
//! * [`trust`]: options that say which servers a client trusts. [`quic`]: options of QUIC servers
//!   and clients.
//! * [`exchange`]: plugins that connections offer and accept. [`plugin`]: local plugins of the
//!   user.
//!
//! ```
//! use clap::{CommandFactory as _, Parser};
//! use equic_command::trust::TrustArgs;
//!
//! #[derive(Parser)]
//! #[command(name = "fetch")]
//! struct Fetch {
//!     #[command(flatten)]
//!     trust: TrustArgs,
//! }
//!
//! assert!(Fetch::command().render_help().to_string().contains("--pin <FINGERPRINT>"));
//! assert!(Fetch::try_parse_from(["fetch", "--insecure"]).is_ok());
//! ```

#![forbid(unsafe_code)]

pub mod exchange;
pub mod manual;
pub mod plugin;
pub mod quic;
pub mod start;
pub mod trust;

use equic_console::{failure, output};
