//! `equic lab`: network namespaces on one machine, and what is let loose in them.
//!
//! [`hosts`] makes, lists, enters and removes labs; [`load`] runs HTTP/3 clients, [`flood`] sends
//! attack traffic, which the library refuses to do anywhere but inside a lab; [`relay`] is a bad network on any
//! machine; `run` plays a scenario of the simulator in real time. What a flood leaves of a server
//! ([`equic_experiments::flood`]), and all of it let loose on a gateway for a time ([`equic_experiments::soak`]), is of
//! another crate.

mod flood;
mod hosts;
mod load;
mod relay;
mod run;

use clap::Subcommand;
use equic_experiments::{flood as bench, soak};

use crate::failure::Done;

/// The subcommands.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Create a lab and keep it until Ctrl-C or `lab down`
    Up(hosts::Up),
    /// Remove a lab, by ending the process that keeps it
    Down(hosts::Down),
    /// List the labs on this machine
    List(hosts::List),
    /// Run a program on a host of a lab
    Exec(hosts::Exec),
    /// Remove the remains of labs whose process was killed
    Sweep(hosts::Sweep),
    /// Send attack traffic; refused outside a lab
    #[command(subcommand)]
    Flood(flood::Command),
    /// Make HTTP/3 requests and measure each
    #[command(subcommand)]
    Load(load::Command),
    /// Forward UDP datagrams with loss, delay and other impairments
    Relay(relay::Args),
    /// Run a scenario of the simulator in real time
    Run(run::Args),
    /// Run churn and floods for a time, and check that the state afterwards is as before
    Soak(soak::Args),
    /// Measure the throughput of a server under a flood, for each kind of protection
    Bench(bench::Args),
    /// Run as the quinn server that `bench --forged` measures
    #[command(hide = true)]
    Quinn(bench::QuinnArgs),
}

/// Carries one out.
pub(crate) fn run(command: Command) -> Done {
    match command {
        Command::Up(args) => hosts::up(&args),
        Command::Down(args) => hosts::down(&args),
        Command::List(args) => hosts::list(&args),
        Command::Exec(args) => hosts::exec(&args),
        Command::Sweep(args) => hosts::sweep(&args),
        Command::Flood(command) => flood::run(&command),
        Command::Load(command) => load::run(&command),
        Command::Relay(args) => relay::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Soak(args) => soak::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Quinn(args) => bench::serve_quinn(&args),
    }
}
