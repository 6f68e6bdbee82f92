//! Errors of a lab, and how to fix them.

use std::io;
use std::path::{Path, PathBuf};

/// Reason why a lab could not be built, entered or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// The process lacks the capabilities a lab needs.
    #[error("a lab needs {missing}: run this command as root (sudo)")]
    Privilege {
        /// The missing capabilities, as in capabilities(7).
        missing: String,
    },
    /// The caller asked for an impossible lab.
    #[error("cannot build this lab: {0}")]
    Plan(String),
    /// The `ip` command could not be started.
    #[error("cannot run `ip`: {0}; install it with `apt-get install iproute2`")]
    IpMissing(#[source] io::Error),
    /// The kernel does not support TUN interfaces.
    #[error(
        "cannot create an interface with /dev/net/tun: {0}; load the kernel module with `modprobe tun`"
    )]
    NoTun(#[source] io::Error),
    /// The `ip` command rejected a line.
    #[error("`ip` failed in {namespace}: {message}")]
    Ip {
        /// The namespace being set up, or `/run/netns` while namespaces were being created.
        namespace: String,
        /// Error message of the `ip` command, with the rejected line.
        message: String,
    },
    /// A file or system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// The operation that failed, and what it was applied to.
        what: String,
        /// Error that the operating system returned.
        #[source]
        source: io::Error,
    },
    /// The links exist, but a datagram did not arrive in time.
    #[error("after {seconds} s, {from} still cannot reach {to} over the lab's bridge")]
    NotReady {
        /// Sending namespace.
        from: String,
        /// Address that the datagram did not reach, or that did not answer.
        to: String,
        /// Time for which the lab waited, in seconds.
        seconds: u64,
    },
    /// The record of a lab is invalid.
    #[error("the lab record {} is not valid: {message}", path.display())]
    Record {
        /// File under `/run/equic-lab`.
        path: PathBuf,
        /// Error message of the parser.
        message: String,
    },
    /// Some processes inside the lab did not end.
    #[error("the processes {pids:?} still run in the lab after SIGKILL")]
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
