//! Reasons why a flood is refused or fails.

use std::net::IpAddr;

use crate::LabError;

/// Reason why a flood did not start or could not continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FloodError {
    /// The calling thread is in the machine's initial network namespace.
    #[error(
        "refused: this thread is in the machine's own network (the init network namespace), but a flood may only run inside a lab"
    )]
    InitNamespace,
    /// The calling thread is in a namespace that does not belong to a lab.
    #[error(
        "refused: this thread's network namespace does not belong to a lab, but a flood may only run inside a lab"
    )]
    NotInLab,
    /// The network namespace of the thread could not be determined.
    #[error("refused: cannot tell which network namespace this is: {0}")]
    Unknown(String),
    /// The target is not an address of the lab.
    #[error(
        "refused: {0} is not an address of the lab, but a flood may only target {v4} and {v6}",
        v4 = crate::plan::ipv4_range(),
        v6 = crate::plan::ipv6_range()
    )]
    ForeignDestination(IpAddr),
    /// Frames may only leave through a veth interface.
    #[error(
        "refused: the interface {ifname} has the driver {driver:?}, but a flood may only use veth interfaces, so that its packets cannot leave the lab"
    )]
    NotVeth {
        /// The interface.
        ifname: String,
        /// Name of the interface's driver. Empty if the driver has no name.
        driver: String,
    },
    /// The description of the flood is invalid.
    #[error("cannot flood: {0}")]
    Invalid(String),
    /// No Initial packet could be created.
    #[error("cannot create a QUIC Initial packet: {0}")]
    Initial(#[from] rustls::Error),
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// The operation that failed, and what it was applied to.
        what: String,
        /// Error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The records of labs could not be read.
    #[error(transparent)]
    Lab(#[from] LabError),
}

impl FloodError {
    pub(super) fn system(what: impl Into<String>, source: impl Into<std::io::Error>) -> Self {
        Self::System { what: what.into(), source: source.into() }
    }
}
