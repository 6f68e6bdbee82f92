//! How a packet arrives, and what is decided about it.

use equic_gateway::Reason;

/// How a packet arrives, where it is not one Ethernet frame with one datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// The packet begins with its IP header.
    pub no_ethernet: bool,
    /// Length of each datagram of a batch but the last, in bytes; 0 if the packet is no batch.
    pub segment: usize,
}

/// The decision about a packet to a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The service's number.
    pub service: usize,
    /// Reason for the verdict.
    pub reason: Reason,
    /// True if the packet does not get to the server: dropped or answered; never in a dry run.
    pub dropped: bool,
}

/// Result of judging a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Not to a service: passes, uncounted.
    Foreign,
    /// Headers that the host may see, and the gateway does not: tallied, and dropped if the config says so.
    DeepHeaders {
        /// True if the packet is dropped.
        dropped: bool,
    },
    /// To a service.
    Service(Verdict),
}

impl Outcome {
    /// True if the frame is dropped.
    pub fn dropped(&self) -> bool {
        match self {
            Outcome::Foreign => false,
            Outcome::DeepHeaders { dropped } => *dropped,
            Outcome::Service(verdict) => verdict.dropped,
        }
    }

    /// The decision, if the packet was to a service.
    pub fn verdict(&self) -> Option<Verdict> {
        match self {
            Outcome::Service(verdict) => Some(*verdict),
            _ => None,
        }
    }
}
