//! Messages of hooks to the application, and timers of their own.

use std::collections::VecDeque;
use std::time::Duration;

use super::hooks::{HookId, MAX_HOOKS};
use super::host::{Denied, Host};
use crate::Timestamp;

/// Bytes of a message, to the application or from it.
pub(crate) const MAX_MESSAGE: usize = 1024;

/// Messages of all hooks that the application has not taken yet.
const MAX_MESSAGES: usize = 64;

/// A hook's timer is no sooner than this: whoever drives the connection wakes for it.
const LEAST: Duration = Duration::from_millis(10);

/// Messages and timers that the hooks of a connection asked for.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    /// Messages for the application: at most [`MAX_MESSAGES`], of at most [`MAX_MESSAGE`] bytes each.
    messages: VecDeque<(HookId, Vec<u8>)>,
    /// Timers: one for each hook at most.
    timers: Vec<(HookId, Timestamp)>,
}

impl Messages {
    /// The oldest message.
    pub(crate) fn message(&mut self) -> Option<(HookId, Vec<u8>)> {
        self.messages.pop_front()
    }

    /// Time of the next timer.
    pub(crate) fn timer(&self) -> Option<Timestamp> {
        self.timers.iter().map(|(_, at)| *at).min()
    }

    /// A timer that has run out; it is not there any more.
    pub(crate) fn expired(&mut self, now: Timestamp) -> Option<(HookId, Timestamp)> {
        let place = self.timers.iter().position(|(_, at)| *at <= now)?;
        Some(self.timers.swap_remove(place))
    }

    /// A hook is off. What it said before is still to be heard.
    pub(crate) fn forget(&mut self, hook: HookId) {
        self.timers.retain(|(other, _)| *other != hook);
    }
}

impl Host<'_> {
    /// Tells the application something: [`Event::HookMessage`](crate::Event::HookMessage).
    ///
    /// # Errors
    /// [`Denied::TooLong`] above 1,024 bytes, [`Denied::Full`] while the application has 64 messages of hooks to
    /// take.
    pub fn tell(&mut self, message: &[u8]) -> Result<(), Denied> {
        let hook = self.hook();
        let asked = self.messages();
        if message.len() > MAX_MESSAGE {
            return Err(Denied::TooLong);
        }
        if asked.messages.len() >= MAX_MESSAGES {
            return Err(Denied::Full);
        }
        asked.messages.push_back((hook, message.to_vec()));
        Ok(())
    }

    /// Has [`Operation::HookTimer`](super::Operation::HookTimer) called, of this hook alone and once, at this
    /// moment, and no sooner than in 10 milliseconds; none: not at all. A hook has one timer.
    pub fn set_timer(&mut self, at: Option<Timestamp>) {
        let (hook, soonest) = (self.hook(), self.now() + LEAST);
        let asked = self.messages();
        asked.forget(hook);
        if let Some(at) = at
            && asked.timers.len() < MAX_HOOKS
        {
            asked.timers.push((hook, at.max(soonest)));
        }
    }
}
