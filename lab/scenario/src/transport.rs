//! Creates the QUIC configuration of the endpoints of flows. The configuration is the same in
//! virtual and in real time.

use std::sync::Arc;

use equic_tcp::Classic;
use equic_transport::Scheduler as Ours;
use equic_transport::TransportConfig;
use equic_transport::congestion::{Algorithm, GoogleQuic, TcpControllerFactory};

use crate::build::Place;
use crate::model::{Controller, Flow, Scheduler};

/// Initial send buffer of a stream, in bytes. The buffer grows with the capacity of the path, up to
/// the flow-control window. It is small at first, because otherwise each of a thousand connections
/// on one link would buffer a whole window.
pub(crate) const SEND_BUFFER: u64 = 256 << 10;

impl Controller {
    /// Returns a factory that creates controllers of this kind, for QUIC and for TCP.
    pub fn factory(self) -> Arc<dyn TcpControllerFactory> {
        match self {
            Controller::NewReno => Arc::new(Algorithm::NewReno),
            Controller::Cubic => Arc::new(Algorithm::Cubic),
            Controller::Bbr => Arc::new(Algorithm::Bbr),
            Controller::Bic => Arc::new(Classic::Bic),
            Controller::Vegas => Arc::new(Classic::Vegas),
            Controller::Westwood => Arc::new(Classic::Westwood),
            Controller::GoogleQuic => Arc::new(GoogleQuic),
            Controller::Lia => Arc::new(Algorithm::Lia),
            Controller::Olia => Arc::new(Algorithm::Olia),
        }
    }
}

impl Place {
    /// Returns the transport configuration for both ends of a QUIC flow in this network.
    pub fn quic(&self, flow: &Flow) -> TransportConfig {
        let options = &flow.quic;
        let mtu = options.mtu.unwrap_or(self.datagram);
        let window = self.window_of(flow);
        let mut config = TransportConfig::default()
            .with_congestion(flow.controller.factory())
            .with_initial_window(options.initial_window)
            .with_max_mtu(mtu)
            .with_mtu_discovery(options.mtu_discovery)
            .with_ecn(options.ecn)
            .with_ack_frequency(options.ack_frequency)
            .with_max_idle_timeout(options.idle_timeout)
            .with_max_paths(options.paths)
            .with_scheduler(match options.scheduler {
                Scheduler::LowestRtt => Ours::LowestRtt,
                Scheduler::RoundRobin => Ours::RoundRobin,
                Scheduler::Redundant => Ours::Redundant,
                Scheduler::Backup => Ours::Backup,
            });
        if !options.mtu_discovery {
            config.initial_mtu = mtu;
        }
        let streams = &mut config.streams;
        streams.max_stream_window = window;
        streams.max_connection_window = window;
        streams.stream_window = streams.stream_window.min(window);
        streams.connection_window = streams.connection_window.min(window);
        streams.send_buffer = SEND_BUFFER.min(window);
        streams.max_send_buffer = window;
        streams.connection_send_buffer = window;
        config
    }
}
