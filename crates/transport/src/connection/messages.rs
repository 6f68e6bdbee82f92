//! Messages between hooks and the application, and the timers of hooks.

use super::{Connection, Event};
use crate::Timestamp;
use crate::operation::{Bytes, Call, HookId, MAX_MESSAGE, Operation};

/// Reason for which a message was not delivered to a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TellError {
    /// The hook is no longer attached.
    Gone,
    /// The message is longer than 1,024 bytes.
    TooLong,
    /// The hook failed while it processed the message, and was detached. An [`Event::HookFailed`]
    /// reports the reason.
    Failed,
}

impl std::fmt::Display for TellError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TellError::Gone => f.write_str("the hook is no longer attached"),
            TellError::TooLong => write!(f, "a message can have at most {MAX_MESSAGE} bytes"),
            TellError::Failed => {
                f.write_str("the hook failed while it processed the message, and was detached")
            }
        }
    }
}

impl std::error::Error for TellError {}

impl Connection {
    /// Sends a message to a hook: calls [`Operation::HookMessage`] of that hook only.
    ///
    /// # Errors
    /// Returns a [`TellError`] if the message is too long, or if the hook is not attached or fails.
    pub fn tell_hook(&mut self, id: HookId, message: &[u8]) -> Result<(), TellError> {
        if message.len() > MAX_MESSAGE {
            return Err(TellError::TooLong);
        }
        if self.hooks.place(id).is_none() {
            return Err(TellError::Gone);
        }
        self.call_one(id, Operation::HookMessage, &[], Bytes::In(message));
        self.run_requests();
        self.hooks.place(id).map(|_| ()).ok_or(TellError::Failed)
    }

    /// Returns the oldest message from a hook to the application.
    pub(super) fn hook_message(&mut self) -> Option<Event> {
        let (hook, message) = self.extensions.get_mut_if_allocated()?.messages.message()?;
        Some(Event::HookMessage(hook, message))
    }

    /// Calls the hooks whose timers have expired. Each is called once: a timer that a hook sets
    /// here is later than now.
    pub(super) fn on_hook_timers(&mut self, now: Timestamp) {
        let expired =
            |own: &mut Connection| own.extensions.get_mut_if_allocated()?.messages.expired(now);
        while let Some((id, at)) = expired(self) {
            self.call_one(id, Operation::HookTimer, &[at.as_nanos()], Bytes::None);
        }
    }

    /// Calls one hook at its place in the operation's chain. Its answer is ignored.
    pub(super) fn call_one(
        &mut self,
        id: HookId,
        operation: Operation,
        inputs: &[u64],
        bytes: Bytes<'_>,
    ) {
        let mut call = Call { operation, parameter: 0, inputs, bytes };
        let Some(place) = self.hooks.place(id) else { return };
        let points = self.hooks.points(place, operation);
        let ran = self.call_at(place, |hook, host| {
            points.into_iter().try_for_each(|point| {
                if point.before {
                    hook.before(host, &call)?;
                }
                if point.replace {
                    hook.replace(host, &mut call, &mut [])?;
                }
                if point.after { hook.after(host, &call, &[]) } else { Ok(()) }
            })
        });
        if let Some(Err(error)) = ran {
            self.take_off(id, error);
        }
    }
}
