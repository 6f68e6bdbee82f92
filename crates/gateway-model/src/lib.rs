//! The data plane's reference model: `docs/policy.md` in plain Rust.
//!
//! It has no I/O, no clock and no BPF. A [`Model`] takes a frame and the time, and returns what the
//! XDP program has to do with the frame. It was written from the specification, and parses QUIC's
//! headers with `equic_wire`. So the tests in `tests/` and the fuzz targets compare the program
//! with code that does not share its mistakes. A running gateway does not use it.
//!
//! Start at [`Model::judge`]. `frame` finds the UDP datagram in a frame (policy.md section 1),
//! `quic` classifies its payload (section 3), `judge` takes the steps of section 2 in order, `rate`
//! is the token bucket (section 4), `acl` has the lists, `answer` the answers (sections 8 and 9),
//! `ids` connection IDs (section 10), `prefix` the prefixes of a source (section 12), `reset`
//! stateless resets (section 14), `own` the addresses of the host (sections 1 and 8), and `config`
//! the operator's settings. The tables of the model are unbounded: nothing is ever evicted from
//! them.
//!
//! A token bucket of 10 packets per second that lets 2 through at once:
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

/// Returns the 16 bytes of an address in the tables: IPv4 as `::ffff:a.b.c.d`.
pub fn address_bytes(addr: IpAddr) -> [u8; 16] {
    match addr {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}
