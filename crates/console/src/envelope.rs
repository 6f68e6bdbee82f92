//! Metadata of a measurement result: when, on which machine, and by which command line it was made.

use std::time::SystemTime;

use equic_report::schema::{Machine, Report, Timestamp};
use serde::Serialize;

use crate::failure::{Failure, Result};

/// The time and the machine of a measurement, recorded before the measurement begins.
pub struct Envelope {
    created: Timestamp,
    machine: Machine,
}

impl Envelope {
    /// Reads the current time and the description of this machine.
    pub fn now() -> Result<Envelope> {
        Ok(Envelope { created: created()?, machine: Machine::read()? })
    }

    /// Wraps the result `data` in a report. The report has the time and machine of this envelope,
    /// the command line of this process, and the name of the schema of `data`.
    pub fn report<T: Serialize>(self, schema: &str, data: T) -> Result<Report<T>> {
        let Envelope { created, machine } = self;
        Ok(Report { schema: schema.parse()?, created, machine, command: command(), data })
    }
}

/// Returns the current time in the format that result files use.
///
/// # Errors
/// Fails if the clock is before 1970 or after 9999.
pub fn created() -> Result<Timestamp> {
    Timestamp::new(SystemTime::now()).ok_or_else(|| {
        Failure::new("the clock of this machine is before 1970 or after 9999")
            .help("check the clock with `date`, and set it with `date --set`")
    })
}

/// Returns the command line of this process, one string per argument. Invalid UTF-8 is replaced.
pub fn command() -> Vec<String> {
    std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect()
}
