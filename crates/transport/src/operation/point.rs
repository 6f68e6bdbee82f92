//! The points at which hooks are attached to operations, and the frame types that hooks own.

use super::Operation;
use super::hooks::{MAX_FRAME_TYPES, MAX_HOOKS};

/// Attaches a hook to an operation, and says when the hook is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttachPoint {
    /// Operation that the hook is attached to.
    pub operation: Operation,
    /// Frame type for which the hook is called. If `None`, the hook is called for all frame types,
    /// or the operation has no frame types.
    pub frame_type: Option<u64>,
    /// True if the hook is called before the operation, with [`Hook::before`](super::Hook::before).
    pub before: bool,
    /// True if the hook is called in place of the default, with
    /// [`Hook::replace`](super::Hook::replace).
    pub replace: bool,
    /// True if `outputs` already contains an answer when [`Hook::replace`](super::Hook::replace) is
    /// called: that of the default, or of a hook that was attached before. The default is then
    /// computed in every call. This is permitted only for operations with
    /// [`Operation::offers_default`].
    pub with_default: bool,
    /// True if the hook is called after the operation, with [`Hook::after`](super::Hook::after).
    pub after: bool,
}

impl AttachPoint {
    /// Returns a point at which the hook is called before and after the operation, to observe it.
    pub const fn observe(operation: Operation) -> AttachPoint {
        let (before, replace, after) = (true, false, true);
        AttachPoint { operation, frame_type: None, before, replace, with_default: false, after }
    }

    /// Returns a point at which the hook is called in place of the default.
    pub const fn replace(operation: Operation) -> AttachPoint {
        let (before, replace, after) = (false, true, false);
        AttachPoint { operation, frame_type: None, before, replace, with_default: false, after }
    }

    /// Returns a point at which the hook is called in place of the default, and gets the default's
    /// answer.
    pub const fn refine(operation: Operation) -> AttachPoint {
        AttachPoint { with_default: true, ..AttachPoint::replace(operation) }
    }

    /// Restricts the point to one frame type: the hook is called only for frames of that type.
    pub const fn of_frame(self, frame_type: u64) -> AttachPoint {
        AttachPoint { frame_type: Some(frame_type), ..self }
    }
}

/// A frame type that a hook owns: only this hook writes, parses and processes such frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnFrame {
    /// The frame type. The transport must not know it, and no other hook may own it.
    pub frame_type: u64,
    /// True if the frame elicits an acknowledgment. Both ends must agree on this. Only frames that
    /// replace or supplement ACK frames may elicit none (RFC 9000 s.19.21). The hook is not
    /// notified whether frames arrive that elicit none.
    pub ack_eliciting: bool,
}

impl OwnFrame {
    /// Returns a frame type that elicits acknowledgments.
    pub const fn new(frame_type: u64) -> OwnFrame {
        OwnFrame { frame_type, ack_eliciting: true }
    }

    /// Returns a frame type that elicits no acknowledgments.
    pub const fn silent(frame_type: u64) -> OwnFrame {
        OwnFrame { frame_type, ack_eliciting: false }
    }
}

/// The reason why a hook could not be attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttachError {
    /// The hook wants the default's answer, but this operation cannot provide it.
    NoDefault(Operation),
    /// The hook names a frame type, but this operation has no frame types.
    NoFrameTypes(Operation),
    /// The connection already has 32 hooks, which is the limit.
    TooMany,
    /// The hook cannot own this frame type: the transport knows it, another hook owns it, or it is
    /// not a valid type.
    FrameType(u64),
    /// The hook declares more than 16 frame types.
    TooManyFrameTypes,
    /// The hook owns this frame type but does not replace [`Operation::ParseFrame`] for it. So the
    /// length of frames of this type would be unknown.
    NoParser(u64),
    /// Only the hook that owns this frame type can replace the operation for it.
    NotOwn(Operation, u64),
}

impl std::fmt::Display for AttachError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AttachError::NoDefault(operation) => {
                write!(
                    f,
                    "{operation} cannot provide its default's answer: attach without `with_default`"
                )
            }
            AttachError::NoFrameTypes(operation) => {
                write!(f, "{operation} has no frame types: attach without one")
            }
            AttachError::TooMany => write!(
                f,
                "the connection has {MAX_HOOKS} hooks, which is the limit: detach another first"
            ),
            AttachError::FrameType(frame_type) => write!(
                f,
                "the hook cannot own frame type {frame_type:#x}: choose one that neither QUIC nor \
                 another hook uses"
            ),
            AttachError::TooManyFrameTypes => {
                write!(f, "a hook can own at most {MAX_FRAME_TYPES} frame types")
            }
            AttachError::NoParser(frame_type) => write!(
                f,
                "the length of frames of type {frame_type:#x} is unknown: replace ParseFrame, too"
            ),
            AttachError::NotOwn(operation, frame_type) => write!(
                f,
                "only the owner of frame type {frame_type:#x} can replace {operation}: declare the type"
            ),
        }
    }
}

impl std::error::Error for AttachError {}
