//! What is asked for of attempts that do not count.

use equic_bench::extras::Extras;

/// What slows programs down.
#[derive(clap::Args)]
pub struct Asked {
    /// One more attempt at each cell, which does not count, with qlog files
    #[arg(long)]
    qlog: bool,
    /// The same with the secrets of connections
    #[arg(long)]
    keylog: bool,
    /// One more attempt at each cell, which does not count, for where CPU time goes: cryptography, packet
    /// I/O or protocol, by perf(1)
    #[arg(long)]
    profile: bool,
    /// Flame graphs of it, an SVG file for each end
    #[arg(long)]
    flamegraph: bool,
    /// Keep the samples themselves, perf.data
    #[arg(long)]
    perf_data: bool,
}

impl Asked {
    pub const fn extras(&self) -> Extras {
        let Asked { qlog, keylog, profile, flamegraph, perf_data } = *self;
        Extras { qlog, keylog, profile, flamegraph, perf_data }
    }
}
