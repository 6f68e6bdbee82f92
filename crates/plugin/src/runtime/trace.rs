//! Reports every call of a plugin's functions to the plugin's developer.

use equic_transport::Timestamp;
use equic_transport::operation::Operation;

use crate::manifest::Anchor;

/// What happened in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// The function observed the operation and changed nothing.
    Seen,
    /// The function declined, so the operation's default implementation runs.
    Default,
    /// The function replaced the operation and returned these outputs, after they were limited to
    /// what the plugin's classes permit.
    Done(&'a [u64]),
    /// The function failed for this reason, so the plugin is detached.
    Failed(&'a str),
}

/// A report about one call of a plugin's function.
#[derive(Clone, Copy, Debug)]
pub struct Traced<'a> {
    /// Time of the call on the connection's clock.
    pub now: Timestamp,
    /// Operation that was called.
    pub operation: Operation,
    /// Position of the function relative to the operation: before, after, or instead of it.
    pub anchor: Anchor,
    /// Frame type, for operations that exist for each frame type. Otherwise 0.
    pub frame: u64,
    /// Input words.
    pub inputs: &'a [u64],
    /// Outcome of the call.
    pub answer: Answer<'a>,
    /// Steps that the call was charged.
    pub steps: u64,
}

/// Receives reports of a plugin's calls and the lines that the plugin logs.
pub trait Trace: Send {
    /// Called after each call of a function of the plugin.
    fn on_call(&mut self, call: &Traced<'_>);

    /// Called for each line that the plugin logs, with the number that the plugin passed. The line
    /// has no control characters.
    fn on_log(&mut self, line: &str, value: u64);
}

/// Returns text from bytecode in printable form: one line of at most `most` characters.
pub(super) fn printable(text: &str, most: usize) -> String {
    let shown =
        |letter: char| if letter.is_control() { char::REPLACEMENT_CHARACTER } else { letter };
    text.chars().take(most).map(shown).collect()
}
