//! Attaches hooks to the operations of open connections, and sinks to their events.

use equic_transport::operation::{
    AttachError, AttachPoint, Hook, HookError, HookId, OwnFrame, TellError,
};

use crate::connection::Connection;
#[cfg(feature = "qlog")]
use crate::event::EventSink;

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
        let mut state = self.shared().lock();
        let attached = state.connection.attach_with_frames(hook, points, frames);
        // The hook may want to send frames or to change a timer.
        self.shared().wake_driver(&mut state);
        attached
    }

    /// Sends a message to one hook. The connection calls
    /// [`Operation::HookMessage`](equic_transport::operation::Operation::HookMessage) of that hook.
    ///
    /// # Errors
    /// Returns a [`TellError`] if the message was not delivered.
    pub fn tell_hook(&self, id: HookId, message: &[u8]) -> Result<(), TellError> {
        let mut state = self.shared().lock();
        let told = state.connection.tell_hook(id, message);
        // The hook may want to send frames or to attach other hooks.
        self.shared().wake_driver(&mut state);
        told
    }

    /// Returns the error of the first hook that failed and was detached, or `None` if no hook has
    /// failed.
    pub fn failed_hook(&self) -> Option<HookError> {
        self.shared().lock().failed_hook.as_deref().cloned()
    }

    /// Detaches a hook and returns it, or `None` if it is already detached.
    pub fn detach(&self, id: HookId) -> Option<Box<dyn Hook>> {
        let mut state = self.shared().lock();
        let hook = state.connection.detach(id);
        self.shared().wake_driver(&mut state);
        hook
    }
}

#[cfg(feature = "qlog")]
impl Connection {
    /// Adds a sink for the events from now on. Existing sinks and logs continue to receive them.
    pub fn subscribe(&self, sink: impl EventSink + 'static) {
        self.shared().lock().connection.add_qlog(Box::new(sink));
    }
}
