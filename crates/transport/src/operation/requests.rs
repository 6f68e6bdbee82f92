//! Requests of hooks that change which hooks there are, or end the connection. No hook is in the middle of a call
//! when they are carried out: [`crate::Connection`] does so between calls of operations.

use std::fmt;
use std::time::Duration;

use equic_wire::TransportErrorCode;

use crate::Timestamp;

use super::host::{Denied, Extensions};
use super::{AttachError, AttachPoint, Hook, HookError, HookId, OwnFrame};

/// Most requests that wait at a time, of all hooks.
pub(super) const MAX_REQUESTS: usize = 64;

/// Event for one hook about another.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum HookEvent {
    /// Another hook was attached that this one brought ([`HookContext::attach`](super::HookContext::attach)), or was not.
    Attached {
        /// The token of the request.
        token: u64,
        /// The name of the other hook.
        outcome: Result<HookId, AttachError>,
    },
    /// Another hook that this one brought has failed and was taken off.
    Failed {
        /// The name of the other hook.
        hook: HookId,
        /// Reason for which it was taken off.
        error: HookError,
    },
}

/// Request of a hook, carried out between calls of operations.
pub(crate) enum Request {
    Attach {
        by: HookId,
        token: u64,
        hook: Box<dyn Hook>,
        points: Vec<AttachPoint>,
        frames: Vec<OwnFrame>,
    },
    Detach {
        by: HookId,
        hook: HookId,
    },
    Close {
        by: HookId,
        code: TransportErrorCode,
        reason: String,
    },
    /// Takes in the payload of a packet that did not come.
    Process {
        by: HookId,
        number: u64,
        payload: Vec<u8>,
    },
    /// Takes off a hook that failed in a call of another.
    TakeOff {
        hook: HookId,
        error: HookError,
    },
    /// Tells the hook that brought another of its failure.
    Failed {
        to: HookId,
        hook: HookId,
        error: HookError,
    },
}

/// Most bytes of a payload that a hook has put together.
pub(super) const MAX_PAYLOAD: usize = 4096;

/// Numbers of packets that are remembered, the latest ones, since a hook has put their payload together.
const MAX_RECOVERED: usize = 64;

/// Longest time for which stream data is held back.
const PATIENCE: Duration = Duration::from_secs(1);

/// A hook that holds stream data back, or did.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hold {
    hook: HookId,
    since: Timestamp,
    /// Time until which the hook holds stream data back; none: it does so no longer.
    until: Option<Timestamp>,
}

impl Request {
    /// The hook that the request is one of, or for.
    fn by(&self) -> HookId {
        match self {
            Request::Attach { by, .. }
            | Request::Detach { by, .. }
            | Request::Close { by, .. }
            | Request::Process { by, .. } => *by,
            Request::TakeOff { hook, .. } => *hook,
            Request::Failed { to, .. } => *to,
        }
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Request::Attach { .. } => "Attach",
            Request::Detach { .. } => "Detach",
            Request::Close { .. } => "Close",
            Request::Process { .. } => "Process",
            Request::TakeOff { .. } => "TakeOff",
            Request::Failed { .. } => "Failed",
        };
        f.debug_struct(name).field("by", &self.by()).finish_non_exhaustive()
    }
}

impl Extensions {
    pub(super) fn request(&mut self, request: Request) -> Result<(), Denied> {
        // The end of the connection waits for no room, once for each hook.
        let ends = |one: &Request| matches!(one, Request::Close { .. });
        let first = !self.requests.iter().any(|one| ends(one) && one.by() == request.by());
        if self.requests.len() >= MAX_REQUESTS && !(ends(&request) && first) {
            return Err(Denied::TooMany);
        }
        self.requests.push_back(request);
        Ok(())
    }

    /// Has a hook taken off that has failed, however many requests wait: this comes once for each hook. Nothing that it asked
    /// for before is done any more.
    pub(super) fn request_take_off(&mut self, hook: HookId, error: HookError) {
        self.requests.retain(|request| request.by() != hook);
        self.requests.push_back(Request::TakeOff { hook, error });
    }

    #[inline]
    pub(crate) fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    pub(crate) fn next_request(&mut self) -> Option<Request> {
        self.requests.pop_front()
    }

    /// Remembers which hook brought another.
    pub(crate) fn on_brought(&mut self, hook: HookId, by: HookId) {
        self.brought.push((hook, by));
    }

    pub(crate) fn was_brought(&self, hook: HookId, by: HookId) -> bool {
        self.brought.contains(&(hook, by))
    }

    /// A hook has failed, and is off.
    pub(crate) fn on_failed(&mut self, hook: HookId, error: &HookError) {
        let by = self.brought.iter().find(|(child, _)| *child == hook).map(|(_, by)| *by);
        self.brought.retain(|(child, _)| *child != hook);
        if let Some(to) = by {
            self.requests.push_back(Request::Failed { to, hook, error: error.clone() });
        }
    }

    /// Remembers that a hook has put the payload of a packet together; false: it did so before.
    pub(crate) fn on_recovered(&mut self, number: u64) -> bool {
        if self.was_recovered(number) {
            return false;
        }
        if self.recovered.len() >= MAX_RECOVERED {
            self.recovered.pop_front();
        }
        self.recovered.push_back(number);
        true
    }

    /// True if a hook has put the payload of this packet together.
    pub(crate) fn was_recovered(&self, number: u64) -> bool {
        self.recovered.contains(&number)
    }

    pub(super) fn hold(
        &mut self,
        hook: HookId,
        now: Timestamp,
        until: Option<Timestamp>,
    ) -> Result<(), Denied> {
        let hold = self.hold.get_or_insert(Hold { hook, since: now, until: None });
        if hold.hook != hook {
            return Err(Denied::Full);
        }
        hold.until = until.map(|until| until.min(hold.since + PATIENCE));
        Ok(())
    }

    /// True if stream data is held back.
    #[inline]
    pub(crate) fn holds_streams(&self, now: Timestamp) -> bool {
        self.hold_timer().is_some_and(|until| until > now)
    }

    /// Time until which stream data is held back; none: it is not.
    #[inline]
    pub(crate) fn hold_timer(&self) -> Option<Timestamp> {
        self.hold.and_then(|hold| hold.until)
    }

    /// Ends the hold if its time is over.
    pub(crate) fn release_streams(&mut self, now: Timestamp) {
        if let Some(hold) = &mut self.hold {
            hold.until = hold.until.filter(|until| *until > now);
        }
    }

    /// A hook is off: nothing that it asked for is done any more. Those that it brought stay.
    pub(super) fn forget_requests(&mut self, hook: HookId) {
        self.requests.retain(|request| request.by() != hook);
        self.brought.retain(|(child, by)| *child != hook && *by != hook);
        if let Some(hold) = self.hold.as_mut().filter(|hold| hold.hook == hook) {
            hold.until = None;
        }
    }
}
