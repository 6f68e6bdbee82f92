//! Interfaces to which a gateway is attached, and the BPF links that keep it attached.

use std::os::fd::OwnedFd;

use serde::Serialize;

/// An interface to which this process attached the gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Attached {
    /// The interface's index.
    pub ifindex: u32,
    /// Name that the interface had when the gateway was attached.
    pub interface: String,
    /// True if the XDP program runs in the driver (native mode), false if it runs after the driver
    /// (generic mode).
    pub native: bool,
    /// Notice for the operator, for example the reason that the XDP program is not attached in
    /// native mode.
    pub notice: Option<String>,
}

/// Place where a BPF link is attached now, compared with the interface for which it was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachmentPlace {
    /// The link is attached to the same interface, in this network namespace.
    Here,
    /// The link is attached to the same interface, which was moved to another network namespace.
    Elsewhere,
    /// The link is not attached, because the XDP program was detached or the interface was deleted.
    Nowhere,
}

/// The BPF link that keeps the program attached to an interface.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) attached: Attached,
    /// True if answers can get lost on the interface ([`loses_answers`](crate::loses_answers)).
    pub(crate) loses_answers: bool,
    // The kernel detaches the XDP program when the last reference to the link is gone. Pins are
    // references, too.
    pub(crate) fd: OwnedFd,
}

impl Link {
    /// Returns the index that the interface had when the XDP program was attached.
    pub(crate) fn ifindex(&self) -> u32 {
        self.attached.ifindex
    }
}
