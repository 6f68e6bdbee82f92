//! What a connection knows of a path.

use std::net::SocketAddr;

use equic_wire::packet::MIN_INITIAL_DATAGRAM;

use crate::Timestamp;
use crate::congestion::{Controller, DeliveryRate, Pacer, initial_window};
use crate::path::{BASE_SIZE, EcnValidation, MtuDiscovery};
use crate::recovery::RttEstimator;

use super::config::TransportConfig;

/// How many times what came an address gets that is not validated (RFC 9000 s.8.1).
const AMPLIFICATION: u64 = 3;

pub(super) struct Path {
    pub remote: SocketAddr,
    pub rtt: RttEstimator,
    pub controller: Box<dyn Controller>,
    pub pacer: Pacer,
    pub rates: DeliveryRate,
    /// Bytes in flight, of all spaces.
    pub in_flight: u64,
    pub mtu: MtuDiscovery,
    pub ecn: EcnValidation,
    /// Probe timeouts in a row.
    pub pto_count: u32,
    pub validated: bool,
    received: u64,
    sent: u64,
}

impl Path {
    pub fn new(
        now: Timestamp,
        remote: SocketAddr,
        config: &TransportConfig,
        seed: u64,
        validated: bool,
    ) -> Path {
        Path {
            remote,
            rtt: RttEstimator::new(config.initial_rtt),
            controller: config.congestion.start(BASE_SIZE, seed),
            pacer: Pacer::new(now, initial_window(BASE_SIZE)),
            rates: DeliveryRate::default(),
            in_flight: 0,
            mtu: MtuDiscovery::new(config.max_datagram_size),
            ecn: if config.ecn { EcnValidation::default() } else { EcnValidation::disabled() },
            pto_count: 0,
            validated,
            received: 0,
            sent: 0,
        }
    }

    pub fn on_datagram_received(&mut self, bytes: usize) {
        self.received += bytes as u64;
    }

    pub fn on_datagram_sent(&mut self, bytes: usize) {
        self.sent += bytes as u64;
    }

    /// Bytes that may be sent before the address is validated; none: no limit.
    pub fn credit(&self) -> Option<u64> {
        (!self.validated).then(|| (self.received * AMPLIFICATION).saturating_sub(self.sent))
    }

    /// Whether there is credit for a datagram as large as they must be (RFC 9000 s.14.1).
    pub fn may_send(&self) -> bool {
        self.credit().is_none_or(|credit| credit >= MIN_INITIAL_DATAGRAM as u64)
    }

    /// Bytes that the congestion window has left.
    pub fn room(&self) -> u64 {
        self.controller.window().saturating_sub(self.in_flight)
    }
}
