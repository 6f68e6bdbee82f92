//! A new connection before its first packet, to which the application attaches hooks.

use std::net::SocketAddr;
use std::sync::Arc;

use equic_transport::operation::{AttachError, AttachPoint, Hook, HookId, OwnFrame};
use equic_wire::{ConnectionId, Side};

/// Called with each new connection before its first packet.
pub(crate) type Prepare = Arc<dyn Fn(&mut NewConnection<'_>) + Send + Sync>;

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
