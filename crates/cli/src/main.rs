//! `equic`: the command. Start reading at [`Command`], then at the module of each subcommand:
//!
//! * [`gateway`]: run a gateway, look into one, change it, ask it what it would do;
//! * [`serve`], [`get`]: an HTTP/3 server that feeds a gateway, and a client;
//! * [`plugin`]: from C to a plugin on a connection;
//! * [`moved`]: names of commands that are `equic-lab`'s now;
//! * [`equic_command`], a crate of its own: what `equic-lab` has, too, such as man pages and options of QUIC;
//! * [`interfaces`]: addresses of this machine as they come and go, as [`netlink`] tells;
//! * [`equic_console`], a crate of its own: the only place that prints, the exit codes (0 done, 1 failed,
//!   2 wrong usage), and what every result has beside its figures.

mod gateway;
mod get;
mod interfaces;
mod moved;
mod netlink;
mod plugin;
mod serve;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use equic_command::manual::{self, Manual};
use equic_command::{exchange, quic, start, trust};
use equic_console::{failure, output, signals};
use failure::Done;

/// QUIC servers protected in the kernel.
#[derive(Parser)]
#[command(name = "equic", version = equic_console::version(), max_term_width = 80)]
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
    /// Write, test, pack and sign protocol plugins
    #[command(subcommand)]
    Plugin(plugin::Command),
    /// Print the man page of a command, or write all of them
    #[command(after_help = "Examples:
  equic man gateway run | man -l -
  equic man --out /usr/local/share/man/man1")]
    Man(manual::Pages),
    /// Print completions for a shell
    #[command(after_help = "Examples:
  source <(equic completions bash)
  equic completions fish > ~/.config/fish/completions/equic.fish")]
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
        Err(error) => {
            let Some(moved) = moved::notice(std::env::args_os().skip(1)) else {
                return start::usage(&error);
            };
            output::notice(moved);
            return ExitCode::from(2);
        }
    };
    if !equic.command.hears_signals() {
        signals::release();
    }
    start::log();
    let done: Done = match equic.command {
        Command::Gateway(command) => gateway::run(command),
        Command::Serve(args) => serve::run(&args),
        Command::Get(args) => get::run(&args),
        Command::Plugin(command) => plugin::run(&command),
        Command::Man(args) => manual::pages(own_manual(), &args),
        Command::Completions(args) => manual::completions(Equic::command(), &args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn own_manual() -> Manual {
    let documents = "docs/guide.md, docs/how-to/ and docs/policy.md";
    Manual { program: Equic::command(), documents }
}
