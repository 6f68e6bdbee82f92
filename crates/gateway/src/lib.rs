//! XDP gateway for QUIC servers: quotas, rates and lists enforced in the kernel, driven live by the
//! server.
//!
//! An operator loads a [`Gateway`] from a [`Config`] and attaches it to interfaces; the server opens
//! its [`Ledger`] (in the same process, or from another one through [`Control::join`]) and holds a
//! [`Guard`] per connection. The XDP program drops what breaks the limits before the kernel
//! allocates anything; docs/policy.md says what it decides.
//!
//! * `bpf/`: the program in C; `bpf/abi.h` is what it shares with this library ([`abi`]);
//! * [`config`], [`quantity`]: what an operator writes; [`reason`]: what the program answers;
//! * `object`, [`Gateway`]: loading and attaching; `judge`: the program run by hand on packets;
//! * [`ban`]: who is denied for how long, as a state machine without a clock;
//! * `pinned`: gateways that outlive their process, and taking one over;
//! * [`ledger`]: connection counts in shared memory;
//! * `socket`: ledgers for servers without privileges;
//! * [`control`]: everything about a running gateway, from any process;
//! * `maps`, `sys`: the kernel underneath; the only raw system calls are in `sys`.
//!
//! Start reading with [`Gateway`], then `ledger/table.rs`.

pub mod abi;
pub mod ban;
pub mod config;
pub mod control;
pub mod error;
pub mod ledger;
pub mod model;
pub mod quantity;
pub mod reason;

#[cfg(test)]
#[path = "../tests/support/ci.rs"]
mod ci;
mod gateway;
mod judge;
mod keys;
mod listeners;
mod maps;
mod object;
mod overrides;
mod periodic;
mod pinned;
mod prefix;
mod rotation;
mod socket;
mod sys;

pub use config::{
    BanConfig, Config, ConfigError, Fragments, GatewayConfig, Key, ListFile, Listen, Mode,
    OverrideConfig, Policy, Problem, Proof, Retry, ServiceConfig, Setting, SettingValue,
    SocketConfig, Versions, parse_list, parse_prefix, read_list,
};
pub use control::{
    Adaptive, AuditEntry, BanTotals, Capture, CaptureFilter, CapturedPacket, Change, Condition,
    Control, CounterRow, Event, Events, Found, Interface, InterfaceReport, JoinedServer,
    LedgerStatus, Level, ListAction, ListChanges, ListCounts, ListEntry, ListEvent, ListMark,
    Observer, Origin, OtherRelease, Overview, Owner, Refusals, RefusedSource, Reload, Replaced,
    Report, RunStats, ServiceStatus, SortBy, SourceKey, SourceRow, SourceSample, Status, Survey,
    Swept, TableStatus, Tallies,
};
pub use error::{Error, Result};
pub use gateway::{Attached, Gateway, LoadOptions};
pub use ipnet::IpNet;
pub use judge::{Action, Judgement, TestRun, Verdict};
pub use keys::{ID_FORMAT, Rotation, TokenKeys, write_key_ring};
pub use ledger::event::JoinEvent;
pub use ledger::ids::ConnectionIds;
pub use ledger::{Guard, Ledger, Opened, Service};
pub use object::{ObjectSource, embedded_object};
pub use pinned::{TakenOver, remove_pinned};
pub use quantity::{Rate, format_duration, parse_duration, parse_size};
pub use reason::Reason;
pub use socket::host::{PreparedHost, SocketHost};

/// The name of the XDP program in the kernel.
pub const PROGRAM_NAME: &str = "equic_gateway";
