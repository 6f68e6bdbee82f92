//! Labs: that they are networks as described and leave nothing behind, what floods send, what relays do, and
//! that measurements agree with other tools'.

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
