//! Errors for frames that cannot be parsed.

use super::FrameType;
use crate::TransportErrorCode;
use core::fmt;

/// A malformed frame in an authenticated packet. The peer is at fault, so the endpoint closes the
/// connection with [`FrameError::code`] and [`FrameError::frame_type`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameError {
    /// Type of the frame, or PADDING if the type is unknown (RFC 9000 s.19.19).
    pub frame_type: FrameType,
    /// The defect of the frame.
    pub kind: FrameErrorKind,
}

/// The kinds of defects that a received frame can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameErrorKind {
    /// The packet contains no frame (RFC 9000 s.12.4 #2).
    NoFrames,
    /// The packet ends inside the frame.
    Truncated,
    /// The frame type is not in its shortest encoding (RFC 9000 s.12.4).
    TypeNotShortest,
    /// Neither this crate nor a negotiated extension knows the frame type (RFC 9000 s.12.4 #4).
    // RFC 9000 s.19.21 #1
    UnknownType,
    /// The frame is not permitted in packets of this type (RFC 9000 s.12.4 #3).
    WrongPacketType,
    /// The sender is not permitted to send this frame type, for example a client a NEW_TOKEN frame
    /// (RFC 9000 s.19.7, s.19.20).
    WrongSender,
    /// An ACK range extends below packet number zero (RFC 9000 s.19.3.1 #1).
    NegativePacketNumber,
    /// The token of a NEW_TOKEN frame is empty (RFC 9000 s.19.7 #1 #2).
    EmptyToken,
    /// The data extends beyond offset 2^62-1 (RFC 9000 s.19.6 #1, s.19.8 #2).
    OffsetTooLarge,
    /// A stream limit exceeds 2^60 (RFC 9000 s.19.11 #1, s.19.14 #2).
    StreamCountTooLarge,
    /// The connection ID is empty or longer than 20 bytes (RFC 9000 s.19.15 #1).
    ConnectionIdLength,
    /// The Retire Prior To field exceeds the Sequence Number (RFC 9000 s.19.15 #5 #6).
    RetirePriorTo,
    /// The path ID exceeds 2^32-1 (RFC 10069 s.4, s.4.6).
    // RFC 10069 s.4.6 #3
    PathIdTooLarge,
}

impl FrameError {
    /// Returns the error code with which the endpoint must close the connection.
    pub const fn code(&self) -> TransportErrorCode {
        self.kind.code()
    }
}

impl FrameErrorKind {
    /// Returns the error code with which the endpoint must close the connection.
    pub const fn code(self) -> TransportErrorCode {
        match self {
            FrameErrorKind::NoFrames
            | FrameErrorKind::TypeNotShortest
            | FrameErrorKind::WrongPacketType
            | FrameErrorKind::WrongSender
            | FrameErrorKind::PathIdTooLarge => TransportErrorCode::PROTOCOL_VIOLATION,
            FrameErrorKind::Truncated
            | FrameErrorKind::UnknownType
            | FrameErrorKind::NegativePacketNumber
            | FrameErrorKind::EmptyToken
            | FrameErrorKind::OffsetTooLarge
            | FrameErrorKind::StreamCountTooLarge
            | FrameErrorKind::ConnectionIdLength
            | FrameErrorKind::RetirePriorTo => TransportErrorCode::FRAME_ENCODING_ERROR,
        }
    }

    /// Returns a short description. It is used as the reason phrase of a CONNECTION_CLOSE frame.
    pub const fn phrase(self) -> &'static str {
        match self {
            FrameErrorKind::NoFrames => "the packet contains no frames",
            FrameErrorKind::Truncated => "truncated frame",
            FrameErrorKind::TypeNotShortest => "frame type not in its shortest encoding",
            FrameErrorKind::UnknownType => "unknown frame type",
            FrameErrorKind::WrongPacketType => "frame not permitted in this packet type",
            FrameErrorKind::WrongSender => "frame not permitted from this endpoint",
            FrameErrorKind::NegativePacketNumber => "acknowledged packet number below 0",
            FrameErrorKind::EmptyToken => "empty token",
            FrameErrorKind::OffsetTooLarge => "stream data beyond 2^62-1",
            FrameErrorKind::StreamCountTooLarge => "the number of streams exceeds 2^60",
            FrameErrorKind::ConnectionIdLength => "connection ID length not 1 to 20",
            FrameErrorKind::RetirePriorTo => "Retire Prior To exceeds Sequence Number",
            FrameErrorKind::PathIdTooLarge => "path ID exceeds 2^32-1",
        }
    }
}

impl fmt::Display for FrameErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.phrase())
    }
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            FrameErrorKind::NoFrames => self.kind.fmt(f),
            kind => write!(f, "{}: {kind}", self.frame_type),
        }
    }
}

impl core::error::Error for FrameError {}
