//! Attaches hooks to connections in virtual time. As with a real socket, hooks are attached to each
//! end when its connection begins, before its first packet.

use std::sync::Arc;

use equic_transport::{Connection, Event};

use super::Logs;
use super::paths::Paths;

type AttachAll = dyn Fn(&mut Connection) -> Result<(), String> + Send + Sync;

/// A function that attaches hooks to the connection of one end.
#[derive(Clone)]
pub struct Hooks(Arc<AttachAll>);

impl Hooks {
    /// Creates hooks from a function that attaches them ([`Connection::attach`]). If the function
    /// fails, the connection fails with the same error.
    ///
    /// Runs must be reproducible. So the function must attach the same hooks each time, and the
    /// hooks must not read a clock or draw their own random numbers.
    pub fn new(
        attach: impl Fn(&mut Connection) -> Result<(), String> + Send + Sync + 'static,
    ) -> Hooks {
        Hooks(Arc::new(attach))
    }

    pub(super) fn attach(&self, connection: &mut Connection) -> Result<(), String> {
        (self.0)(connection)
    }
}

impl std::fmt::Debug for Hooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hooks")
    }
}

/// The hooks of both ends of a connection.
#[derive(Clone, Debug, Default)]
pub struct HooksOfEnds {
    /// Hooks of the client, if any.
    pub client: Option<Hooks>,
    /// Hooks of the server, if any.
    pub server: Option<Hooks>,
}

/// Hooks and logs that are added to a connection when it begins.
#[derive(Default)]
pub(super) struct Additions {
    pub logs: Option<Logs>,
    pub hooks: Option<Hooks>,
}

/// Handles the events of a connection that its application does not need to see.
pub(super) struct Listeners {
    /// The paths of a multipath connection. `None` means that the connection has only one path, and
    /// that routes choose the interface.
    pub paths: Option<Paths>,
    /// Reason why the first hook that failed was detached.
    pub failed_hook: Option<String>,
}

impl Listeners {
    /// Handles an event about paths or hooks. Ignores all other events, which concern the
    /// application.
    pub(super) fn on_event(&mut self, event: &Event) {
        match event {
            Event::PathClosed(id, _) => {
                if let Some(paths) = &mut self.paths {
                    paths.on_closed(*id);
                }
            }
            Event::HookFailed(_, error) => {
                self.failed_hook.get_or_insert_with(|| format!("a hook was detached: {error}"));
            }
            _ => {}
        }
    }
}
