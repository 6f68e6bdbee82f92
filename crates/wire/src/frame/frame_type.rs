//! Frame types, and the rules that RFC 9000 s.12.4, table 3, defines for each type. The files of
//! the frames list their types with the macro `frame_types!`.

use super::signal::number::PADDING;
use super::{FAMILIES, FrameError, FrameErrorKind};
use crate::cursor::Reader;
use crate::packet::PacketType;
use crate::{Side, VarInt};
use core::fmt;

/// A frame type as on the wire, including flag bits. A peer may send any variable-length integer.
/// The constants are the types that this crate knows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameType(pub VarInt);

// The rules of a frame type are bits. The first four are the packets that may contain the frame.
pub(super) const IN_INITIAL: u16 = 1;
pub(super) const IN_HANDSHAKE: u16 = 2;
pub(super) const IN_ZERO_RTT: u16 = 4;
pub(super) const IN_ONE_RTT: u16 = 8;
pub(super) const IN_ALL: u16 = IN_INITIAL | IN_HANDSHAKE | IN_ZERO_RTT | IN_ONE_RTT;
/// The receiver need not acknowledge a packet with only such frames.
pub(super) const NOT_ELICITING: u16 = 16;
/// A probing frame (RFC 9000 s.9.1).
pub(super) const PROBING: u16 = 32;
/// The content counts towards flow control.
pub(super) const FLOW_CONTROLLED: u16 = 64;
/// Only a server may send the frame.
pub(super) const SERVER_ONLY: u16 = 128;

/// Rules for a frame type.
#[derive(Clone, Copy)]
pub(super) struct Rules(u16);

impl Rules {
    /// Rules of a usual frame: both ends may send it in 0-RTT and 1-RTT packets, and it is
    /// ack-eliciting.
    pub(super) const USUAL: Rules = Rules(IN_ZERO_RTT | IN_ONE_RTT);

    /// Returns the rules with other packets that may contain the frame.
    pub(super) const fn packets(self, packets: u16) -> Rules {
        Rules(self.0 & !IN_ALL | packets)
    }

    pub(super) const fn with(self, rules: u16) -> Rules {
        Rules(self.0 | rules)
    }
}

/// Frame types with the same name and rules.
#[derive(Clone, Copy)]
pub(super) struct TypeRange {
    pub first: u64,
    pub last: u64,
    pub name: &'static str,
    pub rules: Rules,
}

/// Defines the frame types of a file: constants of [`FrameType`], the numbers as `u64` constants
/// for `match` patterns, and the list `TYPES` with names and rules. A range of types, in brackets,
/// has no constant.
macro_rules! frame_types {
    (
        $($(#[$doc:meta])* $constant:ident = $value:literal, $name:literal, $rules:expr;)*
        $([$first:ident..=$last:ident], $range_name:literal, $range_rules:expr;)*
    ) => {
        use super::frame_type::*;

        impl FrameType {
            $($(#[$doc])* pub const $constant: FrameType =
                FrameType(VarInt::from_u32($value));)*
        }

        /// The frame types as `u64` constants, which `match` patterns can use.
        pub(super) mod number {
            $(pub(in crate::frame) const $constant: u64 = $value;)*
        }

        /// Names and rules of the frame types.
        pub(super) const TYPES: &[TypeRange] = &[
            $(TypeRange { first: $value, last: $value, name: $name, rules: $rules },)*
            $(TypeRange { first: $first, last: $last, name: $range_name, rules: $range_rules },)*
        ];
    };
}

/// Number of frame types, from 0 on, for which [`small_types`] has a bit.
const SMALL: u64 = 64;

/// Finds a frame type in the lists of all files.
const fn find(number: u64) -> Option<TypeRange> {
    let mut families = FAMILIES;
    while let [family, other_families @ ..] = families {
        let mut types: &[TypeRange] = family;
        while let [one, others @ ..] = types {
            if one.first <= number && number <= one.last {
                return Some(*one);
            }
            types = others;
        }
        families = other_families;
    }
    None
}

/// Returns a bit set of the known frame types below [`SMALL`] that have one of the rules.
const fn small_types(rules: u16) -> u64 {
    let (mut set, mut number) = (0, 0);
    while number < SMALL {
        if let Some(found) = find(number)
            && found.rules.0 & rules != 0
        {
            set |= 1 << number;
        }
        number = number.saturating_add(1);
    }
    set
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

    /// Returns the RFC's name of the type, or `None` if the type is unknown.
    pub const fn name(self) -> Option<&'static str> {
        match find(self.0.get()) {
            Some(found) => Some(found.name),
            None => None,
        }
    }

    /// Returns `true` if the type is known and has one of the rules.
    #[inline]
    const fn has<const RULES: u16>(self) -> bool {
        let number = self.0.get();
        // The bit set makes the check fast for small types, because it runs for every received
        // frame.
        if number < SMALL {
            return const { small_types(RULES) } >> number & 1 == 1;
        }
        match find(number) {
            Some(found) => found.rules.0 & RULES != 0,
            None => false,
        }
    }

    /// Returns `true` if this crate can parse frames of this type.
    pub const fn is_known(self) -> bool {
        // Every known type is permitted in some packet.
        self.has::<IN_ALL>()
    }

    /// Returns whether a packet of type `packet` may contain a frame of this type (RFC 9000 table
    /// 3; RFC 9221 s.4; draft-ietf-quic-ack-frequency s.3; RFC 10069 s.4). Returns `None` for an
    /// unknown frame type, whose extension must decide.
    // RFC 9221 s.5 #3, s.6 #1
    // RFC 9000 s.12.5 #1 #2, s.17.2.4 #1
    // RFC 9001 s.8.3 #2
    // RFC 10069 s.4 #1 #2
    pub const fn allowed_in(self, packet: PacketType) -> Option<bool> {
        if !self.is_known() {
            return None;
        }
        Some(match packet {
            PacketType::Initial => self.has::<IN_INITIAL>(),
            PacketType::Handshake => self.has::<IN_HANDSHAKE>(),
            PacketType::ZeroRtt => self.has::<IN_ZERO_RTT>(),
            PacketType::OneRtt => self.has::<IN_ONE_RTT>(),
        })
    }

    /// Returns whether `side` may send a frame of this type. Only a server may send NEW_TOKEN and
    /// HANDSHAKE_DONE (RFC 9000 s.19.7 #3 #4, s.19.20 #2).
    pub const fn may_be_sent_by(self, side: Side) -> bool {
        matches!(side, Side::Server) || !self.has::<SERVER_ONLY>()
    }

    /// Returns `true` if the receiver must acknowledge a packet that contains a frame of this type.
    /// This holds for all types except PATH_ACK and those marked N in table 3. An unknown type is
    /// ack-eliciting, unless its extension defines otherwise (RFC 9000 s.19.21 #3).
    pub const fn is_ack_eliciting(self) -> bool {
        !self.has::<NOT_ELICITING>()
    }

    /// Returns `true` if a packet that contains a frame of this type counts as in flight. This
    /// holds for ack-eliciting frames and PADDING (RFC 9002 s.2).
    pub const fn is_in_flight(self) -> bool {
        self.is_ack_eliciting() || self.0.get() == PADDING
    }

    /// Returns `true` for a probing frame: the types marked P in table 3 (RFC 9000 s.9.1).
    pub const fn is_probing(self) -> bool {
        self.has::<PROBING>()
    }

    /// Returns `true` if the content of the frame counts towards flow control: the types marked F
    /// in table 3.
    pub const fn is_flow_controlled(self) -> bool {
        self.has::<FLOW_CONTROLLED>()
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
