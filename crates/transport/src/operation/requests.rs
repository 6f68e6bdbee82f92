//! Requests of hooks: to attach or detach other hooks, or to close the connection.
//! [`crate::Connection`] carries them out between calls of operations, when no hook is running.

use std::fmt;
use std::time::Duration;

use equic_wire::TransportErrorCode;

use crate::Timestamp;

use super::host::{Denied, Extensions};
use super::{AttachError, AttachPoint, Hook, HookError, HookId, OwnFrame};

/// Largest number of waiting requests of all hooks.
pub(super) const MAX_REQUESTS: usize = 64;

/// An event that a hook receives about another hook.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum HookEvent {
    /// The outcome of a request to attach another hook
    /// ([`HookContext::attach`](super::HookContext::attach)).
    Attached {
        /// The token that the hook passed with its request.
        token: u64,
        /// The ID of the other hook, or the reason why it was not attached.
        outcome: Result<HookId, AttachError>,
    },
    /// Another hook, which this hook had attached, has failed and was detached.
    Failed {
        /// The ID of the hook that failed.
        hook: HookId,
        /// The reason why the hook failed.
        error: HookError,
    },
}

/// A request of a hook, which is carried out between calls of operations.
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
    /// Processes the payload of a lost packet that a hook has recovered.
    Process {
        by: HookId,
        number: u64,
        payload: Vec<u8>,
    },
    /// Detaches a hook that failed when another hook called it.
    TakeOff {
        hook: HookId,
        error: HookError,
    },
    /// Notifies a hook that a hook which it has attached has failed.
    Failed {
        to: HookId,
        hook: HookId,
        error: HookError,
    },
}

/// Largest payload that a hook can recover, in bytes.
pub(super) const MAX_PAYLOAD: usize = 4096;

/// Number of recovered packets whose numbers are remembered, so that no packet is processed twice.
const MAX_RECOVERED: usize = 64;

/// Longest time for which hooks can delay stream data.
const PATIENCE: Duration = Duration::from_secs(1);

/// A hook that delays stream data, or has done so.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hold {
    hook: HookId,
    since: Timestamp,
    /// Time until which the hook delays stream data. `None` if the delay has ended.
    until: Option<Timestamp>,
}

impl Request {
    /// Returns the hook that made the request, or the hook that the request is about.
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
        // One request of each hook to close the connection is always accepted.
        let ends = |one: &Request| matches!(one, Request::Close { .. });
        let first = !self.requests.iter().any(|one| ends(one) && one.by() == request.by());
        if self.requests.len() >= MAX_REQUESTS && !(ends(&request) && first) {
            return Err(Denied::TooMany);
        }
        self.requests.push_back(request);
        Ok(())
    }

    /// Requests that a failed hook is detached, and drops its other requests. This request is
    /// always accepted, because there is only one for each hook.
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

    /// Records that the hook `by` has attached `hook`.
    pub(crate) fn on_brought(&mut self, hook: HookId, by: HookId) {
        self.nested.push((hook, by));
    }

    pub(crate) fn is_nested_in(&self, hook: HookId, by: HookId) -> bool {
        self.nested.contains(&(hook, by))
    }

    /// Records that a hook has failed and is detached. If another hook attached it, that hook is
    /// notified.
    pub(crate) fn on_failed(&mut self, hook: HookId, error: &HookError) {
        let by = self.nested.iter().find(|(child, _)| *child == hook).map(|(_, by)| *by);
        self.nested.retain(|(child, _)| *child != hook);
        if let Some(to) = by {
            self.requests.push_back(Request::Failed { to, hook, error: error.clone() });
        }
    }

    /// Records that a hook has recovered the packet with this number. Returns false if it was
    /// recovered before.
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

    /// Returns true if a hook has recovered the packet with this number.
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

    /// Returns true if a hook delays stream data now.
    #[inline]
    pub(crate) fn holds_streams(&self, now: Timestamp) -> bool {
        self.hold_timer().is_some_and(|until| until > now)
    }

    /// Returns the time until which a hook delays stream data, or `None`.
    #[inline]
    pub(crate) fn hold_timer(&self) -> Option<Timestamp> {
        self.hold.and_then(|hold| hold.until)
    }

    /// Ends a hook's delay of stream data if its time has passed.
    pub(crate) fn release_streams(&mut self, now: Timestamp) {
        if let Some(hold) = &mut self.hold {
            hold.until = hold.until.filter(|until| *until > now);
        }
    }

    /// Drops the requests of a hook that was detached. Hooks that it has attached stay attached.
    pub(super) fn forget_requests(&mut self, hook: HookId) {
        self.requests.retain(|request| request.by() != hook);
        self.nested.retain(|(child, by)| *child != hook && *by != hook);
        if let Some(hold) = self.hold.as_mut().filter(|hold| hold.hook == hook) {
            hold.until = None;
        }
    }
}
