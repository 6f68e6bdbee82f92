//! Which hooks are attached to which operations.

use std::collections::BTreeMap;

use super::{Carries, Hook, Operation};

/// Where a hook is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// To what.
    pub operation: Operation,
    /// For which frame type; none: for every, or the operation knows none.
    pub frame_type: Option<u64>,
    /// Whether [`Hook::before`] is called.
    pub before: bool,
    /// Whether [`Hook::replace`] is called. One hook at most replaces an operation.
    pub replace: bool,
    /// Whether [`Hook::after`] is called.
    pub after: bool,
}

impl Point {
    /// To look on before and after.
    pub const fn observe(operation: Operation) -> Point {
        Point { operation, frame_type: None, before: true, replace: false, after: true }
    }

    /// To do it.
    pub const fn replace(operation: Operation) -> Point {
        Point { operation, frame_type: None, before: false, replace: true, after: false }
    }

    /// For one frame type alone.
    pub const fn of_frame(self, frame_type: u64) -> Point {
        Point { frame_type: Some(frame_type), ..self }
    }
}

/// Why a hook was not attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachError {
    /// Another replaces it already.
    Taken(Operation),
    /// The operation has no frame types.
    NoFrameTypes(Operation),
    /// No more than 32 hooks on a connection.
    TooMany,
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
            AttachError::TooMany => write!(f, "no more than {MAX_HOOKS} hooks on a connection"),
        }
    }
}

impl std::error::Error for AttachError {}

/// Names a hook of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HookId(pub(crate) usize);

/// How many hooks a connection takes, ever: their places are not given again.
const MAX_HOOKS: usize = 32;

/// Who is attached at one place.
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
    pub hooks: Vec<Option<Box<dyn Hook>>>,
}

impl Table {
    /// The test that an operation costs which nobody is attached to.
    #[inline]
    pub fn is_hooked(&self, operation: Operation) -> bool {
        // Without the table at all, for a benchmark to compare with.
        !cfg!(feature = "bench-without-operations") && self.hooked & operation.bit() != 0
    }

    pub fn attached(&self, operation: Operation, parameter: u64) -> Attached {
        let all = self.points.get(&(operation, None));
        let specific = self.points.get(&(operation, Some(parameter)));
        match (all, specific) {
            (Some(all), Some(specific)) => all.join(specific),
            (Some(one), None) | (None, Some(one)) => one.clone(),
            (None, None) => Attached::default(),
        }
    }

    pub fn attach(&mut self, hook: Box<dyn Hook>, points: &[Point]) -> Result<HookId, AttachError> {
        if self.hooks.len() >= MAX_HOOKS {
            return Err(AttachError::TooMany);
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
        }
        let id = HookId(self.hooks.len());
        self.hooks.push(Some(hook));
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

    pub fn detach(&mut self, id: HookId) -> Option<Box<dyn Hook>> {
        let hook = self.hooks.get_mut(id.0)?.take();
        for there in self.points.values_mut() {
            there.before.retain(|other| *other != id);
            there.after.retain(|other| *other != id);
            there.replace = there.replace.filter(|other| *other != id);
        }
        self.points.retain(|_, there| !there.is_empty());
        self.count_anew();
        hook
    }

    fn count_anew(&mut self) {
        self.hooked = self.points.keys().fold(0, |bits, (operation, _)| bits | operation.bit());
    }
}
