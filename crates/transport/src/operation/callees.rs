//! Hooks that one call of an operation goes to, as the table of dispatch has them: one word for each operation.

use super::hooks::MAX_HOOKS;

/// In [`Callees`]: no hook is called.
pub(super) const NOBODY: u8 = u8::MAX;

/// In [`Callees`]: more than one hook is called; there is a list of them.
pub(super) const MANY: u8 = NOBODY - 1;

const _: () = assert!(MAX_HOOKS <= MANY as usize, "a place is neither of them");

/// Hooks that a call goes to: their places in the connection's list, or [`NOBODY`], or [`MANY`]. It is one word, so
/// that a call has it in a register.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Callees {
    pub(super) before: u8,
    /// The one that replaces the operation, or those that may.
    pub(super) replace: u8,
    pub(super) after: u8,
    /// True if other hooks may be called for a frame type that a hook named or owns.
    pub(super) by_type: bool,
    /// Number of the list of those called before, in the operation's place and after, where they are many.
    pub(super) list: u32,
}

impl Default for Callees {
    fn default() -> Callees {
        Callees { before: NOBODY, replace: NOBODY, after: NOBODY, by_type: false, list: 0 }
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
    /// Those called before the operation.
    #[inline(always)]
    pub(crate) fn before(self) -> Watchers {
        Watchers::of(self.before)
    }

    /// Those that may replace the operation.
    #[inline(always)]
    pub(crate) fn replacing(self) -> Watchers {
        Watchers::of(self.replace)
    }

    /// Those called after the operation.
    #[inline(always)]
    pub(crate) fn after(self) -> Watchers {
        Watchers::of(self.after)
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
        let some = Callees { before: last, replace: 0, after: MANY, ..none };
        assert_eq!(some.before(), Watchers::One(MAX_HOOKS - 1));
        assert_eq!((some.replacing(), some.after()), (Watchers::One(0), Watchers::Many));
    }
}
