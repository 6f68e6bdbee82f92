//! The types of an attempt: its environment, its specification, and its result.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use crate::extras::Extras;
use crate::path::Impairment;
use crate::result::profile::Division;
use crate::site::Site;
use crate::sweep::SweepPoint;
use crate::{Answer, Figures, Implementation, Size, Workload};

pub use crate::error::CellError;
pub(crate) use crate::error::failed;

/// The environment of attempts: both hosts, the path between them, and what is recorded.
#[derive(Debug)]
pub struct CellContext<'a> {
    /// Where the server runs.
    pub server: Site<'a>,
    /// Where the client runs.
    pub client: Site<'a>,
    /// The server's IP address.
    pub address: std::net::IpAddr,
    /// Impairment by a relay between client and server. `None` if there is no relay.
    pub relay: Option<&'a Impairment>,
    /// Rate in bytes a second below which a transfer counts as stalled ([`NetPath::least_rate`](crate::NetPath)).
    pub least_rate: f64,
    /// Size of each workload (bytes, streams, seconds, connections).
    pub size: Size,
    /// Set to end attempts early.
    pub stop: &'a AtomicBool,
    /// Folder for the output of server and client. `None` if the output is discarded.
    pub logs: Option<&'a Path>,
    /// True if a probe runs first, so that its cost can be subtracted. The probe is a client that
    /// fetches one byte.
    pub probe: bool,
    /// True if system calls are counted, which costs time.
    pub count_calls: bool,
    /// Extra recordings, which also cost time. They are written into the folder of logs.
    pub extras: Extras,
}

impl CellContext<'_> {
    /// Returns the file for the samples of the server or client (`role`), if it is sampled.
    pub(crate) fn sampled(&self, role: &str) -> Option<PathBuf> {
        self.logs.filter(|_| self.extras.samples()).map(|logs| logs.join(role))
    }
}

/// Specification of one attempt at a measurement.
#[derive(Clone, Copy, Debug)]
pub struct CellSpec<'a> {
    /// Implementation of the server.
    pub server: &'a Implementation,
    /// Implementation of the client.
    pub client: &'a Implementation,
    /// Workload to measure.
    pub workload: Workload,
    /// Protocol that server and client speak.
    pub protocol: &'a str,
    /// Values of the swept settings.
    pub point: &'a SweepPoint,
    /// Number of the round. It selects which packets a relay loses at random.
    pub round: i64,
}

/// The measured data of a successful attempt.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// The figures.
    pub figures: Figures,
    /// Answer of the client.
    pub answer: Answer,
    /// Anonymous memory of the server before the first client, in bytes.
    pub server_idle_memory: u64,
    /// Anonymous memory of the server with all connections open, in bytes. `None` unless the
    /// workload is `idle`.
    pub server_held_memory: Option<u64>,
    /// Division of the samples of server and client, if they were sampled.
    pub profile: Option<Splits>,
}

/// Samples of server and client, divided by what the CPU was doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Splits {
    /// Samples of the server, divided by kind of work.
    pub server: Division,
    /// Samples of the client, divided by kind of work.
    pub client: Division,
}
