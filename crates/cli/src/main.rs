//! The command `equic`. Start reading at [`Command`], then at the module of each subcommand:
//!
//! * [`gateway`]: runs a gateway, inspects one, changes it, and explains its verdicts;
//! * [`serve`], [`get`]: an HTTP/3 server that reports its connections to a gateway, and an HTTP/3
//!   client;
//! * [`plugin`]: writes, builds, checks and signs plugins;
//! * [`moved`]: commands that now belong to `equic-lab`, and options that no longer exist;
//! * [`config_conflict`]: the error about a limit next to a configuration file;
//! * [`equic_command`], a separate crate: code that `equic` shares with `equic-lab`, such as man
//!   pages and QUIC options;
//! * [`values`]: parsers for values of options;
//! * [`interfaces`]: addresses of this machine and their changes, which [`netlink`] reports;
//! * [`equic_console`], a separate crate: the only code that prints; the exit codes (0 done, 1
//!   failed, 2 wrong usage or configuration); and the fields that all results share.

mod config_conflict;
mod gateway;
mod get;
mod interfaces;
mod moved;
mod netlink;
mod plugin;
mod serve;
mod values;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use equic_command::manual::{self, Manual};
use equic_command::{exchange, quic, start, trust};
use equic_console::{failure, output, signals};
use failure::Result;

/// Protects QUIC servers in the kernel.
#[derive(Parser)]
#[command(name = "equic", version = equic_console::version(), max_term_width = 80)]
#[command(
    after_help = "Exit status: 0 done, 1 failed, 2 wrong usage or configuration. EQUIC_LOG=debug: logs to stderr"
)]
struct Equic {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
#[expect(clippy::large_enum_variant, reason = "there is one value, in `main`")]
enum Command {
    /// Drop abusive traffic to a QUIC server, in the kernel
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
    /// Returns whether the command is a service, which handles signals itself. A signal simply ends
    /// any other command.
    fn hears_signals(&self) -> bool {
        matches!(self, Command::Gateway(gateway::Command::Run(_)) | Command::Serve(_))
    }
}

fn main() -> ExitCode {
    // Block signals before any file is opened or thread is started, because a service manager may
    // send a signal at once.
    signals::hold();
    let equic = match Equic::try_parse() {
        Ok(equic) => equic,
        Err(error) => {
            let arguments = || std::env::args_os().skip(1);
            let notice = moved::notice(&error, arguments())
                .or_else(|| config_conflict::notice(&error, arguments()));
            let Some(notice) = notice else { return start::usage(&error) };
            output::notice(notice);
            return ExitCode::from(2);
        }
    };
    if !equic.command.hears_signals() {
        signals::release();
    }
    start::log();
    let done: Result = match equic.command {
        Command::Gateway(command) => gateway::run(command),
        Command::Serve(args) => serve::run(&args),
        Command::Get(args) => get::run(&args),
        Command::Plugin(command) => plugin::run(&command),
        Command::Man(args) => manual::pages(own_manual(), &args),
        Command::Completions(args) => manual::completions(Equic::command(), &args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => output::report(&failure),
    }
}

fn own_manual() -> Manual {
    let documents = "docs/guide.md, docs/how-to/ and docs/policy.md";
    Manual { program: Equic::command(), documents }
}
