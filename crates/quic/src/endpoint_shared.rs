//! State that all sockets of an endpoint share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use equic_transport::{Connection, Timestamp};
use tokio::sync::Notify;

use crate::config::SocketIdGenerator;
#[cfg(feature = "qlog")]
pub(crate) use crate::log::Begun;
#[cfg(feature = "qlog")]
use crate::log::Logs;
use crate::memory::SendMemory;
use crate::new_connection::{NewConnection, Prepare};
use crate::tokens::Tokens;

/// State that all sockets of an endpoint share.
pub(crate) struct EndpointShared {
    /// Notified when a connection was removed.
    pub gone: Notify,
    /// Number of connections that a panic has ended.
    pub broken: AtomicU64,
    #[cfg(feature = "qlog")]
    pub logs: Logs,
    /// Tokens that servers have sent, for later connections to them.
    pub tokens: Arc<Tokens>,
    /// See [`EndpointConfig::give_tokens`](crate::EndpointConfig::give_tokens).
    pub gives_tokens: bool,
    /// See [`EndpointConfig::keep_tokens`](crate::EndpointConfig::keep_tokens).
    pub keeps_tokens: bool,
    /// See [`EndpointConfig::heed_unreachable`](crate::EndpointConfig::heed_unreachable).
    pub heeds_unreachable: bool,
    pub send_memory: SendMemory,
    /// Generates connection IDs that name their socket. `None` if there is one socket and no
    /// generator is configured.
    pub ids: Option<Arc<dyn SocketIdGenerator>>,
}

/// Logs of a new connection. Without the feature `qlog`, there are no logs.
#[cfg(not(feature = "qlog"))]
#[derive(Default)]
pub(crate) struct Begun(());

#[cfg(not(feature = "qlog"))]
impl Begun {
    pub(crate) fn release(self) {}
}

impl EndpointShared {
    /// Starts the logs of a new connection, and calls `prepare` with the connection. The logs are
    /// written from the call of `Begun::release` on.
    pub(crate) fn begin(
        &self,
        connection: &mut Connection,
        prepare: Option<&Prepare>,
        now: Timestamp,
    ) -> Begun {
        #[cfg(feature = "qlog")]
        let begun = self.logs.begin(connection, now);
        #[cfg(not(feature = "qlog"))]
        let (begun, _) = (Begun(()), now);
        if let Some(prepare) = prepare {
            prepare(&mut NewConnection(connection));
        }
        begun
    }
}
