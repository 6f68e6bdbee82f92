//! The peer's transport parameters that a connection needs after the handshake (RFC 9000 s.18.2).

use std::time::Duration;

use equic_wire::frame::Ack;
use equic_wire::params::TransportParameters;

/// The peer's transport parameters, and the acknowledgement delay that was requested since.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer {
    ack_delay_exponent: u8,
    /// Present maximum delay of the peer's acknowledgements: as declared, or as requested later.
    max_ack_delay: Duration,
    declared_max_ack_delay: Duration,
    min_ack_delay: Option<Duration>,
    max_datagram_frame_size: u64,
    max_idle_timeout: Duration,
    grease_quic_bit: bool,
    max_udp_payload_size: u64,
    disable_active_migration: bool,
}

impl Peer {
    pub(super) fn new(parameters: &TransportParameters<'_>) -> Peer {
        let max_ack_delay = parameters.max_ack_delay.as_duration();
        Peer {
            ack_delay_exponent: parameters.ack_delay_exponent.get(),
            max_ack_delay,
            declared_max_ack_delay: max_ack_delay,
            min_ack_delay: parameters.min_ack_delay_us.map(|us| Duration::from_micros(us.get())),
            max_datagram_frame_size: parameters.max_datagram_frame_size.get(),
            max_idle_timeout: Duration::from_millis(parameters.max_idle_timeout_ms.get()),
            grease_quic_bit: parameters.grease_quic_bit,
            max_udp_payload_size: parameters.max_udp_payload_size.get().get(),
            disable_active_migration: parameters.disable_active_migration,
        }
    }

    /// Returns the exponent of the ACK Delay fields in the peer's 1-RTT packets.
    #[cfg(feature = "qlog")]
    pub(super) fn ack_delay_exponent(&self) -> u8 {
        self.ack_delay_exponent
    }

    /// Returns the acknowledgement delay that an ACK frame reports.
    pub(super) fn ack_delay(&self, ack: &Ack<'_>) -> Duration {
        ack.delay(self.ack_delay_exponent)
    }

    /// Returns the present maximum delay of the peer's acknowledgements: as declared, or as
    /// requested later.
    pub(super) fn max_ack_delay(&self) -> Duration {
        self.max_ack_delay
    }

    /// Records that the peer applies a requested delay (draft-ietf-quic-ack-frequency s.4).
    pub(super) fn on_ack_delay_requested(&mut self, delay: Duration) {
        self.max_ack_delay = delay;
    }

    /// Returns the maximum delay of the peer's acknowledgements without a request.
    pub(super) fn declared_max_ack_delay(&self) -> Duration {
        self.declared_max_ack_delay
    }

    /// Returns the shortest delay that may be requested, or `None` if the peer does not support
    /// ACK_FREQUENCY.
    pub(super) fn min_ack_delay(&self) -> Option<Duration> {
        self.min_ack_delay
    }

    /// Returns the maximum size in bytes of a DATAGRAM frame to the peer (RFC 9221 s.3), or `None`
    /// if it accepts none.
    pub(super) fn max_datagram_frame_size(&self) -> Option<u64> {
        Some(self.max_datagram_frame_size).filter(|size| *size > 0)
    }

    /// Returns the idle timeout: the smaller one of both ends, where zero means no limit (RFC 9000
    /// s.10.1). `ours` is the configured one. Returns `None` if the connection has no idle timeout.
    pub(super) fn idle_timeout(peer: Option<&Peer>, ours: Duration) -> Option<Duration> {
        let theirs = peer.map_or(Duration::ZERO, |peer| peer.max_idle_timeout);
        match (ours, theirs) {
            (Duration::ZERO, Duration::ZERO) => None,
            (Duration::ZERO, other) | (other, Duration::ZERO) => Some(other),
            (ours, theirs) => Some(ours.min(theirs)),
        }
    }

    /// Returns true if the peer accepts packets without the Fixed Bit (RFC 9287).
    pub(super) fn takes_greased_bit(&self) -> bool {
        self.grease_quic_bit
    }

    /// Returns the maximum UDP payload in bytes that the peer accepts.
    pub(super) fn max_udp_payload_size(&self) -> u64 {
        self.max_udp_payload_size
    }

    /// Returns true if the peer forbids migration.
    pub(super) fn forbids_migration(&self) -> bool {
        self.disable_active_migration
    }

    /// Sets the `max_datagram_frame_size` of the peer.
    #[cfg(test)]
    pub(super) fn pretend_max_datagram_frame_size(&mut self, size: u64) {
        self.max_datagram_frame_size = size;
    }

    /// Makes the peer not support ACK_FREQUENCY.
    #[cfg(test)]
    pub(super) fn pretend_no_ack_frequency(&mut self) {
        self.min_ack_delay = None;
    }
}

#[cfg(test)]
mod tests {
    use equic_wire::params::MaxAckDelay;
    use equic_wire::{ConnectionId, VarInt};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn parameters() -> TransportParameters<'static> {
        TransportParameters::client(ConnectionId::EMPTY)
    }

    #[test]
    fn param_defaults_are_those_of_the_rfc() {
        let peer = Peer::new(&parameters());
        assert_eq!(peer.max_ack_delay(), Duration::from_millis(25));
        assert_eq!((peer.min_ack_delay(), peer.max_datagram_frame_size()), (None, None));
        assert_eq!(peer.max_udp_payload_size(), 65_527);
        assert!(!peer.takes_greased_bit() && !peer.forbids_migration());
        assert_eq!(peer.ack_delay_exponent, 3);
    }

    #[test]
    fn param_declared_values_hold() {
        let mut declared = parameters();
        declared.max_datagram_frame_size = VarInt::from_u32(100);
        declared.min_ack_delay_us = Some(VarInt::from_u32(1_000));
        declared.grease_quic_bit = true;
        declared.disable_active_migration = true;
        let peer = Peer::new(&declared);
        assert_eq!(peer.max_datagram_frame_size(), Some(100));
        assert_eq!(peer.min_ack_delay(), Some(Duration::from_millis(1)));
        assert!(peer.takes_greased_bit() && peer.forbids_migration());
    }

    #[test]
    fn param_max_ack_delay_is_replaced_by_ack_frequency() {
        let mut declared = parameters();
        declared.max_ack_delay = MaxAckDelay::from_millis(40).unwrap();
        let mut peer = Peer::new(&declared);
        peer.on_ack_delay_requested(Duration::from_millis(5));
        assert_eq!(peer.max_ack_delay(), Duration::from_millis(5));
        assert_eq!(peer.declared_max_ack_delay(), Duration::from_millis(40));
    }

    #[test]
    fn param_idle_timeout_is_the_minimum_of_both() {
        let peer = |seconds: u32| {
            let mut declared = parameters();
            declared.max_idle_timeout_ms = VarInt::from_u32(seconds * 1_000);
            Peer::new(&declared)
        };
        assert_eq!(Peer::idle_timeout(None, Duration::ZERO), None);
        assert_eq!(Peer::idle_timeout(None, SECOND), Some(SECOND));
        assert_eq!(Peer::idle_timeout(Some(&peer(0)), Duration::ZERO), None);
        assert_eq!(Peer::idle_timeout(Some(&peer(0)), SECOND), Some(SECOND));
        assert_eq!(Peer::idle_timeout(Some(&peer(1)), Duration::ZERO), Some(SECOND));
        assert_eq!(Peer::idle_timeout(Some(&peer(1)), SECOND * 2), Some(SECOND));
        assert_eq!(Peer::idle_timeout(Some(&peer(2)), SECOND), Some(SECOND));
    }
}
