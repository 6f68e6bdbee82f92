//! Points that hooks are attached to, and frame types that they declare.

use super::Operation;
use super::hooks::{MAX_FRAME_TYPES, MAX_HOOKS};

/// Operation that a hook is attached to, and the ways in which it is called there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttachPoint {
    /// Operation that the hook is attached to.
    pub operation: Operation,
    /// Frame type that the hook is attached for; none: every type, or the operation has none.
    pub frame_type: Option<u64>,
    /// True if [`Hook::before`](super::Hook::before) is called.
    pub before: bool,
    /// True if [`Hook::replace`](super::Hook::replace) is called.
    pub replace: bool,
    /// True if `outputs` hold what the default answers when [`Hook::replace`](super::Hook::replace) is called, or what a
    /// hook answers that was attached before. The default is then asked in every call. Only of operations for which
    /// [`Operation::offers_default`] says so.
    pub with_default: bool,
    /// True if [`Hook::after`](super::Hook::after) is called.
    pub after: bool,
}

impl AttachPoint {
    /// A point at which the hook is called before and after the operation, to observe it.
    pub const fn observe(operation: Operation) -> AttachPoint {
        let (before, replace, after) = (true, false, true);
        AttachPoint { operation, frame_type: None, before, replace, with_default: false, after }
    }

    /// A point at which the hook does the operation in place of the default.
    pub const fn replace(operation: Operation) -> AttachPoint {
        let (before, replace, after) = (false, true, false);
        AttachPoint { operation, frame_type: None, before, replace, with_default: false, after }
    }

    /// A point at which the hook does the operation, and is given the default's answer.
    pub const fn refine(operation: Operation) -> AttachPoint {
        AttachPoint { with_default: true, ..AttachPoint::replace(operation) }
    }

    /// For one frame type alone.
    pub const fn of_frame(self, frame_type: u64) -> AttachPoint {
        AttachPoint { frame_type: Some(frame_type), ..self }
    }
}

/// A frame type of a hook's own: it alone writes, parses and processes such frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnFrame {
    /// The type: none that the transport knows, and no other hook's.
    pub frame_type: u64,
    /// True if a packet with such a frame is to be acknowledged. Both ends must say the same. Of extension
    /// frames only those that replace or supplement ACK frames are not (RFC 9000 s.19.21); of them a hook
    /// does not hear whether they arrived.
    pub ack_eliciting: bool,
}

impl OwnFrame {
    /// One that is acknowledged.
    pub const fn new(frame_type: u64) -> OwnFrame {
        OwnFrame { frame_type, ack_eliciting: true }
    }

    /// One that is not.
    pub const fn silent(frame_type: u64) -> OwnFrame {
        OwnFrame { frame_type, ack_eliciting: false }
    }
}

/// Reason for which a hook could not be attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachError {
    /// The operation offers no default to a hook in its place.
    NoDefault(Operation),
    /// The operation has no frame types.
    NoFrameTypes(Operation),
    /// No more than 32 hooks on a connection at a time.
    TooMany,
    /// A frame type cannot be the hook's own: the transport knows it, it is another hook's, or no type.
    FrameType(u64),
    /// More than 16 frame types of its own.
    TooManyFrameTypes,
    /// The hook does not replace [`Operation::ParseFrame`] for this type of its own: nobody could say where
    /// such a frame ends.
    NoParser(u64),
    /// The operation can be replaced for this frame type only by the hook whose own the type is.
    NotOwn(Operation, u64),
}

impl std::fmt::Display for AttachError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AttachError::NoDefault(operation) => {
                write!(f, "{operation} has no default to be asked for: attach to it without")
            }
            AttachError::NoFrameTypes(operation) => {
                write!(f, "{operation} is not one for each frame type: attach to it without one")
            }
            AttachError::TooMany => write!(
                f,
                "no more than {MAX_HOOKS} hooks on a connection at a time: detach another first"
            ),
            AttachError::FrameType(frame_type) => write!(
                f,
                "{frame_type:#x} cannot be a frame type of the hook's own: choose one that neither QUIC \
                 nor another hook has"
            ),
            AttachError::TooManyFrameTypes => {
                write!(f, "no more than {MAX_FRAME_TYPES} frame types of a hook's own")
            }
            AttachError::NoParser(frame_type) => write!(
                f,
                "nobody can say where a frame of type {frame_type:#x} ends: replace ParseFrame, too"
            ),
            AttachError::NotOwn(operation, frame_type) => write!(
                f,
                "{operation} for frame type {frame_type:#x} is for the hook whose own the type is: declare it"
            ),
        }
    }
}

impl std::error::Error for AttachError {}
