//! Transport error codes (RFC 9000 s.20.1, RFC 9368 s.10.2, RFC 10069 s.4.2.1).

use crate::varint::VarInt;
use core::fmt;

/// Reason for closing a connection (in a CONNECTION_CLOSE frame of type 0x1c) or for abandoning a
/// path (in a PATH_ABANDON frame). A peer may send any value. The constants are the values that an
/// RFC defines.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransportErrorCode(pub VarInt);

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $value:literal;)*) => {
        impl TransportErrorCode {
            $($(#[$doc])* pub const $name: Self = TransportErrorCode(VarInt::from_u32($value));)*

            /// Returns the RFC's name of the code, or `None` if the code is not defined.
            pub const fn name(self) -> Option<&'static str> {
                match self.0.get() {
                    $($value => Some(stringify!($name)),)*
                    0x100..=0x1ff => Some("CRYPTO_ERROR"),
                    _ => None,
                }
            }
        }
    };
}

codes! {
    /// The connection or path is closed without an error.
    NO_ERROR = 0x00;
    /// The endpoint had an internal error.
    INTERNAL_ERROR = 0x01;
    /// The server refuses to accept new connections.
    CONNECTION_REFUSED = 0x02;
    /// The peer sent more data than the flow control limits allow.
    FLOW_CONTROL_ERROR = 0x03;
    /// The peer opened a stream beyond the limit on the number of streams.
    STREAM_LIMIT_ERROR = 0x04;
    /// The peer sent a frame for a stream whose state does not allow this frame.
    STREAM_STATE_ERROR = 0x05;
    /// The peer sent a final size of a stream that contradicts earlier frames.
    FINAL_SIZE_ERROR = 0x06;
    /// The peer sent a badly formatted frame.
    FRAME_ENCODING_ERROR = 0x07;
    /// The peer sent transport parameters that were badly formatted, forbidden, missing or wrong.
    TRANSPORT_PARAMETER_ERROR = 0x08;
    /// The peer sent more connection IDs than were allowed.
    CONNECTION_ID_LIMIT_ERROR = 0x09;
    /// The peer violated the protocol in a way that no other code describes.
    PROTOCOL_VIOLATION = 0x0a;
    /// The client sent an Initial packet whose token is not valid.
    INVALID_TOKEN = 0x0b;
    /// The application closed the connection during the handshake.
    APPLICATION_ERROR = 0x0c;
    /// The peer sent more CRYPTO data than the endpoint can buffer.
    CRYPTO_BUFFER_EXCEEDED = 0x0d;
    /// The peer made an error in a key update (RFC 9001 s.6).
    KEY_UPDATE_ERROR = 0x0e;
    /// The AEAD's confidentiality or integrity limit is reached (RFC 9001 s.6.6).
    AEAD_LIMIT_REACHED = 0x0f;
    /// The network path cannot carry QUIC packets.
    NO_VIABLE_PATH = 0x10;
    /// Version negotiation was tampered with (RFC 9368 s.10.2).
    // RFC 9368 s.4 #7
    VERSION_NEGOTIATION_ERROR = 0x11;
    /// The application asked to abandon the path.
    APPLICATION_ABANDON_PATH = 0x3e;
    /// A path is abandoned because of a lack of resources.
    PATH_RESOURCE_LIMIT_REACHED = 0x3e75;
    /// A path is abandoned because its interface is unstable, or it performs poorly.
    PATH_UNSTABLE_OR_POOR = 0x3e76;
    /// A path is abandoned because there is no connection ID for it.
    NO_CID_AVAILABLE_FOR_PATH = 0x3e77;
}

impl TransportErrorCode {
    /// Returns the CRYPTO_ERROR for this TLS alert (RFC 9001 s.4.8).
    pub fn crypto(alert: u8) -> Self {
        TransportErrorCode(VarInt::from_u32(0x100 | u32::from(alert)))
    }

    /// Returns the TLS alert of a CRYPTO_ERROR, or `None` if the code is not a CRYPTO_ERROR.
    pub fn tls_alert(self) -> Option<u8> {
        u8::try_from(self.0.get().checked_sub(0x100)?).ok()
    }
}

impl fmt::Display for TransportErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.tls_alert(), self.name()) {
            (Some(alert), _) => write!(f, "CRYPTO_ERROR (TLS alert {alert})"),
            (None, Some(name)) => f.write_str(name),
            (None, None) => write!(f, "{:#x}", self.0),
        }
    }
}

impl fmt::Debug for TransportErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
