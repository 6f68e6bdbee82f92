//! The interface between plugin bytecode and its host: the arguments of a call, and the helpers
//! (host functions). Compiled plugins depend on this interface. Therefore, a number is never
//! reused, and a change that removes something increases [`crate::ABI`].
//!
//! The host calls a function of a plugin with four arguments:
//!
//! | register | |
//! |---|---|
//! | r1 | address of the call's words: the operation's inputs, followed by its outputs, 8 bytes each, little endian |
//! | r2 | address of the call's bytes, or 0 if it has none |
//! | r3 | number of these bytes, at most [`MAX_BYTES`]; longer bytes are cut off |
//! | r4 | frame type, for operations that exist for each frame type; otherwise 0 |
//!
//! The function's result matters only if the function replaces an operation. It is then [`DEFAULT`]
//! or [`DONE`].

use equic_transport::operation::Field;
use equic_vm::HelperHost;

use super::view::Context;
use crate::class::Class;

/// Space for the inputs and outputs of a call, in bytes: up to eight of each, 8 bytes long.
pub(super) const WORDS: u64 = 128;
/// Maximum length of the byte argument of a call that bytecode can read or write.
pub(super) const MAX_BYTES: u64 = 4096;
/// Size of the part of the sandbox that holds the arguments of calls, in bytes.
pub(super) const AREA: u64 = WORDS + MAX_BYTES;

/// Result of a function that replaces an operation and wants the default to run.
pub const DEFAULT: u64 = 0;
/// Result of a function that replaces an operation and has written the outputs.
pub const DONE: u64 = 1;

/// The plugin host, as a type parameter of the bytecode engine.
#[derive(Debug)]
pub(super) struct Abi;

impl HelperHost for Abi {
    type Data<'h> = Context<'h>;
}

/// Description of a helper, which is a host function that bytecode may call.
#[derive(Debug)]
pub(crate) struct Helper {
    pub(crate) number: u32,
    pub(crate) name: &'static str,
    /// C type of the helper's result.
    pub(crate) result: &'static str,
    /// C parameters.
    pub(crate) parameters: &'static str,
    /// Description of the helper for the C header.
    pub(crate) does: &'static str,
    /// Steps that a call of the helper costs.
    pub(crate) cost: u32,
    /// Class that a plugin needs for the helper. `None` if every plugin has the helper.
    pub(super) class: Option<Class>,
    /// True if the helper changes the connection. Only functions that replace an operation may call
    /// such a helper.
    pub(super) changes: bool,
}

/// All helpers, sorted by number.
pub(crate) const HELPERS: &[Helper] = &[
    Helper {
        number: 1,
        name: "equic_get",
        result: "equic_u64",
        parameters: "equic_u64 field",
        does: "Returns the value of a field. The field must be in the manifest's `reads`.",
        cost: 15,
        class: Some(Class::Observe),
        changes: false,
    },
    Helper {
        number: 2,
        name: "equic_set",
        result: "equic_u64",
        parameters: "equic_u64 field, equic_u64 value",
        does: "Sets a field and returns its new value, which is limited to the field's bounds. \
               The field must be in the manifest's `sets`. Only functions that replace an \
               operation may call it.",
        cost: 40,
        class: None,
        changes: true,
    },
    Helper {
        number: 3,
        name: "equic_now",
        result: "equic_u64",
        parameters: "void",
        does: "Returns the time of the call, in nanoseconds on the connection's clock.",
        cost: 10,
        class: None,
        changes: false,
    },
    Helper {
        number: 4,
        name: "equic_log",
        result: "equic_u64",
        parameters: "const void *text, equic_u64 length, equic_u64 value",
        does: "Logs a line of text and a number for the plugin's developer. `equic plugin run` \
               shows them. Otherwise they are discarded.",
        cost: 50,
        class: None,
        changes: false,
    },
    Helper {
        number: 5,
        name: "equic_queue_frame",
        result: "equic_u64",
        parameters: "equic_u64 type, equic_u64 token",
        does: "Queues a frame of this type, which must be one of the plugin's own. The connection \
               then calls WriteFrame with `token`. Only functions that replace an operation may \
               call it. Returns 1, or 0 if 64 frames of the plugin are waiting or the peer's \
               plugins have used up their `frame_bytes_per_second`. After 0, try again later.",
        cost: 50,
        class: Some(Class::Frames),
        changes: true,
    },
    Helper {
        number: 6,
        name: "equic_tell",
        result: "equic_u64",
        parameters: "const void *message, equic_u64 length",
        does: "Sends a message of at most 1,024 bytes to the application. Returns 1, or 0 if too \
               many messages are waiting for the application.",
        cost: 500,
        class: None,
        changes: false,
    },
    Helper {
        number: 7,
        name: "equic_set_timer",
        result: "equic_u64",
        parameters: "equic_u64 at",
        does: "Sets the plugin's only timer: HookTimer is called once at this time, but not \
               sooner than in 10 milliseconds. EQUIC_NONE stops the timer. Only functions that \
               replace an operation may call it, including InitOpaqueData and HookTimer.",
        cost: 50,
        class: None,
        changes: true,
    },
    Helper {
        number: 8,
        name: "equic_get_of",
        result: "equic_u64",
        parameters: "equic_u64 field, equic_u64 part",
        does: "Returns the value of a field for one part of the connection. The field must be in \
               the manifest's `reads`. For a field of paths, `part` is the path's number. For \
               EQUIC_BYTES_UNSENT, it is a stream ID. For EQUIC_NEXT_PATH, it is the lowest path \
               number to consider. Returns EQUIC_NONE if there is no such path or stream, or if \
               the field belongs to the whole connection.",
        cost: 25,
        class: Some(Class::Observe),
        changes: false,
    },
    Helper {
        number: 9,
        name: "equic_process_payload",
        result: "equic_u64",
        parameters: "equic_u64 number, const void *payload, equic_u64 length",
        does: "Delivers the payload of a 1-RTT packet that did not arrive, at most 4,096 bytes. \
               Its stream frames and DATAGRAM frames are processed as if the packet had arrived, \
               up to the first frame of a type that QUIC does not define. The packet is not \
               acknowledged. Only functions that replace an operation may call it. Returns 1, or \
               0 if too many requests are waiting.",
        cost: 500,
        class: Some(Class::Payload),
        changes: true,
    },
    Helper {
        number: 10,
        name: "equic_call",
        result: "equic_u64",
        parameters: "equic_u64 call, equic_u64 *words, equic_u64 length",
        does: "Calls an operation that another plugin provides. `call` is its index in the \
               manifest's `calls`, from 0. `words` has its inputs, followed by space for its \
               outputs, `length` bytes in total. Returns 1, or 0 if no such plugin is attached, \
               it is already running, it failed, or its budget exceeds the steps that this call \
               has left. After 0, the outputs are zeros. The steps that the operation uses count \
               toward this call.",
        cost: 100,
        class: None,
        changes: false,
    },
    Helper {
        number: 11,
        name: "equic_call_default",
        result: "equic_u64",
        parameters: "void",
        does: "Writes the answer of the default, or of the plugin that was attached before, to \
               `call->out`, and returns its first word. It overwrites what the function has \
               written there. The manifest must attach the operation with `default = true`. The \
               default runs once, before the function, whether or not the function calls this.",
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
