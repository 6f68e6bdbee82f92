//! Plugins that one end of a connection gives to the other, over the connection itself (`docs/plugin-wire.md`).
//!
//! An endpoint declares a transport parameter that says what it takes ([`Parameter`]). Once the handshake is confirmed
//! either end offers plugins by hash; what the other does not have in its [`Cache`] it asks for, piece by piece: the manifest
//! first, unless the offer carried it, and the code only if the policy lets such a plugin run. A plugin runs only if its
//! bundle has the hash that was offered, its signature is right, and the policy lets it ([`decide`](crate::decide)); only
//! then is its bytecode looked into ([`Load`]).
//!
//! * `frame.rs`, `parameter.rs`: formats;
//! * `outgoing.rs`: offers of this side; `incoming.rs`, `offered.rs`, `pieces.rs`: those of the peer; `types.rs`: frame types
//!   that offers allot; `machine.rs`: all of it together, as [`Exchange`];
//! * `hook.rs`: the exchange on a connection, [`ExchangeHook`]; `plugins.rs`: plugins as hooks beside it;
//! * `bytecode.rs`: plugins as bytecode, the usual [`Load`];
//! * `cache.rs`: bundles of earlier connections; `config.rs`: the configuration, and updates for the application.

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
