//! Options of the demo.

use std::path::PathBuf;

/// Attacks an HTTP/3 server in a lab on this machine, from real and then from forged addresses: without protection, with
/// what the server does itself, and with the gateway. Takes about a minute and a half.
#[derive(clap::Args)]
pub struct Args {
    /// Where demo.json, demo.svg and newcomers.svg (and .png) go
    #[arg(long, value_name = "DIR", default_value = "out/demo")]
    pub(super) out: PathBuf,
    /// Seconds of traffic in all, instead of 75
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(8..=3600))]
    pub(super) seconds: Option<u16>,
    /// A short one, to see that everything works
    #[arg(long, conflicts_with = "seconds")]
    pub(super) quick: bool,
    /// Initials a second, of both attackers together
    #[arg(long, value_name = "PPS", default_value = "180000",
        value_parser = clap::value_parser!(u64).range(2..=10_000_000))]
    pub(super) flood: u64,
    /// Connections each attacker tries to hold
    #[arg(long, value_name = "N", default_value = "100",
        value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(super) connections: u16,
    /// Print the result as JSON (schema equic.demo/1)
    #[arg(long)]
    pub(super) json: bool,
}
