//! The hooks that one call of an operation reaches, encoded as one word of the table in `table.rs`.

use super::hooks::MAX_HOOKS;

/// Value in [`Callees`] for a part of the call in which no hook is called.
pub(super) const NO_HOOK: u8 = u8::MAX;

/// Value in [`Callees`] if several hooks are called. The table has a list of them.
pub(super) const MANY: u8 = NO_HOOK - 1;

const _: () =
    assert!(MAX_HOOKS <= MANY as usize, "the index of a hook must differ from NO_HOOK and MANY");

/// The hooks that a call reaches before, in place of and after the operation. Each of the three is
/// the position of a hook in the connection's list of hooks, [`NO_HOOK`] or [`MANY`]. They are
/// stored as one integer, which stays in a register. The compiler would split and reassemble a
/// struct with such fields.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Callees(u64);

/// Positions of the bits for the hooks that are called before, in place of and after the operation.
/// The lowest bits hold the number of the list for [`MANY`].
const BEFORE_BITS: u32 = 32;
const REPLACE_BITS: u32 = 40;
const AFTER_BITS: u32 = 48;

/// Bit that is set if further hooks may be called for a frame type that a hook has named or owns.
const BY_TYPE: u64 = 1 << 56;

impl Default for Callees {
    fn default() -> Callees {
        Callees::NONE
    }
}

/// The hooks that a call reaches before, in place of, or after an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watchers {
    Nobody,
    /// One hook, at this position in the connection's list of hooks.
    One(usize),
    /// Several hooks. [`Hooks::before`](super::Hooks::before),
    /// [`Hooks::replacing`](super::Hooks::replacing) and
    /// [`Hooks::after`](super::Hooks::after) return them.
    Many,
}

impl Watchers {
    #[inline(always)]
    fn of(place: u8) -> Watchers {
        match place {
            NO_HOOK => Watchers::Nobody,
            MANY => Watchers::Many,
            place => Watchers::One(usize::from(place)),
        }
    }
}

impl Callees {
    /// The value for calls that reach no hook.
    pub(super) const NONE: Callees = Callees::new(NO_HOOK, NO_HOOK, NO_HOOK, false, 0);

    /// Encodes the hooks that are called before, in place of and after the operation.
    ///
    /// * `list`: the number of the table's list of hooks, for values that are [`MANY`];
    /// * `by_type`: true if further hooks may be called for some frame types.
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

    /// Returns the same hooks, except for those that replace the operation.
    pub(super) fn without_replacing(self) -> Callees {
        Callees(self.0 | u64::from(NO_HOOK) << REPLACE_BITS)
    }

    /// Returns true if further hooks may be called for a frame type that a hook has named or owns.
    #[inline(always)]
    pub(super) fn by_type(self) -> bool {
        self.0 & BY_TYPE != 0
    }

    /// Returns the number of the table's list of hooks, for values that are [`MANY`].
    pub(super) fn list(self) -> usize {
        self.0 as u32 as usize
    }

    /// Returns the hooks that are called before the operation.
    #[inline(always)]
    pub(crate) fn before(self) -> Watchers {
        Watchers::of((self.0 >> BEFORE_BITS) as u8)
    }

    /// Returns the hooks that may replace the operation.
    #[inline(always)]
    pub(crate) fn replacing(self) -> Watchers {
        Watchers::of((self.0 >> REPLACE_BITS) as u8)
    }

    /// Returns the hooks that are called after the operation.
    #[inline(always)]
    pub(crate) fn after(self) -> Watchers {
        Watchers::of((self.0 >> AFTER_BITS) as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hook_callees_are_one_word() {
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
