//! A packet number space, and what is remembered of a packet in flight.

use std::ops::Range;

use equic_wire::StreamId;
use rustls::quic::Keys;

use crate::received::ReceivedPackets;
use crate::recovery::LossDetector;
use crate::stream::{Assembler, Control, SendBuffer};

/// The packet number spaces (RFC 9000 s.12.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SpaceId {
    Initial,
    Handshake,
    Data,
}

impl SpaceId {
    pub const ALL: [SpaceId; 3] = [SpaceId::Initial, SpaceId::Handshake, SpaceId::Data];
}

/// A frame of a packet in flight, as far as its loss or acknowledgement matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SentFrame {
    /// Up to this packet number.
    Ack(u64),
    Crypto(Range<u64>),
    Stream {
        id: StreamId,
        range: Range<u64>,
        fin: bool,
    },
    Control(Control),
    HandshakeDone,
    NewConnectionId(u64),
    RetireConnectionId(u64),
    Ping,
}

/// A packet in flight.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub frames: Vec<SentFrame>,
    /// Marked ECT(0).
    pub marked: bool,
}

pub(super) struct Space {
    /// Of Initial and Handshake; 1-RTT keys are the connection's.
    pub keys: Option<Keys>,
    pub received: ReceivedPackets,
    pub loss: LossDetector<Sent>,
    pub crypto_in: Assembler,
    pub crypto_out: SendBuffer,
    /// The next packet number.
    pub next: u64,
    /// Probes to send, whatever the window says.
    pub probes: u8,
    /// Its keys are gone for good.
    pub discarded: bool,
}

impl Space {
    pub fn new() -> Space {
        Space {
            keys: None,
            received: ReceivedPackets::default(),
            loss: LossDetector::default(),
            crypto_in: Assembler::default(),
            crypto_out: SendBuffer::default(),
            next: 0,
            probes: 0,
            discarded: false,
        }
    }
}
