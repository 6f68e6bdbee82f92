//! A transfer of bytes from a client to a server, whatever the protocol.

use crate::packet::FlowId;
use crate::simulation::AgentId;
use crate::time::Time;

/// Agents and flows of a transfer.
#[derive(Clone, Copy, Debug)]
pub struct BulkIds {
    /// The client, which sends.
    pub sender: AgentId,
    /// The server, which receives, and for which the run waits.
    pub receiver: AgentId,
    /// Packets from the client to the server.
    pub there: FlowId,
    /// Packets from the server to the client.
    pub back: FlowId,
}

/// Result of a transfer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Time at which the server's application had the last byte; none: it did not get that far.
    pub completed: Option<Time>,
    /// Bytes that the server's application has read.
    pub bytes: u64,
    /// Reason for which the transfer failed, if it did.
    pub failure: Option<String>,
}
