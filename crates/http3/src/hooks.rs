//! Functions that attach hooks to every connection of a server or client.

use std::fmt;
use std::sync::Arc;

use equic_quic::NewConnection;

/// A function that attaches hooks to each connection before its first packet
/// ([`equic_quic::ServerConfig::with_hooks`]).
#[derive(Clone)]
pub struct Hooks(Arc<dyn Fn(&mut NewConnection<'_>) + Send + Sync>);

impl Hooks {
    /// Creates hooks from a function that is called for each new connection. The endpoint is locked
    /// during the call, so the function must not block.
    pub fn new(attach: impl Fn(&mut NewConnection<'_>) + Send + Sync + 'static) -> Hooks {
        Hooks(Arc::new(attach))
    }

    /// Attaches the hooks to a new connection.
    pub fn attach(&self, connection: &mut NewConnection<'_>) {
        (self.0)(connection);
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hooks")
    }
}
