//! Calls of a plugin, one after the other, for who develops it.

use equic_transport::Timestamp;
use equic_transport::operation::Operation;

use crate::manifest::Anchor;

/// What came of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// It looked on.
    Seen,
    /// The default runs.
    Default,
    /// It did the operation, with these outputs, held to its classes.
    Done(&'a [u64]),
    /// It failed, for this reason, and is taken off.
    Failed(&'a str),
}

/// A call of a function of a plugin.
#[derive(Clone, Copy, Debug)]
pub struct Traced<'a> {
    /// The moment of the call on the connection's clock.
    pub now: Timestamp,
    /// Operation that was called.
    pub operation: Operation,
    /// Anchor of the function.
    pub anchor: Anchor,
    /// Frame type, of operations that are there for each; else 0.
    pub frame: u64,
    /// Input words.
    pub inputs: &'a [u64],
    /// What came of it.
    pub answer: Answer<'a>,
    /// Instructions that the call was charged.
    pub steps: u64,
}

/// Whom calls of a plugin are told.
pub trait Trace: Send {
    /// A function of the plugin was called.
    fn on_call(&mut self, call: &Traced<'_>);

    /// The plugin logs a line, and a number with it. It has no control characters.
    fn on_log(&mut self, line: &str, value: u64);
}

/// What bytecode wrote, or the names in it: for people to read, on one line, and not longer than this.
pub(super) fn printable(text: &str, most: usize) -> String {
    let shown =
        |letter: char| if letter.is_control() { char::REPLACEMENT_CHARACTER } else { letter };
    text.chars().take(most).map(shown).collect()
}
