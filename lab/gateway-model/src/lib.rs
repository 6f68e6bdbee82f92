//! The reference model of the gateway's XDP program: `docs/policy.md` in plain Rust.
//!
//! It has no I/O, no clock and no BPF. A [`Model`] takes a frame and the time, and returns what the
//! XDP program must do with the frame. The model was written from the specification, and it parses
//! QUIC headers with `equic_wire`. The tests in `tests/` and the fuzz targets compare the XDP
//! program with the model. The two share no code, so they hardly share mistakes. A running gateway
//! does not use the model.
//!
//! Start at [`Model::judge`]. The modules, with the sections of policy.md that they implement:
//!
//! * `frame` finds the UDP datagram in a frame (section 1).
//! * `quic` classifies the UDP payload (section 3).
//! * `judge` takes the steps of section 2 in order.
//! * `rate` is the token bucket (section 4).
//! * `acl` has the deny and allow lists.
//! * `answer` makes the packets with which the gateway answers (sections 8 and 9).
//! * `ids` verifies connection IDs (section 10).
//! * `prefix` has the rates of prefixes (section 12).
//! * `reset` makes stateless resets (section 14).
//! * `own` has the addresses of the host (sections 1 and 8).
//! * `config` has the operator's settings.
//!
//! The tables of the model are unbounded: it never evicts an entry.
//!
//! A token bucket for 10 packets per second, with a burst of 2 packets:
//!
//! ```
//! use equic_gateway_model::Rate;
//!
//! let rate = Rate::per_second(10, 2);
//! let mut arrival = 0;
//! let now = 1_000_000_000;
//! assert!(rate.charge(&mut arrival, 1, now));
//! assert!(rate.charge(&mut arrival, 1, now));
//! assert!(!rate.charge(&mut arrival, 1, now), "the burst is used up");
//! assert!(rate.charge(&mut arrival, 1, now + 100_000_000), "a tenth of a second later there is one more");
//! ```

#![forbid(unsafe_code)]

mod acl;
mod answer;
mod attempts;
mod batch;
mod config;
mod frame;
mod ids;
mod judge;
mod outcome;
mod own;
mod prefix;
mod quic;
mod rate;
mod reset;
#[cfg(test)]
mod tests;

pub use acl::{Acl, AclAction, AclEntry};
pub use config::{
    Config, FragmentPolicy, Listener, Override, QuotaPolicy, RetryPolicy, Service, TakenVersions,
};
pub use frame::{
    Datagram, FragmentKey, Frame, LaterFragment, MAX_EXTENSION_HEADERS, parse as parse_frame,
};
pub use judge::{Counter, Ledger, Model, SourceKey, SourceState, Tallies};
pub use outcome::{Arrival, Outcome, Verdict};
pub use own::Own;
pub use prefix::PrefixRates;
pub use quic::{Class, ConnectionId, Opening, Payload, Rules, classify};
pub use rate::Rate;

use std::net::IpAddr;

/// Returns an address as the 16 bytes that the tables use. IPv4 is written as `::ffff:a.b.c.d`.
pub fn address_bytes(addr: IpAddr) -> [u8; 16] {
    match addr {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}
