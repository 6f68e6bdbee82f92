//! XDP gateway for QUIC servers: quotas, rates and lists enforced in the kernel, driven live by the server.
// Signatures first: bodies follow.
#![allow(unused, missing_docs, clippy::all)]
pub mod abi;
pub mod config;
pub mod control;
pub mod error;
pub mod gateway;
pub mod ledger;
pub mod model;
pub mod quantity;
pub mod reason;
mod sys;
pub use config::{Config, GatewayConfig, ServiceConfig, Listen, Mode, Policy, Fragments, ConfigError, parse_prefix};
pub use control::{Control, Found, Status, CounterRow, SourceRow, Change, ListEntry, ListAction, SortBy, Events, Event};
pub use error::{Error, Result};
pub use gateway::{Gateway, ObjectSource, LoadOptions, Attached, Action, Judgement, TestRun, Verdict};
pub use ipnet::IpNet;
pub use ledger::{Guard, Ledger, Opened, Service};
pub use quantity::{Rate, parse_duration, format_duration};
pub use reason::Reason;
/// The name of the XDP program in the kernel.
pub const PROGRAM_NAME: &str = "equic_gateway";
