//! Options of the measurement.

use std::path::PathBuf;

/// Measures what legitimate clients get under a flood: with the gateway, with nftables, with quotas in
/// the server, and with nothing. Takes about ten minutes, with --forged twenty
#[derive(clap::Args)]
pub struct Args {
    /// Folder for flood.json or forged.json
    #[arg(long, value_name = "DIR", default_value = "out/bench-gateway")]
    pub(super) out: PathBuf,
    /// The flood's source addresses are forged, a new one each: measures whether newcomers get in, with
    /// nothing, nftables, the server's Retry, that of a server on quinn, the gateway's limit of new connections in all and its Retry
    #[arg(long)]
    pub(super) forged: bool,
    /// With --forged: the flood forges the addresses of the newcomers themselves, instead of
    /// 12,582,912 addresses
    #[arg(long, requires = "forged")]
    pub(super) victims: bool,
    /// Make a run of half a minute, to check that everything works
    #[arg(long)]
    pub(super) quick: bool,
    /// Number of measurements of each case [default: 7]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(super) rounds: Option<u16>,
    /// Duration of one measurement in seconds [default: 3; with --forged 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=600))]
    pub(super) seconds: Option<u16>,
    /// Initials a second, instead of 50000, 200000 (with --forged 2000, 20000) and all that a CPU can send;
    /// several are fine
    #[arg(long, value_name = "PPS", value_parser = clap::value_parser!(u64).range(1000..=10_000_000))]
    pub(super) flood: Vec<u64>,
    /// Seed of the order of measurements
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
