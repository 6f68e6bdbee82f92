//! Tests of labs: networks as described, complete removal, contents of floods, effects of relays,
//! and measurements compared with other tools.

mod cleanup;
#[path = "../common/mod.rs"]
mod common;
mod flood;
mod initial;
mod measure;
mod nftables;
mod reference;
mod relay;
mod topology;
