//! Errors for transport parameters that cannot be parsed.

use super::ParameterId;
use crate::TransportErrorCode;
use core::fmt;

/// Malformed or illegal transport parameters. The peer is at fault, so the endpoint closes the
/// connection with [`ParameterError::code`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterError {
    /// Identifier of the parameter, or `None` if parsing failed before it was known.
    pub id: Option<ParameterId>,
    /// The defect of the parameter.
    pub kind: ParameterErrorKind,
}

/// The kinds of defects that received transport parameters can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParameterErrorKind {
    /// The bytes end inside the parameter.
    Truncated,
    /// The parameter occurs twice (RFC 9000 s.7.4 #3).
    Duplicate,
    /// The value has a wrong length.
    Length,
    /// The value is outside of its limits (RFC 9000 s.18.2).
    Value,
    /// A client sent a parameter that only a server may send (RFC 9000 s.18.2 #1 #9 #10).
    FromClient,
    /// A mandatory parameter is missing (RFC 9000 s.7.3).
    Missing,
}

impl ParameterError {
    /// Returns the error code to close the connection with (RFC 9000 s.7.4 #1).
    pub const fn code(&self) -> TransportErrorCode {
        TransportErrorCode::TRANSPORT_PARAMETER_ERROR
    }
}

impl ParameterErrorKind {
    /// Returns a short description. It is used as the reason phrase of a CONNECTION_CLOSE frame.
    pub const fn phrase(self) -> &'static str {
        match self {
            ParameterErrorKind::Truncated => "truncated transport parameter",
            ParameterErrorKind::Duplicate => "duplicate transport parameter",
            ParameterErrorKind::Length => "transport parameter of a wrong length",
            ParameterErrorKind::Value => "transport parameter out of range",
            ParameterErrorKind::FromClient => "transport parameter not permitted from a client",
            ParameterErrorKind::Missing => "missing transport parameter",
        }
    }
}

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.phrase())?;
        self.id.map_or(Ok(()), |id| write!(f, ": {id}"))
    }
}

impl core::error::Error for ParameterError {}
