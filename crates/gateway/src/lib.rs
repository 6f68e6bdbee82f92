//! XDP gateway for QUIC servers. An XDP program in the kernel enforces quotas, rates and lists. The
//! server reports its open connections to the program through shared memory.
//!
//! An operator loads a [`Gateway`] from a [`Config`] and attaches it to interfaces. The server
//! opens its [`Ledger`] (in the same process, or from another one through [`Control::join`]) and
//! holds a [`Guard`] per connection. The XDP program drops packets that exceed the limits before
//! the kernel allocates memory for them. docs/policy.md specifies its decisions.
//!
//! A ledger also works without a gateway, for quotas that a server enforces itself:
//!
//! ```
//! use equic_gateway::{Config, Ledger};
//!
//! let mut config = Config::for_port(4433);
//! config.services[0].max_connections = 1;
//! let service = Ledger::in_memory(&config)?.service_at(0)?;
//! let first = service.opened("192.0.2.1:50000".parse()?);
//! let second = service.opened("192.0.2.1:50001".parse()?);
//! assert!(!first.over_limit() && second.over_limit());
//! drop(first);
//! assert_eq!(second.current(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Modules and folders:
//!
//! * `bpf/`: the XDP program in C; `bpf/abi.h` defines the types that it shares with this library
//!   ([`abi`]);
//! * [`config`], [`quantity`]: the operator's configuration; [`reason`]: the reasons of the
//!   program's verdicts;
//! * `object`, [`Gateway`], `links`: loading and attaching; `judge`: running the program on frames
//!   from memory;
//! * `snapshot`: a copy of a gateway for trying out packets; `original`: the copy's lookups in the
//!   gateway that was copied;
//! * [`ban`]: which sources are denied for how long, as a state machine without a clock;
//! * `pinned`, `pins`: gateways that outlive their process, and how another process takes them
//!   over;
//! * `keys`, `key_ring`, `rotation`: keys of Retry tokens and connection IDs;
//! * [`ledger`]: connection counts in shared memory;
//! * `socket`: ledgers for servers without privileges;
//! * [`control`]: inspecting and changing a running gateway from any process;
//! * `file`: reading files without blocking;
//! * `maps`, `sys`: the interface to the kernel; all raw system calls are in `sys`.
//!
//! Start reading with [`Gateway`], then `ledger/table.rs`. The crate `equic-gateway-model` is a
//! second implementation of the program's decisions. Tests compare the two.

pub mod abi;
pub mod ban;
pub mod config;
pub mod control;
pub mod error;
pub mod ledger;
pub mod quantity;
pub mod reason;

mod file;
mod gateway;
mod judge;
mod key_ring;
mod keys;
mod links;
mod listeners;
mod maps;
mod object;
mod original;
mod overrides;
mod periodic;
mod pinned;
mod pins;
mod prefix;
mod rotation;
mod services;
mod snapshot;
mod socket;
mod sync;
mod sys;

#[cfg(feature = "schema")]
pub use config::config_schema;
pub use config::{
    BanConfig, Config, ConfigError, ConfigOption, Fragments, GatewayConfig, Key, Listen, Mode,
    OverrideConfig, Policy, Problem, Proof, ReplacedValue, Retry, SERVICE_SETTINGS, ServiceConfig,
    ServiceSetting, Setting, SettingKind, SettingRange, SettingValue, SocketConfig, Versions,
    example_service, parse_list, parse_prefix, read_list,
};
pub use control::{
    Adaptive, AuditEntry, BanTotals, Capture, CaptureFilter, CapturedPacket, Change, Condition,
    Control, CounterRow, Event, Events, Interface, InterfaceReport, JoinedServer, LedgerStatus,
    Level, ListAction, ListChanges, ListCounts, ListEntry, ListEvent, ListMark, Observer, Origin,
    OtherRelease, Overview, Owner, Refusals, RefusedSource, Reload, Replaced, Report, RunStats,
    RunningGateway, ServiceStatus, SortBy, SourceKey, SourceRow, SourceSample, Status, Survey,
    Swept, TableStatus, Tallies, loses_answers,
};
pub use equic_token::host::monotonic;
pub use error::{Error, Result};
pub use file::{read_regular, read_regular_text};
pub use gateway::{Gateway, LoadOptions};
pub use ipnet::IpNet;
pub use judge::{Action, Judgement, TestRun, Verdict};
pub use key_ring::{ID_FORMAT, TokenCheck};
pub use keys::{Rotation, write_key_ring};
pub use ledger::event::JoinEvent;
pub use ledger::ids::ConnectionIds;
pub use ledger::options::JoinOptions;
pub use ledger::{ConnectionCount, Guard, Ledger, Service};
pub use links::{Attached, AttachmentPlace};
pub use object::{ObjectSource, embedded_object};
pub use pinned::{TakenOver, remove_pinned};
pub use quantity::{Rate, format_duration, parse_duration, parse_size};
pub use reason::Reason;
pub use socket::host::{PreparedHost, SocketHost};
pub use sys::NetworkInterface;

/// Name of the XDP program in the kernel.
pub const PROGRAM_NAME: &str = "equic_gateway";
