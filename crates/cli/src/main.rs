//! `equic`: the command. Start reading at [`Command`], then at the module of each subcommand:
//!
//! * [`gateway`]: run a gateway, look into one, change it, ask it what it would do;
//! * [`serve`], [`get`]: an HTTP/3 server that feeds a gateway, and a client;
//! * [`lab`]: network namespaces, load and attacks for experiments on one machine;
//! * [`equic_experiments`], a crate of its own: the demo, and the experiments of the papers;
//! * [`interop`]: do other implementations understand ours, and each other? [`bench`]: how fast are they?
//! * [`sim`]: simulations, which another program does;
//! * [`manual`]: man pages and completions, made from the definitions here;
//! * [`interfaces`]: addresses of this machine as they come and go, as [`netlink`] tells;
//! * [`equic_console`], a crate of its own: the only place that prints, the exit codes (0 done, 1 failed,
//!   2 wrong usage), and what every result has beside its figures.

mod bench;
#[cfg(test)]
#[path = "../../gateway/tests/support/ci.rs"]
mod ci;
mod exchange;
mod gateway;
mod get;
mod interfaces;
mod interop;
mod lab;
mod manual;
mod netlink;
mod plugin;
mod quic;
mod serve;
mod sim;
mod trust;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use equic_console::{envelope, failure, output, signals};
use equic_experiments::{demo, reproduce};
use failure::Done;

/// QUIC servers protected in the kernel, and experiments with them.
#[derive(Parser)]
#[command(name = "equic", version, max_term_width = 80)]
#[command(
    after_help = "Exit: 0 done, 1 failed, 2 wrong usage. EQUIC_LOG=debug: logs on standard error."
)]
struct Equic {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Drop abusive traffic to a QUIC server in the kernel
    #[command(subcommand)]
    Gateway(gateway::Command),
    /// Serve files over HTTP/3, and report connections to a gateway
    Serve(Box<serve::Args>),
    /// Fetch URLs over HTTP/3
    Get(get::Args),
    /// Create network namespaces, load and attacks for experiments
    #[command(subcommand)]
    Lab(lab::Command),
    /// Attack a server in a lab, with and without the gateway
    Demo(demo::Args),
    /// Repeat the experiment of a paper, and compare the results
    #[command(subcommand)]
    Reproduce(reproduce::Command),
    /// Run the QUIC Interop Runner's test cases between implementations
    Interop(Box<interop::Args>),
    /// Measure and compare QUIC implementations
    #[command(subcommand)]
    Bench(bench::Command),
    /// Simulate networks and QUIC connections in virtual time
    #[command(subcommand)]
    Sim(equic_scenario::command::Command),
    /// Write, test, pack and sign protocol plugins
    #[command(subcommand)]
    Plugin(plugin::Command),
    /// Run as an endpoint of the QUIC Interop Runner
    #[command(hide = true)]
    InteropEndpoint(interop::endpoint::Args),
    /// Print the man page of a command, or write all of them
    Man(manual::Pages),
    /// Print completions for a shell
    Completions(manual::Completions),
}

impl Command {
    /// True for services, which take signals over themselves. The others end by them.
    fn hears_signals(&self) -> bool {
        matches!(self, Command::Gateway(gateway::Command::Run(_)) | Command::Serve(_))
    }
}

fn main() -> ExitCode {
    // Before a file is opened and a thread is started: a service manager may signal at once.
    signals::hold();
    let equic = match Equic::try_parse() {
        Ok(equic) => equic,
        Err(error) => return usage(&error),
    };
    if !equic.command.hears_signals() {
        signals::release();
    }
    start_log();
    let done: Done = match equic.command {
        Command::Gateway(command) => gateway::run(command),
        Command::Serve(args) => serve::run(&args),
        Command::Get(args) => get::run(&args),
        Command::Lab(command) => lab::run(command),
        Command::Demo(args) => demo::run(&args),
        Command::Reproduce(command) => reproduce::run(&command),
        Command::Interop(args) => interop::run(&args),
        Command::Bench(command) => bench::run(command),
        Command::Sim(_) => sim::run(),
        Command::Plugin(command) => plugin::run(&command),
        Command::InteropEndpoint(args) => interop::endpoint::run(&args),
        Command::Man(args) => manual::pages(&args),
        Command::Completions(args) => manual::completions(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Help and version are what was asked for; everything else is wrong usage.
fn usage(error: &clap::Error) -> ExitCode {
    let Some(wrong) = equic_scenario::command::usage(error) else { return ExitCode::SUCCESS };
    output::notice(wrong);
    ExitCode::from(2)
}

fn start_log() {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_env("EQUIC_LOG").unwrap_or_else(|_| EnvFilter::new("off"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
}
