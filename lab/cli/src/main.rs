//! `equic-lab`: the command for experiments. Start reading at [`Command`], then at the module of
//! each subcommand:
//!
//! * [`equic_experiments`], a separate crate: the demo, experiments from published papers, the
//!   benchmark of a server under floods (`gateway-bench`), and the soak test;
//! * [`bench`] measures the speed of QUIC implementations; [`interop`] tests whether they
//!   interoperate;
//! * [`net`]: network namespaces, load and attacks on one machine; [`sim`]: simulations, which the
//!   program `equic-sim` runs;
//! * [`plugin`]: benefits and costs of the plugins in the source tree;
//! * [`equic_command`], [`equic_console`], separate crates: code that `equic-lab` shares with the
//!   command `equic`.
//!
//! The gateway and the server of an experiment are the program `equic`, which is in this program's
//! directory or on `PATH`.

#[cfg(feature = "all")]
mod bench;
#[cfg(feature = "all")]
mod interop;
mod net;
#[cfg(feature = "all")]
mod plugin;
#[cfg(feature = "all")]
mod sim;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use equic_command::manual::{self, Manual};
use equic_command::start;
use equic_command::trust;
#[cfg(feature = "all")]
use equic_command::{exchange, quic};
#[cfg(feature = "all")]
use equic_console::envelope;
use equic_console::{failure, output, signals};
use equic_experiments::demo;
#[cfg(feature = "all")]
use equic_experiments::{flood, reproduce, soak};
use failure::Result;

/// Experiments with QUIC and the gateway: demo, benchmarks, simulations.
#[derive(Parser)]
#[command(name = "equic-lab", version = equic_console::version(), max_term_width = 80)]
#[command(
    after_help = "Exit status: 0 done, 1 failed, 2 wrong usage. EQUIC_LOG=debug: logs to stderr"
)]
struct EquicLab {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Demonstrate attacks on a server, with and without the gateway
    Demo(demo::Args),
    #[cfg(feature = "all")]
    /// Measure and compare QUIC implementations
    #[command(subcommand)]
    Bench(bench::Command),
    #[cfg(feature = "all")]
    /// Measure a server under floods, with each kind of protection
    GatewayBench(flood::Args),
    #[cfg(feature = "all")]
    /// Run interoperability tests between QUIC implementations
    Interop(Box<interop::Args>),
    #[cfg(feature = "all")]
    /// Simulate networks and QUIC connections in virtual time
    #[command(subcommand)]
    Sim(equic_scenario::command::Command),
    /// Create network namespaces, and load and attacks in them
    #[command(subcommand)]
    Net(Box<net::Command>),
    #[cfg(feature = "all")]
    /// Run a soak test: changes of state under floods, then checks
    Soak(soak::Args),
    #[cfg(feature = "all")]
    /// Demonstrate pushing helpful and hostile plugins to a client
    PluginDemo(plugin::demo::Args),
    #[cfg(feature = "all")]
    /// Compare the included plugins: size, gain and cost
    PluginBench(plugin::bench::Args),
    #[cfg(feature = "all")]
    /// Repeat the experiment of a paper, and compare the results
    #[command(subcommand)]
    Reproduce(reproduce::Command),
    #[cfg(feature = "all")]
    /// Run as an endpoint of the QUIC Interop Runner
    #[command(hide = true)]
    InteropEndpoint(interop::endpoint::Args),
    #[cfg(feature = "all")]
    /// Run as the quinn server that `gateway-bench --forged` measures
    #[command(hide = true)]
    QuinnServer(flood::QuinnArgs),
    /// Print the man page of a command, or write all of them
    #[command(after_help = "Examples:
  equic-lab man bench run | man -l -
  equic-lab man --out /usr/local/share/man/man1")]
    Man(manual::Pages),
    /// Print completions for a shell
    #[command(after_help = "Examples:
  source <(equic-lab completions bash)
  equic-lab completions fish > ~/.config/fish/completions/equic-lab.fish")]
    Completions(manual::Completions),
}

fn main() -> ExitCode {
    output::name_program("equic-lab");
    let lab = match EquicLab::try_parse() {
        Ok(lab) => lab,
        Err(error) => return start::usage(&error),
    };
    // The parent process may have left signals blocked, so unblock them.
    signals::release();
    start::log();
    let done: Result = match lab.command {
        Command::Demo(args) => demo::run(&args),
        #[cfg(feature = "all")]
        Command::Bench(command) => bench::run(command),
        #[cfg(feature = "all")]
        Command::GatewayBench(args) => flood::run(&args),
        #[cfg(feature = "all")]
        Command::Interop(args) => interop::run(&args),
        #[cfg(feature = "all")]
        Command::Sim(_) => sim::run(),
        Command::Net(command) => net::run(*command),
        #[cfg(feature = "all")]
        Command::Soak(args) => soak::run(&args),
        #[cfg(feature = "all")]
        Command::PluginDemo(args) => plugin::demo::run(&args),
        #[cfg(feature = "all")]
        Command::PluginBench(args) => plugin::bench::run(&args),
        #[cfg(feature = "all")]
        Command::Reproduce(command) => reproduce::run(&command),
        #[cfg(feature = "all")]
        Command::InteropEndpoint(args) => interop::endpoint::run(&args),
        #[cfg(feature = "all")]
        Command::QuinnServer(args) => flood::serve_quinn(&args),
        Command::Man(args) => manual::pages(own_manual(), &args),
        Command::Completions(args) => manual::completions(EquicLab::command(), &args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => output::report(&failure),
    }
}

fn own_manual() -> Manual {
    let documents = "docs/bench.md, docs/interop.md and docs/simulator.md";
    Manual { program: EquicLab::command(), documents }
}
