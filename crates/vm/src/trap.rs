//! Ways in which a call can end before its `exit`.

use std::borrow::Cow;

use thiserror::Error;

/// Reason for which a helper did not do its work.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HelperError {
    /// A pointer and a length that are not in the sandbox.
    #[error(
        "{len} bytes at {offset:#x} are not in the sandbox: pass a variable's address and size"
    )]
    Memory {
        /// Offset as the program gave it.
        offset: u64,
        /// Length as the program gave it.
        len: u64,
    },
    /// More work than the budget has left.
    #[error("its work costs more than the budget has left: ask for less")]
    Budget,
    /// An argument with a value that its type does not have.
    #[error("argument {value:#x} does not fit into {bits} bits")]
    Argument {
        /// The register's value.
        value: u64,
        /// Bits of the parameter.
        bits: u32,
    },
    /// The helper's own reason.
    #[error("{0}")]
    Failed(Cow<'static, str>),
}

impl HelperError {
    /// An error with a reason of the helper's own.
    pub fn failed(reason: impl Into<Cow<'static, str>>) -> HelperError {
        HelperError::Failed(reason.into())
    }
}

/// A call that was ended: by what, and where in the program.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("instruction {at}{}: {kind}", function.as_deref().map(|name| format!(" (in {name})")).unwrap_or_default())]
pub struct Trap {
    /// Reason for which the call was ended.
    pub kind: TrapKind,
    /// Index of the instruction, LDDW counted twice.
    pub at: usize,
    /// Name of the function that the instruction is in, if the program has names.
    pub function: Option<String>,
}

/// Reason for which a call was ended.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TrapKind {
    /// The budget is used up.
    #[error("the budget is used up: let the program do less in one call, or give it more")]
    Budget,
    /// A helper refused.
    #[error("helper {name} ({number}): {error}")]
    Helper {
        /// The helper's number.
        number: u32,
        /// The helper's name.
        name: String,
        /// Reason that the helper gives.
        error: HelperError,
    },
    /// The entry is of another program.
    #[error("the entry is not of this program: ask this one for it by name")]
    NoEntry,
}
