//! Figures of "QUIC on the Highway" for 10G links. They are the means of its raw data
//! (docs/notebook/bench-output.md). The paper's largest buffers have 1.7 MB.

use super::part::Part;

/// A change of an implementation's goodput that the paper reports.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub part: Part,
    pub name: &'static str,
    /// Goodput in Mbit/s with the first value of the setting that the part varies.
    pub from: f64,
    /// Value of the part's setting that `to` was measured with.
    pub value: &'static str,
    /// Goodput in Mbit/s with `value`.
    pub to: f64,
}

const fn claim(part: Part, name: &'static str, from: f64, value: &'static str, to: f64) -> Claim {
    Claim { part, name, from, value, to }
}

/// All changes in the paper that are compared with our measurements.
pub(super) const CLAIMS: [Claim; 6] = [
    claim(Part::Buffers, "lsquic", 2702.0, "1696000", 3242.0),
    claim(Part::Buffers, "quiche", 1675.0, "1696000", 2627.0),
    claim(Part::Offload, "TCP with TLS", 7783.0, "off", 5395.0),
    claim(Part::Aes, "TCP with TLS", 7984.0, "off", 1578.0),
    claim(Part::Aes, "lsquic", 3229.0, "off", 2874.0),
    claim(Part::Aes, "quiche", 2628.0, "off", 1297.0),
];

/// Goodput in the paper of clients with the server of the same implementation, in Mbit/s.
pub(super) const SPREAD: [(&str, f64); 7] = [
    ("lsquic", 3004.0),
    ("quiche", 2506.0),
    ("picoquic", 1530.0),
    ("mvfst", 1198.0),
    ("quic-go", 1043.0),
    ("aioquic", 91.0),
    ("TCP with TLS", 7783.0),
];

/// Returns the changes in the paper that a part measures.
pub(super) fn claims(part: Part) -> impl Iterator<Item = &'static Claim> {
    CLAIMS.iter().filter(move |claim| claim.part == part)
}
