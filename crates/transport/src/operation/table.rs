//! The table of a connection's hooks: who is attached to what, and whom a call of an operation goes to.
//!
//! Who is attached to what changes seldom, and is looked up at each call. So what hooks declared when they were
//! attached is kept as it was said, and [`Dispatch`] is made of it whenever a hook comes or goes: an array with
//! an entry for each operation, and a sorted list for what is for single frame types.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use equic_wire::VarInt;
use equic_wire::frame::FrameType;

use super::callees::{Callees, MANY, NOBODY, Watchers};
use super::hooks::HookId;
use super::point::{AttachPoint, OwnFrame};
use super::{Hook, Operation, PayloadKind};

/// Name and frame types of a hook, as its [`HookContext`](super::HookContext) needs them.
#[derive(Debug)]
pub(crate) struct Own {
    pub(crate) id: HookId,
    /// At most [`MAX_FRAME_TYPES`].
    pub(crate) frames: Vec<OwnFrame>,
    /// Another hook brought it.
    pub(crate) brought: bool,
}

/// A hook that is attached.
pub(crate) struct Attached {
    pub(crate) hook: Box<dyn Hook>,
    pub(crate) own: Own,
    pub(super) points: Vec<AttachPoint>,
    /// It defines operations that other hooks call. While others are called, false of a hook that
    /// runs, or that has failed.
    pub(super) provides: bool,
}

impl Attached {
    /// Takes the hook out, which is about to run. [`Attached::give_back`] is next, unless it fails.
    pub(super) fn take(&mut self) -> Lent {
        let (id, brought) = (self.own.id, self.own.brought);
        let own = std::mem::replace(&mut self.own, Own { id, frames: Vec::new(), brought });
        let provides = std::mem::replace(&mut self.provides, false);
        Lent { hook: std::mem::replace(&mut self.hook, Box::new(Absent)), own, provides }
    }

    /// Puts the hook back, which has run.
    pub(super) fn give_back(&mut self, lent: Lent) {
        (self.hook, self.own, self.provides) = (lent.hook, lent.own, lent.provides);
    }
}

impl fmt::Debug for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attached").field("own", &self.own).finish_non_exhaustive()
    }
}

/// A hook that is out of the table, for the one that is called to call it.
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

/// Stands in the place of a hook that is lent, or that failed while it was and is about to be taken off.
struct Absent;

impl Hook for Absent {}

/// Numbers of the parts of a list of hooks, of those called before, in the operation's place, and after.
pub(super) const BEFORE: usize = 0;
pub(super) const REPLACE: usize = 1;
pub(super) const AFTER: usize = 2;

/// Operations are numbered below this.
const OPERATIONS: usize = 128;

/// See the module.
struct Dispatch {
    /// By the operation's number.
    by_operation: [Callees; OPERATIONS],
    /// For the types that a hook named or owns, of operations that anything is attached to; sorted.
    by_type: Vec<((Operation, u64), Callees)>,
    /// For operations that several hooks are attached to at an anchor: the hooks called before, in the operation's
    /// place (the one that is asked first is the last), and after.
    lists: Vec<[Vec<u8>; 3]>,
}

impl Default for Dispatch {
    fn default() -> Dispatch {
        let by_operation = [Callees::default(); OPERATIONS];
        Dispatch { by_operation, by_type: Vec::new(), lists: Vec::new() }
    }
}

/// All hooks that are attached, in one allocation: a connection gives it away for the time in which it calls a hook,
/// by writing one word, and the hook sees all the rest of the connection meanwhile.
#[derive(Default)]
pub(crate) struct Table {
    dispatch: Dispatch,
    /// In the order in which they were attached; at most [`MAX_HOOKS`](super::hooks::MAX_HOOKS).
    attached: Vec<Attached>,
    /// One of them defines operations that others call.
    provides: bool,
}

impl Table {
    /// Hooks that a call of the operation goes to; `parameter` is its frame type, where it has one.
    #[inline(always)]
    pub(crate) fn callees(&self, operation: Operation, parameter: u64) -> Callees {
        let callees = self.dispatch.by_operation[operation as usize];
        if callees.by_type() { self.callees_by_type(operation, parameter) } else { callees }
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
                if is_known(frame_type) { general } else { general.without_replacing() }
            }
        }
    }

    /// Place of the hook that is called as the `nth` of some, which are a part of those that the call goes to.
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

    /// All hooks, in the order in which they were attached.
    pub(super) fn attached(&self) -> &[Attached] {
        &self.attached
    }

    /// The hook at a place, to be called.
    #[inline(always)]
    pub(crate) fn get_mut(&mut self, place: usize) -> Option<&mut Attached> {
        self.attached.get_mut(place)
    }

    /// True if a hook defines operations that others call.
    #[inline(always)]
    pub(crate) fn provides(&self) -> bool {
        self.provides
    }

    /// Takes the hook at a place out, to be called, and all hooks, for it to call. The number of
    /// hooks does not matter: this is done for every call while any hook provides operations.
    pub(crate) fn lend(&mut self, caller: usize) -> Option<(Lent, Vec<Attached>)> {
        let lent = self.attached.get_mut(caller)?.take();
        Some((lent, std::mem::take(&mut self.attached)))
    }

    /// Takes all hooks back, and the one that was called to its place.
    pub(crate) fn take_back(&mut self, caller: usize, lent: Lent, all: Vec<Attached>) {
        self.attached = all;
        if let Some(one) = self.attached.get_mut(caller) {
            one.give_back(lent);
        }
    }

    /// Adds a hook behind all others.
    pub(super) fn push(&mut self, attached: Attached) {
        self.attached.push(attached);
        self.arrange();
    }

    /// Takes the hook at a place off; those behind it move up.
    pub(super) fn remove(&mut self, place: usize) -> Attached {
        let gone = self.attached.remove(place);
        self.arrange();
        gone
    }

    /// Operations that a wanted point is of, as a set: a bit for each.
    pub(super) fn bits(&self, wanted: fn(&AttachPoint) -> bool) -> u128 {
        let points = self.attached.iter().flat_map(|one| &one.points);
        points.filter(|point| wanted(point)).fold(0, |bits, point| bits | point.operation.bit())
    }

    /// Hook that declared a frame type as its own; none if no hook did.
    pub(super) fn owner(&self, frame_type: u64) -> Option<(HookId, OwnFrame)> {
        self.attached.iter().find_map(|one| {
            let own = one.own.frames.iter().find(|own| own.frame_type == frame_type)?;
            Some((one.own.id, *own))
        })
    }

    /// Makes the dispatch of what is attached. A peer can have this done often, by plugins that come
    /// and go, so each point is looked at once.
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

    /// Hooks that a call goes to, of this frame type, or of those that nobody named.
    fn add(
        &self,
        lists: &mut Vec<[Vec<u8>; 3]>,
        index: &Index,
        operation: Operation,
        frame_type: Option<u64>,
    ) -> Callees {
        // What is for one type goes behind what is for all.
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
        // What the application attached goes before what hooks brought, whenever they came.
        replace.sort_by_key(|place| !self.attached[usize::from(*place)].own.brought);
        replace.dedup();
        let few = |list: &[u8]| match list {
            [] => NOBODY,
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

/// Points of hooks, with the places of the hooks.
type Placed = Vec<(u8, AttachPoint)>;

/// Points and frame types of all hooks, by what they are looked up by.
struct Index {
    /// Points of an operation and a frame type, with the places of their hooks in ascending order.
    points: BTreeMap<(Operation, Option<u64>), Placed>,
    /// Place of the first hook that declared a frame type as its own.
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

    /// Frames of a type that the transport knows are written by nobody else; those that it does not know
    /// are for the hook whose own they are, from the first byte to the last.
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

/// True if a hook wants to be given what the default answers at this point.
pub(super) fn asks(point: &AttachPoint) -> bool {
    point.replace && point.with_default
}

/// True if the operation is one for each frame type.
pub(super) fn has_frame_types(operation: Operation) -> bool {
    operation.describe().carries == PayloadKind::Frame
}

/// True if the transport knows the frame type.
pub(super) fn is_known(frame_type: u64) -> bool {
    VarInt::new(frame_type).is_ok_and(|frame_type| FrameType(frame_type).is_known())
}

/// True if the operation is replaced for frame types of a hook's own alone.
pub(super) fn is_for_owners(operation: Operation) -> bool {
    use Operation::{FrameAcked, FrameLost, WriteFrame};
    matches!(operation, WriteFrame | FrameAcked | FrameLost)
}
