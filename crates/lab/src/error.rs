//! Errors of a lab, and how to mend them.

use std::io;
use std::path::{Path, PathBuf};

/// Reason that a lab could not be built, entered or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// The process lacks the capabilities a lab needs.
    #[error("a lab needs {missing}: run as root (sudo)")]
    Privilege {
        /// The capabilities that are missing, as in capabilities(7).
        missing: String,
    },
    /// The caller asked for a lab that cannot exist.
    #[error("cannot build this lab: {0}")]
    Plan(String),
    /// The `ip` command could not be started.
    #[error("cannot run `ip`: {0}; install it with `apt-get install iproute2`")]
    IpMissing(#[source] io::Error),
    /// There are no interfaces whose other side is a program.
    #[error(
        "cannot make an interface by /dev/net/tun: {0}; load the kernel's module with `modprobe tun`"
    )]
    NoTun(#[source] io::Error),
    /// The `ip` command refused a line.
    #[error("`ip` failed in {namespace}: {message}")]
    Ip {
        /// The namespace being set up, or `/run/netns` when namespaces were being made.
        namespace: String,
        /// Message of `ip`, with the line it was given.
        message: String,
    },
    /// A file or system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// The operation, with its object.
        what: String,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The links are there, but a datagram did not get through in time.
    #[error("{from} cannot reach {to} over the lab's bridge after {seconds} s")]
    NotReady {
        /// Sending namespace.
        from: String,
        /// Address that did not answer.
        to: String,
        /// Time for which an answer was awaited, in seconds.
        seconds: u64,
    },
    /// The record of a lab is not readable.
    #[error("the lab record {} is not valid: {message}", path.display())]
    Record {
        /// File under `/run/equic-lab`.
        path: PathBuf,
        /// The parser's complaint.
        message: String,
    },
    /// Some processes inside the lab did not end.
    #[error("processes {pids:?} are still in the lab after SIGKILL")]
    Unkillable {
        /// Process ids.
        pids: Vec<i32>,
    },
}

impl LabError {
    /// Wraps a system error with the operation that failed.
    pub(crate) fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::System { what: what.into(), source: source.into() }
    }

    /// Wraps a system error on a file.
    pub(crate) fn file(verb: &str, path: &Path, source: io::Error) -> Self {
        Self::system(format!("{verb} {}", path.display()), source)
    }
}
