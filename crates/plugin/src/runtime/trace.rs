//! Traces the calls of a plugin for its developer.

use equic_transport::Timestamp;
use equic_transport::operation::Operation;

use crate::manifest::Anchor;

/// Outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// The function observed the operation.
    Seen,
    /// The default runs.
    Default,
    /// The function replaced the operation with these outputs. They are limited by the plugin's
    /// classes.
    Done(&'a [u64]),
    /// The function failed for this reason, so the plugin is detached.
    Failed(&'a str),
}

/// A call of a function of a plugin.
#[derive(Clone, Copy, Debug)]
pub struct Traced<'a> {
    /// Time of the call on the connection's clock.
    pub now: Timestamp,
    /// Operation that was called.
    pub operation: Operation,
    /// Anchor of the function.
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

/// Receives a plugin's calls and its log lines.
pub trait Trace: Send {
    /// Handles a call of a function of the plugin.
    fn on_call(&mut self, call: &Traced<'_>);

    /// Handles a log line of the plugin and the number that belongs to it. The line has no control
    /// characters.
    fn on_log(&mut self, line: &str, value: u64);
}

/// Makes text from bytecode printable: one line of at most `most` characters.
pub(super) fn printable(text: &str, most: usize) -> String {
    let shown =
        |letter: char| if letter.is_control() { char::REPLACEMENT_CHARACTER } else { letter };
    text.chars().take(most).map(shown).collect()
}
