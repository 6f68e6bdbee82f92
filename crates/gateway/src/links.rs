//! Interfaces that a gateway is attached to, and the links that keep it there.

use std::os::fd::OwnedFd;

use serde::Serialize;

/// An interface that a gateway is attached to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Attached {
    /// The interface's index.
    pub ifindex: u32,
    /// Its name when it was attached.
    pub interface: String,
    /// True if the program runs in the driver (native), or behind it (generic).
    pub native: bool,
    /// Notice for the operator, for example why the attachment is not native.
    pub notice: Option<String>,
}

/// Place of a program that was attached to an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachmentPlace {
    /// It is on that interface, in this network namespace.
    Here,
    /// It is on that interface, which has moved to another network namespace.
    Elsewhere,
    /// It was detached, or the interface was deleted.
    Nowhere,
}

/// The kernel's hold of the program on an interface.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) attached: Attached,
    /// True if answers can get lost on the interface ([`loses_answers`](crate::loses_answers)).
    pub(crate) loses_answers: bool,
    // Closing the last descriptor of a link takes the program off the interface; a pin is one, too.
    pub(crate) fd: OwnedFd,
}

impl Link {
    /// Index that the interface had when the program was attached.
    pub(crate) fn ifindex(&self) -> u32 {
        self.attached.ifindex
    }
}
