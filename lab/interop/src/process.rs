//! Starts a client or server, with its output in a file.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::Stdio;

use equic_harness::{ProcessPlacement, Program, Streams};

/// Starts a program in the folder `folder`. Its output goes to the file `log`.
pub(crate) fn start(
    command: &[String],
    environment: &[(&str, String)],
    folder: &Path,
    log: &Path,
) -> io::Result<Program> {
    let said = File::create(log)?;
    let streams =
        Streams { stdin: Stdio::null(), stdout: said.try_clone()?.into(), stderr: said.into() };
    let environment =
        environment.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    let placement =
        ProcessPlacement { environment, folder: Some(folder), ..ProcessPlacement::default() };
    Program::start(command, &placement, streams)
}
