//! The table of a connection's hooks: which hooks are attached to which operations, and which hooks
//! a call reaches.
//!
//! The table rarely changes and is read at each call. So whenever a hook is attached or detached, a
//! [`Dispatch`] is computed from the declarations of all hooks. It consists of an array with an
//! entry for each operation, and a sorted list for single frame types.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use equic_wire::VarInt;
use equic_wire::frame::FrameType;

use super::callees::{Callees, MANY, NO_HOOK, Watchers};
use super::hooks::HookId;
use super::point::{AttachPoint, OwnFrame};
use super::{Hook, Operation, PayloadKind};

/// A hook's ID and frame types, which its [`HookContext`](super::HookContext) needs.
#[derive(Debug)]
pub(crate) struct Own {
    pub(crate) id: HookId,
    /// Frame types that the hook owns; at most [`MAX_FRAME_TYPES`].
    pub(crate) frames: Vec<OwnFrame>,
    /// True if another hook has attached this hook.
    pub(crate) nested: bool,
}

/// A hook of a connection, with the points at which it is attached.
pub(crate) struct Attached {
    pub(crate) hook: Box<dyn Hook>,
    pub(crate) own: Own,
    pub(super) points: Vec<AttachPoint>,
    /// True if the hook defines operations that other hooks may call. It is false while the hook
    /// runs, and after it has failed.
    pub(super) provides: bool,
}

impl Attached {
    /// Takes the hook out to run it. The caller must then call [`Attached::give_back`], unless the
    /// hook fails.
    pub(super) fn take(&mut self) -> Lent {
        let (id, nested) = (self.own.id, self.own.nested);
        let own = std::mem::replace(&mut self.own, Own { id, frames: Vec::new(), nested });
        let provides = std::mem::replace(&mut self.provides, false);
        Lent { hook: std::mem::replace(&mut self.hook, Box::new(Absent)), own, provides }
    }

    /// Puts the hook back into its entry after it has run.
    pub(super) fn give_back(&mut self, lent: Lent) {
        (self.hook, self.own, self.provides) = (lent.hook, lent.own, lent.provides);
    }
}

impl fmt::Debug for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attached").field("own", &self.own).finish_non_exhaustive()
    }
}

/// A hook that was taken out of the table, so that another hook can call it.
pub(crate) struct Lent {
    pub(crate) hook: Box<dyn Hook>,
    pub(crate) own: Own,
    provides: bool,
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent").field("own", &self.own).finish_non_exhaustive()
    }
}

/// A placeholder for a hook that was taken out of the table. It stays if the hook failed, until the
/// hook is detached.
struct Absent;

impl Hook for Absent {}

/// Indexes of the three parts of a list: hooks that are called before, in place of, and after the
/// operation.
pub(super) const BEFORE: usize = 0;
pub(super) const REPLACE: usize = 1;
pub(super) const AFTER: usize = 2;

/// Upper bound for the numbers of operations in the catalogue.
const OPERATIONS: usize = 128;

/// Finds the hooks that a call reaches. It is computed from the points of all hooks.
struct Dispatch {
    /// Hooks that a call reaches, by the operation's number.
    by_operation: [Callees; OPERATIONS],
    /// Hooks that a call reaches, by operation and frame type. It has only the types that a hook
    /// has named or owns. Sorted.
    by_type: Vec<((Operation, u64), Callees)>,
    /// Lists for operations with several hooks: those called before, in place of, and after the
    /// operation. Hooks that may replace an operation are called from the last in the list to the
    /// first.
    lists: Vec<[Vec<u8>; 3]>,
}

impl Default for Dispatch {
    fn default() -> Dispatch {
        let by_operation = [Callees::default(); OPERATIONS];
        Dispatch { by_operation, by_type: Vec::new(), lists: Vec::new() }
    }
}

/// All attached hooks, in one allocation. A connection moves the table out while it calls a hook,
/// so that the hook can access the rest of the connection. Moving the table costs only one write of
/// a word.
#[derive(Default)]
pub(crate) struct Table {
    dispatch: Dispatch,
    /// The hooks in the order in which they were attached; at most
    /// [`MAX_HOOKS`](super::hooks::MAX_HOOKS).
    attached: Vec<Attached>,
    /// True if one of the hooks defines operations that others may call.
    provides: bool,
}

impl Table {
    /// Returns the hooks that a call of the operation reaches. `parameter` is the frame type, if
    /// the operation has frame types.
    #[inline(always)]
    pub(crate) fn callees(&self, operation: Operation, parameter: u64) -> Callees {
        let callees = self.dispatch.by_operation[operation as usize];
        if callees.by_type() { self.callees_by_type(operation, parameter) } else { callees }
    }

    /// This function is marked cold only to keep it out of the code of calls without a frame type.
    #[cold]
    #[inline(never)]
    fn callees_by_type(&self, operation: Operation, frame_type: u64) -> Callees {
        let (dispatch, wanted) = (&self.dispatch, (operation, frame_type));
        match dispatch.by_type.binary_search_by_key(&wanted, |(key, _)| *key) {
            Ok(at) => dispatch.by_type[at].1,
            Err(_) => {
                let general = dispatch.by_operation[operation as usize];
                // If the transport does not know a frame type and no hook owns it, no hook can
                // replace the operation for it.
                if is_known(frame_type) { general } else { general.without_replacing() }
            }
        }
    }

    /// Returns the position of the `nth` hook in one part of the hooks that a call reaches.
    pub(super) fn watcher(
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
                let list = &self.dispatch.lists.get(callees.list())?[part];
                list.get(nth).map(|place| usize::from(*place))
            }
        }
    }

    /// Returns all hooks, in the order in which they were attached. The position of a hook is its
    /// index here.
    pub(super) fn attached(&self) -> &[Attached] {
        &self.attached
    }

    /// Returns the hook at the position `place`.
    #[inline(always)]
    pub(crate) fn get_mut(&mut self, place: usize) -> Option<&mut Attached> {
        self.attached.get_mut(place)
    }

    /// Returns true if any hook defines operations that others may call.
    #[inline(always)]
    pub(crate) fn provides(&self) -> bool {
        self.provides
    }

    /// Takes out the hook at the position `caller`, to call it, and all hooks that it may call.
    /// This happens for every call while a hook provides operations, so its cost does not depend on
    /// the number of hooks.
    pub(crate) fn lend(&mut self, caller: usize) -> Option<(Lent, Vec<Attached>)> {
        let lent = self.attached.get_mut(caller)?.take();
        Some((lent, std::mem::take(&mut self.attached)))
    }

    /// Puts all hooks back, including the called hook at its position.
    pub(crate) fn take_back(&mut self, caller: usize, lent: Lent, all: Vec<Attached>) {
        self.attached = all;
        if let Some(one) = self.attached.get_mut(caller) {
            one.give_back(lent);
        }
    }

    /// Appends a hook to the table.
    pub(super) fn push(&mut self, attached: Attached) {
        self.attached.push(attached);
        self.arrange();
    }

    /// Removes the hook at the position `place`. The positions of the following hooks decrease by
    /// one.
    pub(super) fn remove(&mut self, place: usize) -> Attached {
        let gone = self.attached.remove(place);
        self.arrange();
        gone
    }

    /// Returns a set of bits, one for each operation that has a point for which `wanted` is true.
    pub(super) fn bits(&self, wanted: fn(&AttachPoint) -> bool) -> u128 {
        let points = self.attached.iter().flat_map(|one| &one.points);
        points.filter(|point| wanted(point)).fold(0, |bits, point| bits | point.operation.bit())
    }

    /// Returns the hook that owns a frame type, or `None`.
    pub(super) fn owner(&self, frame_type: u64) -> Option<(HookId, OwnFrame)> {
        self.attached.iter().find_map(|one| {
            let own = one.own.frames.iter().find(|own| own.frame_type == frame_type)?;
            Some((one.own.id, *own))
        })
    }

    /// Computes the hooks that each call reaches. A peer whose plugins come and go can cause this
    /// often, so each point is read only once.
    fn arrange(&mut self) {
        let index = Index::of(&self.attached);
        let operations: BTreeSet<Operation> = index.points.keys().map(|(one, _)| *one).collect();
        let mut dispatch = Dispatch::default();
        let mut by_type = BTreeMap::new();
        for operation in operations {
            let callees = self.add(&mut dispatch.lists, &index, operation, None);
            dispatch.by_operation[operation as usize] = callees;
            if callees.by_type() {
                let named = index.points.range((operation, Some(0))..=(operation, Some(u64::MAX)));
                let named = named.filter_map(|((_, frame_type), _)| *frame_type);
                let types: BTreeSet<u64> = named.chain(index.owners.keys().copied()).collect();
                for frame_type in types {
                    let callees =
                        self.add(&mut dispatch.lists, &index, operation, Some(frame_type));
                    by_type.insert((operation, frame_type), callees);
                }
            }
        }
        dispatch.by_type = by_type.into_iter().collect();
        self.dispatch = dispatch;
        self.provides = self.attached.iter().any(|one| one.provides);
    }

    /// Adds the hooks that calls with this frame type reach. `None` stands for all frame types that
    /// no hook has named.
    fn add(
        &self,
        lists: &mut Vec<[Vec<u8>; 3]>,
        index: &Index,
        operation: Operation,
        frame_type: Option<u64>,
    ) -> Callees {
        // Hooks for one frame type come after hooks for all frame types.
        let kinds = [None, frame_type];
        let kinds = &kinds[..1 + usize::from(frame_type.is_some())];
        let of = |wanted: fn(&AttachPoint) -> bool| {
            let all = kinds.iter().filter_map(|kind| index.points.get(&(operation, *kind)));
            all.flatten().filter(move |(_, point)| wanted(point)).map(|(place, _)| *place)
        };
        let [before, after]: [Vec<u8>; 2] =
            [of(|point| point.before).collect(), of(|point| point.after).collect()];
        let replace = of(|point| point.replace);
        let may_replace = |place: &u8| index.may_replace(*place, operation, frame_type);
        let mut replace: Vec<u8> = replace.filter(may_replace).collect();
        // Hooks of the application take precedence over nested hooks, in whatever order they were
        // attached.
        replace.sort_by_key(|place| !self.attached[usize::from(*place)].own.nested);
        replace.dedup();
        let few = |list: &[u8]| match list {
            [] => NO_HOOK,
            [place] => *place,
            _ => MANY,
        };
        let called = [few(&before), few(&replace), few(&after)];
        let list = u32::try_from(lists.len()).unwrap_or(u32::MAX);
        if called.contains(&MANY) {
            lists.push([before, replace, after]);
        }
        let [before, replace, after] = called;
        Callees::new(before, replace, after, has_frame_types(operation), list)
    }
}

/// Attach points, each with the position of its hook.
type Placed = Vec<(u8, AttachPoint)>;

/// The attach points and the frame types of all hooks, indexed for lookup.
struct Index {
    /// The attach points for each operation and frame type, with the positions of their hooks in
    /// ascending order.
    points: BTreeMap<(Operation, Option<u64>), Placed>,
    /// The position of the first hook that owns each frame type.
    owners: BTreeMap<u64, u8>,
}

impl Index {
    fn of(attached: &[Attached]) -> Index {
        let mut index = Index { points: BTreeMap::new(), owners: BTreeMap::new() };
        for (one, place) in attached.iter().zip(0u8..) {
            for point in &one.points {
                let key = (point.operation, point.frame_type);
                index.points.entry(key).or_default().push((place, *point));
            }
            for own in &one.own.frames {
                index.owners.entry(own.frame_type).or_insert(place);
            }
        }
        index
    }

    /// Returns true if the hook at the position `place` may replace the operation. Only the
    /// transport writes frames of its own types. For any other frame type, only the hook that owns
    /// the type can replace an operation.
    fn may_replace(&self, place: u8, operation: Operation, frame_type: Option<u64>) -> bool {
        if !has_frame_types(operation) {
            return true;
        }
        match frame_type.and_then(|frame_type| self.owners.get(&frame_type)) {
            Some(owner) => *owner == place,
            None => !is_for_owners(operation) && frame_type.is_none_or(is_known),
        }
    }
}

/// Returns true if the hook wants the default's answer at this point.
pub(super) fn asks(point: &AttachPoint) -> bool {
    point.replace && point.with_default
}

/// Returns true if the operation is called separately for each frame type.
pub(super) fn has_frame_types(operation: Operation) -> bool {
    operation.describe().carries == PayloadKind::Frame
}

/// Returns true if the transport knows the frame type.
pub(super) fn is_known(frame_type: u64) -> bool {
    VarInt::new(frame_type).is_ok_and(|frame_type| FrameType(frame_type).is_known())
}

/// Returns true if the operation can be replaced only for a hook's own frame types.
pub(super) fn is_for_owners(operation: Operation) -> bool {
    use Operation::{FrameAcked, FrameLost, WriteFrame};
    matches!(operation, WriteFrame | FrameAcked | FrameLost)
}
