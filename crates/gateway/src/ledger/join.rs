//! Joining a gateway with a ledger, through a handle on its maps.

use super::Ledger;
use crate::control::Control;
use crate::error::Result;
use crate::key_ring::TokenKeys;

impl Control {
    /// Makes a ledger for this process and takes a place in the gateway for it; `name` is what
    /// `status` calls it. It stays valid when this handle is gone and when privileges are dropped:
    /// opening and closing connections need none.
    ///
    /// When a gateway of another process has ended (and is not pinned), the ledger joins the next one by
    /// itself, with everything that is open, and tells so ([`Ledger::notify`], and the log): one on the
    /// interface or of the name given to [`Control::open`], or else of the same name on one of its
    /// interfaces. Only a gateway that is attached counts, and in this network namespace, unless the
    /// first one was attached in another. That takes `CAP_SYS_ADMIN`; a server that gives it up joins by a socket
    /// ([`Ledger::connect`]).
    ///
    /// # Errors
    /// [`Error::NoFreeLedger`](crate::Error::NoFreeLedger); [`Error::NotPermitted`](crate::Error::NotPermitted)
    /// without `CAP_BPF`.
    pub fn join(&self, name: &str) -> Result<Ledger> {
        self.join_checking(name, TokenKeys::None)
    }

    /// As [`Control::join`], for a server that checks the tokens of the gateway's Retry packets: so the gateway
    /// knows that clients who bring one are served.
    ///
    /// # Errors
    /// As [`Control::join`].
    pub fn join_checking(&self, name: &str, keys: TokenKeys) -> Result<Ledger> {
        Ledger::joined(self.binding(name, keys)?, (name, keys), self, self.chosen().cloned())
    }
}
