//! Statistics of a path, for the application.

use std::net::IpAddr;
use std::time::Duration;

use super::path::Path;
use super::{Connection, Stats};

/// Statistics of a path, for example of the active path of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PathStats {
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Minimum round-trip time. Zero before the first sample.
    pub min_rtt: Duration,
    /// Mean deviation of the round-trip time.
    pub rtt_variation: Duration,
    /// Congestion window in bytes.
    pub congestion_window: u64,
    /// Slow start threshold in bytes. `None` if slow start has not ended yet, or if the algorithm
    /// has no threshold.
    pub slow_start_threshold: Option<u64>,
    /// Bytes in flight: sent, and neither acknowledged nor declared lost.
    pub bytes_in_flight: u64,
    /// Pacing rate of the congestion controller in bytes per second.
    pub pacing_rate: u64,
    /// Largest UDP payload that the path is known to support, in bytes.
    pub current_mtu: u16,
    /// Number of consecutive probe timeouts.
    pub probe_timeouts: u32,
}

impl PathStats {
    /// Returns the present statistics of a path.
    pub(super) fn of(path: &Path) -> PathStats {
        PathStats {
            rtt: path.rtt().smoothed(),
            min_rtt: path.rtt().min(),
            rtt_variation: path.rtt().variation(),
            congestion_window: path.window(),
            slow_start_threshold: path.controller().slow_start_threshold(),
            bytes_in_flight: path.in_flight(),
            pacing_rate: path.pacing_rate().as_bytes_per_second() as u64,
            current_mtu: path.mtu(),
            probe_timeouts: path.backoff().count(),
        }
    }
}

/// Generates the internal counters and the public [`Stats`] from one list of counters.
macro_rules! counters {
    ($($name:ident)+) => {
        /// Counters of a connection. [`Stats`] describes each of them.
        #[derive(Debug, Clone, Copy, Default)]
        pub(super) struct Counters {
            $(pub $name: u64,)+
        }

        impl Counters {
            fn with(self, path: PathStats) -> Stats {
                Stats { $($name: self.$name,)+ path }
            }
        }
    };
}

counters! {
    datagrams_received
    bytes_received
    datagrams_sent
    bytes_sent
    packets_received
    packets_opened_to_streams
    packets_recovered
    packets_dropped
    packets_sent
    packets_lost
    spurious_losses
    probe_timeouts
    acks_sent
    acks_received
    numbers_skipped
    flow_blocked
    peer_flow_blocked
    keep_alives
    path_choices_refused
    paths_starved
    datagram_frames_sent
    datagram_frames_lost
    datagram_frames_received
    datagram_frames_dropped
}

impl Connection {
    /// Returns the counters of the connection and the statistics of its active path.
    pub fn stats(&self) -> Stats {
        self.stats.with(PathStats::of(self.path()))
    }

    /// Returns our address on the active path, or `None` if it is unknown.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.path().local()
    }
}
