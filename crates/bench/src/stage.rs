//! Where a cell is run, what is run there, and what comes of it.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use crate::extras::Extras;
use crate::path::Impairment;
use crate::result::profile::Split;
use crate::site::Site;
use crate::sweep::Point;
use crate::{Answer, Failure, Figures, Implementation, Size, Workload};

/// Where and how cells are run.
#[derive(Debug)]
pub struct Stage<'a> {
    /// Where the server is.
    pub server: Site<'a>,
    /// Where the client is.
    pub client: Site<'a>,
    /// The server's IP address.
    pub address: std::net::IpAddr,
    /// What a relay between them does; none: there is no relay.
    pub relay: Option<&'a Impairment>,
    /// How much of everything.
    pub size: Size,
    /// Ends cells early.
    pub stop: &'a AtomicBool,
    /// Where what was said is kept; none: nowhere.
    pub logs: Option<&'a Path>,
    /// Count system calls, which costs time.
    pub count_calls: bool,
    /// What else is kept in the folder of logs, which costs time, too.
    pub extras: Extras,
}

impl Stage<'_> {
    /// Where samples of an end are kept, if such are taken.
    pub(crate) fn sampled(&self, role: &str) -> Option<PathBuf> {
        self.logs.filter(|_| self.extras.samples()).map(|logs| logs.join(role))
    }
}

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// Whose server.
    pub server: &'a Implementation,
    /// Whose client.
    pub client: &'a Implementation,
    /// What is measured.
    pub workload: Workload,
    /// What is spoken.
    pub protocol: &'a str,
    /// What is swept.
    pub point: &'a Point,
    /// The round, for what is drawn by chance.
    pub round: i64,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Taken {
    /// The figures.
    pub figures: Figures,
    /// What the client said.
    pub answer: Answer,
    /// Anonymous memory of the server before anybody came, in bytes.
    pub server_idle_memory: u64,
    /// The same with all connections open, where these are held.
    pub server_held_memory: Option<u64>,
    /// What samples of both say, if such were taken.
    pub profile: Option<Splits>,
}

/// Samples of both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Splits {
    /// Of the server.
    pub server: Split,
    /// Of the client.
    pub client: Split,
}

/// Why there is nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Trouble {
    /// An end says that it does not do that.
    Unsupported(String),
    /// It went wrong.
    Failed(Failure, String),
}

pub(crate) fn failed<T>(failure: Failure, why: impl Into<String>) -> Result<T, Trouble> {
    Err(Trouble::Failed(failure, why.into()))
}
