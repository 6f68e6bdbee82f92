//! The parts of the experiment. Each is a grid for `equic-lab sim sweep`, either complete or with
//! fewer values of its axes.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use super::data::{self, Measured};
use super::scale::Scale;
use crate::failure::{Failure, Result};
use crate::output;

/// A part of the experiment, which is a grid of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Part {
    Errors,
    Simple,
    Dumbbell,
    Nodes,
    Within,
    Fairness,
    Imc17,
    ZeroRtt,
    #[value(name = "simple-210mb")]
    #[serde(rename = "simple-210mb")]
    SimpleLarge,
    #[value(name = "dumbbell-210mb")]
    #[serde(rename = "dumbbell-210mb")]
    DumbbellLarge,
}

impl Part {
    pub(super) const ALL: [Part; 10] = [
        Part::Errors,
        Part::Simple,
        Part::Dumbbell,
        Part::Nodes,
        Part::Within,
        Part::Fairness,
        Part::Imc17,
        Part::ZeroRtt,
        Part::SimpleLarge,
        Part::DumbbellLarge,
    ];

    /// Returns the name of the grid and of its folder.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Part::Errors => "errors",
            Part::Simple => "simple",
            Part::Dumbbell => "dumbbell",
            Part::Nodes => "nodes",
            Part::Within => "within",
            Part::Fairness => "fairness",
            Part::Imc17 => "imc17",
            Part::ZeroRtt => "zero-rtt",
            Part::SimpleLarge => "simple-210mb",
            Part::DumbbellLarge => "dumbbell-210mb",
        }
    }

    /// Returns the title of the part.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Part::Errors => "Errors at one point of the grid",
            Part::Simple => "The simple topology",
            Part::Dumbbell => "The dumbbell",
            Part::Nodes => "Number of nodes",
            Part::Within => "Fairness within a protocol",
            Part::Fairness => "Fairness between QUIC and TCP",
            Part::Imc17 => "A setting of \"Taking a Long Look at QUIC\"",
            Part::ZeroRtt => "Handshakes and 0-RTT",
            Part::SimpleLarge => "The simple topology, 210 MB",
            Part::DumbbellLarge => "The dumbbell, 210 MB",
        }
    }

    /// Returns the text of the whole grid, from its file in experiments/nsquic.
    pub(super) const fn grid(self) -> &'static str {
        macro_rules! file {
            ($name:literal) => {
                include_str!(concat!("../../../../../experiments/nsquic/", $name, ".toml"))
            };
        }
        match self {
            Part::Errors => file!("errors"),
            Part::Simple => file!("simple"),
            Part::Dumbbell => file!("dumbbell"),
            Part::Nodes => file!("nodes"),
            Part::Within => file!("within"),
            Part::Fairness => file!("fairness"),
            Part::Imc17 => file!("imc17"),
            Part::ZeroRtt => file!("zero-rtt"),
            Part::SimpleLarge => file!("simple-210mb"),
            Part::DumbbellLarge => file!("dumbbell-210mb"),
        }
    }

    /// Runs the part in its folder below `raw`, or resumes it if some runs exist. Returns `None` if
    /// the scale omits the part.
    pub(super) fn carry_out(
        self,
        scale: &Scale,
        raw: &Path,
        threads: Option<u16>,
        stop: &AtomicBool,
    ) -> Result<Option<Measured>> {
        let Some(grid) = scale.grid(self) else { return Ok(None) };
        let folder = raw.join(self.name());
        let file = raw.join(format!("{}.toml", self.name()));
        std::fs::write(&file, grid.text).map_err(|error| {
            Failure::because(format_args!("cannot write {}", file.display()), error)
        })?;
        output::notice(format_args!("{}: {} runs", self.title(), grid.runs));
        let mut command = Command::new(crate::simulator::program()?);
        command.arg("sweep").arg(&file).arg("--out").arg(&folder);
        if let Some(threads) = threads {
            command.args(["--threads", &threads.to_string()]);
        }
        // The sweep has its own process group. Ctrl-C therefore ends only this process, which then
        // ends the sweep.
        command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
        wait(command, self, stop)?;
        let rows = data::read(&folder.join("rows.csv"))?;
        let Grid { runs, of, axes, .. } = grid;
        Ok(Some(Measured { part: self, runs, of, axes, rows }))
    }
}

/// A grid, possibly with fewer values than the complete one.
pub(super) struct Grid {
    /// The file.
    pub text: String,
    /// Number of runs of this grid. `of` is the number of runs of the complete grid.
    pub runs: usize,
    pub of: usize,
    /// The axes with their values in this grid, and the number of values in the complete grid.
    pub axes: Vec<data::Axis>,
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
