//! Tests of labs: networks are as described and are removed completely, floods and relays do what
//! was requested, and measurements agree with other tools.

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
