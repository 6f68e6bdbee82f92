//! Transport parameters that do not parse.

use super::ParameterId;
use crate::TransportErrorCode;
use core::fmt;

/// Parameters that do not parse, or say what they may not: the peer is to blame, and the connection
/// is closed with [`ParameterError::code`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterError {
    /// Identifier of the parameter; none if parsing did not get that far.
    pub id: Option<ParameterId>,
    /// Defect of the parameter.
    pub kind: ParameterErrorKind,
}

/// Defect of a transport parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterErrorKind {
    /// The bytes end inside it.
    Truncated,
    /// It is there twice (RFC 9000 s.7.4).
    Duplicate,
    /// The value has another length than such a value has.
    Length,
    /// The value is outside of its limits (RFC 9000 s.18.2).
    Value,
    /// Only a server may send it (RFC 9000 s.18.2).
    FromClient,
    /// It has to be there and is not (RFC 9000 s.7.3).
    Missing,
}

impl ParameterError {
    /// Error code to close the connection with (RFC 9000 s.7.4).
    pub const fn code(&self) -> TransportErrorCode {
        TransportErrorCode::TRANSPORT_PARAMETER_ERROR
    }
}

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ParameterErrorKind::Truncated => "ends too early",
            ParameterErrorKind::Duplicate => "there twice",
            ParameterErrorKind::Length => "wrong length",
            ParameterErrorKind::Value => "value outside of its limits",
            ParameterErrorKind::FromClient => "only a server may send it",
            ParameterErrorKind::Missing => "missing",
        };
        match self.id {
            Some(id) => write!(f, "{id}: {kind}"),
            None => write!(f, "transport parameters: {kind}"),
        }
    }
}

impl core::error::Error for ParameterError {}
