//! Content that waits to be sent. [`Connection::pending`] is the only function that checks all
//! owners of such content. The way out, its early exit and the batch call it. If a new kind of
//! frame is missing here, it waits until something else is sent, and the test
//! `pending_frame_of_every_type_leaves_during_a_transfer` fails.

use super::Connection;
use super::send_packet::TxPlace;
use super::space::SpaceId;

/// A kind of content that waits to be sent in a 1-RTT packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// STREAM frames, unless a hook holds them back.
    Streams,
    /// Frames about streams and flow control, such as RESET_STREAM and MAX_DATA.
    StreamControl,
    /// CRYPTO frames.
    Crypto,
    /// HANDSHAKE_DONE.
    HandshakeDone,
    /// Frames of the outbox, such as NEW_TOKEN.
    StoredFrames,
    /// A PING that the application or a timer has requested.
    Ping,
    /// Frames that hooks have queued.
    HookFrames,
    /// Frames that issue or retire connection IDs.
    ConnectionIds,
    /// Frames that negotiate paths (RFC 10069 s.4).
    PathFrames,
    /// ACK_FREQUENCY.
    AckFrequency,
    /// DATAGRAM.
    Datagrams,
    /// PATH_CHALLENGE or PATH_RESPONSE on a path that no path ID uses.
    Validation,
    /// Stream data that was sent on one path and waits for another.
    Copies,
    /// Probes of a packet number space after a probe timeout.
    Probes,
    /// Acknowledgements of received packets.
    Acks,
}

impl Content {
    const fn bit(self) -> u16 {
        1 << self as u16
    }
}

/// A set of [`Content`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Pending(u16);

impl Pending {
    /// Content that only certain paths can carry.
    const BOUND: u16 = Content::Validation.bit()
        | Content::Copies.bit()
        | Content::Probes.bit()
        | Content::Acks.bit();

    #[inline(always)]
    fn with(self, content: Content, waits: bool) -> Pending {
        Pending(self.0 | if waits { content.bit() } else { 0 })
    }

    #[inline(always)]
    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns true if STREAM frames wait, and nothing else.
    #[inline(always)]
    pub(super) fn is_streams_only(self) -> bool {
        self.0 == Content::Streams.bit()
    }

    /// Returns true if there is content that any path can carry.
    #[inline(always)]
    pub(super) fn is_for_any_path(self) -> bool {
        self.0 & !Pending::BOUND != 0
    }
}

impl Connection {
    /// Returns the content that waits to be sent, apart from probes and acknowledgements.
    pub(super) fn pending(&self) -> Pending {
        Pending(self.pending_besides_streams().0 | self.pending_of_streams(false).0)
    }

    #[inline(always)]
    fn pending_besides_streams(&self) -> Pending {
        let paths = self.multipath.as_deref();
        Pending::default()
            .with(Content::Crypto, self.spaces.data().has_crypto())
            .with(Content::HandshakeDone, self.handshake.owes_done())
            .with(Content::StoredFrames, self.has_stored_frames())
            .with(Content::Ping, self.activity.wants_ping())
            .with(Content::HookFrames, !self.extensions.is_empty() && self.keys.has(SpaceId::DATA))
            .with(Content::ConnectionIds, self.ids.has_news())
            .with(Content::PathFrames, paths.is_some_and(|paths| paths.has_news()))
            .with(Content::Copies, paths.is_some_and(|paths| paths.has_copies()))
            .with(Content::AckFrequency, self.acks.due().is_some())
            .with(Content::Datagrams, self.datagrams.wants_to_send())
            .with(Content::Validation, self.probing_path().is_some())
    }

    /// Returns the pending content of streams. Sending STREAM frames can add only to this part.
    /// `known` is true if the caller knows that streams have data.
    #[inline(always)]
    pub(super) fn pending_of_streams(&self, known: bool) -> Pending {
        Pending::default()
            .with(Content::StreamControl, self.streams.has_control())
            .with(Content::Streams, known || self.streams_go())
    }

    /// Returns the probes and acknowledgements that a packet of this space on this path carries.
    #[inline(always)]
    pub(super) fn pending_on(&self, place: TxPlace) -> Pending {
        let acks = match self.multipath {
            None => self.spaces.data().received.has_news(),
            Some(_) => self.owes_acks(place.path),
        };
        Pending::default()
            .with(Content::Probes, self.spaces.probes(place.space) > 0)
            .with(Content::Acks, acks)
    }
}
