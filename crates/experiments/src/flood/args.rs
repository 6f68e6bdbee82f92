//! Options of the measurement.

use std::path::PathBuf;

/// Measures what legitimate clients get under a flood: with the gateway, with nftables, with quotas in
/// the server, and with nothing. Takes about ten minutes, with --forged twenty
#[derive(clap::Args)]
pub struct Args {
    /// Where flood.json goes, or forged.json
    #[arg(long, value_name = "DIR", default_value = "out/bench-gateway")]
    pub(super) out: PathBuf,
    /// The flood's source addresses are forged, a new one each: measures whether newcomers get in, with
    /// nothing, nftables, the server's Retry, that of a server on quinn, the gateway's limit of new connections in all and its Retry
    #[arg(long)]
    pub(super) forged: bool,
    /// With --forged: the flood comes in the names of the newcomers themselves, instead of from 12,582,912 addresses
    #[arg(long, requires = "forged")]
    pub(super) victims: bool,
    /// Half a minute, to see that everything works
    #[arg(long)]
    pub(super) quick: bool,
    /// How often everything is measured, instead of 7 times
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(super) rounds: Option<u16>,
    /// Seconds of one measurement, instead of 3 (4 with --forged)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=600))]
    pub(super) seconds: Option<u16>,
    /// Initials a second, instead of 50000, 200000 (with --forged 2000, 20000) and all that a CPU can send;
    /// several are fine
    #[arg(long, value_name = "PPS", value_parser = clap::value_parser!(u64).range(1000..=10_000_000))]
    pub(super) flood: Vec<u64>,
    /// The same number gives the same order of measurements
    #[arg(long, value_name = "N", default_value = "1")]
    pub(super) seed: u64,
    /// Print the result as JSON (schema equic.lab.bench/1)
    #[arg(long, conflicts_with = "markdown")]
    pub(super) json: bool,
    /// Print the table as Markdown
    #[arg(long)]
    pub(super) markdown: bool,
}

impl Args {
    /// Returns the requested rates of the flood, or `usual` if none was requested. A rate is in
    /// Initial packets per second; `None` is as fast as a CPU can send.
    pub(super) fn rates(&self, usual: Vec<Option<u64>>) -> Vec<Option<u64>> {
        if self.flood.is_empty() { usual } else { self.flood.iter().copied().map(Some).collect() }
    }
}
