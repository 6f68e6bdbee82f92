//! What a server tells the gateway when it joins.

use crate::key_ring::{KeyUse, TokenCheck};

/// The name of a server that joins a gateway, and what the server does with the gateway's keys.
///
/// The gateway refuses to enable Retry or `check_ids` while a server has joined that does not
/// support it, because clients of that server could not connect.
///
/// A `&str` or `String` can be used instead. It is the name of a server that neither checks tokens
/// nor issues IDs.
///
/// ```
/// use equic_gateway::{JoinOptions, TokenCheck};
///
/// let options = JoinOptions::new("my server").token_check(TokenCheck::GatewayKeys).issue_ids(true);
/// # drop(options);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinOptions {
    pub(crate) name: String,
    pub(crate) keys: KeyUse,
}

impl JoinOptions {
    /// Returns the options of a server that neither checks tokens nor issues IDs. `name` is its
    /// name in `status`.
    pub fn new(name: impl Into<String>) -> JoinOptions {
        JoinOptions { name: name.into(), keys: KeyUse::default() }
    }

    /// Declares whether the server checks the tokens of the gateway's Retry packets, and with which
    /// keys. The default is [`TokenCheck::None`].
    #[must_use]
    pub fn token_check(mut self, check: TokenCheck) -> JoinOptions {
        self.keys.tokens = check;
        self
    }

    /// Declares whether the server makes all its connection IDs with the gateway's key ring
    /// ([`Ledger::connection_ids`](crate::Ledger::connection_ids)), so that the gateway may verify
    /// them (`check_ids`). The default is false.
    #[must_use]
    pub fn issue_ids(mut self, issues: bool) -> JoinOptions {
        self.keys.ids = issues;
        self
    }
}

impl From<&str> for JoinOptions {
    fn from(name: &str) -> JoinOptions {
        JoinOptions::new(name)
    }
}

impl From<String> for JoinOptions {
    fn from(name: String) -> JoinOptions {
        JoinOptions::new(name)
    }
}
