//! The hooks of a connection, and whom a call of an operation goes to.
//!
//! Who is attached to what changes seldom, and is looked up at each call. So what hooks declared when they were
//! attached is kept as it was said, and [`Dispatch`] is made of it whenever a hook comes or goes: an array with
//! an entry for each operation, and a sorted list for what is for single frame types.

use std::collections::{BTreeMap, BTreeSet};

use equic_wire::VarInt;
use equic_wire::frame::FrameType;

use super::callees::{Callees, MANY, NOBODY, Watchers};
use super::point::{AttachError, OwnFrame, Point};
use super::{Carries, Hook, Operation};

/// Names a hook of a connection. One that is attached later never has the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HookId(u64);

/// Most hooks on a connection at a time.
pub(super) const MAX_HOOKS: usize = 32;

/// Most frame types that may be one hook's own.
pub(super) const MAX_FRAME_TYPES: usize = 16;

/// Name and frame types of a hook, as its [`Host`](super::Host) needs them.
#[derive(Debug)]
pub(crate) struct Own {
    pub(crate) id: HookId,
    /// At most [`MAX_FRAME_TYPES`].
    pub(crate) frames: Vec<OwnFrame>,
    /// Another hook brought it.
    pub(crate) brought: bool,
}

/// A hook that is attached.
struct Attached {
    /// None while it is called: it then sees the whole connection but itself.
    hook: Option<Box<dyn Hook>>,
    own: Own,
    points: Vec<Point>,
}

/// Numbers of the parts of a list of hooks, of those called before, in the operation's place, and after.
const BEFORE: usize = 0;
const REPLACE: usize = 1;
const AFTER: usize = 2;

/// See the module.
#[derive(Default)]
struct Dispatch {
    /// By the operation's number; empty where no hook is attached.
    by_operation: Vec<Callees>,
    /// For the types that a hook named or owns, of operations that anything is attached to; sorted.
    by_type: Vec<((Operation, u64), Callees)>,
    /// For operations that several hooks are attached to at an anchor: the hooks called before, in the operation's
    /// place (the one that is asked first is the last), and after.
    lists: Vec<[Vec<u8>; 3]>,
}

/// All hooks of a connection.
#[derive(Default)]
pub(crate) struct Hooks {
    /// A bit for each operation that has hooks before it or in its place.
    begun: u128,
    /// A bit for each operation that has hooks after it.
    ended: u128,
    /// A bit for each operation whose default a hook in its place wants to be given.
    asked: u128,
    dispatch: Dispatch,
    /// In the order in which they were attached; at most [`MAX_HOOKS`].
    attached: Vec<Attached>,
    /// The name of the next one. There are more than a program has time for.
    next: u64,
}

impl Hooks {
    /// The test that an operation costs which nobody is attached to.
    #[inline]
    pub(crate) fn is_hooked(&self, operation: Operation) -> bool {
        // Without the table at all, for a benchmark to compare with.
        !cfg!(feature = "bench-without-operations")
            && (self.begun | self.ended) & operation.bit() != 0
    }

    /// Whether anybody is called before the operation, or in its place.
    #[inline]
    pub(crate) fn is_begun(&self, operation: Operation) -> bool {
        !cfg!(feature = "bench-without-operations") && self.begun & operation.bit() != 0
    }

    /// Whether a hook in the operation's place wants to be given what its default answers.
    #[inline]
    pub(crate) fn is_asked(&self, operation: Operation) -> bool {
        self.asked & operation.bit() != 0
    }

    /// Whether anybody is called after the operation.
    #[inline]
    pub(crate) fn is_ended(&self, operation: Operation) -> bool {
        !cfg!(feature = "bench-without-operations") && self.ended & operation.bit() != 0
    }

    /// Whether no hook is attached to anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.begun | self.ended == 0
    }

    /// Whom a call of the operation goes to; `parameter` is its frame type, where it has one.
    #[inline(always)]
    pub(crate) fn callees(&self, operation: Operation, parameter: u64) -> Callees {
        match self.dispatch.by_operation.get(operation as usize) {
            Some(callees) if callees.by_type => self.callees_by_type(operation, parameter),
            Some(callees) => *callees,
            None => Hooks::no_callees(),
        }
    }

    /// Callees of an operation that the table has no entry for: no hook.
    #[cold]
    fn no_callees() -> Callees {
        Callees::default()
    }

    /// Not cold, but for the layout of all the calls that have no frame type.
    #[cold]
    #[inline(never)]
    fn callees_by_type(&self, operation: Operation, frame_type: u64) -> Callees {
        let (dispatch, wanted) = (&self.dispatch, (operation, frame_type));
        match dispatch.by_type.binary_search_by_key(&wanted, |(key, _)| *key) {
            Ok(at) => dispatch.by_type[at].1,
            Err(_) => {
                let general = dispatch.by_operation[operation as usize];
                // Of types that nobody knows, nobody is asked what they do.
                let replace = if is_known(frame_type) { general.replace } else { NOBODY };
                Callees { replace, ..general }
            }
        }
    }

    /// The hook that is called before the operation as the `nth`.
    pub(crate) fn before(&self, callees: Callees, nth: usize) -> Option<usize> {
        self.watcher(callees, callees.before(), BEFORE, nth)
    }

    /// The hook that is called after the operation as the `nth`.
    pub(crate) fn after(&self, callees: Callees, nth: usize) -> Option<usize> {
        self.watcher(callees, callees.after(), AFTER, nth)
    }

    /// The hook that may replace the operation as the `nth`; the last of them is asked first.
    fn replacing(&self, callees: Callees, nth: usize) -> Option<usize> {
        self.watcher(callees, callees.replacing(), REPLACE, nth)
    }

    /// All hooks that may replace the operation; the last of them is asked first.
    pub(crate) fn all_replacing(&self, callees: Callees) -> Vec<HookId> {
        let places = (0..).map_while(|nth| self.replacing(callees, nth));
        places.map(|place| self.own(place).id).collect()
    }

    /// Whether the hook at a place wants to be given what the operation's default answers.
    pub(crate) fn asks(&self, place: usize, operation: Operation) -> bool {
        self.attached.get(place).is_some_and(|one| {
            one.points.iter().any(|point| point.operation == operation && asks(point))
        })
    }

    fn watcher(
        &self,
        callees: Callees,
        watchers: Watchers,
        part: usize,
        nth: usize,
    ) -> Option<usize> {
        match watchers {
            Watchers::Nobody => None,
            Watchers::One(place) => (nth == 0).then_some(place),
            Watchers::Many => {
                let list = &self.dispatch.lists.get(callees.list as usize)?[part];
                list.get(nth).map(|place| usize::from(*place))
            }
        }
    }

    /// Hands out the hook at a place, to be called. [`Hooks::put_back`] is next.
    #[inline]
    pub(crate) fn take(&mut self, place: usize) -> Option<Box<dyn Hook>> {
        match self.attached.get_mut(place) {
            Some(one) => one.hook.take(),
            None => Hooks::no_hook(),
        }
    }

    #[cold]
    fn no_hook() -> Option<Box<dyn Hook>> {
        None
    }

    /// The hook of a place has been called.
    #[inline]
    pub(crate) fn put_back(&mut self, place: usize, hook: Box<dyn Hook>) {
        match self.attached.get_mut(place) {
            // The place is empty, and there is nothing to drop; to forget spares the check.
            Some(one) => std::mem::forget(one.hook.replace(hook)),
            None => Hooks::drop_hook(hook),
        }
    }

    /// Never called: no place goes while its hook is called.
    #[cold]
    #[inline(never)]
    fn drop_hook(hook: Box<dyn Hook>) {
        drop(hook);
    }

    /// Number of hooks that are attached.
    pub(crate) fn len(&self) -> usize {
        self.attached.len()
    }

    /// Name and frame types of the hook at a place.
    pub(crate) fn own(&self, place: usize) -> &Own {
        &self.attached[place].own
    }

    /// Hook that declared a frame type as its own; none if no hook did.
    pub(crate) fn owner(&self, frame_type: u64) -> Option<(HookId, OwnFrame)> {
        self.attached.iter().find_map(|one| {
            let own = one.own.frames.iter().find(|own| own.frame_type == frame_type)?;
            Some((one.own.id, *own))
        })
    }

    fn check(&self, points: &[Point], frames: &[OwnFrame]) -> Result<(), AttachError> {
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
            let parses = |point: &Point| {
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

    /// Attaches a hook, of the application's or `brought` by another.
    pub(crate) fn attach(
        &mut self,
        hook: Box<dyn Hook>,
        points: &[Point],
        frames: &[OwnFrame],
        brought: bool,
    ) -> Result<HookId, AttachError> {
        self.check(points, frames)?;
        if self.attached.len() >= MAX_HOOKS {
            return Err(AttachError::TooMany);
        }
        let id = HookId(self.next);
        self.next += 1;
        let own = Own { id, frames: frames.to_vec(), brought };
        self.attached.push(Attached { hook: Some(hook), own, points: points.to_vec() });
        self.arrange();
        Ok(id)
    }

    /// Bytes that the hooks keep.
    pub(crate) fn memory(&self) -> usize {
        self.attached.iter().filter_map(|one| one.hook.as_ref()).map(|hook| hook.memory()).sum()
    }

    /// The place of a hook that was attached.
    pub(crate) fn place(&self, id: HookId) -> Option<usize> {
        self.attached.iter().position(|one| one.own.id == id)
    }

    /// Anchors at which the hook at a place is attached to an operation.
    pub(crate) fn points(&self, place: usize, operation: Operation) -> Vec<Point> {
        let points = self.attached.get(place).map_or(&[][..], |one| &one.points);
        points.iter().filter(|point| point.operation == operation).copied().collect()
    }

    pub(crate) fn detach(&mut self, id: HookId) -> Option<Box<dyn Hook>> {
        let place = self.place(id)?;
        let gone = self.attached.remove(place);
        self.arrange();
        gone.hook
    }

    /// Makes the dispatch of what is attached.
    fn arrange(&mut self) {
        let points = || self.attached.iter().flat_map(|one| &one.points);
        let operations: BTreeSet<Operation> = points().map(|point| point.operation).collect();
        let bits = |wanted: fn(&Point) -> bool| {
            let wanted = points().filter(|point| wanted(point));
            wanted.fold(0, |bits, point| bits | point.operation.bit())
        };
        self.begun = bits(|point| point.before || point.replace);
        self.ended = bits(|point| point.after);
        self.asked = bits(asks);
        let mut dispatch = Dispatch::default();
        let length = operations.last().map_or(0, |last| *last as usize + 1);
        dispatch.by_operation.resize(length, Callees::default());
        let owned = self.attached.iter().flat_map(|one| &one.own.frames);
        let owned: BTreeSet<u64> = owned.map(|own| own.frame_type).collect();
        let mut by_type = BTreeMap::new();
        for operation in operations {
            let callees = self.add(&mut dispatch.lists, operation, None);
            dispatch.by_operation[operation as usize] = callees;
            if callees.by_type {
                let named = points().filter(|point| point.operation == operation);
                for frame_type in named.filter_map(|point| point.frame_type).chain(owned.clone()) {
                    let callees = self.add(&mut dispatch.lists, operation, Some(frame_type));
                    by_type.insert((operation, frame_type), callees);
                }
            }
        }
        dispatch.by_type = by_type.into_iter().collect();
        self.dispatch = dispatch;
    }

    /// Whom a call goes to, of this frame type, or of those that nobody named.
    fn add(
        &self,
        lists: &mut Vec<[Vec<u8>; 3]>,
        operation: Operation,
        frame_type: Option<u64>,
    ) -> Callees {
        // What is for one type goes behind what is for all.
        let kinds = [None, frame_type];
        let kinds = &kinds[..1 + usize::from(frame_type.is_some())];
        let points = |kind: &Option<u64>| {
            let kind = *kind;
            self.attached.iter().zip(0u8..).flat_map(move |(one, place)| {
                let wanted =
                    move |point: &&Point| point.operation == operation && point.frame_type == kind;
                one.points.iter().filter(wanted).map(move |point| (place, point))
            })
        };
        let of = |wanted: fn(&Point) -> bool| {
            let all = kinds.iter().flat_map(points);
            all.filter(move |(_, point)| wanted(point)).map(|(place, _)| place)
        };
        let [before, after]: [Vec<u8>; 2] =
            [of(|point| point.before).collect(), of(|point| point.after).collect()];
        let replace = of(|point| point.replace);
        let mut replace: Vec<u8> =
            replace.filter(|place| self.may_replace(*place, operation, frame_type)).collect();
        // What the application attached goes before what hooks brought, whenever they came.
        replace.sort_by_key(|place| !self.attached[usize::from(*place)].own.brought);
        replace.dedup();
        let few = |list: &[u8]| match list {
            [] => NOBODY,
            [place] => *place,
            _ => MANY,
        };
        let callees = Callees {
            before: few(&before),
            replace: few(&replace),
            after: few(&after),
            by_type: has_frame_types(operation),
            list: u32::try_from(lists.len()).unwrap_or(u32::MAX),
        };
        if [callees.before, callees.replace, callees.after].contains(&MANY) {
            lists.push([before, replace, after]);
        }
        callees
    }

    /// Frames of a type that the transport knows are written by nobody else; those that it does not know
    /// are for the hook whose own they are, from the first byte to the last.
    fn may_replace(&self, place: u8, operation: Operation, frame_type: Option<u64>) -> bool {
        if !has_frame_types(operation) {
            return true;
        }
        match frame_type.and_then(|frame_type| self.owner(frame_type)) {
            Some((owner, _)) => self.attached[usize::from(place)].own.id == owner,
            None => !is_for_owners(operation) && frame_type.is_none_or(is_known),
        }
    }
}

/// Whether a hook wants to be given what the default answers at this point.
fn asks(point: &Point) -> bool {
    point.replace && point.with_default
}

fn has_frame_types(operation: Operation) -> bool {
    operation.describe().carries == Carries::Frame
}

/// Whether the transport knows the frame type.
fn is_known(frame_type: u64) -> bool {
    VarInt::new(frame_type).is_ok_and(|frame_type| FrameType(frame_type).is_known())
}

/// Whether the operation is replaced for frame types of a hook's own alone.
fn is_for_owners(operation: Operation) -> bool {
    use Operation::{FrameAcked, FrameLost, WriteFrame};
    matches!(operation, WriteFrame | FrameAcked | FrameLost)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl Hook for Nothing {}

    fn attach(
        hooks: &mut Hooks,
        points: &[Point],
        frames: &[OwnFrame],
    ) -> Result<HookId, AttachError> {
        hooks.attach(Box::new(Nothing), points, frames, false)
    }

    /// Names of those that are called before, in place of, and after the operation.
    fn called(
        hooks: &mut Hooks,
        operation: Operation,
        parameter: u64,
    ) -> (Vec<HookId>, Option<HookId>, Vec<HookId>) {
        let callees = hooks.callees(operation, parameter);
        let before: Vec<usize> = (0..).map_while(|nth| hooks.before(callees, nth)).collect();
        let after: Vec<usize> = (0..).map_while(|nth| hooks.after(callees, nth)).collect();
        let mut name = |place: usize| hooks.own(place).id;
        let before = before.into_iter().map(&mut name).collect();
        let replace = (0..).map_while(|nth| hooks.replacing(callees, nth)).last().map(&mut name);
        (before, replace, after.into_iter().map(&mut name).collect())
    }

    #[test]
    fn those_who_watch_are_called_in_the_order_in_which_they_came() {
        let mut hooks = Hooks::default();
        let watch = [Point::observe(Operation::UpdateRtt)];
        let first = attach(&mut hooks, &watch, &[]).unwrap();
        let second = attach(&mut hooks, &[Point::replace(Operation::UpdateRtt)], &[]).unwrap();
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
    fn what_is_for_one_frame_type_goes_behind_what_is_for_all_and_replaces_it() {
        let mut hooks = Hooks::default();
        let operation = Operation::ProcessFrame;
        let typed = [Point { before: true, ..Point::replace(operation) }.of_frame(0x01)];
        let one = attach(&mut hooks, &typed, &[]).unwrap();
        let all = attach(&mut hooks, &[Point { before: true, ..Point::replace(operation) }], &[]);
        let all = all.unwrap();
        assert_eq!(called(&mut hooks, operation, 0x01), (vec![all, one], Some(one), vec![]));
        assert_eq!(called(&mut hooks, operation, 0x08), (vec![all], Some(all), vec![]));
        // Nobody knows the type.
        assert_eq!(called(&mut hooks, operation, 0xaffe), (vec![all], None, vec![]));
    }

    #[test]
    fn a_type_of_a_hooks_own_is_for_that_hook() {
        let mut hooks = Hooks::default();
        let all = [Operation::ParseFrame, Operation::WriteFrame, Operation::ProcessFrame];
        let points: Vec<Point> = all.into_iter().map(Point::replace).collect();
        let other = attach(&mut hooks, &points, &[]).unwrap();
        let own = [OwnFrame::new(0xaffe)];
        let points: Vec<Point> = points.iter().map(|point| point.of_frame(0xaffe)).collect();
        let owner = attach(&mut hooks, &points, &own).unwrap();
        for operation in all {
            assert_eq!(called(&mut hooks, operation, 0xaffe).1, Some(owner), "{operation}");
            let known = (operation != Operation::WriteFrame).then_some(other);
            assert_eq!(called(&mut hooks, operation, 0x01).1, known, "{operation}");
            assert_eq!(called(&mut hooks, operation, 0xbeef).1, None, "{operation}");
        }
        hooks.detach(owner).unwrap();
        assert_eq!(called(&mut hooks, Operation::ParseFrame, 0xaffe).1, None, "nobody's any more");
    }

    #[test]
    fn the_last_is_asked_first_and_those_of_the_application_before_others() {
        let mut hooks = Hooks::default();
        let operation = Operation::SetTimer;
        let mut attach = |brought| {
            let point = if brought { Point::refine(operation) } else { Point::replace(operation) };
            let id = hooks.attach(Box::new(Nothing), &[point], &[], brought).unwrap();
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
        let act = [Point::refine(Operation::CongestionAcked)];
        let refused = hooks.attach(Box::new(Nothing), &act, &[], false);
        assert_eq!(refused, Err(AttachError::NoDefault(Operation::CongestionAcked)));
    }

    #[test]
    fn places_are_given_back_and_names_are_not() {
        let mut hooks = Hooks::default();
        let watch = [Point::observe(Operation::SetTimer)];
        let mut ids: Vec<HookId> =
            (0..MAX_HOOKS).map(|_| attach(&mut hooks, &watch, &[]).unwrap()).collect();
        let mut names: BTreeSet<HookId> = ids.iter().copied().collect();
        for round in 0..1000 {
            assert_eq!(attach(&mut hooks, &watch, &[]), Err(AttachError::TooMany));
            let id = ids.remove(round % ids.len());
            assert!(hooks.detach(id).is_some() && hooks.place(id).is_none());
            let id = attach(&mut hooks, &watch, &[]).unwrap();
            assert!(names.insert(id), "a name is never another's");
            ids.push(id);
        }
        assert_eq!(called(&mut hooks, Operation::SetTimer, 0).0, ids);
    }
}
