//! Options that a QUIC server and client share.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use equic_gateway::parse_size;
use equic_http3::{Congestion, KeyLog};
use equic_quic::{PacketTrace, QlogFolder, Scheduler};

use crate::failure::{Failure, Result};
use crate::output;
use crate::plugin::{self, OnFailure, OwnPlugins, Tally};

/// Options of the transport.
#[derive(Args)]
pub struct QuicArgs {
    /// Congestion control algorithm for sending
    #[arg(
        long,
        value_enum,
        value_name = "ALGORITHM",
        default_value = "cubic",
        help_heading = "Transport"
    )]
    congestion: Algorithm,
    /// Scheduler that chooses the path of each packet, if there are several
    #[arg(
        long,
        value_enum,
        value_name = "SCHEDULER",
        default_value = "lowest-rtt",
        help_heading = "Transport"
    )]
    scheduler: SchedulerName,
    /// File to which TLS secrets are appended, for packet analysers. Anyone who has this file can
    /// decrypt the connections
    #[arg(long, value_name = "FILE", help_heading = "Diagnostics")]
    keylog: Option<PathBuf>,
    /// Folder into which a qlog file is written for each connection
    #[arg(long, value_name = "DIR", help_heading = "Diagnostics")]
    qlog_dir: Option<PathBuf>,
    /// Maximum size of a qlog file, such as 100MB. At this size, a note ends the file
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "qlog_dir", help_heading = "Diagnostics")]
    qlog_max: Option<u64>,
    /// Plugin (.qplug) to attach to each connection; may be given several times. If the plugin
    /// fails on a connection, the connection continues without the plugin, and the exit code of the
    /// command is 1
    #[arg(long, value_name = "FILE", help_heading = "Plugins")]
    plugin: Vec<PathBuf>,
}

/// Logs that are flushed when the value is dropped.
pub struct Flush(Box<dyn Fn()>);

impl Drop for Flush {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Algorithm {
    /// NewReno of RFC 9002
    Newreno,
    /// CUBIC of RFC 9438, with HyStart++
    Cubic,
    /// BBR version 3
    Bbr,
    /// LIA of RFC 6356: NewReno, coupled over all paths of a connection
    Lia,
    /// OLIA: like lia, but moves traffic away from congested paths faster
    Olia,
}

#[derive(Clone, Copy, ValueEnum)]
enum SchedulerName {
    /// Use the path with the lowest round-trip time among the paths with room
    LowestRtt,
    /// Use all paths with room round-robin, one packet each
    RoundRobin,
    /// Use the first path, and another path only while the first path does not work
    Backup,
    /// Send every packet on each path with room
    Redundant,
}

impl QuicArgs {
    /// Returns the chosen scheduler.
    pub fn scheduler(&self) -> Scheduler {
        match self.scheduler {
            SchedulerName::LowestRtt => Scheduler::LowestRtt,
            SchedulerName::RoundRobin => Scheduler::RoundRobin,
            SchedulerName::Backup => Scheduler::Backup,
            SchedulerName::Redundant => Scheduler::Redundant,
        }
    }

    /// Rejects or reports options that have an effect only with several paths. `more` names the
    /// option that permits several paths.
    ///
    /// # Errors
    /// A scheduler other than the default was chosen. A coupled congestion control is not an error:
    /// the function prints a notice that it behaves like NewReno.
    pub fn check_one_path(&self, more: &str) -> Result {
        if !matches!(self.scheduler, SchedulerName::LowestRtt) {
            let message =
                format!("--scheduler chooses among several paths: allow them with {more}");
            return Err(Failure::usage(message));
        }
        if matches!(self.congestion, Algorithm::Lia | Algorithm::Olia) {
            output::notice(format_args!(
                "--congestion lia and olia couple several paths, and behave like NewReno with a single path: {more} permits more paths"
            ));
        }
        Ok(())
    }

    /// Returns the chosen congestion control algorithm.
    pub fn congestion(&self) -> Congestion {
        match self.congestion {
            Algorithm::Newreno => Congestion::NewReno,
            Algorithm::Cubic => Congestion::Cubic,
            Algorithm::Bbr => Congestion::Bbr,
            Algorithm::Lia => Congestion::Lia,
            Algorithm::Olia => Congestion::Olia,
        }
    }

    /// Loads the local plugins. `tally` counts their calls, and `tell` is called when one fails.
    pub fn plugins(&self, tally: Option<Tally>, tell: Option<OnFailure>) -> Result<OwnPlugins> {
        plugin::own(&self.plugin, tally, tell)
    }

    /// Opens the file for TLS secrets.
    pub fn key_log(&self) -> Result<Option<KeyLog>> {
        let Some(path) = &self.keylog else { return Ok(None) };
        KeyLog::open(path).map(Some).map_err(|error| {
            Failure::because(format_args!("cannot write {}", path.display()), error)
        })
    }

    /// Opens the folder for qlog files, and checks that it is writable.
    pub fn qlog(&self) -> Result<Option<QlogFolder>> {
        let folder = self.qlog_dir.as_deref().map(qlog_folder).transpose()?;
        Ok(folder.map(|folder| match self.qlog_max {
            Some(bytes) => folder.max_file(bytes),
            None => folder,
        }))
    }
}

/// Opens a folder for qlog files, and checks that it is writable.
pub fn qlog_folder(folder: &Path) -> Result<QlogFolder> {
    QlogFolder::open(folder).map_err(|error| {
        let what = format!("cannot write qlog files into {}", folder.display());
        Failure::because(what, format_args!("{error}; give a folder to which this user may write"))
    })
}

/// Returns a value that flushes the logs when it is dropped. Keep it until all connections have
/// ended.
pub fn flushed(qlog: Option<&QlogFolder>, trace: Option<&PacketTrace>) -> Flush {
    let (qlog, trace) = (qlog.cloned(), trace.cloned());
    Flush(Box::new(move || {
        qlog.iter().for_each(QlogFolder::flush);
        trace.iter().for_each(PacketTrace::flush);
    }))
}
