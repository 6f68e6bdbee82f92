//! `equic reproduce`: the experiments of the papers, done again.
//!
//! * `gateway`: quotas in user space and in the kernel, under attack. `highway`: buffers, offloads and AES
//!   instructions, for QUIC and for TCP. `nsquic`: QUIC and TCP in virtual time.
//! * `readme`: puts results into an experiment's README.

mod gateway;
mod highway;
mod nsquic;
mod readme;

use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use equic_report::plot::{PlotError, Svg};
use equic_report::schema::{Report, SchemaName};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::de::DeserializeOwned;

use crate::failure::{Done, Failure};

/// The papers.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// The gateway's: quotas in user space and in the kernel, under attack
    Gateway(gateway::Args),
    /// "QUIC on the Highway": what buffers, offloads and AES instructions do for QUIC and for TCP
    Highway(highway::Args),
    /// nsQUIC: QUIC against TCP in virtual time, over bandwidth, delay, loss, size and number of nodes
    Nsquic(nsquic::Args),
}

/// Carries one out.
pub(crate) fn run(command: &Command) -> Done {
    match command {
        Command::Gateway(args) => gateway::run(args),
        Command::Highway(args) => highway::run(args),
        Command::Nsquic(args) => nsquic::run(args),
    }
}

/// Time between two looks at a part that is waited for.
const LOOK: Duration = Duration::from_millis(100);

/// Waits for the process of a part, and hands `signal` on to it once `stop` is set. Gives how it ended, and whether it was
/// sent the signal.
fn wait(
    child: &mut Child,
    signal: Signal,
    stop: &AtomicBool,
) -> std::io::Result<(ExitStatus, bool)> {
    let mut told = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((status, told));
        }
        if stop.load(Ordering::Relaxed) && !told {
            told = true;
            // It may just have ended.
            let _ = kill(Pid::from_raw(child.id().cast_signed()), signal);
        }
        std::thread::sleep(LOOK);
    }
}

fn make_folder(folder: &Path) -> Done {
    std::fs::create_dir_all(folder).map_err(|error| {
        Failure::because(format_args!("cannot make the folder {}", folder.display()), error)
    })
}

/// A stored result.
fn read<T: DeserializeOwned>(stored: &Path, schema: &str) -> Done<Report<T>> {
    let failed = |why: &dyn std::fmt::Display| {
        Failure::because(format_args!("cannot read {}", stored.display()), why)
    };
    let text = std::fs::read_to_string(stored).map_err(|error| failed(&error))?;
    let schema: SchemaName = schema.parse()?;
    Report::from_json(&text, &schema).map_err(|error| failed(&error))
}

/// Writes plots into a folder, as SVG and PNG; the names of those that show anything.
fn draw(
    plots: impl IntoIterator<Item = (&'static str, Result<Svg, PlotError>)>,
    out: &Path,
) -> Done<Vec<&'static str>> {
    let mut written = Vec::new();
    for (name, plot) in plots {
        match plot {
            Ok(plot) => {
                plot.write_svg(out.join(format!("{name}.svg")))?;
                plot.write_png(out.join(format!("{name}.png")), 1.5)?;
                written.push(name);
            }
            // In a small experiment nothing may have been measured for one.
            Err(PlotError::Empty(_) | PlotError::NothingPositive(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(written)
}
