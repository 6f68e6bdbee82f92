//! Closing of a connection (RFC 9000 s.10).

use std::time::Duration;

use equic_wire::frame::{ConnectionClose, Frame, FrameType};
use equic_wire::packet::MIN_INITIAL_DATAGRAM;
use equic_wire::{Side, TransportErrorCode, VarInt, Writer};

use super::budget::Target;
use super::packet_builder::{Padding, TxNumber};
use super::presence::{MayBeAttached, Presence};
use super::send_packet::TxPlace;
use super::space::SpaceId;
use super::{Connection, Event, Transmit};
use crate::Timestamp;
use crate::operation::Operation;
use crate::received::EcnCodepoint;
use crate::violation::{Failure, Violation};

/// Maximum size of a reason phrase in bytes. Longer ones are cut before they are sent or stored.
const MAX_REASON: usize = 256;

/// Maximum number of times that the closing period is prolonged because timers are late.
const MAX_PROLONGED: u8 = 3;

/// Error that a connection was closed with, as in a CONNECTION_CLOSE frame.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionError {
    /// True if the application closed the connection rather than the transport.
    pub application: bool,
    /// The error code.
    pub code: u64,
    /// Reason in plain text. If TLS failed at this end, it can be longer than the phrase that the
    /// peer gets, and quote the peer.
    pub reason: String,
    /// The rule that the peer broke, if this end closed the connection because of a violation.
    /// `None` in all other cases, for example if the peer closed the connection.
    pub violation: Option<Violation>,
}

impl std::fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let whose = if self.application { "application" } else { "transport" };
        write!(f, "{whose} error {:#x}", self.code)?;
        if !self.reason.is_empty() {
            f.write_str(": ")?;
        }
        // The text may come from the peer, so it must not contain control characters that a
        // terminal obeys.
        self.reason.chars().try_for_each(|one| match one {
            one if one.is_control() => write!(f, "{}", one.escape_unicode()),
            one => write!(f, "{one}"),
        })
    }
}

impl std::error::Error for ConnectionError {}

impl From<Failure> for ConnectionError {
    fn from(failure: Failure) -> ConnectionError {
        let Failure { code, reason, violation } = failure;
        ConnectionError { application: false, code: code.0.get(), reason, violation }
    }
}

impl ConnectionError {
    /// Returns the reason phrase for the peer.
    fn phrase(&self) -> &str {
        match self.violation {
            Some(tls @ Violation::Tls(_)) => tls.phrase(),
            _ => &self.reason,
        }
    }
}

/// Way in which a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// This endpoint closed the connection.
    Local(ConnectionError),
    /// The peer closed the connection.
    Peer(ConnectionError),
    /// No packet arrived for the idle timeout.
    IdleTimeout,
    /// The peer no longer has state for the connection (RFC 9000 s.10.3).
    StatelessReset,
    /// The peer did not answer at its new address, and no previously validated address remains (RFC
    /// 9000 s.9.3.2). The peer is not notified.
    NoValidatedPath,
}

impl std::fmt::Display for CloseReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CloseReason::Local(error) => write!(f, "closed by this endpoint: {error}"),
            CloseReason::Peer(error) => write!(f, "closed by the peer: {error}"),
            CloseReason::IdleTimeout => f.write_str("no packet arrived within the idle timeout"),
            CloseReason::StatelessReset => {
                f.write_str("the peer no longer knows the connection (stateless reset)")
            }
            CloseReason::NoValidatedPath => {
                f.write_str("the peer's address changed, and the new address was not validated")
            }
        }
    }
}

impl std::error::Error for CloseReason {}

/// Progress of the connection's end (RFC 9000 s.10.2).
#[derive(Debug, Default)]
pub(super) enum Closing {
    #[default]
    Open,
    /// Closing state: this end sends CONNECTION_CLOSE, and repeats it if the peer continues to
    /// send.
    Telling {
        error: ConnectionError,
        until: Timestamp,
        tell: bool,
        heard: u64,
        /// Number of times that the period was prolonged, because CONNECTION_CLOSE was not sent in
        /// time or a timer was late.
        prolonged: u8,
    },
    /// Draining state: the peer closed the connection, and this end sends nothing.
    Draining {
        until: Timestamp,
    },
    Drained,
}

impl Closing {
    pub(super) fn is_closed(&self) -> bool {
        !matches!(self, Closing::Open)
    }

    /// Returns true if our application closed the connection and CONNECTION_CLOSE is not sent yet.
    pub(super) fn ends_by_application(&self) -> bool {
        matches!(self, Closing::Telling { error, tell: true, .. } if error.application)
    }

    pub(super) fn is_drained(&self) -> bool {
        matches!(self, Closing::Drained)
    }

    pub(super) fn deadline(&self) -> Option<Timestamp> {
        match self {
            Closing::Telling { until, .. } | Closing::Draining { until } => Some(*until),
            Closing::Open | Closing::Drained => None,
        }
    }

    /// Counts a datagram that arrives in the closing state. CONNECTION_CLOSE is repeated after 1,
    /// 2, 4, ... of them (RFC 9000 s.10.2.1).
    pub(super) fn on_datagram(&mut self) {
        if let Closing::Telling { tell, heard, .. } = self {
            *heard += 1;
            *tell |= heard.is_power_of_two();
        }
    }

    /// Called when the closing period is over, perhaps by more than `patience`. Returns true if the
    /// period starts again, which happens a limited number of times.
    ///
    /// It starts again if the caller's timer was late or its socket took nothing. In these cases,
    /// the peer may not have been notified yet, or had no CPU time to read the notice. If the
    /// connection were forgotten now, the peer would get a stateless reset and might never learn
    /// the reason.
    fn prolong(&mut self, now: Timestamp, patience: Duration, to: Timestamp) -> bool {
        match self {
            Closing::Telling { until, tell, prolonged, .. }
                if *prolonged < MAX_PROLONGED && (*tell || now.since(*until) > patience) =>
            {
                *until = to;
                *prolonged += 1;
                true
            }
            _ => false,
        }
    }
}

impl Connection {
    /// Closes the connection with an application error code and a reason phrase. `reason` is cut to
    /// 256 bytes, at the boundary of a character.
    ///
    /// Data that was written but not sent is discarded. If the handshake is complete at this end,
    /// its last flight is sent first, so that the peer can authenticate this end. Has no effect on
    /// a connection that is already closed.
    pub fn close(&mut self, now: Timestamp, code: VarInt, reason: &str) {
        let mut reason = reason.to_owned();
        let mut end = reason.len().min(MAX_REASON);
        while !reason.is_char_boundary(end) {
            end -= 1;
        }
        reason.truncate(end);
        self.close_with(
            now,
            ConnectionError { application: true, code: code.get(), reason, violation: None },
        );
    }

    pub(super) fn close_with(&mut self, now: Timestamp, error: ConnectionError) {
        if self.closing.is_closed() {
            return;
        }
        let input = (error.application, error.code);
        self.notify(Operation::CloseConnection, input);
        let reason = CloseReason::Local(error.clone());
        #[cfg(feature = "qlog")]
        self.log_closed(&reason);
        self.events.push_back(Event::Closed(reason));
        let until = now + self.close_time();
        self.closing = Closing::Telling { error, until, tell: true, heard: 0, prolonged: 0 };
    }

    /// Processes a CONNECTION_CLOSE frame.
    pub(super) fn on_close(&mut self, now: Timestamp, close: ConnectionClose<'_>) {
        let (application, code, reason) = match close {
            ConnectionClose::Transport { error_code, reason, .. } => (false, error_code.0, reason),
            ConnectionClose::Application { error_code, reason } => (true, error_code, reason),
        };
        let reason = &reason[..reason.len().min(MAX_REASON)];
        let reason = String::from_utf8_lossy(reason).into_owned();
        let error = ConnectionError { application, code: code.get(), reason, violation: None };
        self.notify(Operation::PeerClosed, (application, error.code));
        self.drain(now, CloseReason::Peer(error));
    }

    pub(super) fn drain(&mut self, now: Timestamp, why: CloseReason) {
        if matches!(self.closing, Closing::Draining { .. } | Closing::Drained) {
            return;
        }
        if !self.closing.is_closed() {
            #[cfg(feature = "qlog")]
            self.log_closed(&why);
            self.events.push_back(Event::Closed(why));
        }
        self.closing = Closing::Draining { until: now + self.close_time() };
    }

    /// Called at the end of the closing or draining period. Forgets the connection unless the
    /// period is prolonged.
    pub(super) fn on_close_timer(&mut self, now: Timestamp) {
        let pto = self.longest_pto();
        if !self.closing.prolong(now, pto, now + pto * 3) {
            self.forget(CloseReason::IdleTimeout);
        }
    }

    pub(super) fn forget(&mut self, why: CloseReason) {
        if !self.closing.is_closed() {
            #[cfg(feature = "qlog")]
            self.log_closed(&why);
            self.events.push_back(Event::Closed(why));
        }
        self.closing = Closing::Drained;
    }

    /// Returns the length of the closing period: three times the PTO (RFC 9000 s.10.2) of the path
    /// with the longest PTO (RFC 10069 s.2.6).
    fn close_time(&mut self) -> Duration {
        self.longest_pto() * 3
    }

    /// Returns the CONNECTION_CLOSE frame. `protected` is true in 1-RTT packets: only these may
    /// reveal the application's code and reason (RFC 9000 s.10.2.3).
    pub(super) fn close_frame(error: &ConnectionError, protected: bool) -> Frame<'_> {
        let code = VarInt::new(error.code).unwrap_or(VarInt::MAX);
        let reason = error.phrase().as_bytes();
        Frame::ConnectionClose(match (error.application, protected) {
            (true, true) => ConnectionClose::Application { error_code: code, reason },
            (true, false) => ConnectionClose::Transport {
                error_code: TransportErrorCode::APPLICATION_ERROR,
                frame_type: FrameType::PADDING,
                reason: &[],
            },
            (false, _) => ConnectionClose::Transport {
                error_code: TransportErrorCode(code),
                frame_type: FrameType::PADDING,
                reason,
            },
        })
    }

    /// Sends what the peer needs to complete the handshake, if the application closed the
    /// connection before that was sent.
    pub(super) fn transmit_last_flight(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        buffer: &mut [u8],
    ) -> Option<Transmit> {
        if !self.closing.ends_by_application() || !self.handshake.is_complete() {
            return None;
        }
        // The server's later flights contain only session tickets.
        let owed = match self.side {
            // After the handshake is confirmed, the space is gone, and the peer has the client's
            // Finished.
            Side::Client => self.spaces.has_crypto(SpaceId::Handshake),
            Side::Server => self.handshake.owes_done(),
        };
        let key = self.path().key();
        let target = Target { path: key, shared: true };
        owed.then(|| self.datagram_on(hooks, now, target, buffer)).flatten()
    }

    /// RFC 9000 s.10.2: sends CONNECTION_CLOSE in each packet number space that the peer may be
    /// able to read. Returns `None` if CONNECTION_CLOSE is not due.
    pub(super) fn transmit_close(
        &mut self,
        _now: Timestamp,
        buffer: &mut [u8],
    ) -> Option<Transmit> {
        let Closing::Telling { error, tell, .. } = &mut self.closing else { return None };
        if !std::mem::take(tell) {
            return None;
        }
        let error = error.clone();
        // RFC 10069 s.2.6: any path can carry CONNECTION_CLOSE.
        let best = if self.speaks_multipath() { self.best_path() } else { None };
        let key = best.unwrap_or(self.path().key());
        let path = &self.paths[key];
        let credit = path.credit().map_or(usize::MAX, |credit| credit as usize);
        let data = SpaceId::Data(path.id());
        let size = buffer.len().min(MIN_INITIAL_DATAGRAM).min(credit);
        let mut writer = Writer::new(&mut buffer[..size]);
        let there = |id: &SpaceId| {
            let keys = self.keys.has(*id) && (!id.is_data() || self.handshake.is_complete());
            keys && self.spaces.get(*id).is_some()
        };
        let spaces: Vec<SpaceId> =
            [SpaceId::Initial, SpaceId::Handshake, data].into_iter().filter(there).collect();
        for id in &spaces {
            let initial = spaces.first() == Some(&SpaceId::Initial) && spaces.last() == Some(id);
            let pad = if initial { Padding::to(size) } else { Padding::NONE };
            let before = writer.position();
            let place = TxPlace { space: *id, path: key };
            if self.write_close(place, &error, &mut writer, pad).is_none() {
                // The packets before this one report the same error.
                writer.truncate(before);
                break;
            }
        }
        if writer.position() == 0 {
            return None;
        }
        if spaces.first() == Some(&SpaceId::Initial) {
            // RFC 9000 s.14.1.
            writer.zeros(writer.remaining()).ok()?;
        }
        let size = writer.position();
        self.on_datagram_sent(key, size);
        let ecn = EcnCodepoint::NotEct;
        #[cfg(feature = "qlog")]
        self.log_datagram_sent(key, ecn, writer.written());
        Some(self.transmit_on(key, ecn, size))
    }

    /// Writes a packet that has only CONNECTION_CLOSE. Returns `None` if it could not be written.
    fn write_close(
        &mut self,
        place: TxPlace,
        error: &ConnectionError,
        writer: &mut Writer<'_>,
        pad: Padding,
    ) -> Option<()> {
        let id = place.space;
        let space = self.spaces.get(id)?;
        let (next, acked) = (space.numbers.next(), space.loss.largest_acked());
        let number = TxNumber { space: id, number: next, acked };
        let mut packet = self.begin_packet(MayBeAttached, place.path, number, None, writer, pad)?;
        let mut room = packet.payload()?;
        Connection::close_frame(error, id.is_data()).write(&mut room).ok()?;
        let written = room.position();
        packet.wrote(written, false)?;
        packet.pad(packet.padding_wanted())?;
        let mut packet = packet.finish()?;
        self.spaces.get_mut(id)?.numbers.take(next);
        self.stats.packets_sent += 1;
        #[cfg(feature = "qlog")]
        self.log_sending(&packet, false);
        packet.protect(&mut self.keys)
    }
}
