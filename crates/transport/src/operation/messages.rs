//! Messages that hooks send to the application, and timers of hooks.

use std::collections::VecDeque;
use std::time::Duration;

use super::hooks::{HookId, MAX_HOOKS};
use super::host::{Denied, HookContext};
use crate::Timestamp;

/// Largest length of a message from or to the application, in bytes.
pub(crate) const MAX_MESSAGE: usize = 1024;

/// Largest number of messages of one hook that wait for the application, so that one hook cannot
/// block the others.
const MAX_OF_ONE: usize = 16;

/// Largest number of messages of all detached hooks together that wait for the application.
const MAX_OF_GONE: usize = 64;

/// Shortest time until a hook's timer expires. It limits how often a hook can wake up the task that
/// drives the connection.
const LEAST: Duration = Duration::from_millis(10);

/// Messages and timers of the hooks of a connection.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    /// Messages that wait for the application: at most [`MAX_OF_ONE`] for each hook, with at most
    /// [`MAX_MESSAGE`] bytes each.
    messages: VecDeque<Message>,
    /// Times at which the timers of hooks expire, at most one for each hook.
    timers: Vec<(HookId, Timestamp)>,
}

#[derive(Debug)]
struct Message {
    hook: HookId,
    bytes: Vec<u8>,
    /// True if the hook that sent the message was detached.
    gone: bool,
}

impl Messages {
    pub(super) const fn new() -> Messages {
        Messages { messages: VecDeque::new(), timers: Vec::new() }
    }

    /// Takes the oldest message to the application, with the hook that sent it.
    pub(crate) fn message(&mut self) -> Option<(HookId, Vec<u8>)> {
        self.messages.pop_front().map(|message| (message.hook, message.bytes))
    }

    /// Returns the size of all waiting messages, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.messages.iter().map(|one| size_of::<Message>() + one.bytes.capacity()).sum()
    }

    /// Returns the time at which the next timer of a hook expires, or `None` if no timer is set.
    pub(crate) fn timer(&self) -> Option<Timestamp> {
        self.timers.iter().map(|(_, at)| *at).min()
    }

    /// Takes a timer that has expired. Returns the hook that set it and the time for which it was
    /// set.
    pub(crate) fn expired(&mut self, now: Timestamp) -> Option<(HookId, Timestamp)> {
        let place = self.timers.iter().position(|(_, at)| *at <= now)?;
        Some(self.timers.swap_remove(place))
    }

    fn stop_timer(&mut self, hook: HookId) {
        self.timers.retain(|(other, _)| *other != hook);
    }

    /// Removes the timer of a detached hook, and marks its messages as those of a detached hook.
    /// The messages are still delivered, but the number of messages of all detached hooks together
    /// is limited.
    pub(crate) fn forget(&mut self, hook: HookId) {
        self.stop_timer(hook);
        let mut of_gone = 0;
        for one in &mut self.messages {
            one.gone |= one.hook == hook;
            of_gone += usize::from(one.gone);
        }
        // Drop the oldest messages of detached hooks.
        let mut over = of_gone.saturating_sub(MAX_OF_GONE);
        self.messages.retain(|one| {
            let given_up = one.gone && over > 0;
            over -= usize::from(given_up);
            !given_up
        });
    }
}

impl HookContext<'_> {
    /// Sends a message to the application, which receives
    /// [`Event::HookMessage`](crate::Event::HookMessage).
    ///
    /// # Errors
    /// * [`Denied::TooLong`] if the message is longer than 1,024 bytes;
    /// * [`Denied::Full`] while 16 messages of this hook are waiting.
    pub fn tell(&mut self, message: &[u8]) -> Result<(), Denied> {
        let hook = self.hook();
        let asked = self.messages();
        if message.len() > MAX_MESSAGE {
            return Err(Denied::TooLong);
        }
        if asked.messages.iter().filter(|one| one.hook == hook).count() >= MAX_OF_ONE {
            return Err(Denied::Full);
        }
        asked.messages.push_back(Message { hook, bytes: message.to_vec(), gone: false });
        Ok(())
    }

    /// Sets this hook's timer. [`Operation::HookTimer`](super::Operation::HookTimer) is called once
    /// for this hook at this time, but not earlier than 10 milliseconds from now. `None` clears the
    /// timer. A hook has only one timer.
    pub fn set_timer(&mut self, at: Option<Timestamp>) {
        let (hook, soonest) = (self.hook(), self.now() + LEAST);
        let asked = self.messages();
        asked.stop_timer(hook);
        if let Some(at) = at
            && asked.timers.len() < MAX_HOOKS
        {
            asked.timers.push((hook, at.max(soonest)));
        }
    }
}
