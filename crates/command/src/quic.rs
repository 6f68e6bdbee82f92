//! Flags that a QUIC server and client have in common.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use equic_gateway::parse_size;
use equic_http3::{Congestion, KeyLog};
use equic_quic::{PacketTrace, QlogFolder, Scheduler};

use crate::failure::{Done, Failure};
use crate::output;
use crate::plugin::{self, OnFailure, OwnPlugins, Tally};

/// How the transport is to behave.
#[derive(Args)]
pub struct QuicArgs {
    /// Congestion control algorithm for sending
    #[arg(long, value_enum, value_name = "ALGORITHM", default_value = "cubic")]
    congestion: Algorithm,
    /// Scheduler that chooses the path of each packet, if there are several
    #[arg(long, value_enum, value_name = "SCHEDULER", default_value = "lowest-rtt")]
    scheduler: SchedulerName,
    /// Append TLS secrets to this file, for packet analysers: anyone who has it can decrypt the
    /// connections
    #[arg(long, value_name = "FILE")]
    keylog: Option<PathBuf>,
    /// Write a qlog file for each connection into this folder
    #[arg(long, value_name = "DIR")]
    qlog_dir: Option<PathBuf>,
    /// End a qlog file, with a note, at this size, such as 100MB
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "qlog_dir")]
    qlog_max: Option<u64>,
    /// Attach this plugin (.qplug) to each connection; may be given several times. If it fails on a
    /// connection, the connection continues without it, and the command's exit code is 1
    #[arg(long, value_name = "FILE")]
    plugin: Vec<PathBuf>,
}

/// Logs whose last lines are written when it is dropped.
pub struct Flush(Box<dyn Fn()>);

impl Drop for Flush {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Algorithm {
    /// RFC 9002
    Newreno,
    /// RFC 9438 with HyStart++
    Cubic,
    /// Version 3
    Bbr,
    /// RFC 6356: NewReno, coupled over all paths of a connection
    Lia,
    /// As lia, but leaves congested paths faster
    Olia,
}

#[derive(Clone, Copy, ValueEnum)]
enum SchedulerName {
    /// The path with the lowest round-trip time among those with room
    LowestRtt,
    /// All paths with room in turn, one packet each
    RoundRobin,
    /// The first path; another one only if the first does not work
    Backup,
    /// Every packet on each path with room
    Redundant,
}

impl QuicArgs {
    /// The scheduler that was chosen.
    pub fn scheduler(&self) -> Scheduler {
        match self.scheduler {
            SchedulerName::LowestRtt => Scheduler::LowestRtt,
            SchedulerName::RoundRobin => Scheduler::RoundRobin,
            SchedulerName::Backup => Scheduler::Backup,
            SchedulerName::Redundant => Scheduler::Redundant,
        }
    }

    /// Options that have no meaning where a connection has one path only; `more` says how it gets several.
    ///
    /// # Errors
    /// A scheduler was chosen for them. Congestion control that couples them is as good as NewReno, which is said.
    pub fn check_one_path(&self, more: &str) -> Done {
        if !matches!(self.scheduler, SchedulerName::LowestRtt) {
            let message =
                format!("--scheduler chooses among several paths: allow them with {more}");
            return Err(Failure::usage(message));
        }
        if matches!(self.congestion, Algorithm::Lia | Algorithm::Olia) {
            output::notice(format_args!(
                "--congestion lia and olia couple several paths, and are NewReno on one: {more} allows more"
            ));
        }
        Ok(())
    }

    /// The congestion control that was chosen.
    pub fn congestion(&self) -> Congestion {
        match self.congestion {
            Algorithm::Newreno => Congestion::NewReno,
            Algorithm::Cubic => Congestion::Cubic,
            Algorithm::Bbr => Congestion::Bbr,
            Algorithm::Lia => Congestion::Lia,
            Algorithm::Olia => Congestion::Olia,
        }
    }

    /// The plugins of one's own, loaded. `tally` counts their calls, and `tell` hears of failures.
    pub fn plugins(&self, tally: Option<Tally>, tell: Option<OnFailure>) -> Done<OwnPlugins> {
        plugin::own(&self.plugin, tally, tell)
    }

    /// The file for secrets, open.
    pub fn key_log(&self) -> Done<Option<KeyLog>> {
        let Some(path) = &self.keylog else { return Ok(None) };
        KeyLog::open(path).map(Some).map_err(|error| {
            Failure::because(format_args!("cannot write {}", path.display()), error)
        })
    }

    /// The folder for qlog files, tried.
    pub fn qlog(&self) -> Done<Option<QlogFolder>> {
        let folder = self.qlog_dir.as_deref().map(qlog_folder).transpose()?;
        Ok(folder.map(|folder| match self.qlog_max {
            Some(bytes) => folder.max_file(bytes),
            None => folder,
        }))
    }
}

/// A folder for qlog files, tried.
pub fn qlog_folder(folder: &Path) -> Done<QlogFolder> {
    QlogFolder::open(folder).map_err(|error| {
        let what = format!("cannot write qlog files into {}", folder.display());
        Failure::because(what, format_args!("{error}; it has to be a folder you may write to"))
    })
}

/// Keep it until all connections are gone.
pub fn flushed(qlog: Option<&QlogFolder>, trace: Option<&PacketTrace>) -> Flush {
    let (qlog, trace) = (qlog.cloned(), trace.cloned());
    Flush(Box::new(move || {
        qlog.iter().for_each(QlogFolder::flush);
        trace.iter().for_each(PacketTrace::flush);
    }))
}
