//! The interface between bytecode and its host: arguments of a call, and helpers. Plugins are compiled against it, so
//! numbers are never reused, and a removal changes [`crate::ABI`].
//!
//! A function of a plugin is called with four arguments:
//!
//! | register | |
//! |---|---|
//! | r1 | address of the call's words: the operation's inputs, followed by its outputs, 8 bytes each, little endian |
//! | r2 | address of the call's bytes, or 0 if it has none |
//! | r3 | number of these bytes, at most [`MAX_BYTES`]; longer bytes are cut off |
//! | r4 | frame type, for operations that exist for each frame type; otherwise 0 |
//!
//! The result matters only for functions that replace an operation: [`DEFAULT`] or [`DONE`].

use equic_transport::operation::Field;
use equic_vm::HelperHost;

use super::view::Context;
use crate::class::Class;

/// Bytes for the words of a call, up to eight inputs and eight outputs.
pub(super) const WORDS: u64 = 128;
/// Most bytes of a call that bytecode reads or writes.
pub(super) const MAX_BYTES: u64 = 4096;
/// Bytes of the sandbox that calls use.
pub(super) const AREA: u64 = WORDS + MAX_BYTES;

/// Returned by a function that replaces an operation: run the default.
pub const DEFAULT: u64 = 0;
/// Returned by a function that replaces an operation: the outputs are written.
pub const DONE: u64 = 1;

/// The bytecode's host.
#[derive(Debug)]
pub(super) struct Abi;

impl HelperHost for Abi {
    type Data<'h> = Context<'h>;
}

/// Description of a helper.
#[derive(Debug)]
pub(crate) struct Helper {
    pub(crate) number: u32,
    pub(crate) name: &'static str,
    /// Type of the result in C.
    pub(crate) result: &'static str,
    /// Parameters in C.
    pub(crate) parameters: &'static str,
    /// Description in the C header.
    pub(crate) does: &'static str,
    /// Steps that a call costs.
    pub(crate) cost: u32,
    /// Class that a plugin needs to have the helper.
    pub(super) class: Option<Class>,
    /// It changes the connection, so only functions that replace an operation may call it.
    pub(super) changes: bool,
}

/// All helpers, by number.
pub(crate) const HELPERS: &[Helper] = &[
    Helper {
        number: 1,
        name: "equic_get",
        result: "equic_u64",
        parameters: "equic_u64 field",
        does: "Reads a field, one of the manifest's `reads`.",
        cost: 15,
        class: Some(Class::Observe),
        changes: false,
    },
    Helper {
        number: 2,
        name: "equic_set",
        result: "equic_u64",
        parameters: "equic_u64 field, equic_u64 value",
        does: "Sets a field, one of the manifest's `sets`, in an operation's place. Returns the value that it has \
               then: it is held within bounds.",
        cost: 40,
        class: None,
        changes: true,
    },
    Helper {
        number: 3,
        name: "equic_now",
        result: "equic_u64",
        parameters: "void",
        does: "The moment of the call, in nanoseconds on the connection's clock.",
        cost: 10,
        class: None,
        changes: false,
    },
    Helper {
        number: 4,
        name: "equic_log",
        result: "equic_u64",
        parameters: "const void *text, equic_u64 length, equic_u64 value",
        does: "A line for who develops the plugin, and a number: `equic plugin run` shows them. Otherwise nobody \
               sees it.",
        cost: 50,
        class: None,
        changes: false,
    },
    Helper {
        number: 5,
        name: "equic_queue_frame",
        result: "equic_u64",
        parameters: "equic_u64 type, equic_u64 token",
        does: "Asks for a frame of this type, one of the plugin's own, to be sent: WriteFrame will be called for \
               it, with `token`. In an operation's place. Returns 1; 0: 64 frames of the plugin wait already, or the \
               peer's plugins have used up their `frame_bytes_per_second`: ask again later.",
        cost: 50,
        class: Some(Class::Frames),
        changes: true,
    },
    Helper {
        number: 6,
        name: "equic_tell",
        result: "equic_u64",
        parameters: "const void *message, equic_u64 length",
        does: "Tells the application something, in 1,024 bytes at most. Returns 1; 0: it has not taken the messages \
               before.",
        cost: 500,
        class: None,
        changes: false,
    },
    Helper {
        number: 7,
        name: "equic_set_timer",
        result: "equic_u64",
        parameters: "equic_u64 at",
        does: "Has HookTimer called at this moment, once, and no sooner than in 10 milliseconds; EQUIC_NONE: not at \
               all. A plugin has one timer. In an operation's place, be it InitOpaqueData or HookTimer.",
        cost: 50,
        class: None,
        changes: true,
    },
    Helper {
        number: 8,
        name: "equic_get_of",
        result: "equic_u64",
        parameters: "equic_u64 field, equic_u64 part",
        does: "Reads a field, one of the manifest's `reads`, of one part of the connection: what a path has, of the \
               path with this number; EQUIC_BYTES_UNSENT, of the stream with this ID; EQUIC_NEXT_PATH, from this \
               number on. EQUIC_NONE: there is no such path or stream, or the field is the whole connection's.",
        cost: 25,
        class: Some(Class::Observe),
        changes: false,
    },
    Helper {
        number: 9,
        name: "equic_process_payload",
        result: "equic_u64",
        parameters: "equic_u64 number, const void *payload, equic_u64 length",
        does: "Hands up the payload of a 1-RTT packet that did not come, of 4,096 bytes at most, in an operation's \
               place: frames of streams and DATAGRAM frames in it count as if the packet had come, up to the first \
               frame of another type that QUIC does not know. The packet is not acknowledged. Returns 1; 0: too many \
               requests wait.",
        cost: 500,
        class: Some(Class::Payload),
        changes: true,
    },
    Helper {
        number: 10,
        name: "equic_call",
        result: "equic_u64",
        parameters: "equic_u64 call, equic_u64 *words, equic_u64 length",
        does: "Calls an operation that another plugin provides: the one at this place of the manifest's `calls`, \
               counted from 0. `words` are its inputs, and behind them room for its outputs: `length` bytes in all. \
               Returns 1; 0: no such plugin is attached, it runs already, it failed, or it may take more \
               instructions than this call has left; the outputs are zeros then. What it takes counts here, too.",
        cost: 100,
        class: None,
        changes: false,
    },
    Helper {
        number: 11,
        name: "equic_call_default",
        result: "equic_u64",
        parameters: "void",
        does: "What the default answers, or the plugin that was attached before: writes it to `call->out`, whatever \
               the function has written there, and returns its first word. Only of operations that the manifest \
               attaches with `default = true`: the default is asked before the function is called, once, whether \
               or not this is.",
        cost: 10,
        class: None,
        changes: false,
    },
];

/// Returns the field with this number.
pub(super) fn field(number: u64) -> Option<Field> {
    const BY_NUMBER: [Option<Field>; 128] = {
        let mut table = [None; 128];
        let mut at = 0;
        while at < Field::ALL.len() {
            table[Field::ALL[at] as usize] = Some(Field::ALL[at]);
            at += 1;
        }
        table
    };
    *BY_NUMBER.get(usize::try_from(number).ok()?)?
}
