//! A hook's view of its connection, and the changes that it may make there. This code calls no
//! operation, and neither attaches nor detaches hooks. The hooks therefore do not change while one
//! of them runs.

use std::time::Duration;

use equic_wire::{Side, StreamId, VarInt};

use super::Connection;
use super::path::Path;
use super::paths::PathKey;
use crate::Timestamp;
use crate::operation::{Extensions, Field, Own, Word};

/// Value of a field that has no value.
const NONE: u64 = u64::MAX;

/// Largest round-trip time that a hook may set. It is longer than any idle timeout, and sums of it
/// must not overflow.
const MAX_RTT: Duration = Duration::from_secs(60);

/// Largest window in bytes that a hook may set. It exceeds the capacity of any path, and sums of
/// windows must not overflow.
pub(super) const MAX_WINDOW: u64 = 1 << 30;

/// Maximum number of datagrams to which a hook's choice of a path applies: about one batch for the
/// system.
const MAX_HELD: u64 = 64;

/// A connection that calls a hook. It has only two words, because one is created for each call. The
/// hook's requests read the connection when they are made. The table of hooks is taken out of the
/// connection during the call.
pub(crate) struct View<'a> {
    pub(super) connection: &'a mut Connection,
    /// ID and frame types of the hook.
    pub(super) own: &'a Own,
}

impl View<'_> {
    pub(crate) fn now(&self) -> Timestamp {
        self.connection.now
    }

    /// Returns the ID and frame types of the hook.
    pub(crate) fn own(&self) -> &Own {
        self.own
    }

    /// Returns the state of hooks, including frames that they want to send.
    pub(crate) fn extensions(&mut self) -> &mut Extensions {
        &mut self.connection.extensions
    }

    /// Returns the view of another hook on the same connection.
    pub(crate) fn of<'b>(&'b mut self, own: &'b Own) -> View<'b> {
        View { connection: self.connection, own }
    }

    /// Sets a field. Returns whether it can be set.
    pub(crate) fn set(&mut self, field: Field, value: u64) -> bool {
        if field == Field::ChoiceHolds {
            self.connection.hold_choice(value.min(MAX_HELD));
            return true;
        }
        let path = self.connection.path_mut();
        let duration = Duration::from_nanos(value).min(MAX_RTT);
        let window = value.clamp(2 * u64::from(path.mtu()), MAX_WINDOW);
        match field {
            Field::SmoothedRtt => path.set_smoothed_rtt(duration),
            Field::RttVariation => path.set_rtt_variation(duration),
            Field::CongestionWindow => return path.set_controller_window(window),
            Field::SlowStartThreshold => {
                let threshold = Some(window).filter(|_| value != u64::MAX);
                return path.set_slow_start_threshold(threshold);
            }
            _ => return false,
        }
        true
    }

    pub(crate) fn get(&self, field: Field) -> u64 {
        let connection = &*self.connection;
        let (path, stats) = (connection.path(), &connection.stats);
        // The fields that congestion controllers read with every acknowledgement come first.
        if let Some(value) = self.of_path(path, field) {
            return value;
        }
        let data = connection.active_space();
        match field {
            Field::LossTime => {
                let loss = connection.spaces.get(data).and_then(|space| space.loss.loss_time());
                loss.map_or(NONE, Timestamp::as_nanos)
            }
            Field::LastElicitingSent => {
                let space = connection.spaces.get(data);
                let sent = space.and_then(|space| space.loss.last_ack_eliciting());
                sent.map_or(NONE, Timestamp::as_nanos)
            }
            Field::DatagramsReceived => stats.datagrams_received,
            Field::DatagramsSent => stats.datagrams_sent,
            Field::BytesReceived => stats.bytes_received,
            Field::BytesSent => stats.bytes_sent,
            Field::PacketsReceived => stats.packets_received,
            Field::PacketsSent => stats.packets_sent,
            Field::PacketsLost => stats.packets_lost,
            Field::Side => u64::from(connection.side == Side::Server),
            Field::Connected => connection.handshake.is_complete().into(),
            Field::Confirmed => connection.handshake.is_confirmed().into(),
            Field::ActivePath => path.key().0.into(),
            Field::LargestAcked => {
                let space = connection.spaces.get(data);
                space.and_then(|space| space.loss.largest_acked()).unwrap_or(NONE)
            }
            Field::ApplicationWaits => u64::from(connection.application_waits()),
            Field::PeerMaxAckDelay => {
                connection.peer.as_ref().map_or(0, |peer| nanos(peer.max_ack_delay()))
            }
            Field::BytesUnsent => connection.streams.bytes_unsent(),
            Field::NextPath => self.next_path(0),
            Field::ChoiceHolds => connection.choice_holds(),
            // The match has no wildcard, so the compiler rejects a new field that is not handled
            // here.
            Field::SmoothedRtt
            | Field::RttVariation
            | Field::MinRtt
            | Field::LatestRtt
            | Field::CongestionWindow
            | Field::BytesInFlight
            | Field::PtoCount
            | Field::DatagramSize
            | Field::SlowStartThreshold
            | Field::ControllerWindow
            | Field::ControllerPacingRate
            | Field::DeliveryRate
            | Field::PathId
            | Field::PathStatus
            | Field::PathCost
            | Field::PathPacketsLost
            | Field::PathBytesSent
            | Field::PathRoom => NONE,
        }
    }

    /// Returns the number of parts of the connection that [`View::get`] reads for a field.
    pub(crate) fn parts_of(&self, field: Field) -> usize {
        match field {
            Field::ApplicationWaits => self.connection.streams.looked_at_to_send().max(1),
            Field::NextPath => self.connection.paths.iter().count().max(1),
            _ => 1,
        }
    }

    /// Variant of [`View::get`] for one path or stream. Returns `None` if it does not exist, or if
    /// the field belongs to the whole connection.
    pub(crate) fn get_of(&self, field: Field, part: u64) -> Option<u64> {
        let connection = &*self.connection;
        match field {
            Field::BytesUnsent => {
                let stream = StreamId::from(VarInt::new(part).ok()?);
                connection.streams.bytes_unsent_of(stream)
            }
            Field::NextPath => Some(self.next_path(part)),
            _ => self.of_path(connection.paths.get(PathKey::from_word(part)?)?, field),
        }
    }

    /// Returns the value of a field that each path has, or `None` for other fields.
    #[inline(always)]
    fn of_path(&self, path: &Path, field: Field) -> Option<u64> {
        of_path(path, field).or_else(|| match field {
            Field::PathId => Some(path.id().get().into()),
            Field::PathStatus => Some(self.connection.path_bits(path)),
            Field::PathCost => Some(self.connection.path_cost(path)),
            Field::PathRoom => Some(path.room(self.connection.now)),
            _ => None,
        })
    }

    /// Returns the number of the first path whose number is at least `from`.
    fn next_path(&self, from: u64) -> u64 {
        let numbers = self.connection.paths.iter().map(|path| u64::from(path.key().0));
        numbers.filter(|number| *number >= from).min().unwrap_or(NONE)
    }
}

/// Returns the value of a field that each path has, or `None` for other fields.
#[inline(always)]
fn of_path(path: &Path, field: Field) -> Option<u64> {
    Some(match field {
        Field::SmoothedRtt => nanos(path.rtt().smoothed()),
        Field::RttVariation => nanos(path.rtt().variation()),
        Field::MinRtt => nanos(path.rtt().min()),
        Field::LatestRtt => nanos(path.rtt().latest()),
        Field::CongestionWindow => path.window(),
        Field::BytesInFlight => path.in_flight(),
        Field::PtoCount => path.backoff().count().into(),
        Field::DatagramSize => path.mtu().into(),
        Field::SlowStartThreshold => path.controller().slow_start_threshold().unwrap_or(NONE),
        Field::ControllerWindow => path.controller().window(),
        Field::ControllerPacingRate => path.pacing_rate().as_bytes_per_second() as u64,
        Field::DeliveryRate => path.delivery_rate(),
        Field::PathPacketsLost => path.lost(),
        Field::PathBytesSent => path.sent(),
        _ => return None,
    })
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(NONE)
}
