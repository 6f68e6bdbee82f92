//! Calls of operations. Where a hook may answer in the default's place, a call reads like this:
//!
//! ```text
//! let window = match self.begin(Operation::CongestionWindow, path) {   // before, replace
//!     Some(answer) => ..                                               // held within bounds
//!     None => ..                                                       // the default
//! };
//! self.end(Operation::CongestionWindow, path, window);                 // after
//! ```
//! Of what acts rather than decides, [`Connection::begin_act`] says whether the default is to act. What has a
//! value for its default is one call, to [`Connection::decide`], and what has no default at all is one to
//! [`Connection::notify`]. Where nobody is attached each of these is a test of one bit.

use equic_wire::Side;

use super::view::View;
use super::{Connection, Event};
use crate::operation::{
    AttachError, Attached, Bytes, Call, Callees, Decision, Hook, HookError, HookId, Hooks, Host,
    MAX_WORDS, Operation, OwnFrame, Point, Words,
};

/// Moment at which hooks look on: before an operation, or after it.
#[derive(Clone, Copy)]
enum When<'a> {
    Before,
    /// With the outputs.
    After(&'a [u64]),
}

impl Connection {
    /// Attaches a hook to operations of this connection.
    ///
    /// # Errors
    /// [`AttachError`]; nothing is attached then.
    pub fn attach(&mut self, hook: Box<dyn Hook>, points: &[Point]) -> Result<HookId, AttachError> {
        self.attach_with_frames(hook, points, &[])
    }

    /// Attaches a hook that has frame types of its own. It alone writes, parses and processes such frames;
    /// they go in 1-RTT packets, and are taken from the peer in those alone. What it writes must be one frame
    /// of the type, as its own [`Operation::ParseFrame`] reads it, or the hook is taken off.
    ///
    /// # Errors
    /// [`AttachError`]; nothing is attached then.
    pub fn attach_with_frames(
        &mut self,
        hook: Box<dyn Hook>,
        points: &[Point],
        frames: &[OwnFrame],
    ) -> Result<HookId, AttachError> {
        let id = self.hooks.attach(hook, points, frames)?;
        // The paper's InitOpaqueData: it is this hook that begins, and it alone.
        if points.iter().any(|point| point.operation == Operation::InitOpaqueData)
            && let Some(place) = self.hooks.place(id)
            && let Err(error) = self.init_opaque_data(place)
        {
            self.take_off(id, error);
        }
        Ok(id)
    }

    fn init_opaque_data(&mut self, place: usize) -> Result<(), HookError> {
        let inputs = [u64::from(self.side == Side::Server)];
        let operation = Operation::InitOpaqueData;
        let mut call = Call { operation, parameter: 0, inputs: &inputs, bytes: Bytes::None };
        let Some((hook, mut host)) = self.hook_at(place) else { return Ok(()) };
        hook.before(&mut host, &call)?;
        hook.replace(&mut host, &mut call, &mut [])?;
        hook.after(&mut host, &call, &[])
    }

    /// Takes a hook off again.
    pub fn detach(&mut self, id: HookId) -> Option<Box<dyn Hook>> {
        let hook = self.hooks.detach(id)?;
        self.extensions.forget(id);
        self.forget_answers();
        Some(hook)
    }

    /// Takes off a hook that has failed.
    pub(super) fn take_off(&mut self, id: HookId, error: HookError) {
        // Before all that is known of it is forgotten.
        self.extensions.on_failed(id, &error);
        if self.detach(id).is_some() {
            self.events.push_back(Event::HookFailed(id, error));
        }
    }

    /// A call begins: hooks look on, and one may answer in the default's place. None: the default is to
    /// run. In any case [`Connection::end`] is next.
    #[inline]
    pub(super) fn begin<I: Words, O: Words>(
        &mut self,
        operation: Operation,
        input: I,
    ) -> Option<O> {
        if !self.hooks.is_begun(operation) {
            return None;
        }
        self.begin_words(operation, input)
    }

    /// As [`Connection::begin`], of a frame type (0: of none), and with bytes.
    #[inline]
    pub(super) fn begin_with<I: Words, O: Words>(
        &mut self,
        operation: Operation,
        frame_type: u64,
        input: I,
        bytes: Bytes<'_>,
    ) -> Option<O> {
        if !self.hooks.is_begun(operation) {
            return None;
        }
        self.begin_bytes(operation, frame_type, input, bytes)
    }

    /// As [`Connection::begin`], of what acts rather than decides: whether the default is to act. Where it
    /// acts whatever a hook answers, that is of no interest.
    #[inline]
    pub(super) fn begin_act<I: Words>(&mut self, operation: Operation, input: I) -> bool {
        let replaced: Option<()> = self.begin(operation, input);
        replaced.is_none()
    }

    /// A call is done, and this came of it.
    #[inline]
    pub(super) fn end<I: Words, O: Words>(&mut self, operation: Operation, input: I, output: O) {
        if self.hooks.is_ended(operation) {
            self.end_words(operation, input, output);
        }
    }

    /// As [`Connection::end`], for [`Connection::begin_with`].
    #[inline]
    pub(super) fn end_with<I: Words, O: Words>(
        &mut self,
        operation: Operation,
        frame_type: u64,
        input: I,
        bytes: Bytes<'_>,
        output: O,
    ) {
        if self.hooks.is_ended(operation) {
            self.end_bytes(operation, frame_type, input, bytes, output);
        }
    }

    /// A call of what has no default: something happens, and hooks may look on.
    #[inline]
    pub(super) fn notify<I: Words>(&mut self, operation: Operation, input: I) {
        self.decide(operation, input, ());
    }

    /// As [`Connection::notify`], with bytes to read.
    #[inline]
    pub(super) fn notify_on<I: Words>(&mut self, operation: Operation, input: I, bytes: &[u8]) {
        self.decide_on(operation, input, bytes, ());
    }

    /// A call of what decides, and decides `usual` by itself. Any answer of a hook holds.
    #[inline]
    pub(super) fn decide<I: Words, O: Words>(
        &mut self,
        operation: Operation,
        input: I,
        usual: O,
    ) -> O {
        if !self.hooks.is_hooked(operation) {
            return usual;
        }
        let output = self.begin(operation, input).unwrap_or(usual);
        self.end(operation, input, output);
        output
    }

    /// As [`Connection::decide`], with bytes to read.
    #[inline]
    pub(super) fn decide_on<I: Words, O: Words>(
        &mut self,
        operation: Operation,
        input: I,
        bytes: &[u8],
        usual: O,
    ) -> O {
        if !self.hooks.is_hooked(operation) {
            return usual;
        }
        let answer = self.begin_with(operation, 0, input, Bytes::In(bytes));
        let output = answer.unwrap_or(usual);
        self.end_with(operation, 0, input, Bytes::In(bytes), output);
        output
    }

    // Most calls have no bytes. They have functions of their own, in which there is no parameter for them: to hand
    // it over costs as much as the rest of a call.
    #[inline(never)]
    fn begin_words<I: Words, O: Words>(&mut self, operation: Operation, input: I) -> Option<O> {
        self.begin_hooked(operation, 0, input, Bytes::None)
    }

    #[inline(never)]
    fn end_words<I: Words, O: Words>(&mut self, operation: Operation, input: I, output: O) {
        self.end_hooked(operation, 0, input, Bytes::None, output);
    }

    #[inline(never)]
    fn begin_bytes<I: Words, O: Words>(
        &mut self,
        operation: Operation,
        frame_type: u64,
        input: I,
        bytes: Bytes<'_>,
    ) -> Option<O> {
        self.begin_hooked(operation, frame_type, input, bytes)
    }

    #[inline(never)]
    fn end_bytes<I: Words, O: Words>(
        &mut self,
        operation: Operation,
        frame_type: u64,
        input: I,
        bytes: Bytes<'_>,
        output: O,
    ) {
        self.end_hooked(operation, frame_type, input, bytes, output);
    }

    #[inline(always)]
    fn begin_hooked<I: Words, O: Words>(
        &mut self,
        operation: Operation,
        parameter: u64,
        input: I,
        bytes: Bytes<'_>,
    ) -> Option<O> {
        debug_assert_eq!(I::COUNT, operation.describe().inputs.len(), "{operation}");
        debug_assert_eq!(O::COUNT, operation.describe().outputs.len(), "{operation}");
        let mut inputs = [0; MAX_WORDS];
        input.store(&mut inputs);
        let mut call = Call { operation, parameter, inputs: &inputs[..I::COUNT], bytes };
        let mut callees = self.hooks.callees(operation, parameter);
        self.call_watching(&mut callees, When::Before, &call);
        let place = Hooks::replacing(&callees)?;
        let mut outputs = [0; MAX_WORDS];
        let answer = match self.call_replacing(place, &mut call, &mut outputs[..O::COUNT]) {
            Ok(Decision::Done) => O::load(&outputs[..O::COUNT])
                .ok_or_else(|| HookError(format!("{operation}: its outputs cannot be"))),
            Ok(Decision::Default) => {
                call.bytes.wipe();
                return None;
            }
            Err(error) => Err(error),
        };
        match answer {
            Ok(answer) => Some(answer),
            Err(error) => {
                call.bytes.wipe();
                self.take_off_at(place, error);
                None
            }
        }
    }

    #[inline(always)]
    fn end_hooked<I: Words, O: Words>(
        &mut self,
        operation: Operation,
        parameter: u64,
        input: I,
        bytes: Bytes<'_>,
        output: O,
    ) {
        let (mut inputs, mut outputs) = ([0; MAX_WORDS], [0; MAX_WORDS]);
        input.store(&mut inputs);
        output.store(&mut outputs);
        let call = Call { operation, parameter, inputs: &inputs[..I::COUNT], bytes };
        let mut callees = self.hooks.callees(operation, parameter);
        self.call_watching(&mut callees, When::After(&outputs[..O::COUNT]), &call);
    }

    /// Calls all hooks that look on. Nothing that a hook does calls an operation, so who is attached changes
    /// only by a failure; then so does `callees`.
    #[inline(always)]
    fn call_watching(&mut self, callees: &mut Callees, when: When<'_>, call: &Call<'_>) {
        let mut nth = 0;
        loop {
            let place = match when {
                When::Before => self.hooks.before(callees, nth),
                When::After(_) => self.hooks.after(callees, nth),
            };
            let Some(place) = place else { return };
            let Some((hook, mut host)) = self.hook_at(place) else { return };
            let outcome = match when {
                When::Before => hook.before(&mut host, call),
                When::After(outputs) => hook.after(&mut host, call, outputs),
            };
            nth += 1;
            if let Err(error) = outcome {
                let after = matches!(when, When::After(_));
                (nth, *callees) = self.after_failure(callees, after, nth, call, (place, error));
            }
        }
    }

    /// A hook that looked on has failed, `called` calls after the first: it is taken off. Returns how many of those
    /// that are left were called, and who they are.
    #[cold]
    fn after_failure(
        &mut self,
        callees: &Callees,
        after: bool,
        called: u32,
        call: &Call<'_>,
        (place, error): (usize, HookError),
    ) -> (u32, Callees) {
        let of = |nth| {
            if after { self.hooks.after(callees, nth) } else { self.hooks.before(callees, nth) }
        };
        // It may have been called more than once; what is behind it moves up.
        let gone = (0..called).filter(|nth| of(*nth) == Some(place)).count();
        self.take_off_at(place, error);
        let left = called - u32::try_from(gone).unwrap_or(called);
        (left, self.hooks.callees(call.operation, call.parameter))
    }

    fn call_replacing(
        &mut self,
        place: usize,
        call: &mut Call<'_>,
        outputs: &mut [u64],
    ) -> Result<Decision, HookError> {
        match self.hook_at(place) {
            Some((hook, mut host)) => hook.replace(&mut host, call, outputs),
            None => Ok(Decision::Default),
        }
    }

    #[cold]
    pub(super) fn take_off_at(&mut self, place: usize, error: HookError) {
        if let Some(id) = self.hooks.at(place).map(|one| one.own.id) {
            self.take_off(id, error);
        }
    }

    /// The hook at a place, and what it sees: all of the connection that is no hook.
    #[inline]
    pub(super) fn hook_at(&mut self, place: usize) -> Option<(&mut dyn Hook, Host<'_>)> {
        let Attached { hook, own, .. } = self.hooks.at(place)?;
        let view = View {
            now: self.now,
            side: self.side,
            progress: &self.progress,
            peer: &self.peer,
            paths: &mut self.paths,
            spaces: &self.spaces,
            stats: &self.stats,
            extensions: &mut self.extensions,
            streams: &self.streams,
            datagrams: &self.datagrams,
        };
        Some((&mut **hook, Host { own, view }))
    }
}
