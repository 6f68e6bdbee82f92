//! Joins a gateway with a ledger, through a handle on the gateway's maps.

use super::{JoinOptions, Ledger};
use crate::control::Control;
use crate::error::Result;

impl Control {
    /// Creates a ledger for this process and takes a slot of the gateway for it. `options` is the
    /// server's name, or [`JoinOptions`]. The ledger stays valid after this handle is dropped and
    /// after privileges are dropped, because opening and closing connections needs no privileges.
    ///
    /// When another process's gateway ends and is not pinned, the ledger automatically joins the
    /// next gateway with all open connections, and reports that ([`Ledger::notify`], and the log).
    /// The next gateway is the one on the interface, or with the name, that was given to
    /// [`Control::open`]. If neither was given, it is the one with the same name on one of the old
    /// gateway's interfaces. It must be attached in this network namespace, unless the first
    /// gateway was attached in another.
    ///
    /// Joining the next gateway needs `CAP_SYS_ADMIN`. A server that drops it should join through a
    /// socket ([`Ledger::connect`]).
    ///
    /// # Errors
    /// Returns [`Error::NoFreeLedger`](crate::Error::NoFreeLedger) if no slot is free, and
    /// [`Error::NotPermitted`](crate::Error::NotPermitted) without `CAP_BPF`.
    pub fn join(&self, options: impl Into<JoinOptions>) -> Result<Ledger> {
        let options = options.into();
        let binding = self.binding(&options)?;
        Ledger::joined(binding, options, self, self.chosen().cloned())
    }
}
