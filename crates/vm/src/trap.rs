//! Reasons why a call of a program ends before the program's `exit`.

use std::borrow::Cow;

use thiserror::Error;

/// Reason why a helper failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HelperError {
    /// The program passed an offset and a length that are not inside the sandbox.
    #[error(
        "the {len} bytes at {offset:#x} are outside of the sandbox: pass the address and size of a variable"
    )]
    Memory {
        /// Offset passed by the program.
        offset: u64,
        /// Length passed by the program.
        len: u64,
    },
    /// The helper's work would cost more than the remaining budget.
    #[error("the helper's work costs more than the remaining budget: request less work per call")]
    Budget,
    /// The value of an argument does not fit into the type of the helper's parameter.
    #[error("argument {value:#x} does not fit into {bits} bits")]
    Argument {
        /// Value of the register.
        value: u64,
        /// Number of bits of the parameter.
        bits: u32,
    },
    /// A reason that only this helper has, as text.
    #[error("{0}")]
    Failed(Cow<'static, str>),
}

impl HelperError {
    /// Creates an error with the helper's own reason.
    pub fn failed(reason: impl Into<Cow<'static, str>>) -> HelperError {
        HelperError::Failed(reason.into())
    }
}

/// Error of a call that ended early: the reason, and the position in the program.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("instruction {at}{}: {kind}", function.as_deref().map(|name| format!(" (in {name})")).unwrap_or_default())]
pub struct Trap {
    /// Reason why the call ended.
    pub kind: TrapKind,
    /// Index of the instruction that ended the call. LDDW counts as two.
    pub at: usize,
    /// Name of the function that contains the instruction, or `None` if the names are not known.
    pub function: Option<String>,
}

/// Reason why a call ended early.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TrapKind {
    /// The budget is used up.
    #[error("the budget is used up: let the program do less in one call, or increase the budget")]
    Budget,
    /// A helper failed.
    #[error("helper {name} ({number}): {error}")]
    Helper {
        /// The helper's number.
        number: u32,
        /// The helper's name.
        name: String,
        /// Reason why the helper failed.
        error: HelperError,
    },
    /// The entry that was called belongs to another program.
    #[error(
        "the entry belongs to another program: get an entry of this program with `Program::entry`"
    )]
    NoEntry,
}
