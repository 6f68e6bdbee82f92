//! Configuration of a connection.

use std::net::{SocketAddrV4, SocketAddrV6};
use std::sync::Arc;
use std::time::Duration;

use equic_wire::{KnownVersion, Version};

use super::multipath::Scheduler;
use crate::congestion::{Algorithm, Controller, ControllerFactory, initial_window};
use crate::crypto::KeyLimits;
use crate::path::{BASE_SIZE, MtuDiscovery};
use crate::recovery::{INITIAL_RTT, PACKET_THRESHOLD, RttEstimator, TIME_THRESHOLD, Thresholds};
use crate::stream::StreamConfig;

/// Configuration of the transport, for clients and servers.
///
/// Each field has a setter:
///
/// ```
/// use equic_transport::TransportConfig;
///
/// let config = TransportConfig::default().with_max_paths(2).with_ecn(false);
/// assert!(config.max_paths == 2 && !config.ecn);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TransportConfig {
    /// Limits and windows of streams.
    pub streams: StreamConfig,
    /// Congestion control algorithm.
    pub congestion: Arc<dyn ControllerFactory>,
    /// Initial congestion window in bytes. With `None`, ten datagrams as in RFC 9002 s.7.2.
    /// Default: `None`.
    pub initial_window: Option<u64>,
    /// Packet reordering threshold: an earlier packet is lost if its number is this much lower than
    /// that of an acknowledged packet. At least 3 (RFC 9002 s.6.1.1). Default: 3.
    pub packet_threshold: u64,
    /// Time reordering threshold in round trips: an earlier packet is lost if it was sent this long
    /// before now and a later packet was acknowledged. At least 1 (RFC 9002 s.6.1.2). Default: 9/8.
    pub time_threshold: f32,
    /// Time without received packets after which the connection is dropped. Zero disables the
    /// timeout. The effective value is the smaller one of both ends (RFC 9000 s.10.1). Default: 30
    /// s.
    pub max_idle_timeout: Duration,
    /// Longest delay of an acknowledgement. Declared to the peer as `max_ack_delay`. Default: 25
    /// ms.
    pub max_ack_delay: Duration,
    /// Largest UDP payload to send, in bytes, if the path supports it. The search tries only
    /// multiples of 16, the block size of AES. The size found may therefore be up to 15 bytes less.
    /// Default: 1,472.
    pub max_mtu: u16,
    /// UDP payload in bytes that every path is assumed to support from the first packet on. QUIC
    /// requires 1,200 (RFC 9000 s.14). Use more only if all paths are known to support it;
    /// otherwise the handshake fails. Default: 1,200.
    pub initial_mtu: u16,
    /// Enables the search for the largest UDP payload that a path supports, up to `max_mtu` (RFC
    /// 9000 s.14.3). Default: `true`.
    pub mtu_discovery: bool,
    /// Enables marking of packets with ECT(0), on sockets that support it. Default: `true`.
    pub ecn: bool,
    /// Round-trip time that is assumed before the first sample. Default: 333 ms.
    pub initial_rtt: Duration,
    /// Maximum number of connection IDs to issue to the peer. Default: 4.
    pub connection_ids: u64,
    /// Limits that are lower than those of the AEAD, for key updates and for closing the connection
    /// (RFC 9001 s.6.6).
    pub key_limits: KeyLimits,
    /// Supported versions, in order of preference. If empty, only version 1. A server also selects
    /// the best of them that the client supports (RFC 9368 s.2.3). Default: version 1, then version
    /// 2.
    pub versions: Vec<KnownVersion>,
    /// Version of a client's first packets, if it is not the preferred one. It costs a round trip
    /// if the server does not switch to the preferred version. With `None`, the preferred version.
    /// Default: `None`.
    pub first_version: Option<KnownVersion>,
    /// Makes a client's first packets use a version that no server supports, whatever
    /// `first_version` is. This tests Version Negotiation (RFC 9000 s.6.3) and costs a round trip.
    /// Default: `false`.
    pub first_unknown: bool,
    /// Session store of a client for version 2. With `None`, sessions of version 2 are not stored.
    /// Sessions must not cross versions (RFC 9369 s.5), but rustls stores them by server name only.
    /// The store in `tls` therefore serves version 1. Default: `None`.
    pub sessions_v2: Option<rustls::client::Resumption>,
    /// Enables GREASE: random values for the Fixed Bit (RFC 9287), a transport parameter and a
    /// version. They prevent peers and networks from relying on constant values. Default: `true`.
    pub grease: bool,
    /// Requests fewer acknowledgements from peers that support it, if the window is large
    /// (draft-ietf-quic-ack-frequency). Default: `true`.
    pub ack_frequency: bool,
    /// Time without received packets after which a PING is sent, at most half the idle timeout.
    /// Zero, the default, disables keep-alive (RFC 9000 s.10.1.2).
    pub keep_alive: Duration,
    /// Maximum number of bytes of received datagrams that wait for the application, including about
    /// 32 bytes of overhead for each. When it is exceeded, the oldest datagrams are dropped. Zero
    /// disables receiving datagrams (RFC 9221). Default: 64 KiB.
    pub datagram_receive_buffer: usize,
    /// Maximum number of bytes of datagrams that wait to be sent. Default: 64 KiB.
    pub datagram_send_buffer: usize,
    /// Permits the peer to migrate to another address (RFC 9000 s.18.2). NAT rebinding is followed
    /// in any case. Default: `true`.
    pub allow_migration: bool,
    /// Permits a server to export keying material
    /// ([`Connection::export_keying_material`](crate::Connection::export_keying_material)) after
    /// the handshake. The server then keeps some kilobytes of TLS state until the connection is
    /// closed. A client always can. Default: `false`.
    pub keep_exporter: bool,
    /// Additional transport parameters, as pairs of ID and value (RFC 9000 s.7.4.2). Each ID is
    /// sent once, with the value unchanged, and is not remembered for early data. IDs that the
    /// transport itself uses are ignored. A hook can read the peer's
    /// ([`Operation::ReadParameters`](crate::operation::Operation)). Default: empty.
    pub extra_parameters: Vec<(u64, Vec<u8>)>,
    /// Makes a client migrate to its server's preferred address (RFC 9000 s.9.6). Default: `true`.
    pub follow_preferred_address: bool,
    /// Maximum number of simultaneous paths, if the peer supports several (RFC 10069): 1 to 8. With
    /// 1, the default, multipath is not offered.
    pub max_paths: usize,
    /// Scheduler that selects the path of each packet.
    pub scheduler: Scheduler,
}

crate::setters! {
    TransportConfig {
        with_streams => streams: StreamConfig,
        with_congestion => congestion: Arc<dyn ControllerFactory>,
        with_initial_window => initial_window: Option<u64>,
        with_packet_threshold => packet_threshold: u64,
        with_time_threshold => time_threshold: f32,
        with_max_idle_timeout => max_idle_timeout: Duration,
        with_max_ack_delay => max_ack_delay: Duration,
        with_max_mtu => max_mtu: u16,
        with_initial_mtu => initial_mtu: u16,
        with_mtu_discovery => mtu_discovery: bool,
        with_ecn => ecn: bool,
        with_initial_rtt => initial_rtt: Duration,
        with_connection_ids => connection_ids: u64,
        with_key_limits => key_limits: KeyLimits,
        with_versions => versions: Vec<KnownVersion>,
        with_first_version => first_version: Option<KnownVersion>,
        with_first_unknown => first_unknown: bool,
        with_sessions_v2 => sessions_v2: Option<rustls::client::Resumption>,
        with_grease => grease: bool,
        with_ack_frequency => ack_frequency: bool,
        with_keep_alive => keep_alive: Duration,
        with_datagram_receive_buffer => datagram_receive_buffer: usize,
        with_datagram_send_buffer => datagram_send_buffer: usize,
        with_allow_migration => allow_migration: bool,
        with_keep_exporter => keep_exporter: bool,
        with_extra_parameters => extra_parameters: Vec<(u64, Vec<u8>)>,
        with_follow_preferred_address => follow_preferred_address: bool,
        with_max_paths => max_paths: usize,
        with_scheduler => scheduler: Scheduler,
    }
}

/// More than the capacity of any path, and small enough that sums of windows do not overflow.
const MAX_INITIAL_WINDOW: u64 = 1 << 32;

impl TransportConfig {
    /// Returns the supported versions. It returns at least one, and ignores versions without TLS.
    pub(super) fn spoken(&self) -> impl Iterator<Item = KnownVersion> + '_ {
        let any = self.versions.iter().any(|version| has_tls(*version));
        let versions = if any { &self.versions[..] } else { &[KnownVersion::V1] };
        versions.iter().copied().filter(|version| has_tls(*version))
    }

    /// Returns the UDP payload of the first packets, in bytes.
    pub(super) fn first_mtu(&self) -> u16 {
        self.initial_mtu.min(self.max_mtu).max(BASE_SIZE)
    }

    /// Returns the initial congestion window in bytes.
    pub(super) fn first_window(&self) -> u64 {
        let datagram = self.first_mtu();
        // A window below two datagrams leaves no room for a probe (RFC 9002 s.7.2).
        let least = 2 * u64::from(datagram);
        self.initial_window.map_or_else(
            || initial_window(datagram),
            |window| window.clamp(least, MAX_INITIAL_WINDOW),
        )
    }

    /// Returns the configuration of one connection, whose congestion controllers may share state.
    pub(super) fn of_connection(config: Arc<TransportConfig>) -> Arc<TransportConfig> {
        match config.congestion.for_connection() {
            Some(congestion) => {
                Arc::new(TransportConfig { congestion, ..TransportConfig::clone(&config) })
            }
            None => config,
        }
    }

    /// Creates the congestion controller of a new path.
    pub(super) fn start_controller(&self, seed: u64) -> Box<dyn Controller> {
        let mut controller = self.congestion.start(self.first_mtu(), seed);
        if self.initial_window.is_some() {
            controller.set_initial_window(self.first_window());
        }
        controller
    }

    /// Creates the MTU discovery of a new path.
    pub(super) fn start_discovery(&self) -> MtuDiscovery {
        let first = self.first_mtu();
        let max = if self.mtu_discovery { self.max_mtu.max(first) } else { first };
        MtuDiscovery::starting_at(first, max, self.mtu_discovery)
    }

    /// Returns the loss detection thresholds for a round-trip time.
    pub(super) fn thresholds(&self, rtt: &RttEstimator) -> Thresholds {
        Thresholds {
            packets: self.packet_threshold.max(PACKET_THRESHOLD),
            delay: rtt.loss_delay(self.time_threshold),
        }
    }
}

/// Returns true if TLS protects the packets of `version`. It is false only for the version for
/// simulations.
pub(super) fn has_tls(version: KnownVersion) -> bool {
    Version::from(version).known().is_some()
}

impl Default for TransportConfig {
    fn default() -> TransportConfig {
        TransportConfig {
            streams: StreamConfig::default(),
            congestion: Arc::new(Algorithm::default()),
            initial_window: None,
            packet_threshold: PACKET_THRESHOLD,
            time_threshold: TIME_THRESHOLD,
            max_idle_timeout: Duration::from_secs(30),
            max_ack_delay: Duration::from_millis(25),
            max_mtu: 1472,
            initial_mtu: BASE_SIZE,
            mtu_discovery: true,
            ecn: true,
            initial_rtt: INITIAL_RTT,
            connection_ids: 4,
            key_limits: KeyLimits::default(),
            versions: vec![KnownVersion::V1, KnownVersion::V2],
            first_version: None,
            first_unknown: false,
            sessions_v2: None,
            grease: true,
            ack_frequency: true,
            keep_alive: Duration::ZERO,
            datagram_receive_buffer: 64 * 1024,
            datagram_send_buffer: 64 * 1024,
            allow_migration: true,
            keep_exporter: false,
            extra_parameters: Vec::new(),
            follow_preferred_address: true,
            max_paths: 1,
            scheduler: Scheduler::default(),
        }
    }
}

/// A client's configuration.
#[derive(Clone)]
#[non_exhaustive]
pub struct ClientConfig {
    /// TLS configuration: root certificates, ALPN, certificates. The connection uses its crypto
    /// provider.
    ///
    /// With `enable_early_data`, a connection that resumes a session can send before the handshake
    /// is complete (0-RTT). An attacker can record and replay early data (RFC 9001 s.9.2), so send
    /// only what may be received twice. See [`crate::Connection::is_early`].
    pub tls: Arc<rustls::ClientConfig>,
    /// Transport configuration.
    pub transport: Arc<TransportConfig>,
}

impl ClientConfig {
    /// Creates a configuration with the default transport.
    pub fn new(tls: impl Into<Arc<rustls::ClientConfig>>) -> ClientConfig {
        ClientConfig { tls: tls.into(), transport: Arc::default() }
    }

    /// Sets [`transport`](ClientConfig::transport).
    #[must_use]
    pub fn with_transport(mut self, transport: impl Into<Arc<TransportConfig>>) -> ClientConfig {
        self.transport = transport.into();
        self
    }
}

/// A server's preferred addresses, for use after the handshake (RFC 9000 s.9.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PreferredAddresses {
    /// Address for clients that connected over IPv4.
    pub ipv4: Option<SocketAddrV4>,
    /// Address for clients that connected over IPv6.
    pub ipv6: Option<SocketAddrV6>,
}

/// A server's configuration.
#[derive(Clone)]
#[non_exhaustive]
pub struct ServerConfig {
    /// TLS configuration: certificate, ALPN. The connection uses its crypto provider.
    ///
    /// With a `max_early_data_size` of `u32::MAX` (and no `ticketer`), clients may send before the
    /// handshake is complete (0-RTT). Data read while [`crate::Connection::is_early`] returns true
    /// may be a replay. Acting on it twice must do no harm.
    pub tls: Arc<rustls::ServerConfig>,
    /// Transport configuration.
    pub transport: Arc<TransportConfig>,
    /// Addresses to which the server asks clients to migrate. With `None`, clients keep using the
    /// address of the handshake.
    pub preferred_addresses: Option<PreferredAddresses>,
}

impl ServerConfig {
    /// Creates a configuration with the default transport and without preferred addresses.
    pub fn new(tls: impl Into<Arc<rustls::ServerConfig>>) -> ServerConfig {
        ServerConfig { tls: tls.into(), transport: Arc::default(), preferred_addresses: None }
    }

    /// Sets [`transport`](ServerConfig::transport).
    #[must_use]
    pub fn with_transport(mut self, transport: impl Into<Arc<TransportConfig>>) -> ServerConfig {
        self.transport = transport.into();
        self
    }

    /// Sets [`preferred_addresses`](ServerConfig::preferred_addresses).
    #[must_use]
    pub fn with_preferred_addresses(
        mut self,
        addresses: Option<PreferredAddresses>,
    ) -> ServerConfig {
        self.preferred_addresses = addresses;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;
    use crate::recovery::GRANULARITY;

    fn rtt(ms: u64) -> RttEstimator {
        RttEstimator::new(Duration::from_millis(ms))
    }

    #[test]
    fn config_loss_thresholds_are_no_lower_than_in_the_rfc() {
        let usual = TransportConfig::default();
        let thresholds = usual.thresholds(&rtt(80));
        assert_eq!(thresholds, Thresholds { packets: 3, delay: Duration::from_millis(90) });
        let patient = TransportConfig { packet_threshold: 9, time_threshold: 2.5, ..usual.clone() };
        let thresholds = patient.thresholds(&rtt(80));
        assert_eq!(thresholds, Thresholds { packets: 9, delay: Duration::from_millis(200) });
        for time_threshold in [0.5, -1.0, f32::NAN, f32::INFINITY] {
            let wrong = TransportConfig { packet_threshold: 0, time_threshold, ..usual.clone() };
            let thresholds = wrong.thresholds(&rtt(80));
            assert_eq!(thresholds.packets, 3);
            let most = Duration::from_millis(16 * 80);
            assert!((Duration::from_millis(80)..=most).contains(&thresholds.delay));
            assert!(wrong.thresholds(&rtt(0)).delay >= GRANULARITY);
        }
    }

    #[test]
    fn config_out_of_range_is_clamped() {
        let usual = TransportConfig::default();
        let wide = TransportConfig { initial_window: Some(u64::MAX), ..usual.clone() };
        assert_eq!(wide.first_window(), MAX_INITIAL_WINDOW);
        let small = TransportConfig { max_mtu: 1300, initial_mtu: 1452, ..usual };
        assert_eq!(small.first_mtu(), 1300);
        let least = TransportConfig { max_mtu: 0, initial_mtu: 0, ..small };
        assert_eq!(least.first_mtu(), 1200);
    }

    #[test]
    fn config_of_a_new_path() {
        let usual = TransportConfig::default();
        assert_eq!((usual.first_mtu(), usual.first_window()), (1200, 12_000));
        let mut discovery = usual.start_discovery();
        assert_eq!(discovery.next_probe(Timestamp::START), None, "no probe is due");
        discovery.want();
        assert_eq!(discovery.next_probe(Timestamp::START), Some(1472));
        let large = TransportConfig {
            initial_mtu: 1400,
            mtu_discovery: false,
            initial_window: Some(99_999),
            ..usual.clone()
        };
        for algorithm in [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Bbr] {
            let config = TransportConfig { congestion: Arc::new(algorithm), ..large.clone() };
            assert_eq!(config.start_controller(1).window(), 99_999);
            let config = TransportConfig { initial_window: None, ..config };
            assert_eq!(config.start_controller(1).window(), 14_000);
        }
        let mut discovery = large.start_discovery();
        discovery.want();
        assert_eq!((discovery.current(), discovery.next_probe(Timestamp::START)), (1400, None));
        // Values below the permitted minimum (RFC 9000 s.14, RFC 9002 s.7.2).
        let small = TransportConfig { initial_mtu: 0, initial_window: Some(0), ..usual };
        assert_eq!((small.first_mtu(), small.first_window()), (1200, 2400));
    }
}
