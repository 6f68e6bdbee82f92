//! Reasons that a flood is refused or fails.

use std::net::IpAddr;

use crate::LabError;

/// Reason that a flood did not start, or could not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FloodError {
    /// The calling thread is in the machine's own network.
    #[error(
        "refused: this thread is in the machine's own network (the init network namespace); floods run \
         inside a lab only"
    )]
    InitNamespace,
    /// The calling thread is in some namespace, but no lab made it.
    #[error(
        "refused: this thread's network namespace belongs to no lab; floods run inside a lab only"
    )]
    NotInLab,
    /// The network namespace of the thread could not be told.
    #[error("refused: cannot tell which network namespace this is: {0}")]
    Unknown(String),
    /// The target is not an address of the lab.
    #[error(
        "refused: {0} is not an address of the lab; floods go to {v4} and {v6} only",
        v4 = crate::plan::ipv4_range(),
        v6 = crate::plan::ipv6_range()
    )]
    ForeignDestination(IpAddr),
    /// Frames may leave through veth only.
    #[error("refused: interface {ifname} is {driver:?}, not veth; frames stay inside the lab")]
    NotVeth {
        /// The interface.
        ifname: String,
        /// Its driver; empty if it has no name.
        driver: String,
    },
    /// The flood as described makes no sense.
    #[error("cannot flood: {0}")]
    Invalid(String),
    /// No Initial could be made.
    #[error("cannot make a QUIC Initial: {0}")]
    Initial(#[from] rustls::Error),
    /// The system refused.
    #[error("cannot {what}: {source}")]
    System {
        /// The operation, with its object.
        what: String,
        /// The system's answer.
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
