//! Lets the compiler know whether hooks can be attached. Code that runs for every packet is
//! compiled twice. One copy has no calls of hooks, and is for connections without hooks. The other
//! copy has a test at each operation (`operate.rs`).
//!
//! Hooks are attached and detached only between two calls into the connection, or at the end of a
//! call (`requests.rs`). A call can therefore use one copy until its end.

use super::Connection;
use crate::operation::{AbiValue, Bytes, Operation};

/// Calls of operations, with the same names as the functions of [`Connection`].
pub(super) trait Presence: Copy {
    /// True if hooks may be attached to the connection.
    const POSSIBLE: bool;

    /// Returns true if no hook is attached to any of the operations with these bits
    /// ([`Operation::bits`]). Code that does the same without these operations can then be used.
    #[inline(always)]
    fn may_pass_over(self, connection: &Connection, operations: u128) -> bool {
        !Self::POSSIBLE || !connection.hooks.is_any_hooked(operations)
    }

    #[inline(always)]
    fn is_hooked(self, connection: &Connection, operation: Operation) -> bool {
        Self::POSSIBLE && connection.hooks.is_hooked(operation)
    }

    #[inline(always)]
    fn begin_always<I: AbiValue, O: AbiValue>(
        self,
        connection: &mut Connection,
        operation: Operation,
        input: I,
    ) {
        if Self::POSSIBLE {
            connection.begin_always::<I, O>(operation, input);
        }
    }

    #[inline(always)]
    fn end_always<I: AbiValue, O: AbiValue>(
        self,
        connection: &mut Connection,
        operation: Operation,
        input: I,
        output: O,
    ) {
        if Self::POSSIBLE {
            connection.end_always(operation, input, output);
        }
    }

    #[inline(always)]
    fn begin_with<I: AbiValue, O: AbiValue>(
        self,
        connection: &mut Connection,
        operation: Operation,
        frame_type: u64,
        input: I,
        bytes: Bytes<'_>,
    ) -> Option<O> {
        if Self::POSSIBLE {
            connection.begin_with(operation, frame_type, input, bytes)
        } else {
            None
        }
    }

    #[inline(always)]
    fn end_with<I: AbiValue, O: AbiValue>(
        self,
        connection: &mut Connection,
        operation: Operation,
        frame_type: u64,
        input: I,
        bytes: Bytes<'_>,
        output: O,
    ) {
        if Self::POSSIBLE {
            connection.end_with(operation, frame_type, input, bytes, output);
        }
    }

    #[inline(always)]
    fn notify<I: AbiValue>(self, connection: &mut Connection, operation: Operation, input: I) {
        if Self::POSSIBLE {
            connection.notify(operation, input);
        }
    }

    #[inline(always)]
    fn notify_on<I: AbiValue>(
        self,
        connection: &mut Connection,
        operation: Operation,
        input: I,
        bytes: &[u8],
    ) {
        if Self::POSSIBLE {
            connection.notify_on(operation, input, bytes);
        }
    }

    #[inline(always)]
    fn decide<I: AbiValue, O: AbiValue>(
        self,
        connection: &mut Connection,
        operation: Operation,
        input: I,
        usual: O,
    ) -> O {
        if Self::POSSIBLE { connection.decide(operation, input, usual) } else { usual }
    }

    #[inline(always)]
    fn decide_within<I: AbiValue, O: AbiValue>(
        self,
        connection: &mut Connection,
        operation: Operation,
        input: I,
        usual: O,
        bound: impl FnOnce(&mut Connection, O) -> O,
    ) -> O {
        if Self::POSSIBLE {
            connection.decide_within(operation, input, usual, bound)
        } else {
            usual
        }
    }

    #[inline(always)]
    fn decide_from<I: AbiValue, O: AbiValue>(
        self,
        connection: &mut Connection,
        operation: Operation,
        input: I,
        usual: impl FnOnce(&mut Connection) -> O,
        bound: impl FnOnce(&mut Connection, O) -> O,
    ) -> O {
        if Self::POSSIBLE {
            connection.decide_from(operation, input, usual, bound)
        } else {
            usual(connection)
        }
    }

    #[inline(always)]
    fn decide_limited<I: AbiValue, O: AbiValue>(
        self,
        connection: &mut Connection,
        operation: Operation,
        input: I,
        usual: impl FnOnce(&mut Connection) -> O,
        bound: impl FnOnce(&mut Connection, O, O) -> O,
    ) -> O {
        if Self::POSSIBLE {
            connection.decide_limited(operation, input, usual, bound)
        } else {
            usual(connection)
        }
    }

    #[inline(always)]
    fn act<I: AbiValue>(
        self,
        connection: &mut Connection,
        operation: Operation,
        input: I,
        action: impl FnOnce(&mut Connection),
    ) {
        if Self::POSSIBLE {
            connection.act(operation, input, action);
        } else {
            action(connection);
        }
    }

    #[inline(always)]
    fn decide_on_frame<I: AbiValue, O: AbiValue>(
        self,
        connection: &mut Connection,
        operation: Operation,
        frame_type: u64,
        input: I,
        bytes: Option<&[u8]>,
        usual: impl FnOnce(&mut Connection) -> O,
    ) -> O {
        if Self::POSSIBLE {
            connection.decide_on_frame(operation, frame_type, input, bytes, usual)
        } else {
            usual(connection)
        }
    }

    #[inline(always)]
    fn decide_on<I: AbiValue, O: AbiValue>(
        self,
        connection: &mut Connection,
        operation: Operation,
        input: I,
        bytes: &[u8],
        usual: O,
    ) -> O {
        if Self::POSSIBLE { connection.decide_on(operation, input, bytes, usual) } else { usual }
    }
}

/// Hooks may be attached, to some operations or to none.
#[derive(Clone, Copy)]
pub(super) struct MayBeAttached;

impl Presence for MayBeAttached {
    const POSSIBLE: bool = true;
}

/// No hook is attached ([`Hooks::is_empty`](crate::operation::Hooks::is_empty)).
#[derive(Clone, Copy)]
pub(super) struct NoneAttached;

impl Presence for NoneAttached {
    const POSSIBLE: bool = false;
}
