//! Statistics of a path, for the application.

use std::net::IpAddr;
use std::time::Duration;

use super::path::Path;
use super::{Connection, Stats};

/// Statistics of a path, such as a connection's active one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PathStats {
    /// The round-trip time as it is estimated now.
    pub rtt: Duration,
    /// The least round-trip time that was seen; zero: none was seen yet.
    pub min_rtt: Duration,
    /// Mean deviation of the round-trip time.
    pub rtt_variation: Duration,
    /// The congestion window in bytes.
    pub congestion_window: u64,
    /// The slow start threshold in bytes; none: slow start was not left yet, or the algorithm has none.
    pub slow_start_threshold: Option<u64>,
    /// Bytes sent that are neither acknowledged nor lost.
    pub bytes_in_flight: u64,
    /// Rate at which the congestion controller lets packets leave, in bytes per second.
    pub pacing_rate: u64,
    /// The largest UDP payload that the path is known to take, in bytes.
    pub current_mtu: u16,
    /// Probe timeouts in a row without an answer.
    pub probe_timeouts: u32,
}

impl PathStats {
    /// Figures of a path at this moment.
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

/// Names what is counted once, for what is counted and for what is told.
macro_rules! counters {
    ($($name:ident)+) => {
        /// What is counted of a connection; what each is, [`Stats`] says.
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
    /// Counters, and what is known of the active path.
    pub fn stats(&self) -> Stats {
        self.stats.with(PathStats::of(self.path()))
    }

    /// Our address on the active path, if it is known.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.path().local()
    }
}
