//! What a hook sees of its connection, and may change there. None of it is a hook, and nothing here calls an
//! operation: so hooks stay where they are while one of them runs.

use std::time::Duration;

use equic_wire::Side;

use super::Stats;
use super::datagrams::Datagrams;
use super::handshake::{Peer, Progress};
use super::path::Paths;
use super::space::{SpaceId, Spaces};
use crate::Timestamp;
use crate::operation::{Extensions, Field};
use crate::stream::Streams;

/// Longer than any idle timeout is no round trip, and sums of them must not overflow.
const MAX_RTT: Duration = Duration::from_secs(60);

/// Parts of a connection.
pub(crate) struct View<'a> {
    pub(super) now: Timestamp,
    pub(super) side: Side,
    pub(super) progress: &'a Progress,
    pub(super) peer: &'a Option<Peer>,
    pub(super) paths: &'a mut Paths,
    pub(super) spaces: &'a Spaces,
    pub(super) stats: &'a Stats,
    pub(super) extensions: &'a mut Extensions,
    pub(super) streams: &'a Streams,
    pub(super) datagrams: &'a Datagrams,
}

impl View<'_> {
    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }

    /// Frames that hooks want sent.
    pub(crate) fn extensions(&mut self) -> &mut Extensions {
        self.extensions
    }

    /// Sets a field; returns whether it can be set.
    pub(crate) fn set(&mut self, field: Field, value: u64) -> bool {
        let rtt = &mut self.paths.active_mut().rtt;
        let value = Duration::from_nanos(value).min(MAX_RTT);
        match field {
            Field::SmoothedRtt => rtt.set_smoothed(value),
            Field::RttVariation => rtt.set_variation(value),
            _ => return false,
        }
        true
    }

    pub(crate) fn get(&self, field: Field) -> u64 {
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let (path, stats) = (self.paths.active(), self.stats);
        match field {
            Field::SmoothedRtt => nanos(path.rtt.smoothed()),
            Field::RttVariation => nanos(path.rtt.variation()),
            Field::MinRtt => nanos(path.rtt.min()),
            Field::LatestRtt => nanos(path.rtt.latest()),
            Field::CongestionWindow => path.window(),
            Field::BytesInFlight => path.in_flight,
            Field::PtoCount => path.pto_count.into(),
            Field::DatagramSize => path.mtu.current().into(),
            Field::SlowStartThreshold => path.controller.slow_start_threshold().unwrap_or(u64::MAX),
            Field::ControllerWindow => path.controller.window(),
            Field::ControllerPacingRate => {
                path.controller.pacing_rate(&path.rtt).as_bytes_per_second() as u64
            }
            Field::DatagramsReceived => stats.datagrams_received,
            Field::DatagramsSent => stats.datagrams_sent,
            Field::BytesReceived => stats.bytes_received,
            Field::BytesSent => stats.bytes_sent,
            Field::PacketsReceived => stats.packets_received,
            Field::PacketsSent => stats.packets_sent,
            Field::PacketsLost => stats.packets_lost,
            Field::Side => u64::from(self.side == Side::Server),
            Field::Connected => self.progress.complete.into(),
            Field::Confirmed => self.progress.confirmed.into(),
            Field::ActivePath => path.key.0.into(),
            Field::LargestAcked => {
                self.spaces[SpaceId::DATA].loss.largest_acked().unwrap_or(u64::MAX)
            }
            Field::ApplicationWaits => {
                u64::from(self.streams.wants_to_send() || self.datagrams.wants_to_send())
            }
            Field::PeerMaxAckDelay => {
                self.peer.as_ref().map_or(0, |peer| nanos(peer.max_ack_delay))
            }
        }
    }
}
