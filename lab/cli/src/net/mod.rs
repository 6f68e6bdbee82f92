//! `equic-lab net`: network namespaces on one machine, and load and attacks inside them.
//!
//! [`hosts`] creates, lists, enters and removes labs. [`load`] runs HTTP/3 clients. [`flood`] sends
//! attack traffic, which the crate `equic-netns` only permits inside a lab. [`relay`] imitates an
//! impaired network on any machine. `run` runs a scenario of the simulator in real time.

mod flood;
mod hosts;
mod load;
mod relay;
#[cfg(feature = "all")]
mod run;

use clap::Subcommand;

use crate::failure::Result;

/// The subcommands.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Create a lab and keep it until Ctrl-C or `net down`
    Up(hosts::Up),
    /// Remove a lab, by ending the process that keeps it
    Down(hosts::Down),
    /// List the labs on this machine
    List(hosts::List),
    /// Run a program on a host of a lab
    Exec(hosts::Exec),
    /// Remove the remains of labs whose process was killed
    Clean(hosts::Sweep),
    /// Send attack traffic. Works only inside a lab
    #[command(subcommand)]
    Flood(flood::Command),
    /// Make HTTP/3 requests, and measure each of them
    #[command(subcommand)]
    Load(load::Command),
    /// Forward UDP datagrams with loss, delay and other impairments
    Relay(relay::Args),
    #[cfg(feature = "all")]
    /// Run a scenario of the simulator in real time, over network namespaces
    Run(run::Args),
}

/// Runs the subcommand.
pub(crate) fn run(command: Command) -> Result {
    match command {
        Command::Up(args) => hosts::up(&args),
        Command::Down(args) => hosts::down(&args),
        Command::List(args) => hosts::list(&args),
        Command::Exec(args) => hosts::exec(&args),
        Command::Clean(args) => hosts::sweep(&args),
        Command::Flood(command) => flood::run(&command),
        Command::Load(command) => load::run(&command),
        Command::Relay(args) => relay::run(&args),
        #[cfg(feature = "all")]
        Command::Run(args) => run::run(&args),
    }
}
