//! `equic gateway`: runs a gateway, or inspects and changes a running one.
//!
//! `run` loads the program, attaches it and manages it ([`mod@run`], with [`attach`] and
//! [`limits`]). All other commands open a running gateway of any process through [`Target`]:
//! [`status`], [`sources`], [`lists`], [`set`] (with [`needs`]), [`keys`], [`reload`], [`detach`],
//! and the dashboard [`watch`]. [`metrics`] serves metrics to Prometheus, [`explain`] runs the real
//! program on given packets, and [`capture`] writes dropped packets to a file.

pub(crate) mod attach;
mod capture;
mod detach;
mod doubts;
mod explain;
mod keep;
mod keys;
pub(crate) mod limits;
mod lists;
mod metrics;
mod needs;
mod reasons;
mod reload;
pub(crate) mod run;
mod set;
mod settings;
mod sources;
pub(crate) mod status;
mod watch;

use clap::{Args, Subcommand};
use equic_gateway::{ConfigError, Control, Error};

use crate::failure::{Failure, Result};

/// The subcommands.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Load the gateway's XDP program, attach it to interfaces, and manage it until Ctrl-C
    Run(Box<run::Args>),
    /// Show the services, their limits, and the numbers of passed and dropped packets by reason
    Status(status::Args),
    /// Show a dashboard of rates, sources and drops, in which you can deny and allow sources
    Watch(watch::Args),
    /// Serve metrics of the gateway to Prometheus
    Metrics(metrics::Args),
    /// Show the busiest sources, with their traffic and connections
    Sources(sources::Args),
    /// Drop every packet of an address or prefix
    Deny(lists::Add),
    /// Exempt an address or prefix from quotas and rates
    Allow(lists::Add),
    /// Remove an address or prefix from the deny and allow lists
    Forget(lists::Forget),
    /// Show the entries of the deny and allow lists, with their expiry times
    Lists(lists::Show),
    /// Change limits of a running gateway
    Set(set::Args),
    /// Replace the keys of Retry tokens and connection IDs, and withdraw the old ones
    #[command(subcommand)]
    Keys(keys::Command),
    /// Make a running gateway read its configuration file again
    Reload(reload::Args),
    /// Check a configuration file for errors and doubtful settings
    Check(reload::Check),
    /// Show what would happen to a packet, or to the packets of a capture
    Explain(Box<explain::Args>),
    /// Write dropped packets to a pcapng file, with the reason for each drop
    Capture(capture::Args),
    /// List the reasons for verdicts, with their meaning
    Reasons(reasons::Args),
    /// List the settings of a service, with type, default and effect
    Settings(settings::Args),
    /// Detach a running gateway from its interfaces
    Detach(detach::Args),
}

/// Runs the subcommand.
pub(crate) fn run(command: Command) -> Result {
    match command {
        Command::Run(args) => run::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Watch(args) => watch::run(&args),
        Command::Metrics(args) => metrics::run(&args),
        Command::Sources(args) => sources::run(&args),
        Command::Deny(args) => lists::deny(&args),
        Command::Allow(args) => lists::allow(&args),
        Command::Forget(args) => lists::forget(&args),
        Command::Lists(args) => lists::show(&args),
        Command::Set(args) => set::run(&args),
        Command::Keys(command) => keys::run(&command),
        Command::Reload(args) => reload::run(&args),
        Command::Check(args) => reload::check(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Capture(args) => capture::run(&args),
        Command::Reasons(args) => reasons::run(&args),
        Command::Settings(args) => settings::run(&args),
        Command::Detach(args) => detach::run(&args),
    }
}

/// Returns the failure for an error of a gateway. A wrong configuration has exit code 2, so that a
/// service manager does not start the gateway again.
pub(crate) fn failure(error: Error) -> Failure {
    if error.is_wrong_configuration() {
        Failure::Invalid(error.to_string())
    } else {
        Failure::from(error)
    }
}

/// Returns the failure for an error of a configuration file or of a list file, like [`failure`].
pub(crate) fn config_failure(error: ConfigError) -> Failure {
    failure(Error::from(error))
}

/// Selects one of the running gateways.
#[derive(Args)]
pub(crate) struct Target {
    /// The gateway: an interface to which it is attached, its name, or the id of its BPF program. A
    /// name or an id also selects a gateway of another network namespace [default: the only gateway
    /// of this network namespace]
    #[arg(long, value_name = "SELECTOR")]
    gateway: Option<String>,
}

impl Target {
    fn open(&self) -> Result<Control> {
        Ok(Control::open(self.gateway.as_deref())?)
    }
}
