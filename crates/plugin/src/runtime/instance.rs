//! Runs the functions of a plugin on one connection. Each instance is a hook of the transport and
//! has its own memory.

use std::io;
use std::sync::Arc;

use equic_transport::operation::{
    Bytes, Call, Decision, Field, Hook, HookContext, HookError, Operation, Provided, ProvidedCall,
};
use equic_vm::{Entry, HelperError, Region, Trap};

use super::abi::{Abi, DEFAULT, DONE, MAX_BYTES, WORDS};
use super::allotted::{Allotted, FrameTypes};
use super::allowance::{Allowance, WAKE, call_cost};
use super::clamp::clamp;
use super::places::Place;
use super::trace::{Answer, Trace, Traced, printable};
use super::view::{Context, Given, Role};
use super::{Inner, Plugin};
use crate::manifest::Anchor;

/// Maximum length of the message that says why a plugin failed, in bytes. The message can contain
/// names from the plugin.
const MAX_REASON: usize = 512;

/// The hook of a plugin on one connection, with the plugin's memory.
pub(super) struct Instance {
    plugin: Plugin,
    machine: equic_vm::Instance<Abi>,
    trace: Option<Box<dyn Trace>>,
    /// Allowance of steps that the plugin shares with the peer's other plugins. With `None`, only
    /// the steps of each single call are limited.
    allowance: Option<Arc<Allowance>>,
    /// Translation of the plugin's frame types to those on the wire. `None` if they are the same as
    /// in its manifest.
    allotted: Option<Allotted>,
    /// Number of packets that the connection had sent and received when a function of the plugin
    /// last set a timer.
    timed: u64,
    /// The slot that a peer's plugin takes up in the process-wide limit.
    _place: Option<Place>,
}

/// Result of a function, and the steps that it used.
struct Outcome {
    value: u64,
    steps: u64,
}

impl Instance {
    pub(super) fn new(
        plugin: &Plugin,
        trace: Option<Box<dyn Trace>>,
        allowance: Option<Arc<Allowance>>,
        allotted: Option<Allotted>,
    ) -> io::Result<Instance> {
        let place = allowance.as_ref().map(|_| Place::take(plugin.inner.manifest.memory));
        let place = place.transpose()?;
        let machine = plugin.inner.program.instantiate()?;
        let plugin = plugin.clone();
        Ok(Instance { plugin, machine, trace, allowance, allotted, timed: 0, _place: place })
    }

    /// Returns `true` if this call can set a timer although no packet was sent or received since
    /// the plugin last set one. Such calls follow an expired timer, so a plugin that sets short
    /// timers could make them frequent.
    fn may_wake(&mut self, role: Role, host: &HookContext<'_>, operation: Operation) -> bool {
        let timers = [Operation::SetTimer, Operation::AckDeadline, Operation::PaceUntil];
        if matches!(role, Role::LooksOn) || !timers.contains(&operation) {
            return false;
        }
        let packets = host.get(Field::PacketsReceived) + host.get(Field::PacketsSent);
        std::mem::replace(&mut self.timed, packets) == packets
    }

    /// Runs a function that only observes an operation.
    fn look(
        &mut self,
        anchor: Anchor,
        host: &mut HookContext<'_>,
        call: &Call<'_>,
        outputs: &[u64],
    ) -> Result<(), HookError> {
        let Some(types) = self.allotted.as_ref().and_then(|allotted| allotted.of(call)) else {
            return self.look_named(anchor, host, call, outputs);
        };
        let seen = types.seen(&call.bytes);
        let bytes = seen.as_ref().map_or(Bytes::None, |(bytes, _)| Bytes::In(bytes));
        let (operation, inputs) = (call.operation, call.inputs);
        let named = Call { operation, parameter: types.named, inputs, bytes };
        self.look_named(anchor, host, &named, outputs)
    }

    /// Runs a function that only observes an operation. The call's frame type has already been
    /// translated to the manifest's number.
    fn look_named(
        &mut self,
        anchor: Anchor,
        host: &mut HookContext<'_>,
        call: &Call<'_>,
        outputs: &[u64],
    ) -> Result<(), HookError> {
        let Some(entry) = self.plugin.function(call.operation, call.parameter, anchor) else {
            return Ok(());
        };
        let ran = self.run(entry, Role::LooksOn, host, call, outputs);
        if self.trace.is_some() {
            let told = ran.as_ref().map(|ran| (Answer::Seen, ran.steps));
            self.tell(anchor, host, call, told);
        }
        ran.map(|_| ())
    }

    /// Runs a function with the words and bytes of a call. Returns the function's result.
    #[inline]
    fn run(
        &mut self,
        entry: Entry,
        role: Role,
        host: &mut HookContext<'_>,
        call: &Call<'_>,
        outputs: &[u64],
    ) -> Result<Outcome, HookError> {
        let wakes =
            call.operation == Operation::HookTimer || self.may_wake(role, host, call.operation);
        let inner: &Inner = &self.plugin.inner;
        let area = inner.area;
        let mut memory = self.machine.memory();
        let words = call.inputs.len() + outputs.len();
        if words > 0 {
            let room = memory.write(Region::new(area, 8 * words as u64)).map_err(failed)?;
            let (inputs, behind) = room.split_at_mut(8 * call.inputs.len());
            write_words(inputs, call.inputs);
            write_words(behind, outputs);
        }
        let steps = inner.manifest.steps;
        let mut cost = call_cost(call.bytes.as_slice().len().min(MAX_BYTES as usize));
        if self.allotted.is_some() {
            // Translating the frame type copies the bytes a second time.
            cost *= 2;
        }
        if wakes {
            cost += WAKE;
        }
        let allowance = self.allowance.as_deref();
        let allowed = allowance.map_or(steps, |allowance| {
            let packets = || host.get(Field::PacketsReceived) + host.get(Field::PacketsSent);
            let now = host.now().as_nanos();
            allowance.left(steps.saturating_add(cost), now, packets).saturating_sub(cost)
        });
        let began = allowance.and_then(Allowance::begin);
        let given = steps.min(allowed);
        let mut budget = given;
        let (at, length) = match &call.bytes {
            Bytes::None => (0, 0),
            bytes => {
                let bytes = bytes.as_slice();
                let length = bytes.len().min(MAX_BYTES as usize);
                let room = Region::new(area + WORDS, length as u64);
                let room = memory.write(room).map_err(failed)?;
                if matches!(call.bytes, Bytes::Out(_)) {
                    room.fill(0);
                } else {
                    room.copy_from_slice(&bytes[..length]);
                }
                (area + WORDS, length as u64)
            }
        };
        let trace = self.trace.as_deref_mut();
        let defaults = Given { outputs, at: area + 8 * call.inputs.len() as u64 };
        let (rights, allotted) = (&inner.rights, self.allotted.as_ref());
        let mut context = Context::new(host, role, rights, defaults, allotted, trace);
        context.allowance = allowance;
        let arguments = [area, at, length, call.parameter, 0];
        let result = self.machine.call(entry, arguments, &mut budget, &mut context);
        // The steps of other plugins that this function called are subtracted, because those
        // plugins have already been charged for them.
        let used_by_others = context.used_by_others;
        if let Some(allowance) = allowance {
            let used = (given - budget).saturating_sub(used_by_others).saturating_add(cost);
            allowance.spend(used);
            if let Some(began) = began {
                allowance.end(began, used.saturating_add(used_by_others));
            }
        }
        match result {
            Ok(value) => Ok(Outcome { value, steps: given - budget }),
            Err(trap) if given < steps => Err(used_up(call.operation, &trap)),
            Err(trap) => Err(trapped(call.operation, &trap)),
        }
    }

    /// Runs a function that replaces an operation. The call's frame type has already been
    /// translated to the manifest's number.
    #[inline]
    fn replace_named(
        &mut self,
        host: &mut HookContext<'_>,
        call: &mut Call<'_>,
        outputs: &mut [u64],
    ) -> Result<Decision, HookError> {
        let function = self.plugin.function(call.operation, call.parameter, Anchor::Replace);
        let Some(entry) = function else { return Ok(Decision::Default) };
        let ran = self.run(entry, Role::Replaces, host, call, outputs);
        let (answer, steps) = match ran {
            Ok(ran) => (self.answer(ran.value, host, call, outputs), ran.steps),
            Err(error) => (Err(error), 0),
        };
        if self.trace.is_some() {
            let told = answer.as_ref().map(|answer| match answer {
                Decision::Done => (Answer::Done(outputs), steps),
                Decision::Default => (Answer::Default, steps),
            });
            self.tell(Anchor::Replace, host, call, told);
        }
        answer
    }

    /// Translates the frame type of a call from its number on the wire to its number in the
    /// manifest, and then calls [`Instance::replace_named`].
    #[cold]
    fn replace_allotted(
        &mut self,
        types: FrameTypes,
        host: &mut HookContext<'_>,
        call: &mut Call<'_>,
        outputs: &mut [u64],
    ) -> Result<Decision, HookError> {
        let (operation, inputs, parameter) = (call.operation, call.inputs, types.named);
        if let Bytes::Out(buffer) = &mut call.bytes {
            let mut room = vec![0; types.room(buffer.len()).min(MAX_BYTES as usize)];
            let mut named = Call { operation, parameter, inputs, bytes: Bytes::Out(&mut room) };
            let decision = self.replace_named(host, &mut named, outputs)?;
            // The first output is the number of bytes that the function wrote into the buffer.
            if let (Decision::Done, Some(length)) = (decision, outputs.first_mut())
                && *length > 0
            {
                let written = room.get(..*length as usize).unwrap_or(&room);
                *length = types.write(written, buffer)? as u64;
            }
            return Ok(decision);
        }
        let seen = types.seen(&call.bytes);
        let bytes = seen.as_ref().map_or(Bytes::None, |(bytes, _)| Bytes::In(bytes));
        let mut named = Call { operation, parameter, inputs, bytes };
        let decision = self.replace_named(host, &mut named, outputs)?;
        if let (Operation::ParseFrame, Some((_, more)), Some(length)) =
            (operation, &seen, outputs.first_mut())
            && *length > 0
        {
            *length = length.saturating_add_signed(-(*more as i64));
        }
        Ok(decision)
    }

    /// Converts the result of a function that replaces an operation into a decision for the
    /// transport.
    fn answer(
        &mut self,
        value: u64,
        host: &mut HookContext<'_>,
        call: &mut Call<'_>,
        outputs: &mut [u64],
    ) -> Result<Decision, HookError> {
        match value {
            DEFAULT => return Ok(Decision::Default),
            DONE => {}
            other => return Err(wrong(call.operation, &format!("returned {other:#x}"))),
        }
        let area = self.plugin.inner.area;
        let memory = self.machine.memory();
        let from = area + 8 * call.inputs.len() as u64;
        let words = memory.read(Region::new(from, 8 * outputs.len() as u64)).map_err(failed)?;
        let (words, _) = words.as_chunks::<8>();
        for (output, word) in outputs.iter_mut().zip(words) {
            *output = u64::from_le_bytes(*word);
        }
        if let Bytes::Out(buffer) = &mut call.bytes {
            // The first output is the number of bytes that the function wrote.
            let length = outputs.first().copied().unwrap_or(0);
            let most = (buffer.len() as u64).min(MAX_BYTES);
            if length > most {
                let what = format!("wrote {length} bytes, but there is room for only {most}");
                return Err(wrong(call.operation, &what));
            }
            let written = memory.read(Region::new(area + WORDS, length)).map_err(failed)?;
            buffer[..written.len()].copy_from_slice(written);
        }
        clamp(call.operation, call.inputs, outputs, host, &self.plugin.inner.rights);
        Ok(Decision::Done)
    }

    #[cold]
    fn tell(
        &mut self,
        anchor: Anchor,
        host: &HookContext<'_>,
        call: &Call<'_>,
        told: Result<(Answer<'_>, u64), &HookError>,
    ) {
        let Some(trace) = &mut self.trace else { return };
        let steps = self.plugin.inner.manifest.steps;
        let (answer, steps) = told.unwrap_or_else(|error| (Answer::Failed(&error.0), steps));
        trace.on_call(&Traced {
            now: host.now(),
            operation: call.operation,
            anchor,
            frame: call.parameter,
            inputs: call.inputs,
            answer,
            steps,
        });
    }
}

/// Stores words in little-endian order, which bytecode expects.
#[inline]
fn write_words(room: &mut [u8], words: &[u64]) {
    let (places, _) = room.as_chunks_mut::<8>();
    for (place, word) in places.iter_mut().zip(words) {
        *place = word.to_le_bytes();
    }
}

#[cold]
fn failed(error: HelperError) -> HookError {
    HookError(error.to_string())
}

#[cold]
fn wrong(operation: Operation, what: &str) -> HookError {
    HookError(format!("{operation}: it {what}"))
}

/// Returns the error of a call that ran out of steps because of the plugin's allowance: fewer steps
/// were left than the manifest permits for a call.
#[cold]
fn used_up(operation: Operation, trap: &Trap) -> HookError {
    let what = "the peer's plugins have used up their steps for now";
    HookError(printable(&format!("{operation}: {what}: {trap}"), MAX_REASON))
}

#[cold]
fn trapped(operation: Operation, trap: &Trap) -> HookError {
    HookError(printable(&format!("{operation}: {trap}"), MAX_REASON))
}

impl Hook for Instance {
    fn before(&mut self, host: &mut HookContext<'_>, call: &Call<'_>) -> Result<(), HookError> {
        self.look(Anchor::Before, host, call, &[])
    }

    fn replace(
        &mut self,
        host: &mut HookContext<'_>,
        call: &mut Call<'_>,
        outputs: &mut [u64],
    ) -> Result<Decision, HookError> {
        let decision = match self.allotted.as_ref().and_then(|allotted| allotted.of(call)) {
            Some(types) => self.replace_allotted(types, host, call, outputs)?,
            None => self.replace_named(host, call, outputs)?,
        };
        if let (Operation::WriteFrame, Decision::Done) = (call.operation, decision)
            && let (Some(allowance), Some(length)) = (&self.allowance, outputs.first())
        {
            allowance.on_frame(*length);
        }
        Ok(decision)
    }

    fn after(
        &mut self,
        host: &mut HookContext<'_>,
        call: &Call<'_>,
        outputs: &[u64],
    ) -> Result<(), HookError> {
        self.look(Anchor::After, host, call, outputs)
    }

    fn provides(&self) -> bool {
        !self.plugin.inner.provided.is_empty()
    }

    /// Runs a function that the plugin provides to other plugins. The function may not change the
    /// connection, whatever the plugin's classes are, because any plugin can call it at any time.
    fn provide(
        &mut self,
        host: &mut HookContext<'_>,
        call: &ProvidedCall<'_>,
        outputs: &mut [u64],
    ) -> Result<Provided, HookError> {
        let inner = self.plugin.inner.clone();
        let found = inner.provided.iter().find(|one| {
            let words = (one.inputs, one.outputs) == (call.inputs.len(), outputs.len());
            words && one.name == call.name
        });
        let Some(one) = found.filter(|_| inner.manifest.steps <= call.budget) else {
            return Ok(Provided::Nothing);
        };
        // The engine needs an operation to run a function. `HookMessage` is an arbitrary choice,
        // and its name must not appear in messages.
        let operation = Operation::HookMessage;
        let asked = Call { operation, parameter: 0, inputs: call.inputs, bytes: Bytes::None };
        let ran = self.run(one.entry, Role::LooksOn, host, &asked, outputs);
        let ran = ran.map_err(|error| {
            let why = error.0.split_once(": ").map_or(&*error.0, |(_, why)| why);
            HookError(format!("{}: {why}", one.name))
        })?;
        let from = inner.area + 8 * call.inputs.len() as u64;
        let memory = self.machine.memory();
        for (output, at) in outputs.iter_mut().zip((from..).step_by(8)) {
            *output = memory.read_u64(at).map_err(failed)?;
        }
        Ok(Provided::Done(ran.steps))
    }

    /// Returns the memory of the plugin's sandbox and program, in bytes. Other connections may
    /// share the program.
    fn memory(&self) -> usize {
        self.plugin.manifest().memory + self.plugin.size()
    }
}
