//! The parts of the experiment: figures and tables of the paper. Parameters of the figures.

use crate::failure::Failure;

/// A part of the experiment: a figure or table of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Part {
    Figure3,
    Figure4,
    Figure5,
    Figure6,
    Table2,
    /// Table 1, and figures of the PQUIC paper: the cost of plugins. The machine must be otherwise
    /// idle
    Costs,
    /// One point of each of the figures 3 to 6 in real time, over network namespaces. Runs only on
    /// request. Needs root
    RealTime,
}

/// Mean round-trip time of requests in milliseconds, as in the paper.
pub(super) const REQUEST_RTT: u64 = 10;

/// Rate of the bottleneck of downloads in bits per second. The paper's text does not give it. At 4
/// Mb/s, a download of 5 MB takes at least 10 s.
pub(super) const RATE: u64 = 4_000_000;

/// Round-trip time of the first download in milliseconds. Each further download has one millisecond
/// more, because the downloads would be identical otherwise.
pub(super) const DOWNLOAD_RTT: u64 = 100;

/// Rates of the two asymmetric paths to the client and to the server, in bits per second. The
/// paper's text does not give them. With these rates, 20 MB take about as long as in the paper, and
/// acknowledgements for all packets on the second path would exceed its rate to the server.
pub(super) const ASYMMETRIC: [[u64; 2]; 2] = [[2_000_000, 30_000_000], [10_000_000, 300_000]];

/// Round-trip time of the first download over the asymmetric paths, in milliseconds. Each further
/// download has one millisecond more.
pub(super) const ASYMMETRIC_RTT: u64 = 40;

impl Part {
    pub(super) const ALL: [Part; 7] = [
        Part::Figure3,
        Part::Figure4,
        Part::Figure5,
        Part::Figure6,
        Part::Table2,
        Part::Costs,
        Part::RealTime,
    ];
}

/// Returns the failure of a part.
pub(super) fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::because("the experiment failed", error)
}

/// Rounds to three decimals, to keep the stored file small.
pub(super) fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}
