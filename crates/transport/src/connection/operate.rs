//! Calls of operations: the default alone where nobody is attached, hooks around it where somebody is.

use std::time::Duration;

use super::{Connection, Event};
use crate::operation::{
    AttachError, Attached, Bytes, Call, Decision, Field, Hook, HookError, HookId, Host, MAX_WORDS,
    Operation, OwnFrame, Point, Words,
};

/// Runs the default of an operation, or, where a hook has replaced it, holds its answer within bounds; its
/// types taken off.
type Settle<'a> = &'a mut dyn FnMut(&mut Connection, bool, &mut [u64]);

/// Any answer holds.
fn unbounded<I, O>(_: &mut Connection, _: I, answer: O) -> O {
    answer
}

/// Test of whether the words that a hook wrote can be an operation's outputs.
type Valid = fn(&[u64]) -> bool;

/// Longer than any idle timeout is no round trip, and sums of them must not overflow.
const MAX_RTT: Duration = Duration::from_secs(60);

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
        let id = self.table.attach(hook, points, frames)?;
        // The paper's InitOpaqueData: it is this hook that begins, and it alone.
        if points.iter().any(|point| point.operation == Operation::InitOpaqueData) {
            let inputs = [self.field(Field::Side)];
            let operation = Operation::InitOpaqueData;
            let mut call = Call { operation, parameter: 0, inputs: &inputs, bytes: Bytes::None };
            self.with_hook(id, |hook, host| {
                hook.before(host, &call)?;
                hook.replace(host, &mut call, &mut [])?;
                hook.after(host, &call, &[])
            });
        }
        Ok(id)
    }

    /// Takes a hook off again.
    pub fn detach(&mut self, id: HookId) -> Option<Box<dyn Hook>> {
        let hook = self.table.detach(id)?;
        self.extensions.forget(id);
        self.forget_answers();
        Some(hook)
    }

    /// A hook has failed.
    pub(super) fn take_off(&mut self, id: HookId, error: HookError) {
        if self.detach(id).is_some() {
            self.events.push_back(Event::HookFailed(id, error));
        }
    }

    /// An operation with words alone.
    #[inline]
    pub(super) fn operate<I: Words, O: Words>(
        &mut self,
        operation: Operation,
        input: I,
        default: impl FnOnce(&mut Connection, I) -> O,
    ) -> O {
        if !self.table.is_hooked(operation) {
            return default(self, input);
        }
        self.hooked(operation, 0, input, Bytes::None, default, unbounded)
    }

    /// An operation with words alone, in which a hook's answer holds as far as `bound` lets it.
    #[inline]
    pub(super) fn operate_within<I: Words, O: Words>(
        &mut self,
        operation: Operation,
        input: I,
        default: impl FnOnce(&mut Connection, I) -> O,
        bound: impl FnOnce(&mut Connection, I, O) -> O,
    ) -> O {
        if !self.table.is_hooked(operation) {
            return default(self, input);
        }
        self.hooked(operation, 0, input, Bytes::None, default, bound)
    }

    /// An operation of a frame type, without bytes.
    #[inline]
    pub(super) fn operate_frame<I: Words, O: Words>(
        &mut self,
        operation: Operation,
        frame_type: u64,
        input: I,
        default: impl FnOnce(&mut Connection, I) -> O,
    ) -> O {
        if !self.table.is_hooked(operation) {
            return default(self, input);
        }
        self.hooked(operation, frame_type, input, Bytes::None, default, unbounded)
    }

    /// An operation with bytes to read.
    #[inline]
    pub(super) fn operate_on<I: Words, O: Words>(
        &mut self,
        operation: Operation,
        parameter: u64,
        input: I,
        bytes: &[u8],
        default: impl FnOnce(&mut Connection, I) -> O,
    ) -> O {
        if !self.table.is_hooked(operation) {
            return default(self, input);
        }
        self.hooked(operation, parameter, input, Bytes::In(bytes), default, unbounded)
    }

    /// An operation with a buffer, which holds what the default has written.
    #[inline]
    pub(super) fn operate_into<I: Words, O: Words>(
        &mut self,
        operation: Operation,
        parameter: u64,
        input: I,
        buffer: &mut [u8],
        default: impl FnOnce(&mut Connection, I) -> O,
    ) -> O {
        if !self.table.is_hooked(operation) {
            return default(self, input);
        }
        self.hooked(operation, parameter, input, Bytes::Out(buffer), default, unbounded)
    }

    /// Puts types around [`Connection::call_hooks`].
    #[cold]
    fn hooked<I: Words, O: Words>(
        &mut self,
        operation: Operation,
        parameter: u64,
        input: I,
        bytes: Bytes<'_>,
        default: impl FnOnce(&mut Connection, I) -> O,
        bound: impl FnOnce(&mut Connection, I, O) -> O,
    ) -> O {
        debug_assert_eq!(I::COUNT, operation.describe().inputs.len(), "{operation}");
        debug_assert_eq!(O::COUNT, operation.describe().outputs.len(), "{operation}");
        let mut inputs = [0; MAX_WORDS];
        input.store(&mut inputs);
        let (mut default, mut bound) = (Some(default), Some(bound));
        // Not every value has words of its own, so it is not made of them again.
        let mut typed = None;
        self.call_hooks(
            Call { operation, parameter, inputs: &inputs[..I::COUNT], bytes },
            O::COUNT,
            &mut |connection, replaced, outputs| {
                let answer = O::load(outputs).filter(|_| replaced);
                let output = match (answer, bound.take(), default.take()) {
                    (Some(answer), Some(bound), _) => bound(connection, input, answer),
                    (_, _, Some(default)) => default(connection, input),
                    _ => return,
                };
                output.store(outputs);
                typed = Some(output);
            },
            |words| O::load(words).is_some(),
        );
        typed.unwrap_or_else(|| unreachable!("every call of an operation settles its outputs"))
    }

    fn call_hooks(&mut self, mut call: Call<'_>, count: usize, settle: Settle<'_>, valid: Valid) {
        let attached = self.table.attached(call.operation, call.parameter);
        let mut outputs = [0; MAX_WORDS];
        for id in &attached.before {
            self.with_hook(*id, |hook, host| hook.before(host, &call));
        }
        let replaced = self.replaced(&attached, &mut call, &mut outputs[..count], valid);
        if !replaced {
            outputs = [0; MAX_WORDS];
        }
        settle(self, replaced, &mut outputs[..count]);
        for id in &attached.after {
            self.with_hook(*id, |hook, host| hook.after(host, &call, &outputs[..count]));
        }
    }

    /// Has the hook that replaces the operation run, if there is one; returns whether it did the operation.
    fn replaced(
        &mut self,
        attached: &Attached,
        call: &mut Call<'_>,
        outputs: &mut [u64],
        valid: Valid,
    ) -> bool {
        let Some(id) = attached.replace else { return false };
        // What a hook that fails has scribbled over is put back.
        let kept = match &call.bytes {
            Bytes::Out(buffer) => Some(buffer.to_vec()),
            Bytes::None | Bytes::In(_) => None,
        };
        let mut done = false;
        self.with_hook(id, |hook, host| {
            done = hook.replace(host, call, outputs)? == Decision::Done;
            if done && !valid(outputs) {
                done = false;
                return Err(HookError(format!("{}: its outputs cannot be", call.operation)));
            }
            Ok(())
        });
        if !done && let (Bytes::Out(buffer), Some(kept)) = (&mut call.bytes, kept) {
            buffer.copy_from_slice(&kept);
        }
        done
    }

    /// Runs a hook with every hook out of the connection: what it causes takes its defaults.
    fn with_hook(
        &mut self,
        id: HookId,
        run: impl FnOnce(&mut dyn Hook, &mut Host<'_>) -> Result<(), HookError>,
    ) {
        let mut table = std::mem::take(&mut self.table);
        // Taken off since this call began, by an operation within it.
        let Some((hook, frames)) = table.hook_mut(id) else {
            self.table = table;
            return;
        };
        let outcome = run(hook, &mut Host { connection: self, hook: id, frames });
        self.table = table;
        if let Err(error) = outcome {
            self.take_off(id, error);
        }
    }

    /// For [`Host::set`]; whether the field can be.
    pub(crate) fn set_field(&mut self, field: Field, value: u64) -> bool {
        let rtt = &mut self.path_mut().rtt;
        let value = Duration::from_nanos(value).min(MAX_RTT);
        match field {
            Field::SmoothedRtt => rtt.set_smoothed(value),
            Field::RttVariation => rtt.set_variation(value),
            _ => return false,
        }
        true
    }

    /// For [`Host::get`].
    pub(crate) fn field(&self, field: Field) -> u64 {
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let (path, stats) = (self.path(), &self.stats);
        match field {
            Field::SmoothedRtt => nanos(path.rtt.smoothed()),
            Field::RttVariation => nanos(path.rtt.variation()),
            Field::MinRtt => nanos(path.rtt.min()),
            Field::LatestRtt => nanos(path.rtt.latest()),
            Field::CongestionWindow => path.window(),
            Field::BytesInFlight => path.in_flight,
            Field::PtoCount => path.pto_count.into(),
            Field::DatagramSize => path.mtu.current().into(),
            Field::SlowStartThreshold => path.controller.slow_start_threshold().unwrap_or(u64::MAX),
            Field::DatagramsReceived => stats.datagrams_received,
            Field::DatagramsSent => stats.datagrams_sent,
            Field::BytesReceived => stats.bytes_received,
            Field::BytesSent => stats.bytes_sent,
            Field::PacketsReceived => stats.packets_received,
            Field::PacketsSent => stats.packets_sent,
            Field::PacketsLost => stats.packets_lost,
            Field::Side => u64::from(self.side == equic_wire::Side::Server),
            Field::Connected => self.progress.complete.into(),
            Field::Confirmed => self.progress.confirmed.into(),
            Field::ActivePath => path.key.0.into(),
            Field::LargestAcked => {
                let data = &self.spaces[super::space::SpaceId::DATA];
                data.loss.largest_acked().unwrap_or(u64::MAX)
            }
            Field::PeerMaxAckDelay => self.peer.map_or(0, |peer| nanos(peer.max_ack_delay)),
        }
    }
}
