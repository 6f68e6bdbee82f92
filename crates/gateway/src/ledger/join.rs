//! Joins a gateway with a ledger, through a handle on its maps.

use super::Ledger;
use crate::control::Control;
use crate::error::Result;
use crate::key_ring::TokenKeys;

impl Control {
    /// Creates a ledger for this process and takes a slot of the gateway for it. `name` is its name
    /// in `status`. The ledger stays valid after this handle is dropped and after privileges are
    /// dropped: opening and closing connections need none.
    ///
    /// When another process's gateway ends (and is not pinned), the ledger automatically joins the
    /// next one with all open connections, and reports that ([`Ledger::notify`], and the log). The
    /// next one is on the interface or has the name that was given to [`Control::open`]; otherwise
    /// it has the same name and is on one of the old gateway's interfaces. It must be attached in
    /// this network namespace, unless the first one was attached in another. That needs
    /// `CAP_SYS_ADMIN`; a server that drops it should join through a socket ([`Ledger::connect`]).
    ///
    /// # Errors
    /// [`Error::NoFreeLedger`](crate::Error::NoFreeLedger);
    /// [`Error::NotPermitted`](crate::Error::NotPermitted) without `CAP_BPF`.
    pub fn join(&self, name: &str) -> Result<Ledger> {
        self.join_checking(name, TokenKeys::None)
    }

    /// As [`Control::join`]. `keys` declares how the server handles the tokens of the gateway's
    /// Retry packets, so that the gateway knows whether clients with a token are served.
    ///
    /// # Errors
    /// As [`Control::join`].
    pub fn join_checking(&self, name: &str, keys: TokenKeys) -> Result<Ledger> {
        Ledger::joined(self.binding(name, keys)?, (name, keys), self, self.chosen().cloned())
    }
}
