//! Calls of operations. Each call shows the operation to the hooks that observe it, lets a hook
//! replace the default, and shows the result to the hooks that observe it:
//!
//! | function | default | answer of a hook |
//! |---|---|---|
//! | [`Connection::notify`] | none | none |
//! | [`Connection::decide`] | a value | counts as it is |
//! | [`Connection::decide_within`] | a value | is limited by a function |
//! | [`Connection::decide_from`] | a value, computed only if needed | is limited by a function |
//! | [`Connection::decide_limited`] | a value, always computed | is limited by a function of both |
//! | [`Connection::decide_on_frame`] | a value, computed only if needed | counts as it is |
//! | [`Connection::act`] | an action | replaces the action |
//! | [`Connection::act_always`] | an action | has no effect |
//!
//! [`Connection::notify_on`] and [`Connection::decide_on`] also pass bytes, such as a datagram.
//!
//! If no hook is attached to an operation, each of these functions tests one bit. Code that runs
//! for every packet calls them through a [`Presence`](super::presence::Presence), by the same
//! names. If the connection has no hooks, there is no test.

use equic_wire::Side;

use super::view::View;
use super::{Connection, Event};
use crate::operation::{
    AbiValue, AttachError, AttachPoint, Attached, Bytes, Call, Callees, Decision, Hook,
    HookContext, HookError, HookId, Hooks, Operation, OwnFrame, Table, Watchers,
};

/// Boxes the error, so that a hook's result fits into registers. Moving a [`HookError`] through a
/// call costs more than the call.
#[cold]
#[inline(never)]
fn aside(error: HookError) -> Box<HookError> {
    Box::new(error)
}

impl Connection {
    /// Attaches a hook to operations of this connection.
    ///
    /// If several hooks replace the same operation, the one attached last is called first. If it
    /// leaves the call to the default, the one before it is called. For windows and pacing rates,
    /// the lowest answer applies. Hooks that another hook attached ([`HookContext::attach`]) are
    /// called after those of the application.
    ///
    /// # Errors
    /// Returns an [`AttachError`] if the hook cannot be attached. Nothing is attached in that case.
    pub fn attach(
        &mut self,
        hook: Box<dyn Hook>,
        points: &[AttachPoint],
    ) -> Result<HookId, AttachError> {
        self.attach_with_frames(hook, points, &[])
    }

    /// Attaches a hook that defines frame types. Only this hook writes, parses and processes such
    /// frames. They are sent and accepted only in 1-RTT packets. Each frame that the hook writes
    /// must be a single frame of the type, as its own [`Operation::ParseFrame`] reads it. Otherwise
    /// the hook is detached.
    ///
    /// # Errors
    /// Returns an [`AttachError`] if the hook cannot be attached. Nothing is attached in that case.
    pub fn attach_with_frames(
        &mut self,
        hook: Box<dyn Hook>,
        points: &[AttachPoint],
        frames: &[OwnFrame],
    ) -> Result<HookId, AttachError> {
        self.put_on(hook, points, frames, None)
    }

    /// Attaches a hook. `by` is the hook that requested this, if any.
    pub(super) fn put_on(
        &mut self,
        hook: Box<dyn Hook>,
        points: &[AttachPoint],
        frames: &[OwnFrame],
        by: Option<HookId>,
    ) -> Result<HookId, AttachError> {
        let id = self.hooks.attach(hook, points, frames, by.is_some())?;
        match by {
            Some(by) => self.extensions.on_brought(id, by),
            None => self.extensions.on_attached(id, frames),
        }
        // The paper's InitOpaqueData. It is called only for the new hook.
        let side = u64::from(self.side == Side::Server);
        self.call_one(id, Operation::InitOpaqueData, &[side], Bytes::None);
        if by.is_none() && points.iter().any(|point| point.operation == Operation::WriteParameters)
        {
            self.ask_for_parameters(id);
        }
        Ok(id)
    }

    /// Detaches a hook and returns it. Returns `None` if it is not attached.
    pub fn detach(&mut self, id: HookId) -> Option<Box<dyn Hook>> {
        let hook = self.hooks.detach(id);
        self.extensions.forget(id);
        self.forget_answers();
        hook
    }

    /// Detaches a hook that has failed, and reports the error.
    pub(super) fn take_off(&mut self, id: HookId, error: HookError) {
        // This comes first, because [`Connection::detach`] drops all state of the hook.
        self.extensions.on_failed(id, &error);
        if self.detach(id).is_some() {
            self.events.push_back(Event::HookFailed(id, error));
        }
    }

    /// Begins a call of an operation with a frame type (0: the operation has none) and bytes.
    /// Returns the answer of a hook, or `None` if the default decides. The caller must call
    /// [`Connection::end_with`] in both cases.
    #[inline]
    pub(super) fn begin_with<I: AbiValue, O: AbiValue>(
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

    /// Ends a call that [`Connection::begin_with`] began.
    #[inline]
    pub(super) fn end_with<I: AbiValue, O: AbiValue>(
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

    /// Calls an operation without a default. Hooks can only observe it.
    #[inline]
    pub(super) fn notify<I: AbiValue>(&mut self, operation: Operation, input: I) {
        self.decide(operation, input, ());
    }

    /// Like [`Connection::notify`], with bytes that hooks can read.
    #[inline]
    pub(super) fn notify_on<I: AbiValue>(&mut self, operation: Operation, input: I, bytes: &[u8]) {
        self.decide_on(operation, input, bytes, ());
    }

    /// Calls an operation whose default is `usual`. Returns the answer of a hook as it is, or the
    /// default.
    #[inline]
    pub(super) fn decide<I: AbiValue, O: AbiValue>(
        &mut self,
        operation: Operation,
        input: I,
        usual: O,
    ) -> O {
        self.decide_within(operation, input, usual, |_, answer| answer)
    }

    /// Like [`Connection::decide`]. `bound` limits the answer of a hook.
    #[inline]
    pub(super) fn decide_within<I: AbiValue, O: AbiValue>(
        &mut self,
        operation: Operation,
        input: I,
        usual: O,
        bound: impl FnOnce(&mut Connection, O) -> O,
    ) -> O {
        if !self.hooks.is_hooked(operation) {
            return usual;
        }
        self.decide_hooked(operation, input, |_| usual, bound)
    }

    /// Like [`Connection::decide_within`], if the default is expensive or has effects. It is
    /// computed at most once, and not at all if a hook answers that does not want it. The default
    /// may call operations, too: no hook of this operation is running then.
    #[inline]
    pub(super) fn decide_from<I: AbiValue, O: AbiValue>(
        &mut self,
        operation: Operation,
        input: I,
        usual: impl FnOnce(&mut Connection) -> O,
        bound: impl FnOnce(&mut Connection, O) -> O,
    ) -> O {
        if !self.hooks.is_hooked(operation) {
            return usual(self);
        }
        self.decide_hooked(operation, input, usual, bound)
    }

    /// Like [`Connection::decide_from`], if the limit of the answer depends on the default. `bound`
    /// gets the default and the answer of a hook. The default is computed exactly once.
    #[inline]
    pub(super) fn decide_limited<I: AbiValue, O: AbiValue>(
        &mut self,
        operation: Operation,
        input: I,
        usual: impl FnOnce(&mut Connection) -> O,
        bound: impl FnOnce(&mut Connection, O, O) -> O,
    ) -> O {
        if !self.hooks.is_hooked(operation) {
            return usual(self);
        }
        let (usual, answer) = if self.hooks.is_asked(operation) {
            let usual = usual(self);
            (usual, self.begin_asked(operation, input, usual))
        } else {
            let answer = self.begin(operation, input);
            (usual(self), answer)
        };
        let output = answer.map_or(usual, |answer| bound(self, usual, answer));
        self.end(operation, input, output);
        output
    }

    #[inline(never)]
    fn decide_hooked<I: AbiValue, O: AbiValue>(
        &mut self,
        operation: Operation,
        input: I,
        usual: impl FnOnce(&mut Connection) -> O,
        bound: impl FnOnce(&mut Connection, O) -> O,
    ) -> O {
        let output = if self.hooks.is_asked(operation) {
            let usual = usual(self);
            match self.begin_asked(operation, input, usual) {
                Some(answer) => bound(self, answer),
                None => usual,
            }
        } else {
            match self.begin(operation, input) {
                Some(answer) => bound(self, answer),
                None => usual(self),
            }
        };
        self.end(operation, input, output);
        output
    }

    /// Like [`Connection::decide`], with bytes that hooks can read.
    #[inline]
    pub(super) fn decide_on<I: AbiValue, O: AbiValue>(
        &mut self,
        operation: Operation,
        input: I,
        bytes: &[u8],
        usual: O,
    ) -> O {
        self.decide_on_frame(operation, 0, input, Some(bytes), |_| usual)
    }

    /// Calls an operation with a frame type (0: the operation has none), and with bytes that hooks
    /// can read. Returns the answer of a hook, or the default. The default is computed only if no
    /// hook answers.
    #[inline]
    pub(super) fn decide_on_frame<I: AbiValue, O: AbiValue>(
        &mut self,
        operation: Operation,
        frame_type: u64,
        input: I,
        bytes: Option<&[u8]>,
        usual: impl FnOnce(&mut Connection) -> O,
    ) -> O {
        if !self.hooks.is_hooked(operation) {
            return usual(self);
        }
        let shown = || bytes.map_or(Bytes::None, Bytes::In);
        let output = match self.begin_with(operation, frame_type, input, shown()) {
            Some(answer) => answer,
            None => usual(self),
        };
        self.end_with(operation, frame_type, input, shown(), output);
        output
    }

    /// Calls an operation that acts. The action is not carried out if a hook replaces it.
    #[inline]
    pub(super) fn act<I: AbiValue>(
        &mut self,
        operation: Operation,
        input: I,
        action: impl FnOnce(&mut Connection),
    ) {
        self.decide_from(operation, input, action, |_, ()| ());
    }

    /// Calls an operation that acts. The action is carried out whatever a hook answers. Returns the
    /// result of the action.
    #[inline]
    pub(super) fn act_always<I: AbiValue, O: AbiValue>(
        &mut self,
        operation: Operation,
        input: I,
        action: impl FnOnce(&mut Connection) -> O,
    ) -> O {
        self.begin_always::<I, O>(operation, input);
        let output = action(self);
        self.end_always(operation, input, output);
        output
    }

    /// Begins a call of an operation that acts, whatever a hook answers. The caller must call
    /// [`Connection::end_always`] after the action. Use it where the compiler must inline the
    /// action. Elsewhere, [`Connection::act_always`] is simpler.
    #[inline]
    pub(super) fn begin_always<I: AbiValue, O: AbiValue>(
        &mut self,
        operation: Operation,
        input: I,
    ) {
        let _: Option<O> = self.begin(operation, input);
    }

    /// Ends a call that [`Connection::begin_always`] began.
    #[inline]
    pub(super) fn end_always<I: AbiValue, O: AbiValue>(
        &mut self,
        operation: Operation,
        input: I,
        output: O,
    ) {
        self.end(operation, input, output);
    }

    #[inline]
    fn begin<I: AbiValue, O: AbiValue>(&mut self, operation: Operation, input: I) -> Option<O> {
        if !self.hooks.is_begun(operation) {
            return None;
        }
        self.begin_words(operation, input)
    }

    #[inline]
    fn end<I: AbiValue, O: AbiValue>(&mut self, operation: Operation, input: I, output: O) {
        if self.hooks.is_ended(operation) {
            self.end_words(operation, input, output);
        }
    }

    // Most calls have no bytes. They use separate functions without that parameter, because passing
    // it costs as much as the rest of a call.
    #[inline(never)]
    fn begin_words<I: AbiValue, O: AbiValue>(
        &mut self,
        operation: Operation,
        input: I,
    ) -> Option<O> {
        self.begin_hooked(operation, 0, input, Bytes::None)
    }

    #[inline(never)]
    fn begin_asked<I: AbiValue, O: AbiValue>(
        &mut self,
        operation: Operation,
        input: I,
        usual: O,
    ) -> Option<O> {
        let inputs = input.to_words();
        let mut call =
            Call { operation, parameter: 0, inputs: inputs.as_ref(), bytes: Bytes::None };
        debug_assert!(operation.offers_default(), "{operation}");
        let callees = self.call_before(&call);
        self.replace_many(callees, &mut call, Some(usual))
    }

    #[inline(never)]
    fn end_words<I: AbiValue, O: AbiValue>(&mut self, operation: Operation, input: I, output: O) {
        self.end_hooked(operation, 0, input, Bytes::None, output);
    }

    #[inline(never)]
    fn begin_bytes<I: AbiValue, O: AbiValue>(
        &mut self,
        operation: Operation,
        frame_type: u64,
        input: I,
        bytes: Bytes<'_>,
    ) -> Option<O> {
        self.begin_hooked(operation, frame_type, input, bytes)
    }

    #[inline(never)]
    fn end_bytes<I: AbiValue, O: AbiValue>(
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
    fn begin_hooked<I: AbiValue, O: AbiValue>(
        &mut self,
        operation: Operation,
        parameter: u64,
        input: I,
        bytes: Bytes<'_>,
    ) -> Option<O> {
        let inputs = input.to_words();
        let inputs = inputs.as_ref();
        debug_assert_eq!(inputs.len(), operation.describe().inputs.len(), "{operation}");
        debug_assert_eq!(
            O::ZEROS.as_ref().len(),
            operation.describe().outputs.len(),
            "{operation}"
        );
        let mut call = Call { operation, parameter, inputs, bytes };
        let callees = self.call_before(&call);
        match callees.replacing() {
            Watchers::Nobody => None,
            Watchers::One(place) => self.replace_at(place, &mut call, O::ZEROS),
            Watchers::Many => self.replace_many(callees, &mut call, None),
        }
    }

    /// Calls the hooks that observe the operation before it. Returns the hooks for the rest of the
    /// call.
    #[inline(always)]
    fn call_before(&mut self, call: &Call<'_>) -> Callees {
        let callees = self.hooks.callees(call.operation, call.parameter);
        match callees.before() {
            Watchers::One(place) => {
                match self.call_at(place, |hook, host| hook.before(host, call).map_err(aside)) {
                    Some(Err(error)) => self.after_failure(place, *error, call),
                    Some(Ok(())) | None => callees,
                }
            }
            Watchers::Nobody => callees,
            Watchers::Many => self.call_many(callees, None, call),
        }
    }

    /// Calls the hook at `place` that replaces the operation, with `outputs` as initial values.
    /// Returns `None` if the hook leaves the call to the default, or fails.
    #[inline(always)]
    fn replace_at<O: AbiValue>(
        &mut self,
        place: usize,
        call: &mut Call<'_>,
        mut outputs: O::Array,
    ) -> Option<O> {
        let run = |hook: &mut dyn Hook, host: &mut HookContext<'_>| {
            hook.replace(host, call, outputs.as_mut()).map_err(aside)
        };
        match self.call_at(place, run)? {
            Ok(Decision::Done) => match O::from_words(&outputs) {
                Some(answer) => return Some(answer),
                None => self.cannot_be(place, call.operation),
            },
            Ok(Decision::Default) => {}
            Err(error) => self.take_off_at(place, *error),
        }
        call.bytes.wipe();
        None
    }

    #[inline(always)]
    fn end_hooked<I: AbiValue, O: AbiValue>(
        &mut self,
        operation: Operation,
        parameter: u64,
        input: I,
        bytes: Bytes<'_>,
        output: O,
    ) {
        let (inputs, outputs) = (input.to_words(), output.to_words());
        let call = Call { operation, parameter, inputs: inputs.as_ref(), bytes };
        let callees = self.hooks.callees(operation, parameter);
        match callees.after() {
            Watchers::One(place) => {
                let run = |hook: &mut dyn Hook, host: &mut HookContext<'_>| {
                    hook.after(host, &call, outputs.as_ref()).map_err(aside)
                };
                if let Some(Err(error)) = self.call_at(place, run) {
                    self.take_off_at(place, *error);
                }
            }
            Watchers::Nobody => {}
            Watchers::Many => {
                self.call_many(callees, Some(outputs.as_ref()), &call);
            }
        }
    }

    /// Calls the replacing hooks, if there are several or one needs the default's answer, `usual`.
    #[inline(never)]
    fn replace_many<O: AbiValue>(
        &mut self,
        callees: Callees,
        call: &mut Call<'_>,
        usual: Option<O>,
    ) -> Option<O> {
        // Hooks are identified by ID, because places change when one fails.
        let chain = self.hooks.all_replacing(callees);
        self.replace_chain(&chain, call, usual)
    }

    /// Returns the answer of a chain of at most 32 hooks. The last hook is called first.
    fn replace_chain<O: AbiValue>(
        &mut self,
        chain: &[HookId],
        call: &mut Call<'_>,
        usual: Option<O>,
    ) -> Option<O> {
        let (id, others) = chain.split_last()?;
        let Some(place) = self.hooks.place(*id) else {
            return self.replace_chain(others, call, usual);
        };
        let least = call.operation.takes_least();
        if !least && !self.hooks.asks(place, call.operation) {
            let answer = self.replace_at(place, call, O::ZEROS);
            return answer.or_else(|| self.replace_chain(others, call, usual));
        }
        let below = self.replace_chain(others, call, usual);
        let Some(place) = self.hooks.place(*id) else { return below };
        let given = below.or(usual).map_or(O::ZEROS, AbiValue::to_words);
        match (self.replace_at(place, call, given), below) {
            (Some(answer), Some(below)) if least => {
                let word = |one: O| one.to_words().as_ref().first().copied();
                Some(if word(below) < word(answer) { below } else { answer })
            }
            (Some(answer), _) => Some(answer),
            (None, below) => below,
        }
    }

    /// Calls all hooks that observe the operation before it, or after it if there are outputs. A
    /// hook cannot call an operation, so the attached hooks change only by a failure. Returns the
    /// hooks that are attached then.
    #[inline(never)]
    fn call_many(
        &mut self,
        mut callees: Callees,
        outputs: Option<&[u64]>,
        call: &Call<'_>,
    ) -> Callees {
        let watcher = |hooks: &Hooks, callees, nth| match outputs {
            None => hooks.before(callees, nth),
            Some(_) => hooks.after(callees, nth),
        };
        let mut called = 0;
        while let Some(place) = watcher(&self.hooks, callees, called) {
            called += 1;
            let outcome = self.call_at(place, |hook, host| match outputs {
                None => hook.before(host, call),
                Some(outputs) => hook.after(host, call, outputs),
            });
            if let Some(Err(error)) = outcome {
                // The hook may have been called more than once. Later hooks move up.
                let gone = |nth: &usize| watcher(&self.hooks, callees, *nth) == Some(place);
                called -= (0..called).filter(gone).count();
                callees = self.after_failure(place, error, call);
            }
        }
        callees
    }

    /// Detaches a hook that failed while it observed. Returns the hooks that remain.
    #[cold]
    #[inline(never)]
    fn after_failure(&mut self, place: usize, error: HookError, call: &Call<'_>) -> Callees {
        self.take_off_at(place, error);
        self.hooks.callees(call.operation, call.parameter)
    }

    /// Detaches a hook whose outputs represent no valid value.
    #[cold]
    #[inline(never)]
    fn cannot_be(&mut self, place: usize, operation: Operation) {
        self.take_off_at(
            place,
            HookError(format!("{operation}: the hook returned impossible outputs")),
        );
    }

    #[cold]
    #[inline(never)]
    pub(super) fn take_off_at(&mut self, place: usize, error: HookError) {
        if let Some(id) = self.hooks.name(place) {
            self.take_off(id, error);
        }
    }

    /// Calls the hook at `place` with access to the connection. Returns `None` if no hook is there.
    /// The table of hooks is taken out of the connection during the call, so that the hook can read
    /// all the rest. This moves one word, whereas separate borrows of each part would need one word
    /// each.
    #[inline(always)]
    pub(super) fn call_at<R>(
        &mut self,
        place: usize,
        run: impl FnOnce(&mut dyn Hook, &mut HookContext<'_>) -> R,
    ) -> Option<R> {
        let mut table = self.hooks.take()?;
        if table.provides() {
            return self.call_among(table, place, run);
        }
        let outcome = table.get_mut(place).map(|Attached { hook, own, .. }| {
            run(&mut **hook, &mut HookContext::new(View { connection: self, own }))
        });
        self.hooks.put_back(table);
        outcome
    }

    /// Variant of [`Connection::call_at`] for connections whose hooks define operations that other
    /// hooks call. Those hooks are lent to the called one.
    #[cold]
    #[inline(never)]
    fn call_among<R>(
        &mut self,
        mut table: Box<Table>,
        place: usize,
        run: impl FnOnce(&mut dyn Hook, &mut HookContext<'_>) -> R,
    ) -> Option<R> {
        let Some((mut lent, all)) = table.lend(place) else {
            self.hooks.put_back(table);
            return None;
        };
        self.extensions.lend(all);
        let lending = Lending(self);
        let view = View { connection: lending.0, own: &lent.own };
        let outcome = run(&mut *lent.hook, &mut HookContext::new(view));
        table.take_back(place, lent, lending.0.extensions.take_lent());
        lending.0.hooks.put_back(table);
        Some(outcome)
    }
}

/// A connection whose hooks are lent to the hook that is called. If that hook panics, the lent
/// hooks are dropped with the table, as all hooks are, and no later hook can call them.
struct Lending<'a>(&'a mut Connection);

impl Drop for Lending<'_> {
    fn drop(&mut self) {
        self.0.extensions.end_lending();
    }
}
