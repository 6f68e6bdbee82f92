//! Command-line options of `equic-lab gateway-bench`.

use std::path::PathBuf;

/// Measures what a flood leaves of a server's capacity for legitimate clients: with the gateway,
/// with nftables, with quotas in the server, and without protection. Takes about ten minutes, or
/// twenty with --forged
#[derive(clap::Args)]
pub struct Args {
    /// Folder for the result, flood.json or forged.json
    #[arg(long, value_name = "DIR", default_value = "out/bench-gateway")]
    pub(super) out: PathBuf,
    /// Flood from forged source addresses, a new one for each packet. Measures whether new clients
    /// can still connect: without protection, with nftables, with the server's Retry, with the
    /// Retry of a server based on quinn, with the gateway's total limit of new connections, and
    /// with the gateway's Retry
    #[arg(long)]
    pub(super) forged: bool,
    /// With --forged: forge the addresses of the new clients themselves, instead of 12,582,912
    /// other addresses
    #[arg(long, requires = "forged")]
    pub(super) victims: bool,
    /// Make a short run of half a minute, to check that everything works
    #[arg(long)]
    pub(super) quick: bool,
    /// Number of measurements of each protection at each flood rate [default: 7]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(super) rounds: Option<u16>,
    /// Duration of one measurement, in seconds [default: 3; with --forged 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=600))]
    pub(super) seconds: Option<u16>,
    /// Flood rate to measure, in Initial packets per second; may be given several times [default:
    /// 50000, 200000 and the maximum that a CPU can send; with --forged 2000, 20000 and that
    /// maximum]
    #[arg(long, value_name = "PPS", value_parser = clap::value_parser!(u64).range(1000..=10_000_000))]
    pub(super) flood: Vec<u64>,
    /// Seed for the random order of the measurements
    #[arg(long, value_name = "N", default_value = "1")]
    pub(super) seed: u64,
    /// Print the result as JSON (schema equic.lab.bench/1)
    #[arg(long, conflicts_with = "markdown")]
    pub(super) json: bool,
    /// Print the table in Markdown
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
