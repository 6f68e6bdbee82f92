//! Messages of hooks to the application, and timers of their own.

use std::collections::VecDeque;
use std::time::Duration;

use super::hooks::{HookId, MAX_HOOKS};
use super::host::{Denied, HookContext};
use crate::Timestamp;

/// Bytes of a message, to the application or from it.
pub(crate) const MAX_MESSAGE: usize = 1024;

/// Messages of one hook that the application has not taken yet: a hook that talks keeps none of the others from it.
const MAX_OF_ONE: usize = 16;

/// Messages of hooks that are off, all together.
const MAX_OF_GONE: usize = 64;

/// A hook's timer is no sooner than this: whoever drives the connection wakes for it.
const LEAST: Duration = Duration::from_millis(10);

/// Messages and timers that the hooks of a connection asked for.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    /// Messages for the application: of each hook at most [`MAX_OF_ONE`], of at most [`MAX_MESSAGE`] bytes each.
    messages: VecDeque<Message>,
    /// Timers: one for each hook at most.
    timers: Vec<(HookId, Timestamp)>,
}

#[derive(Debug)]
struct Message {
    hook: HookId,
    bytes: Vec<u8>,
    /// The hook is off.
    gone: bool,
}

impl Messages {
    pub(super) const fn new() -> Messages {
        Messages { messages: VecDeque::new(), timers: Vec::new() }
    }

    /// The oldest message.
    pub(crate) fn message(&mut self) -> Option<(HookId, Vec<u8>)> {
        self.messages.pop_front().map(|message| (message.hook, message.bytes))
    }

    /// Bytes of all messages that wait.
    pub(super) fn memory(&self) -> usize {
        self.messages.iter().map(|one| size_of::<Message>() + one.bytes.capacity()).sum()
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

    fn stop_timer(&mut self, hook: HookId) {
        self.timers.retain(|(other, _)| *other != hook);
    }

    /// A hook is off. What it said before is still to be heard, but not of any number of hooks that come and go.
    pub(crate) fn forget(&mut self, hook: HookId) {
        self.stop_timer(hook);
        let mut of_gone = 0;
        for one in &mut self.messages {
            one.gone |= one.hook == hook;
            of_gone += usize::from(one.gone);
        }
        // The oldest are given up.
        let mut over = of_gone.saturating_sub(MAX_OF_GONE);
        self.messages.retain(|one| {
            let given_up = one.gone && over > 0;
            over -= usize::from(given_up);
            !given_up
        });
    }
}

impl HookContext<'_> {
    /// Tells the application something: [`Event::HookMessage`](crate::Event::HookMessage).
    ///
    /// # Errors
    /// [`Denied::TooLong`] above 1,024 bytes, [`Denied::Full`] while the application has 16 messages of this hook to
    /// take.
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

    /// Has [`Operation::HookTimer`](super::Operation::HookTimer) called, of this hook alone and once, at this
    /// moment, and no sooner than in 10 milliseconds; none: not at all. A hook has one timer.
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
