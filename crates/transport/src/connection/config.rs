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
    /// Streams and their windows.
    pub streams: StreamConfig,
    /// Congestion control.
    pub congestion: Arc<dyn ControllerFactory>,
    /// Bytes that may be in flight before anything is known of a path; none: ten datagrams, as
    /// RFC 9002 s.7.2 has it.
    pub initial_window: Option<u64>,
    /// Distance in packet numbers from which on an earlier packet counts as lost, 3 at least
    /// (RFC 9002 s.6.1.1).
    pub packet_threshold: u64,
    /// Round trips after which an earlier packet counts as lost when a later one was acknowledged, 1 at
    /// least (RFC 9002 s.6.1.2).
    pub time_threshold: f32,
    /// A connection on which nothing comes for so long is dropped; zero: never. The peer may ask for
    /// less (RFC 9000 s.10.1).
    pub max_idle_timeout: Duration,
    /// Longest time for which an acknowledgement may wait, declared to the peer as `max_ack_delay`.
    pub max_ack_delay: Duration,
    /// Largest UDP payload to send, in bytes, if the path supports it. The search tries only
    /// multiples of 16, the block size of AES. The size found may therefore be up to 15 bytes less.
    pub max_mtu: u16,
    /// The UDP payload that every path is taken to carry from the first packet on, in bytes: 1,200 is what
    /// QUIC asks of a path (RFC 9000 s.14), more only where it is known that all paths take it. The
    /// handshake fails where that is not so.
    pub initial_mtu: u16,
    /// True to search for how much a path takes, up to `max_mtu` (RFC 9000 s.14.3).
    pub mtu_discovery: bool,
    /// True if packets are marked ECT(0), for sockets that can mark them.
    pub ecn: bool,
    /// The round-trip time assumed before the first sample.
    pub initial_rtt: Duration,
    /// Connection IDs to give to the peer, at most.
    pub connection_ids: u64,
    /// Sooner than the AEAD asks for, to update keys or to give up (RFC 9001 s.6.6).
    pub key_limits: KeyLimits,
    /// The versions that are spoken, best first; none: as if there was version 1 alone. A server
    /// answers in the best that the client speaks, too (RFC 9368 s.2.3).
    pub versions: Vec<KnownVersion>,
    /// A client's first packets are of this version, if the best is another; a server that does not
    /// take the hint costs a round trip more. None: of the best.
    pub first_version: Option<KnownVersion>,
    /// A client's first packets are of a version that nobody speaks, whatever `first_version` says, so
    /// that the server says what it does (RFC 9000 s.6.3): a round trip more, to see whether it can.
    pub first_unknown: bool,
    /// Store of a client's sessions of version 2: rustls files sessions by the server's name alone, and they
    /// must not cross versions (RFC 9369 s.5), so those of `tls` are of version 1. None: they are not kept.
    pub sessions_v2: Option<rustls::client::Resumption>,
    /// True to send meaningless values now and then, so that nobody comes to rely on what is
    /// always the same: the Fixed Bit (RFC 9287), a transport parameter, a version.
    pub grease: bool,
    /// True if peers that support it are asked to acknowledge less often where the window is large
    /// (draft-ietf-quic-ack-frequency).
    pub ack_frequency: bool,
    /// After so long without a word a PING is sent, and never later than half the idle timeout; zero:
    /// never (RFC 9000 s.10.1.2).
    pub keep_alive: Duration,
    /// Bytes of datagrams that may wait to be read, with some 32 for each; the oldest are dropped
    /// beyond that. Zero: none are taken (RFC 9221).
    pub datagram_receive_buffer: usize,
    /// Bytes of datagrams that may wait for the network.
    pub datagram_send_buffer: usize,
    /// True if the peer may migrate to another address on purpose (RFC 9000 s.18.2); a NAT that
    /// rebinds is followed in any case.
    pub allow_migration: bool,
    /// True if a server can export keying material
    /// ([`Connection::export_keying_material`](crate::Connection::export_keying_material)) after the
    /// handshake: it keeps some kilobytes of TLS for as long as the connection is open then. A client always
    /// can.
    pub keep_exporter: bool,
    /// Transport parameters of extensions beside those that the transport knows, by number (RFC 9000 s.7.4.2): sent
    /// as they are, each number once, and not part of what early data relies on. One that the transport knows is
    /// left out. The peer's are read by a hook ([`Operation::ReadParameters`](crate::operation::Operation)).
    pub extra_parameters: Vec<(u64, Vec<u8>)>,
    /// True if a client moves to the address that its server prefers (RFC 9000 s.9.6).
    pub follow_preferred_address: bool,
    /// Most paths of a connection at a time, if the peer takes several, too (RFC 10069): up to 8 of them. With 1, the
    /// default, nothing of that is offered.
    pub max_paths: usize,
    /// Way to divide what is sent among several paths.
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

/// More than any path holds, and so little that sums of windows do not overflow.
const MAX_INITIAL_WINDOW: u64 = 1 << 32;

impl TransportConfig {
    /// The versions that are spoken, never none: without TLS none is, whatever is written here.
    pub(super) fn spoken(&self) -> impl Iterator<Item = KnownVersion> + '_ {
        let any = self.versions.iter().any(|version| has_tls(*version));
        let versions = if any { &self.versions[..] } else { &[KnownVersion::V1] };
        versions.iter().copied().filter(|version| has_tls(*version))
    }

    /// The UDP payload to begin with.
    pub(super) fn first_mtu(&self) -> u16 {
        self.initial_mtu.min(self.max_mtu).max(BASE_SIZE)
    }

    /// The congestion window to begin with.
    pub(super) fn first_window(&self) -> u64 {
        let datagram = self.first_mtu();
        // With less than two datagrams nothing could be probed for (RFC 9002 s.7.2).
        let least = 2 * u64::from(datagram);
        self.initial_window.map_or_else(
            || initial_window(datagram),
            |window| window.clamp(least, MAX_INITIAL_WINDOW),
        )
    }

    /// The configuration of one connection, whose congestion controllers may have something in common.
    pub(super) fn of_connection(config: Arc<TransportConfig>) -> Arc<TransportConfig> {
        match config.congestion.for_connection() {
            Some(congestion) => {
                Arc::new(TransportConfig { congestion, ..TransportConfig::clone(&config) })
            }
            None => config,
        }
    }

    /// A congestion controller for a new path.
    pub(super) fn start_controller(&self, seed: u64) -> Box<dyn Controller> {
        let mut controller = self.congestion.start(self.first_mtu(), seed);
        if self.initial_window.is_some() {
            controller.set_initial_window(self.first_window());
        }
        controller
    }

    /// The search for how much a new path takes.
    pub(super) fn start_discovery(&self) -> MtuDiscovery {
        let first = self.first_mtu();
        let max = if self.mtu_discovery { self.max_mtu.max(first) } else { first };
        MtuDiscovery::starting_at(first, max, self.mtu_discovery)
    }

    /// Thresholds of loss for this round-trip time.
    pub(super) fn thresholds(&self, rtt: &RttEstimator) -> Thresholds {
        Thresholds {
            packets: self.packet_threshold.max(PACKET_THRESHOLD),
            delay: rtt.loss_delay(self.time_threshold),
        }
    }
}

/// True if packets of `version` are protected by TLS: true but for the version made for simulations.
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
    /// TLS: roots, ALPN, certificates; its crypto provider is the connection's.
    ///
    /// With `enable_early_data`, a connection that resumes a session can send before the handshake
    /// is complete (0-RTT): only what may be received twice, for an attacker can record and repeat
    /// it (RFC 9001 s.9.2). See [`crate::Connection::is_early`].
    pub tls: Arc<rustls::ClientConfig>,
    /// The transport.
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

/// Addresses at which a server prefers to be reached once the handshake is done (RFC 9000 s.9.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PreferredAddresses {
    /// By clients that came over IPv4.
    pub ipv4: Option<SocketAddrV4>,
    /// By clients that came over IPv6.
    pub ipv6: Option<SocketAddrV6>,
}

/// A server's configuration.
#[derive(Clone)]
#[non_exhaustive]
pub struct ServerConfig {
    /// TLS: certificate, ALPN; its crypto provider is the connection's.
    ///
    /// With a `max_early_data_size` of `u32::MAX` (and no `ticketer`) clients may send before the
    /// handshake is complete: what is read while [`crate::Connection::is_early`] says so may be a
    /// repetition, and must be such that it does no harm.
    pub tls: Arc<rustls::ServerConfig>,
    /// The transport.
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
        assert_eq!(discovery.next_probe(Timestamp::START), None, "nothing is there to send");
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
        // Less than there has to be (RFC 9000 s.14, RFC 9002 s.7.2).
        let small = TransportConfig { initial_mtu: 0, initial_window: Some(0), ..usual };
        assert_eq!((small.first_mtu(), small.first_window()), (1200, 2400));
    }
}
