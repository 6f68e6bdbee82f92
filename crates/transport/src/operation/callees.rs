//! Hooks that one call of an operation goes to, as the table has them: one word for each operation.

use super::hooks::MAX_HOOKS;

/// In [`Callees`]: no hook is called.
pub(super) const NOBODY: u8 = u8::MAX;

/// In [`Callees`]: more than one hook is called; there is a list of them.
pub(super) const MANY: u8 = NOBODY - 1;

const _: () = assert!(MAX_HOOKS <= MANY as usize, "a place is neither of them");

/// Hooks that a call goes to: their places in the connection's list, or [`NOBODY`], or [`MANY`]. It is one word, written
/// as one, so that a call has it in a register whole: a struct of these fields is taken apart and put together again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Callees(u64);

/// First bits of those called before the operation, in its place and after it; below them is the number of the list.
const BEFORE_BITS: u32 = 32;
const REPLACE_BITS: u32 = 40;
const AFTER_BITS: u32 = 48;

/// Other hooks may be called for a frame type that a hook named or owns.
const BY_TYPE: u64 = 1 << 56;

impl Default for Callees {
    fn default() -> Callees {
        Callees::NONE
    }
}

/// Hooks that are called before an operation, in its place, or after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watchers {
    Nobody,
    /// The hook at a place.
    One(usize),
    /// [`Hooks::before`](super::Hooks::before), [`Hooks::replacing`](super::Hooks::replacing) and
    /// [`Hooks::after`](super::Hooks::after) say who.
    Many,
}

impl Watchers {
    #[inline(always)]
    fn of(place: u8) -> Watchers {
        match place {
            NOBODY => Watchers::Nobody,
            MANY => Watchers::Many,
            place => Watchers::One(usize::from(place)),
        }
    }
}

impl Callees {
    /// No hook is called.
    pub(super) const NONE: Callees = Callees::new(NOBODY, NOBODY, NOBODY, false, 0);

    /// Calls of `before`, `replace` and `after`, and the number of the list for those that are [`MANY`]; `by_type` says
    /// that other hooks may be called for some frame types.
    pub(super) const fn new(
        before: u8,
        replace: u8,
        after: u8,
        by_type: bool,
        list: u32,
    ) -> Callees {
        let places = (before as u64) << BEFORE_BITS
            | (replace as u64) << REPLACE_BITS
            | (after as u64) << AFTER_BITS;
        Callees(places | if by_type { BY_TYPE } else { 0 } | list as u64)
    }

    /// The same, but nobody is called in the operation's place.
    pub(super) fn without_replacing(self) -> Callees {
        Callees(self.0 | u64::from(NOBODY) << REPLACE_BITS)
    }

    /// True if other hooks may be called for a frame type that a hook named or owns.
    #[inline(always)]
    pub(super) fn by_type(self) -> bool {
        self.0 & BY_TYPE != 0
    }

    /// Number of the list of those called before, in the operation's place and after, where they are many.
    pub(super) fn list(self) -> usize {
        self.0 as u32 as usize
    }

    /// Those called before the operation.
    #[inline(always)]
    pub(crate) fn before(self) -> Watchers {
        Watchers::of((self.0 >> BEFORE_BITS) as u8)
    }

    /// Those that may replace the operation.
    #[inline(always)]
    pub(crate) fn replacing(self) -> Watchers {
        Watchers::of((self.0 >> REPLACE_BITS) as u8)
    }

    /// Those called after the operation.
    #[inline(always)]
    pub(crate) fn after(self) -> Watchers {
        Watchers::of((self.0 >> AFTER_BITS) as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_one_word() {
        assert_eq!(size_of::<Callees>(), 8);
        let none = Callees::default();
        assert_eq!(
            (none.before(), none.replacing(), none.after()),
            (Watchers::Nobody, Watchers::Nobody, Watchers::Nobody)
        );
        let last = u8::try_from(MAX_HOOKS - 1).unwrap();
        let some = Callees::new(last, 0, MANY, true, 7);
        assert_eq!(some.before(), Watchers::One(MAX_HOOKS - 1));
        assert_eq!((some.replacing(), some.after()), (Watchers::One(0), Watchers::Many));
        assert!(some.by_type() && !none.by_type());
        assert_eq!((some.list(), none.list()), (7, 0));
        let others = some.without_replacing();
        assert_eq!(others.replacing(), Watchers::Nobody);
        assert_eq!((others.before(), others.after()), (some.before(), some.after()));
    }
}
