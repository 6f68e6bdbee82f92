//! Table of the hooks attached to each operation.

use std::collections::BTreeMap;

use equic_wire::VarInt;
use equic_wire::frame::FrameType;

use super::{Carries, Hook, Operation};

/// Operation that a hook is attached to, and the ways in which it is called there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// Operation that the hook is attached to.
    pub operation: Operation,
    /// Frame type that the hook is attached for; none: every type, or the operation has none.
    pub frame_type: Option<u64>,
    /// Whether [`Hook::before`] is called.
    pub before: bool,
    /// Whether [`Hook::replace`] is called. One hook at most replaces an operation.
    pub replace: bool,
    /// Whether [`Hook::after`] is called.
    pub after: bool,
}

impl Point {
    /// A point at which the hook is called before and after the operation, to observe it.
    pub const fn observe(operation: Operation) -> Point {
        Point { operation, frame_type: None, before: true, replace: false, after: true }
    }

    /// A point at which the hook does the operation in place of the default.
    pub const fn replace(operation: Operation) -> Point {
        Point { operation, frame_type: None, before: false, replace: true, after: false }
    }

    /// For one frame type alone.
    pub const fn of_frame(self, frame_type: u64) -> Point {
        Point { frame_type: Some(frame_type), ..self }
    }
}

/// A frame type of a hook's own: it alone writes, parses and processes such frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnFrame {
    /// The type: none that the transport knows, and no other hook's.
    pub frame_type: u64,
    /// Whether a packet with such a frame is to be acknowledged. Both ends must say the same. Of extension
    /// frames only those that replace or supplement ACK frames are not (RFC 9000 s.19.21); of them a hook
    /// does not hear whether they arrived.
    pub ack_eliciting: bool,
}

impl OwnFrame {
    /// One that is acknowledged.
    pub const fn new(frame_type: u64) -> OwnFrame {
        OwnFrame { frame_type, ack_eliciting: true }
    }

    /// One that is not.
    pub const fn silent(frame_type: u64) -> OwnFrame {
        OwnFrame { frame_type, ack_eliciting: false }
    }
}

/// Reason for which a hook could not be attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachError {
    /// Another replaces it already.
    Taken(Operation),
    /// The operation has no frame types.
    NoFrameTypes(Operation),
    /// No more than 32 hooks on a connection at a time.
    TooMany,
    /// A frame type cannot be the hook's own: the transport knows it, it is another hook's, or no type.
    FrameType(u64),
    /// More than 16 frame types of its own.
    TooManyFrameTypes,
    /// The hook does not replace [`Operation::ParseFrame`] for this type of its own: nobody could say where
    /// such a frame ends.
    NoParser(u64),
    /// The operation can be replaced for this frame type only by the hook whose own the type is.
    NotOwn(Operation, u64),
}

impl std::fmt::Display for AttachError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AttachError::Taken(operation) => {
                write!(f, "{operation} is replaced by another hook: detach that first")
            }
            AttachError::NoFrameTypes(operation) => {
                write!(f, "{operation} is not one for each frame type: attach to it without one")
            }
            AttachError::TooMany => write!(
                f,
                "no more than {MAX_HOOKS} hooks on a connection at a time: detach another first"
            ),
            AttachError::FrameType(frame_type) => write!(
                f,
                "{frame_type:#x} cannot be a frame type of the hook's own: choose one that neither QUIC \
                 nor another hook has"
            ),
            AttachError::TooManyFrameTypes => {
                write!(f, "no more than {MAX_FRAME_TYPES} frame types of a hook's own")
            }
            AttachError::NoParser(frame_type) => write!(
                f,
                "nobody can say where a frame of type {frame_type:#x} ends: replace ParseFrame, too"
            ),
            AttachError::NotOwn(operation, frame_type) => write!(
                f,
                "{operation} for frame type {frame_type:#x} is for the hook whose own the type is: declare it"
            ),
        }
    }
}

impl std::error::Error for AttachError {}

/// Names a hook of a connection. One that is attached later never has the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HookId {
    place: u32,
    generation: u32,
}

/// Most hooks on a connection at a time.
const MAX_HOOKS: usize = 32;

/// Most frame types that may be one hook's own.
const MAX_FRAME_TYPES: usize = 16;

/// A place for a hook; given again when that is off.
#[derive(Default)]
struct Place {
    generation: u32,
    hook: Option<Box<dyn Hook>>,
    frames: Vec<OwnFrame>,
}

/// Hooks attached to one operation, for one frame type or for all.
#[derive(Debug, Clone, Default)]
pub(crate) struct Attached {
    pub before: Vec<HookId>,
    pub replace: Option<HookId>,
    pub after: Vec<HookId>,
}

impl Attached {
    fn is_empty(&self) -> bool {
        self.before.is_empty() && self.replace.is_none() && self.after.is_empty()
    }

    /// Hooks for every frame type and those for this one; what is for one type goes before what is
    /// for all.
    fn join(&self, specific: &Attached) -> Attached {
        Attached {
            before: [&self.before[..], &specific.before[..]].concat(),
            replace: specific.replace.or(self.replace),
            after: [&self.after[..], &specific.after[..]].concat(),
        }
    }
}

/// All hooks of a connection.
#[derive(Default)]
pub(crate) struct Table {
    /// A bit for each operation that anything is attached to.
    hooked: u128,
    points: BTreeMap<(Operation, Option<u64>), Attached>,
    /// At most [`MAX_HOOKS`], but for those whose generations are used up.
    places: Vec<Place>,
    /// Hook that each hook-owned frame type belongs to, with the type's properties.
    owners: BTreeMap<u64, (HookId, OwnFrame)>,
}

impl Table {
    /// The test that an operation costs which nobody is attached to.
    #[inline]
    pub(crate) fn is_hooked(&self, operation: Operation) -> bool {
        // Without the table at all, for a benchmark to compare with.
        !cfg!(feature = "bench-without-operations") && self.hooked & operation.bit() != 0
    }

    /// Whether any hook is attached to anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.hooked == 0
    }

    pub(crate) fn attached(&self, operation: Operation, parameter: u64) -> Attached {
        let all = self.points.get(&(operation, None));
        let specific = self.points.get(&(operation, Some(parameter)));
        let mut attached = match (all, specific) {
            (Some(all), Some(specific)) => all.join(specific),
            (Some(one), None) | (None, Some(one)) => one.clone(),
            (None, None) => Attached::default(),
        };
        attached.replace =
            attached.replace.filter(|id| self.may_replace(*id, operation, parameter));
        attached
    }

    /// Frames of a type that the transport knows are written by nobody else; those that it does not know
    /// are for the hook whose own they are, from the first byte to the last.
    fn may_replace(&self, id: HookId, operation: Operation, parameter: u64) -> bool {
        if operation.describe().carries != Carries::Frame {
            return true;
        }
        match self.owner(parameter) {
            Some((owner, _)) => owner == id,
            None => is_known(parameter) && !is_for_owners(operation),
        }
    }

    /// Hook that a frame type belongs to; none: it is no hook's own.
    pub(crate) fn owner(&self, frame_type: u64) -> Option<(HookId, OwnFrame)> {
        self.owners.get(&frame_type).copied()
    }

    /// The hook and the frame types that are its own.
    pub(crate) fn hook_mut(&mut self, id: HookId) -> Option<(&mut dyn Hook, &[OwnFrame])> {
        let place = self.places.get_mut(id.place as usize)?;
        if place.generation != id.generation {
            return None;
        }
        Some((&mut **place.hook.as_mut()?, &place.frames))
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
            if point.frame_type.is_some() && operation.describe().carries != Carries::Frame {
                return Err(AttachError::NoFrameTypes(operation));
            }
            let there = self.points.get(&(operation, point.frame_type));
            if point.replace && there.is_some_and(|there| there.replace.is_some()) {
                return Err(AttachError::Taken(operation));
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

    /// A place that is free.
    fn place(&mut self) -> Result<u32, AttachError> {
        let free = |place: &Place| place.hook.is_none() && place.generation < u32::MAX;
        let taken = self.places.iter().filter(|place| place.hook.is_some()).count();
        if taken >= MAX_HOOKS {
            return Err(AttachError::TooMany);
        }
        let at = self.places.iter().position(free).unwrap_or_else(|| {
            self.places.push(Place::default());
            self.places.len() - 1
        });
        u32::try_from(at).map_err(|_| AttachError::TooMany)
    }

    pub(crate) fn attach(
        &mut self,
        hook: Box<dyn Hook>,
        points: &[Point],
        frames: &[OwnFrame],
    ) -> Result<HookId, AttachError> {
        self.check(points, frames)?;
        let at = self.place()?;
        let place = &mut self.places[at as usize];
        let id = HookId { place: at, generation: place.generation };
        (place.hook, place.frames) = (Some(hook), frames.to_vec());
        for own in frames {
            self.owners.insert(own.frame_type, (id, *own));
        }
        for point in points {
            let there = self.points.entry((point.operation, point.frame_type)).or_default();
            if point.before {
                there.before.push(id);
            }
            if point.replace {
                there.replace = Some(id);
            }
            if point.after {
                there.after.push(id);
            }
        }
        self.count_anew();
        Ok(id)
    }

    pub(crate) fn detach(&mut self, id: HookId) -> Option<Box<dyn Hook>> {
        self.hook_mut(id)?;
        let place = &mut self.places[id.place as usize];
        // The next hook here has another name.
        place.generation += 1;
        place.frames = Vec::new();
        let hook = place.hook.take();
        for there in self.points.values_mut() {
            there.before.retain(|other| *other != id);
            there.after.retain(|other| *other != id);
            there.replace = there.replace.filter(|other| *other != id);
        }
        self.points.retain(|_, there| !there.is_empty());
        self.owners.retain(|_, (owner, _)| *owner != id);
        self.count_anew();
        hook
    }

    fn count_anew(&mut self) {
        self.hooked = self.points.keys().fold(0, |bits, (operation, _)| bits | operation.bit());
    }
}

/// Whether the transport itself knows the frame type.
fn is_known(frame_type: u64) -> bool {
    VarInt::new(frame_type).is_ok_and(|frame_type| FrameType(frame_type).is_known())
}

/// Whether the operation may be replaced only for frame types that are a hook's own.
fn is_for_owners(operation: Operation) -> bool {
    use Operation::{FrameAcked, FrameLost, WriteFrame};
    matches!(operation, WriteFrame | FrameAcked | FrameLost)
}
