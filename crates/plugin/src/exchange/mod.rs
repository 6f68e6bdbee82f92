//! The plugin exchange: one end of a connection offers plugins to the other over the connection
//! itself (`docs/plugin-wire.md`).
//!
//! An endpoint declares in a transport parameter which plugins it accepts ([`Parameter`]). After
//! the handshake is confirmed, either end offers plugins by the hashes of their bundles. The other
//! end requests the bundles that its [`Cache`] does not have. It requests the manifest first,
//! unless the offer carried it. It requests the code only if the policy permits the plugin.
//!
//! A plugin runs only if its bundle has the offered hash, its signature is valid, and the policy
//! permits it ([`decide`](crate::decide)). The endpoint does not read the bytecode before that
//! ([`Load`]).
//!
//! * `frame.rs`, `parameter.rs`: formats on the wire.
//! * `outgoing.rs`: offers of this side. `incoming.rs`, `offered.rs`, `pieces.rs`: offers of the
//!   peer. `types.rs`: frame types that plugins use on the wire. `machine.rs`: the whole state
//!   machine, [`Exchange`].
//! * `hook.rs`: the exchange on a connection, [`ExchangeHook`]. `plugins.rs`: the hooks of the
//!   plugins that run.
//! * `bytecode.rs`: the usual [`Load`], which compiles bytecode.
//! * `cache.rs`: bundles that earlier connections fetched. `config.rs`: the configuration, and
//!   progress updates for the application.

mod bytecode;
mod cache;
mod config;
mod frame;
mod hook;
mod ids;
mod incoming;
mod machine;
mod offered;
mod outgoing;
mod parameter;
mod pieces;
mod plugins;
mod types;
mod violation;

pub use bytecode::Bytecode;
pub use cache::{Cache, FolderCache, MemoryCache};
pub use config::{
    Accepted, ExchangeConfig, Listener, Load, Loaded, PluginId, Progress, Push, Update,
};
pub use frame::{Frame, Kind, MAX_CARRIED, MAX_OFFERS, MAX_REASON, Offer, Status};
pub use hook::{ExchangeHandle, ExchangeHook};
pub use machine::{Action, Exchange, Sent};
pub use parameter::{Budgets, PARAMETER, Parameter};
pub use types::NotAllotted;
pub use violation::{PLUGIN_VIOLATION, Violation};
