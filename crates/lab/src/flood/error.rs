//! Reasons why a flood is refused or fails.

use std::net::IpAddr;

use crate::LabError;

/// Reason why a flood did not start or could not continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FloodError {
    /// The calling thread is in the machine's initial network namespace.
    #[error(
        "refused: this thread is in the machine's own network (the init network namespace); floods run \
         inside a lab only"
    )]
    InitNamespace,
    /// The calling thread is in a namespace that does not belong to a lab.
    #[error(
        "refused: this thread's network namespace belongs to no lab; floods run inside a lab only"
    )]
    NotInLab,
    /// The network namespace of the thread could not be determined.
    #[error("refused: cannot tell which network namespace this is: {0}")]
    Unknown(String),
    /// The target is not an address of the lab.
    #[error(
        "refused: {0} is not an address of the lab; floods go to {v4} and {v6} only",
        v4 = crate::plan::ipv4_range(),
        v6 = crate::plan::ipv6_range()
    )]
    ForeignDestination(IpAddr),
    /// Frames may only leave through a veth interface.
    #[error("refused: interface {ifname} is {driver:?}, not veth; frames stay inside the lab")]
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
    #[error("cannot make a QUIC Initial: {0}")]
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
