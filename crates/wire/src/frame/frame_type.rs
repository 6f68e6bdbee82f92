//! Frame types, and the rules that RFC 9000 s.12.4, table 3, defines for each type.

use super::{FrameError, FrameErrorKind};
use crate::cursor::Reader;
use crate::packet::PacketType;
use crate::{Side, VarInt};
use core::fmt;

/// A frame type as on the wire, including flag bits. A peer may send any variable-length integer.
/// The constants are the types that this crate knows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameType(pub VarInt);

/// Flag in the type of a STREAM frame: the frame ends the stream.
pub(super) const STREAM_FIN: u64 = 0x01;
/// Flag in the type of a STREAM frame: the frame has a Length field.
pub(super) const STREAM_LEN: u64 = 0x02;
/// Flag in the type of a STREAM frame: the frame has an Offset field.
pub(super) const STREAM_OFF: u64 = 0x04;
/// Type of a STREAM frame without flags. With flags, the type is 0x08 to 0x0f.
pub(super) const STREAM: u64 = 0x08;
pub(super) const STREAM_LAST: u64 = 0x0f;

macro_rules! types {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $rfc_name:literal;)*) => {
        impl FrameType {
            $($(#[$doc])* pub const $name: FrameType = FrameType(VarInt::from_u32($value));)*

            /// Returns the RFC's name of the type, or `None` if the type is unknown.
            pub const fn name(self) -> Option<&'static str> {
                match self.0.get() {
                    $($value => Some($rfc_name),)*
                    STREAM..=STREAM_LAST => Some("STREAM"),
                    _ => None,
                }
            }
        }

        /// Bit set of the known frame types below 64: bit `n` is set if type `n` is known.
        const KNOWN: u64 = {
            let mut known = 0;
            $(if $value < 64 { known |= 1 << ($value % 64); })*
            let mut stream = STREAM;
            while stream <= STREAM_LAST {
                known |= 1 << stream;
                stream += 1;
            }
            known
        };

        /// The frame types as `u64` constants, which `match` patterns can use.
        pub(super) mod number {
            $(pub(in crate::frame) const $name: u64 = $value;)*
        }
    };
}

types! {
    /// PADDING.
    PADDING = 0x00, "PADDING";
    /// PING.
    PING = 0x01, "PING";
    /// ACK without ECN counts.
    ACK = 0x02, "ACK";
    /// ACK with ECN counts.
    ACK_ECN = 0x03, "ACK";
    /// RESET_STREAM.
    RESET_STREAM = 0x04, "RESET_STREAM";
    /// STOP_SENDING.
    STOP_SENDING = 0x05, "STOP_SENDING";
    /// CRYPTO.
    CRYPTO = 0x06, "CRYPTO";
    /// NEW_TOKEN.
    NEW_TOKEN = 0x07, "NEW_TOKEN";
    /// MAX_DATA.
    MAX_DATA = 0x10, "MAX_DATA";
    /// MAX_STREAM_DATA.
    MAX_STREAM_DATA = 0x11, "MAX_STREAM_DATA";
    /// MAX_STREAMS, bidirectional.
    MAX_STREAMS_BIDI = 0x12, "MAX_STREAMS";
    /// MAX_STREAMS, unidirectional.
    MAX_STREAMS_UNI = 0x13, "MAX_STREAMS";
    /// DATA_BLOCKED.
    DATA_BLOCKED = 0x14, "DATA_BLOCKED";
    /// STREAM_DATA_BLOCKED.
    STREAM_DATA_BLOCKED = 0x15, "STREAM_DATA_BLOCKED";
    /// STREAMS_BLOCKED, bidirectional.
    STREAMS_BLOCKED_BIDI = 0x16, "STREAMS_BLOCKED";
    /// STREAMS_BLOCKED, unidirectional.
    STREAMS_BLOCKED_UNI = 0x17, "STREAMS_BLOCKED";
    /// NEW_CONNECTION_ID.
    NEW_CONNECTION_ID = 0x18, "NEW_CONNECTION_ID";
    /// RETIRE_CONNECTION_ID.
    RETIRE_CONNECTION_ID = 0x19, "RETIRE_CONNECTION_ID";
    /// PATH_CHALLENGE.
    PATH_CHALLENGE = 0x1a, "PATH_CHALLENGE";
    /// PATH_RESPONSE.
    PATH_RESPONSE = 0x1b, "PATH_RESPONSE";
    /// CONNECTION_CLOSE by the transport.
    CONNECTION_CLOSE = 0x1c, "CONNECTION_CLOSE";
    /// CONNECTION_CLOSE by the application.
    CONNECTION_CLOSE_APPLICATION = 0x1d, "CONNECTION_CLOSE";
    /// HANDSHAKE_DONE.
    HANDSHAKE_DONE = 0x1e, "HANDSHAKE_DONE";
    /// IMMEDIATE_ACK (draft-ietf-quic-ack-frequency s.5).
    IMMEDIATE_ACK = 0x1f, "IMMEDIATE_ACK";
    /// DATAGRAM without a Length field, up to the end of the packet (RFC 9221).
    DATAGRAM = 0x30, "DATAGRAM";
    /// DATAGRAM with a Length field (RFC 9221).
    DATAGRAM_LEN = 0x31, "DATAGRAM";
    /// PATH_ACK without ECN counts (RFC 10069 s.4.1).
    PATH_ACK = 0x3e, "PATH_ACK";
    /// PATH_ACK with ECN counts (RFC 10069 s.4.1).
    PATH_ACK_ECN = 0x3f, "PATH_ACK";
    /// ACK_FREQUENCY (draft-ietf-quic-ack-frequency s.4).
    ACK_FREQUENCY = 0xaf, "ACK_FREQUENCY";
    /// PATH_ABANDON (RFC 10069 s.4.2).
    PATH_ABANDON = 0x3e75, "PATH_ABANDON";
    /// PATH_STATUS_BACKUP (RFC 10069 s.4.3).
    PATH_STATUS_BACKUP = 0x3e76, "PATH_STATUS_BACKUP";
    /// PATH_STATUS_AVAILABLE (RFC 10069 s.4.3).
    PATH_STATUS_AVAILABLE = 0x3e77, "PATH_STATUS_AVAILABLE";
    /// PATH_NEW_CONNECTION_ID (RFC 10069 s.4.4).
    PATH_NEW_CONNECTION_ID = 0x3e78, "PATH_NEW_CONNECTION_ID";
    /// PATH_RETIRE_CONNECTION_ID (RFC 10069 s.4.5).
    PATH_RETIRE_CONNECTION_ID = 0x3e79, "PATH_RETIRE_CONNECTION_ID";
    /// MAX_PATH_ID (RFC 10069 s.4.6).
    MAX_PATH_ID = 0x3e7a, "MAX_PATH_ID";
    /// PATHS_BLOCKED (RFC 10069 s.4.7).
    PATHS_BLOCKED = 0x3e7b, "PATHS_BLOCKED";
    /// PATH_CIDS_BLOCKED (RFC 10069 s.4.7).
    PATH_CIDS_BLOCKED = 0x3e7c, "PATH_CIDS_BLOCKED";
}

impl FrameType {
    /// Reads the type of the next frame.
    ///
    /// # Errors
    /// Fails if the bytes end inside the type, or if it is not in its shortest encoding (RFC 9000
    /// s.12.4).
    // RFC 9000 s.12.4 #5
    #[inline]
    pub fn read(reader: &mut Reader<'_>) -> Result<FrameType, FrameError> {
        let (value, len) = reader.varint_and_len().map_err(|_| FrameError {
            frame_type: FrameType::PADDING,
            kind: FrameErrorKind::Truncated,
        })?;
        let frame_type = FrameType(value);
        if len != value.shortest() {
            return Err(FrameError { frame_type, kind: FrameErrorKind::TypeNotShortest });
        }
        Ok(frame_type)
    }

    /// Returns `true` if this crate can parse frames of this type.
    pub const fn is_known(self) -> bool {
        let number = self.0.get();
        // The bit set makes the check fast for types below 64. `name` would use a jump table, and
        // this function runs for every received frame.
        if number < 64 { KNOWN >> number & 1 == 1 } else { self.name().is_some() }
    }

    /// Returns whether a packet of type `packet` may contain a frame of this type (RFC 9000 table
    /// 3; RFC 9221 s.4; draft-ietf-quic-ack-frequency s.3; RFC 10069 s.4). Returns `None` for an
    /// unknown frame type, whose extension must decide.
    // RFC 9221 s.5 #3, s.6 #1
    // RFC 9000 s.12.5 #1 #2, s.17.2.4 #1
    // RFC 9001 s.8.3 #2
    // RFC 10069 s.4 #1 #2
    pub const fn allowed_in(self, packet: PacketType) -> Option<bool> {
        use PacketType::{Handshake, Initial, OneRtt, ZeroRtt};
        if !self.is_known() {
            return None;
        }
        Some(match self.0.get() {
            // Table 3 marks these types IH01: they are permitted in all packets. An exception is
            // the CONNECTION_CLOSE of an application, which another arm handles.
            number::PADDING | number::PING | number::CONNECTION_CLOSE => true,
            // IH_1
            number::ACK | number::ACK_ECN | number::CRYPTO => {
                matches!(packet, Initial | Handshake | OneRtt)
            }
            // Table 3 marks these types ___1: they are permitted only in 1-RTT packets. RFC 9000
            // s.12.5 also lists RETIRE_CONNECTION_ID here, which contradicts table 3. This code
            // follows s.12.5, because a client has no connection ID to retire in 0-RTT.
            number::NEW_TOKEN
            | number::RETIRE_CONNECTION_ID
            | number::PATH_RESPONSE
            | number::HANDSHAKE_DONE
            | number::ACK_FREQUENCY
            | number::IMMEDIATE_ACK => matches!(packet, OneRtt),
            _ if self.is_multipath() => matches!(packet, OneRtt),
            // __01
            _ => matches!(packet, ZeroRtt | OneRtt),
        })
    }

    /// Returns `true` for a frame type of multipath QUIC. An endpoint may send such a frame only if
    /// both endpoints have sent initial_max_path_id (RFC 10069 s.2).
    pub const fn is_multipath(self) -> bool {
        matches!(
            self.0.get(),
            number::PATH_ACK | number::PATH_ACK_ECN | number::PATH_ABANDON
                ..=number::PATH_CIDS_BLOCKED
        )
    }

    /// Returns whether `side` may send a frame of this type. Only a server may send NEW_TOKEN and
    /// HANDSHAKE_DONE (RFC 9000 s.19.7 #3 #4, s.19.20 #2).
    pub const fn may_be_sent_by(self, side: Side) -> bool {
        !matches!(self.0.get(), number::NEW_TOKEN | number::HANDSHAKE_DONE)
            || matches!(side, Side::Server)
    }

    /// Returns `true` if the receiver must acknowledge a packet that contains a frame of this type.
    /// This holds for all types except PATH_ACK and those marked N in table 3. An unknown type is
    /// ack-eliciting, unless its extension defines otherwise (RFC 9000 s.19.21 #3).
    pub const fn is_ack_eliciting(self) -> bool {
        !matches!(
            self.0.get(),
            number::PADDING
                | number::ACK
                | number::ACK_ECN
                | number::PATH_ACK
                | number::PATH_ACK_ECN
                | number::CONNECTION_CLOSE
                | number::CONNECTION_CLOSE_APPLICATION
        )
    }

    /// Returns `true` if a packet that contains a frame of this type counts as in flight. This
    /// holds for ack-eliciting frames and PADDING (RFC 9002 s.2).
    pub const fn is_in_flight(self) -> bool {
        self.is_ack_eliciting() || matches!(self.0.get(), number::PADDING)
    }

    /// Returns `true` for a probing frame: the types marked P in table 3 (RFC 9000 s.9.1).
    pub const fn is_probing(self) -> bool {
        matches!(
            self.0.get(),
            number::PADDING
                | number::NEW_CONNECTION_ID
                | number::PATH_CHALLENGE
                | number::PATH_RESPONSE
        )
    }

    /// Returns `true` if the content of the frame counts towards flow control: the types marked F
    /// in table 3.
    pub const fn is_flow_controlled(self) -> bool {
        matches!(self.0.get(), STREAM..=STREAM_LAST)
    }
}

impl fmt::Display for FrameType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "frame type {:#x}", self.0),
        }
    }
}

impl fmt::Debug for FrameType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name}({:#04x})", self.0),
            None => write!(f, "{:#x}", self.0),
        }
    }
}
