//! Tests of the plugin exchange, in which one end of a connection offers plugins to the other: the
//! formats, the state machine without I/O, and exchanges on connections.

mod caching;
mod charges;
#[path = "../common/mod.rs"]
mod common;
mod formats;
mod hostile;
mod machine;
mod pair;
mod preamble;
mod rules;
mod types;
