//! Hooks of connections in virtual time, attached as on a real socket: to each end as its connection begins, before its first
//! packet.

use std::sync::Arc;

use equic_transport::{Connection, Event};

use super::Logs;
use super::paths::Paths;

type AttachAll = dyn Fn(&mut Connection) -> Result<(), String> + Send + Sync;

/// Attaches the hooks of one end to its connection.
#[derive(Clone)]
pub struct Hooks(Arc<AttachAll>);

impl Hooks {
    /// Hooks that this function attaches ([`Connection::attach`]). An error of it is the failure of the connection. For the same
    /// results from the same seed it has to attach the same hooks each time, and these may neither read a clock nor draw
    /// random numbers of their own.
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

/// Hooks of both ends of a connection.
#[derive(Clone, Debug, Default)]
pub struct HooksOfEnds {
    /// Hooks of the client; none: it has none.
    pub client: Option<Hooks>,
    /// Hooks of the server; none: it has none.
    pub server: Option<Hooks>,
}

/// Additions to a connection as it begins.
#[derive(Default)]
pub(super) struct Additions {
    pub logs: Option<Logs>,
    pub hooks: Option<Hooks>,
}

/// Listeners to those events of a connection that are not its application's.
pub(super) struct Listeners {
    /// Several paths, if the connection may have them; none: all goes as routes say.
    pub paths: Option<Paths>,
    /// Reason for which the first hook was taken off that failed.
    pub failed_hook: Option<String>,
}

impl Listeners {
    /// Heeds an event about paths or hooks; all others are the application's.
    pub(super) fn on_event(&mut self, event: &Event) {
        match event {
            Event::PathClosed(id, _) => {
                if let Some(paths) = &mut self.paths {
                    paths.on_closed(*id);
                }
            }
            Event::HookFailed(_, error) => {
                self.failed_hook.get_or_insert_with(|| format!("a hook was taken off: {error}"));
            }
            _ => {}
        }
    }
}
