//! Runs the parts of the experiment: each grid either complete or with fewer values of its axes.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

use nix::sys::signal::Signal;

use super::data::{self, Measured};
use super::part::Part;
use super::scale::{Grid, Scale};
use crate::failure::{Failure, Result};
use crate::output;

/// Runs the part in its folder below `raw`, or resumes it if some runs exist. Returns `None` if
/// the scale omits the part.
pub(super) fn carry_out(
    part: Part,
    scale: &Scale,
    raw: &Path,
    threads: Option<u16>,
    stop: &AtomicBool,
) -> Result<Option<Measured>> {
    let Some(grid) = scale.grid(part) else { return Ok(None) };
    let folder = raw.join(part.name());
    let file = raw.join(format!("{}.toml", part.name()));
    std::fs::write(&file, grid.text).map_err(|error| {
        Failure::because(format_args!("cannot write {}", file.display()), error)
    })?;
    output::notice(format_args!("{}: {} runs", part.title(), grid.runs));
    let mut command = Command::new(crate::simulator::program()?);
    command.arg("sweep").arg(&file).arg("--out").arg(&folder);
    if let Some(threads) = threads {
        command.args(["--threads", &threads.to_string()]);
    }
    // The sweep has its own process group. Ctrl-C therefore ends only this process, which then
    // ends the sweep.
    command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
    wait(command, part, stop)?;
    let rows = data::read(&folder.join("rows.csv"))?;
    let Grid { runs, of, axes, .. } = grid;
    Ok(Some(Measured { part, runs, of, axes, rows }))
}

/// Waits for a sweep. Ends it if this process gets a signal to stop.
fn wait(mut command: Command, part: Part, stop: &AtomicBool) -> Result {
    let failed =
        |error| Failure::because(format_args!("cannot run the part {}", part.name()), error);
    let mut child = command.spawn().map_err(failed)?;
    let (status, told) = super::super::wait(&mut child, Signal::SIGTERM, stop).map_err(failed)?;
    if told {
        return Err(Failure::new("interrupted").help("repeat the same command to continue"));
    }
    if status.success() {
        return Ok(());
    }
    Err(Failure::new(format!("part {} of the experiment did not finish ({status})", part.name())))
}
