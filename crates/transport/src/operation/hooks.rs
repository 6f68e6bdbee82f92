//! Keeps the hooks of a connection. [`Hooks`] attaches and detaches hooks, and moves their table
//! out while a hook is called. A call of an operation without hooks costs only a test of one bit.

use equic_wire::VarInt;

use super::callees::Callees;
use super::point::{AttachError, AttachPoint, OwnFrame};
use super::table::{AFTER, Attached, BEFORE, Own, REPLACE, Table};
use super::table::{asks, has_frame_types, is_for_owners, is_known};
use super::{Hook, Operation};

/// Identifies a hook of a connection. IDs are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HookId(u64);

/// Largest number of hooks on a connection.
pub(super) const MAX_HOOKS: usize = 32;

/// Largest number of frame types that one hook may own.
pub(super) const MAX_FRAME_TYPES: usize = 16;

/// All hooks of a connection.
#[derive(Default)]
pub(crate) struct Hooks {
    /// A bit for each operation. It is set if hooks are called before the operation, or in place of
    /// its default.
    begun: u128,
    /// A bit for each operation. It is set if hooks are called after the operation.
    ended: u128,
    /// A bit for each operation. It is set if a replacing hook wants the answer of the default.
    asked: u128,
    /// The hooks. `None` if no hook is attached, and also while a hook is called, because the table
    /// is moved out then. If that hook panics, all hooks are lost.
    table: Option<Box<Table>>,
    /// The ID of the next hook to be attached. It cannot overflow in practice.
    next: u64,
}

impl Hooks {
    /// Returns true if any hook is attached to the operation. For an operation without hooks, this
    /// is the only test.
    #[inline]
    pub(crate) fn is_hooked(&self, operation: Operation) -> bool {
        (self.begun | self.ended) & operation.bit() != 0
    }

    /// Returns true if a hook is attached to at least one of the operations in `bits`
    /// ([`Operation::bits`]).
    #[inline]
    pub(crate) fn is_any_hooked(&self, operations: u128) -> bool {
        (self.begun | self.ended) & operations != 0
    }

    /// Returns true if a hook is called before the operation, or in place of its default.
    #[inline]
    pub(crate) fn is_begun(&self, operation: Operation) -> bool {
        self.begun & operation.bit() != 0
    }

    /// Returns true if a hook that may replace the operation wants the default's answer.
    #[inline]
    pub(crate) fn is_asked(&self, operation: Operation) -> bool {
        self.asked & operation.bit() != 0
    }

    /// Returns true if a hook is called after the operation.
    #[inline]
    pub(crate) fn is_ended(&self, operation: Operation) -> bool {
        self.ended & operation.bit() != 0
    }

    /// Returns true if no hook is attached.
    pub(crate) fn is_empty(&self) -> bool {
        self.begun | self.ended == 0
    }

    /// Returns the hooks that a call of the operation reaches. `parameter` is the frame type, if
    /// the operation has frame types.
    #[inline(always)]
    pub(crate) fn callees(&self, operation: Operation, parameter: u64) -> Callees {
        match &self.table {
            Some(table) => table.callees(operation, parameter),
            None => Callees::default(),
        }
    }

    /// Returns the position of the `nth` hook that is called before the operation.
    pub(crate) fn before(&self, callees: Callees, nth: usize) -> Option<usize> {
        self.table.as_ref()?.watcher(callees, callees.before(), BEFORE, nth)
    }

    /// Returns the position of the `nth` hook that is called after the operation.
    pub(crate) fn after(&self, callees: Callees, nth: usize) -> Option<usize> {
        self.table.as_ref()?.watcher(callees, callees.after(), AFTER, nth)
    }

    /// Returns the position of the `nth` hook that may replace the operation. These hooks are
    /// called from the last in the list to the first.
    fn replacing(&self, callees: Callees, nth: usize) -> Option<usize> {
        self.table.as_ref()?.watcher(callees, callees.replacing(), REPLACE, nth)
    }

    /// Returns all hooks that may replace the operation, in the order in which they are called: the
    /// last one in the list first.
    pub(crate) fn all_replacing(&self, callees: Callees) -> Vec<HookId> {
        let places = (0..).map_while(|nth| self.replacing(callees, nth));
        places.filter_map(|place| self.name(place)).collect()
    }

    /// Returns true if the hook at the position `place` wants the default's answer.
    pub(crate) fn asks(&self, place: usize, operation: Operation) -> bool {
        self.attached().get(place).is_some_and(|one| {
            one.points.iter().any(|point| point.operation == operation && asks(point))
        })
    }

    fn attached(&self) -> &[Attached] {
        self.table.as_ref().map_or(&[], |table| table.attached())
    }

    /// Moves the table of hooks out, so that a hook in it can be called. The caller must then call
    /// [`Hooks::put_back`].
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Option<Box<Table>> {
        self.table.take()
    }

    /// Puts the table of hooks back after a hook was called.
    #[inline(always)]
    pub(crate) fn put_back(&mut self, table: Box<Table>) {
        // The old value of the table is `None`, so nothing must be dropped. With `forget`, the
        // compiler need not check this.
        std::mem::forget(self.table.replace(table));
    }

    /// Returns the ID of the hook at the position `place`.
    pub(crate) fn name(&self, place: usize) -> Option<HookId> {
        self.attached().get(place).map(|one| one.own.id)
    }

    /// Returns the hook that owns a frame type, or `None`.
    pub(crate) fn owner(&self, frame_type: u64) -> Option<(HookId, OwnFrame)> {
        self.table.as_ref()?.owner(frame_type)
    }

    fn check(&self, points: &[AttachPoint], frames: &[OwnFrame]) -> Result<(), AttachError> {
        if frames.len() > MAX_FRAME_TYPES {
            return Err(AttachError::TooManyFrameTypes);
        }
        for (at, own) in frames.iter().enumerate() {
            let frame_type = own.frame_type;
            let again = frames[..at].iter().any(|other| other.frame_type == frame_type);
            let valid = VarInt::new(frame_type).is_ok() && !is_known(frame_type);
            if again || !valid || self.owner(frame_type).is_some() {
                return Err(AttachError::FrameType(frame_type));
            }
            let parses = |point: &AttachPoint| {
                point.replace
                    && point.operation == Operation::ParseFrame
                    && point.frame_type.is_none_or(|other| other == frame_type)
            };
            if !points.iter().any(parses) {
                return Err(AttachError::NoParser(frame_type));
            }
        }
        for point in points {
            let operation = point.operation;
            if point.frame_type.is_some() && !has_frame_types(operation) {
                return Err(AttachError::NoFrameTypes(operation));
            }
            if point.with_default && !operation.offers_default() {
                return Err(AttachError::NoDefault(operation));
            }
            if let Some(frame_type) = point.frame_type.filter(|_| point.replace) {
                let own = frames.iter().any(|own| own.frame_type == frame_type);
                if !own && (!is_known(frame_type) || is_for_owners(operation)) {
                    return Err(AttachError::NotOwn(operation, frame_type));
                }
            }
        }
        Ok(())
    }

    /// Attaches a hook. `nested` is true if another hook attaches it, and false if the application
    /// does.
    pub(crate) fn attach(
        &mut self,
        hook: Box<dyn Hook>,
        points: &[AttachPoint],
        frames: &[OwnFrame],
        nested: bool,
    ) -> Result<HookId, AttachError> {
        self.check(points, frames)?;
        if self.attached().len() >= MAX_HOOKS {
            return Err(AttachError::TooMany);
        }
        let id = HookId(self.next);
        self.next += 1;
        let own = Own { id, frames: frames.to_vec(), nested };
        let table = self.table.get_or_insert_default();
        let provides = hook.provides();
        table.push(Attached { hook, own, points: points.to_vec(), provides });
        self.mark();
        Ok(id)
    }

    /// Returns the memory that the hooks hold for the connection, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.attached().iter().map(|one| one.hook.memory()).sum()
    }

    /// Returns the position of the hook with this ID.
    pub(crate) fn place(&self, id: HookId) -> Option<usize> {
        self.attached().iter().position(|one| one.own.id == id)
    }

    /// Returns the points at which the hook at the position `place` is attached to an operation.
    pub(crate) fn points(&self, place: usize, operation: Operation) -> Vec<AttachPoint> {
        let points = self.attached().get(place).map_or(&[][..], |one| &one.points);
        points.iter().filter(|point| point.operation == operation).copied().collect()
    }

    pub(crate) fn detach(&mut self, id: HookId) -> Option<Box<dyn Hook>> {
        let place = self.place(id)?;
        let table = self.table.as_mut()?;
        let gone = table.remove(place);
        if table.attached().is_empty() {
            self.table = None;
        }
        self.mark();
        Some(gone.hook)
    }

    /// Computes the bits of the operations that have hooks.
    fn mark(&mut self) {
        let bits = |wanted| self.table.as_ref().map_or(0, |table| table.bits(wanted));
        self.begun = bits(|point| point.before || point.replace);
        self.ended = bits(|point| point.after);
        self.asked = bits(asks);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    struct Nothing;

    impl Hook for Nothing {}

    fn attach(
        hooks: &mut Hooks,
        points: &[AttachPoint],
        frames: &[OwnFrame],
    ) -> Result<HookId, AttachError> {
        hooks.attach(Box::new(Nothing), points, frames, false)
    }

    /// Returns the IDs of the hooks that are called before, in place of and after the operation.
    fn called(
        hooks: &mut Hooks,
        operation: Operation,
        parameter: u64,
    ) -> (Vec<HookId>, Option<HookId>, Vec<HookId>) {
        let callees = hooks.callees(operation, parameter);
        let before: Vec<usize> = (0..).map_while(|nth| hooks.before(callees, nth)).collect();
        let after: Vec<usize> = (0..).map_while(|nth| hooks.after(callees, nth)).collect();
        let mut name = |place: usize| hooks.name(place).expect("the hook is attached");
        let before = before.into_iter().map(&mut name).collect();
        let replace = (0..).map_while(|nth| hooks.replacing(callees, nth)).last().map(&mut name);
        (before, replace, after.into_iter().map(&mut name).collect())
    }

    #[test]
    fn hook_watchers_are_called_in_order() {
        let mut hooks = Hooks::default();
        let watch = [AttachPoint::observe(Operation::UpdateRtt)];
        let first = attach(&mut hooks, &watch, &[]).unwrap();
        let second =
            attach(&mut hooks, &[AttachPoint::replace(Operation::UpdateRtt)], &[]).unwrap();
        let third = attach(&mut hooks, &watch, &[]).unwrap();
        let all = (vec![first, third], Some(second), vec![first, third]);
        assert_eq!(called(&mut hooks, Operation::UpdateRtt, 0), all);
        assert!(hooks.is_hooked(Operation::UpdateRtt) && !hooks.is_hooked(Operation::SetTimer));
        assert_eq!(called(&mut hooks, Operation::SetTimer, 0), (vec![], None, vec![]));
        hooks.detach(first).unwrap();
        let rest = (vec![third], Some(second), vec![third]);
        assert_eq!(called(&mut hooks, Operation::UpdateRtt, 0), rest);
        hooks.detach(second).unwrap();
        hooks.detach(third).unwrap();
        assert!(hooks.is_empty() && hooks.detach(third).is_none());
    }

    #[test]
    fn hook_for_one_frame_type_is_called_before_one_for_all() {
        let mut hooks = Hooks::default();
        let operation = Operation::ProcessFrame;
        let typed =
            [AttachPoint { before: true, ..AttachPoint::replace(operation) }.of_frame(0x01)];
        let one = attach(&mut hooks, &typed, &[]).unwrap();
        let all = attach(
            &mut hooks,
            &[AttachPoint { before: true, ..AttachPoint::replace(operation) }],
            &[],
        );
        let all = all.unwrap();
        assert_eq!(called(&mut hooks, operation, 0x01), (vec![all, one], Some(one), vec![]));
        assert_eq!(called(&mut hooks, operation, 0x08), (vec![all], Some(all), vec![]));
        // The transport does not know this frame type, and no hook owns it.
        assert_eq!(called(&mut hooks, operation, 0xaffe), (vec![all], None, vec![]));
    }

    #[test]
    fn hook_owns_its_frame_type() {
        let mut hooks = Hooks::default();
        let all = [Operation::ParseFrame, Operation::WriteFrame, Operation::ProcessFrame];
        let points: Vec<AttachPoint> = all.into_iter().map(AttachPoint::replace).collect();
        let other = attach(&mut hooks, &points, &[]).unwrap();
        let own = [OwnFrame::new(0xaffe)];
        let points: Vec<AttachPoint> = points.iter().map(|point| point.of_frame(0xaffe)).collect();
        let owner = attach(&mut hooks, &points, &own).unwrap();
        for operation in all {
            assert_eq!(called(&mut hooks, operation, 0xaffe).1, Some(owner), "{operation}");
            let known = (operation != Operation::WriteFrame).then_some(other);
            assert_eq!(called(&mut hooks, operation, 0x01).1, known, "{operation}");
            assert_eq!(called(&mut hooks, operation, 0xbeef).1, None, "{operation}");
        }
        hooks.detach(owner).unwrap();
        assert_eq!(
            called(&mut hooks, Operation::ParseFrame, 0xaffe).1,
            None,
            "no hook owns the frame type now"
        );
    }

    #[test]
    fn hook_order_last_attached_first_and_application_before_others() {
        let mut hooks = Hooks::default();
        let operation = Operation::SetTimer;
        let mut attach = |nested| {
            let point = if nested {
                AttachPoint::refine(operation)
            } else {
                AttachPoint::replace(operation)
            };
            let id = hooks.attach(Box::new(Nothing), &[point], &[], nested).unwrap();
            (id, hooks.all_replacing(hooks.callees(operation, 0)), hooks.is_asked(operation))
        };
        let (first, alone, asked) = attach(false);
        assert_eq!((alone, asked), (vec![first], false));
        let (peers, _, asked) = attach(true);
        assert!(asked);
        let (last, all, _) = attach(false);
        assert_eq!(all, [peers, first, last]);
        hooks.detach(peers).unwrap();
        assert!(!hooks.is_asked(operation));
        hooks.detach(last).unwrap();
        assert_eq!(hooks.all_replacing(hooks.callees(operation, 0)), [first]);
        let act = [AttachPoint::refine(Operation::CongestionAcked)];
        let refused = hooks.attach(Box::new(Nothing), &act, &[], false);
        assert_eq!(refused, Err(AttachError::NoDefault(Operation::CongestionAcked)));
    }

    #[test]
    fn hook_places_are_reused_and_ids_are_not() {
        let mut hooks = Hooks::default();
        let watch = [AttachPoint::observe(Operation::SetTimer)];
        let mut ids: Vec<HookId> =
            (0..MAX_HOOKS).map(|_| attach(&mut hooks, &watch, &[]).unwrap()).collect();
        let mut names: BTreeSet<HookId> = ids.iter().copied().collect();
        for round in 0..1000 {
            assert_eq!(attach(&mut hooks, &watch, &[]), Err(AttachError::TooMany));
            let id = ids.remove(round % ids.len());
            assert!(hooks.detach(id).is_some() && hooks.place(id).is_none());
            let id = attach(&mut hooks, &watch, &[]).unwrap();
            assert!(names.insert(id), "an ID is never reused");
            ids.push(id);
        }
        assert_eq!(called(&mut hooks, Operation::SetTimer, 0).0, ids);
    }
}
