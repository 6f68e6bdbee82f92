//! Plugins that one end gives to the other: formats, the exchange by itself, and on connections.

mod charges;
#[path = "../common/mod.rs"]
mod common;
mod early;
mod formats;
mod hostile;
mod kept;
mod machine;
mod pair;
mod rules;
mod types;
