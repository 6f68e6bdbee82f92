//! The form in which a packet arrives at the gateway, and the gateway's decision about it.

use equic_gateway::Reason;

/// The form in which a packet arrives. The default is one Ethernet frame with one UDP datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// True if the packet has no Ethernet header, and begins with its IP header.
    pub no_ethernet: bool,
    /// Length in bytes of the datagrams in a batch. The last datagram may be shorter. 0 if the
    /// packet is not a batch.
    pub segment: usize,
}

/// The decision about a packet to a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The service's index.
    pub service: usize,
    /// Reason for the verdict.
    pub reason: Reason,
    /// True if the packet does not reach the server, because the gateway drops or answers it.
    /// Always `false` in a dry run.
    pub dropped: bool,
}

/// Result of judging a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The frame is not for a service. It passes and is not counted.
    Foreign,
    /// The frame has headers that the host may parse but the gateway cannot. It is counted, and
    /// dropped if `drop_deep_headers` is set.
    DeepHeaders {
        /// True if the packet is dropped.
        dropped: bool,
    },
    /// The frame is for a service, with this verdict.
    Service(Verdict),
}

impl Outcome {
    /// Returns true if the frame does not reach the server.
    pub fn dropped(&self) -> bool {
        match self {
            Outcome::Foreign => false,
            Outcome::DeepHeaders { dropped } => *dropped,
            Outcome::Service(verdict) => verdict.dropped,
        }
    }

    /// Returns the decision, or `None` if the packet was not for a service.
    pub fn verdict(&self) -> Option<Verdict> {
        match self {
            Outcome::Service(verdict) => Some(*verdict),
            _ => None,
        }
    }
}
