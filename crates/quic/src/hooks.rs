//! Attaches hooks to the operations of new and open connections.

use std::net::SocketAddr;

use equic_transport::Timestamp;
use equic_transport::operation::{
    AttachError, AttachPoint, Hook, HookError, HookId, OwnFrame, TellError,
};
use equic_wire::{ConnectionId, Side};

use crate::Connection;
use crate::config::Prepare;
#[cfg(feature = "qlog")]
pub(crate) use crate::log::Begun;
use crate::socket::Shared;

/// A connection before its first packet. It is passed to the functions of
/// [`ClientConfig::with_hooks`](crate::ClientConfig::with_hooks) and
/// [`ServerConfig::with_hooks`](crate::ServerConfig::with_hooks), and to subscribers.
pub struct NewConnection<'a>(pub(crate) &'a mut equic_transport::Connection);

impl NewConnection<'_> {
    /// Returns whether this endpoint is the client or the server.
    pub fn side(&self) -> Side {
        self.0.side()
    }

    /// Returns the peer's address in the form that the socket uses.
    pub fn remote_address(&self) -> SocketAddr {
        self.0.remote_address()
    }

    /// Returns the original destination connection ID: the destination of the client's first
    /// Initial packet. Both ends know it.
    pub fn original_dcid(&self) -> ConnectionId {
        self.0.original_dcid()
    }

    /// Attaches a hook to operations of this connection.
    ///
    /// # Errors
    /// Returns an [`AttachError`] if the hook was not attached.
    pub fn attach(
        &mut self,
        hook: Box<dyn Hook>,
        points: &[AttachPoint],
    ) -> Result<HookId, AttachError> {
        self.0.attach(hook, points)
    }

    /// Attaches a hook that also defines frame types. Only this hook writes, parses and processes
    /// frames of these types.
    ///
    /// # Errors
    /// Returns an [`AttachError`] if the hook was not attached.
    pub fn attach_with_frames(
        &mut self,
        hook: Box<dyn Hook>,
        points: &[AttachPoint],
        frames: &[OwnFrame],
    ) -> Result<HookId, AttachError> {
        self.0.attach_with_frames(hook, points, frames)
    }
}

/// Hooks run while the connection and its endpoint are locked. A hook that uses or owns its own
/// [`Connection`], another connection of the endpoint, or the endpoint causes a deadlock.
impl Connection {
    /// Attaches a hook to operations of this connection, from now on. To attach a hook before the
    /// handshake, use [`ClientConfig::with_hooks`](crate::ClientConfig::with_hooks) or
    /// [`ServerConfig::with_hooks`](crate::ServerConfig::with_hooks).
    ///
    /// # Errors
    /// Returns an [`AttachError`] if the hook was not attached.
    pub fn attach(
        &self,
        hook: Box<dyn Hook>,
        points: &[AttachPoint],
    ) -> Result<HookId, AttachError> {
        self.attach_with_frames(hook, points, &[])
    }

    /// Attaches a hook that also defines frame types. Only this hook writes, parses and processes
    /// frames of these types. The frames are sent in 1-RTT packets.
    ///
    /// # Errors
    /// Returns an [`AttachError`] if the hook was not attached.
    pub fn attach_with_frames(
        &self,
        hook: Box<dyn Hook>,
        points: &[AttachPoint],
        frames: &[OwnFrame],
    ) -> Result<HookId, AttachError> {
        let mut state = self.cell().lock();
        let attached = state.connection.attach_with_frames(hook, points, frames);
        // The hook may want to send frames or to change a timer.
        self.cell().touch(&mut state);
        attached
    }

    /// Sends a message to one hook. The connection calls
    /// [`Operation::HookMessage`](equic_transport::operation::Operation::HookMessage) of that hook.
    ///
    /// # Errors
    /// Returns a [`TellError`] if the message was not delivered.
    pub fn tell_hook(&self, id: HookId, message: &[u8]) -> Result<(), TellError> {
        let mut state = self.cell().lock();
        let told = state.connection.tell_hook(id, message);
        // The hook may want to send frames or to attach other hooks.
        self.cell().touch(&mut state);
        told
    }

    /// Returns the error of the first hook that failed and was detached, or `None` if no hook has
    /// failed.
    pub fn failed_hook(&self) -> Option<HookError> {
        self.cell().lock().failed_hook.as_deref().cloned()
    }

    /// Detaches a hook and returns it, or `None` if it is already detached.
    pub fn detach(&self, id: HookId) -> Option<Box<dyn Hook>> {
        let mut state = self.cell().lock();
        let hook = state.connection.detach(id);
        self.cell().touch(&mut state);
        hook
    }
}

/// Logs of a new connection. Without the feature `qlog`, there are no logs.
#[cfg(not(feature = "qlog"))]
#[derive(Default)]
pub(crate) struct Begun(());

#[cfg(not(feature = "qlog"))]
impl Begun {
    pub(crate) fn release(self) {}
}

impl Shared {
    /// Starts the logs of a new connection, and calls `prepare` with the connection.
    pub(crate) fn begin(
        &self,
        connection: &mut equic_transport::Connection,
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
