//! The packet tables: packets with their expected results, row by row in the order of
//! docs/policy.md.
//!
//! `tests/data_plane/tables.rs` runs every row on the model and on the real XDP program.

mod adaptive;
mod batches;
mod coalesced;
mod fragments;
mod frames;
mod handshakes;
mod ids;
mod limits;
mod lists;
mod negotiation;
mod overrides;
mod own;
mod prefixes;
mod quic;
mod reset;
mod retry;
mod services;
mod whole;

pub(crate) use whole::strangers;

use super::frame::{Packet, udp};
use super::quic::initial;
use super::script::Script;

/// Addresses of a client and the server: one pair for IPv4, one for IPv6.
const C4: &str = "192.0.2.1:1000";
const S4: &str = "10.0.0.1:443";
const C6: &str = "[2001:db8::1]:1000";
const S6: &str = "[fd00::1]:443";

pub(crate) fn all() -> Vec<Script> {
    by_subject().into_iter().flat_map(|(_, rows)| rows).collect()
}

/// Returns the tables, each with its name.
pub(crate) fn by_subject() -> Vec<(&'static str, Vec<Script>)> {
    vec![
        ("frames", frames::rows()),
        ("fragments", fragments::rows()),
        ("batches", batches::rows()),
        ("services", services::rows()),
        ("quic", quic::rows()),
        ("coalesced", coalesced::rows()),
        ("handshakes", handshakes::rows()),
        ("lists", lists::rows()),
        ("quotas", limits::quota_rows()),
        ("rates", limits::rate_rows()),
        ("live", limits::live_rows()),
        ("retry", retry::rows()),
        ("adaptive", adaptive::rows()),
        ("negotiation", negotiation::rows()),
        ("ids", ids::rows()),
        ("whole", whole::rows()),
        ("prefixes", prefixes::rows()),
        ("overrides", overrides::rows()),
        ("own", own::rows()),
        ("reset", reset::rows()),
    ]
}

/// Returns a packet from the client to the server, over IPv4.
fn v4(payload: Vec<u8>) -> Packet {
    udp(C4, S4, payload)
}

/// Returns a packet from the client to the server, over IPv6.
fn v6(payload: Vec<u8>) -> Packet {
    udp(C6, S6, payload)
}

/// Returns an Initial in a datagram of 1200 bytes.
fn full() -> Vec<u8> {
    initial().fill(1200).build()
}

/// Returns an Initial packet. Each `n` gives a different connection attempt.
fn attempt(n: u8) -> Vec<u8> {
    initial().scid(&[n; 5]).dcid(&[n; 8]).fill(1200).build()
}
