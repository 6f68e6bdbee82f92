//! Wire format of QUIC: versions 1 and 2 (RFC 9000, RFC 9369), DATAGRAM (RFC 9221), the greased
//! Fixed Bit (RFC 9287), version information (RFC 9368), ACK_FREQUENCY
//! (draft-ietf-quic-ack-frequency) and the frames of multipath QUIC (RFC 10069).
//!
//! A [`Reader`] reads from a slice and a [`Writer`] writes into one. Both return an error at the
//! end of the slice. Parsed values borrow from the input. A value that exists is always legal,
//! because a field with a restriction has a type that enforces it. This crate does not allocate,
//! does no I/O, has no keys, and keeps no state between calls. No input makes it panic; the lints
//! below enforce that.
//!
//! Start at [`packet::Datagram`], which splits a UDP payload into packets. After decryption,
//! [`frame::Frames`] splits the payload of a packet into frames. [`params::TransportParameters`]
//! reads transport parameters. A packet that cannot be parsed is dropped without an answer
//! ([`packet::PacketError`]). A malformed frame or parameter closes the connection, and its error
//! has the code to close with ([`TransportErrorCode`]).
//!
//! An unknown frame type is a value ([`frame::Frame::Unknown`]), not an error. The extension that
//! negotiated the type handles the frame. If there is no such extension, the endpoint must treat
//! the frame as an error.
//!
//! ```
//! use equic_wire::frame::{Frame, Frames, Stream};
//! use equic_wire::{Direction, Side, StreamId, VarInt, Writer};
//!
//! let id = StreamId::new(Side::Client, Direction::Bidirectional, 0).expect("few streams");
//! let hello = Stream::new(id, VarInt::ZERO, b"hello", true).expect("it ends below 2^62");
//! let mut payload = [0; 100];
//! let mut writer = Writer::new(&mut payload);
//! Frame::Ping.write(&mut writer)?;
//! Frame::Stream(hello).write(&mut writer)?;
//!
//! let mut frames = Frames::new(writer.written()).expect("there is something in it");
//! assert_eq!(frames.next(), Some(Ok(Frame::Ping)));
//! assert_eq!(frames.next(), Some(Ok(Frame::Stream(hello))));
//! assert_eq!(frames.next(), None);
//! # Ok::<(), equic_wire::BufferFull>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![deny(
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation
)]

mod cursor;
mod error_code;
pub mod frame;
mod id;
pub mod packet;
mod packet_number;
pub mod params;
mod path_id;
mod stream_id;
mod varint;
mod version;

pub use cursor::{BufferFull, Reader, UnexpectedEnd, Writer};
pub use error_code::TransportErrorCode;
pub use id::{ConnectionId, ConnectionIdTooLong, ResetToken};
pub use packet_number::{PacketNumber, PacketNumberLen, TruncatedPacketNumber};
pub use path_id::PathId;
pub use stream_id::{Direction, Side, StreamCount, StreamId};
pub use varint::{VarInt, VarIntLen, VarIntOutOfRange};
pub use version::{KnownVersion, Version};
