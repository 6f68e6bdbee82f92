//! Hooks on operations of a connection: on new ones, and on those that are open.

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

/// A connection before its first packet, for
/// [`ClientConfig::with_hooks`](crate::ClientConfig::with_hooks),
/// [`ServerConfig::with_hooks`](crate::ServerConfig::with_hooks) and subscribers.
pub struct NewConnection<'a>(pub(crate) &'a mut equic_transport::Connection);

impl NewConnection<'_> {
    /// Side of the connection that this endpoint is on.
    pub fn side(&self) -> Side {
        self.0.side()
    }

    /// The peer's address, as the socket sees it.
    pub fn remote_address(&self) -> SocketAddr {
        self.0.remote_address()
    }

    /// The first connection ID that the client sent to: a name of the connection that both ends know.
    pub fn original_dcid(&self) -> ConnectionId {
        self.0.original_dcid()
    }

    /// Attaches a hook to operations of this connection.
    ///
    /// # Errors
    /// [`AttachError`]; nothing is attached then.
    pub fn attach(
        &mut self,
        hook: Box<dyn Hook>,
        points: &[AttachPoint],
    ) -> Result<HookId, AttachError> {
        self.0.attach(hook, points)
    }

    /// Attaches a hook that has frame types of its own, which it alone writes, parses and processes.
    ///
    /// # Errors
    /// [`AttachError`]; nothing is attached then.
    pub fn attach_with_frames(
        &mut self,
        hook: Box<dyn Hook>,
        points: &[AttachPoint],
        frames: &[OwnFrame],
    ) -> Result<HookId, AttachError> {
        self.0.attach_with_frames(hook, points, frames)
    }
}

/// Hooks run while the connection and its endpoint are locked: one that uses or owns its own [`Connection`], another
/// of the endpoint's, or the endpoint waits for itself for ever.
impl Connection {
    /// Attaches a hook to operations of this connection, from now on. For the handshake, too:
    /// [`ClientConfig::with_hooks`](crate::ClientConfig::with_hooks) and
    /// [`ServerConfig::with_hooks`](crate::ServerConfig::with_hooks).
    ///
    /// # Errors
    /// [`AttachError`]; nothing is attached then.
    pub fn attach(
        &self,
        hook: Box<dyn Hook>,
        points: &[AttachPoint],
    ) -> Result<HookId, AttachError> {
        self.attach_with_frames(hook, points, &[])
    }

    /// Attaches a hook that has frame types of its own, which it alone writes, parses and processes. They
    /// go in 1-RTT packets.
    ///
    /// # Errors
    /// [`AttachError`]; nothing is attached then.
    pub fn attach_with_frames(
        &self,
        hook: Box<dyn Hook>,
        points: &[AttachPoint],
        frames: &[OwnFrame],
    ) -> Result<HookId, AttachError> {
        let mut state = self.cell().lock();
        let attached = state.connection.attach_with_frames(hook, points, frames);
        // It may want frames sent, or a timer at another time.
        self.cell().touch(&mut state);
        attached
    }

    /// Hands a message to a hook, in a call of
    /// [`Operation::HookMessage`](equic_transport::operation::Operation::HookMessage) of that hook alone.
    ///
    /// # Errors
    /// [`TellError`].
    pub fn tell_hook(&self, id: HookId, message: &[u8]) -> Result<(), TellError> {
        let mut state = self.cell().lock();
        let told = state.connection.tell_hook(id, message);
        // It may want frames sent, or other hooks attached.
        self.cell().touch(&mut state);
        told
    }

    /// Reason for which the first hook was taken off that failed; none: none has failed.
    pub fn failed_hook(&self) -> Option<HookError> {
        self.cell().lock().failed_hook.as_deref().cloned()
    }

    /// Takes a hook off again; none: it is off already.
    pub fn detach(&self, id: HookId) -> Option<Box<dyn Hook>> {
        let mut state = self.cell().lock();
        let hook = state.connection.detach(id);
        self.cell().touch(&mut state);
        hook
    }
}

/// Logs that have begun: without the feature `qlog` there are none.
#[cfg(not(feature = "qlog"))]
#[derive(Default)]
pub(crate) struct Begun(());

#[cfg(not(feature = "qlog"))]
impl Begun {
    pub(crate) fn release(self) {}
}

impl Shared {
    /// Has a new connection logged, and shows it to whoever attaches hooks to it.
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
