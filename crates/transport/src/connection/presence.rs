//! The compiler knows if hooks can be attached. What runs for every packet is compiled twice: once
//! without any call of a hook, for connections that have none, and once with a test at each
//! operation (`operate.rs`).
//!
//! Hooks come and go between two calls into the connection, or at the end of one (`requests.rs`),
//! so the copy that a call begins with holds until its end.

use super::Connection;
use crate::operation::{AbiValue, Bytes, Operation};

/// Calls of operations, as [`Connection`] has them by the same names.
pub(super) trait Presence: Copy {
    /// False: no hook is attached to the connection.
    const POSSIBLE: bool;

    /// True if nobody is attached to any of the operations with these bits ([`Operation::bits`]),
    /// so that what does the same without calling them may be taken instead.
    #[inline(always)]
    fn may_pass_over(self, connection: &Connection, operations: u128) -> bool {
        !Self::POSSIBLE || !connection.hooks.is_any_hooked(operations)
    }

    #[inline(always)]
    fn is_hooked(self, connection: &Connection, operation: Operation) -> bool {
        Self::POSSIBLE && connection.hooks.is_hooked(operation)
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
    fn act_always<I: AbiValue, O: AbiValue>(
        self,
        connection: &mut Connection,
        operation: Operation,
        input: I,
        action: impl FnOnce(&mut Connection) -> O,
    ) -> O {
        if Self::POSSIBLE {
            connection.act_always(operation, input, action)
        } else {
            action(connection)
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
