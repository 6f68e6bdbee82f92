//! Command-line options of `equic-lab demo`.

use std::path::PathBuf;

/// Attacks an HTTP/3 server in a lab on this machine, first from real and then from forged
/// addresses: without protection, with the server's own protection, and with the gateway. Takes
/// about a minute and a half.
#[derive(clap::Args)]
pub struct Args {
    /// Folder for the results demo.json, demo.svg and newcomers.svg
    #[arg(long, value_name = "DIR", default_value = "out/demo")]
    pub(super) out: PathBuf,
    /// Total duration of the traffic, in seconds [default: 75]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(8..=3600))]
    pub(super) seconds: Option<u16>,
    /// Make a short run, to check that everything works
    #[arg(long, conflicts_with = "seconds")]
    pub(super) quick: bool,
    /// Rate of the flood of both attackers together, in Initials per second
    #[arg(long, value_name = "PPS", default_value = "180000",
        value_parser = clap::value_parser!(u64).range(2..=10_000_000))]
    pub(super) flood: u64,
    /// Number of connections that each attacker tries to hold open
    #[arg(long, value_name = "N", default_value = "100",
        value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(super) connections: u16,
    /// Print the result as JSON (schema equic.demo/1)
    #[arg(long)]
    pub(super) json: bool,
}
