//! Tests plugins that one end offers to the other: formats, the exchange without I/O, and exchanges
//! on connections.

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
