//! Configuration of a connection.

use std::net::{SocketAddrV4, SocketAddrV6};
use std::sync::Arc;
use std::time::Duration;

use equic_wire::{KnownVersion, Version};

use crate::congestion::{Algorithm, ControllerFactory};
use crate::crypto::KeyLimits;
use crate::recovery::INITIAL_RTT;
use crate::stream::StreamConfig;

/// The transport of a connection; the same for client and server.
#[derive(Debug, Clone)]
pub struct TransportConfig {
    /// Streams and their windows.
    pub streams: StreamConfig,
    /// Congestion control.
    pub congestion: Arc<dyn ControllerFactory>,
    /// A connection on which nothing comes for so long is dropped; zero: never. The peer may ask for
    /// less (RFC 9000 s.10.1).
    pub max_idle_timeout: Duration,
    /// Longest time for which an acknowledgement may wait, declared to the peer as `max_ack_delay`.
    pub max_ack_delay: Duration,
    /// The largest UDP payload to send, in bytes, if the path takes it.
    pub max_mtu: u16,
    /// Whether packets are marked ECT(0), for sockets that can mark them.
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
    /// Whether to send meaningless values now and then, so that nobody comes to rely on what is
    /// always the same: the Fixed Bit (RFC 9287), a transport parameter, a version.
    pub grease: bool,
    /// Whether peers that support it are asked to acknowledge less often where the window is large
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
    /// Whether the peer may migrate to another address on purpose (RFC 9000 s.18.2); a NAT that
    /// rebinds is followed in any case.
    pub allow_migration: bool,
    /// Whether a client moves to the address that its server prefers (RFC 9000 s.9.6).
    pub follow_preferred_address: bool,
}

impl TransportConfig {
    /// The versions that are spoken, never none: without TLS none is, whatever is written here.
    pub(super) fn spoken(&self) -> impl Iterator<Item = KnownVersion> + '_ {
        let any = self.versions.iter().any(|version| has_tls(*version));
        let versions = if any { &self.versions[..] } else { &[KnownVersion::V1] };
        versions.iter().copied().filter(|version| has_tls(*version))
    }
}

/// Whether packets of `version` are protected by TLS: true but for the version made for simulations.
pub(super) fn has_tls(version: KnownVersion) -> bool {
    Version::from(version).known().is_some()
}

impl Default for TransportConfig {
    fn default() -> TransportConfig {
        TransportConfig {
            streams: StreamConfig::default(),
            congestion: Arc::new(Algorithm::default()),
            max_idle_timeout: Duration::from_secs(30),
            max_ack_delay: Duration::from_millis(25),
            max_mtu: 1472,
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
            follow_preferred_address: true,
        }
    }
}

/// A client's configuration.
#[derive(Clone)]
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
pub struct ServerConfig {
    /// TLS: certificate, ALPN; its crypto provider is the connection's.
    ///
    /// With a `max_early_data_size` of `u32::MAX` (and no `ticketer`) clients may send before the
    /// handshake is complete: what is read while [`crate::Connection::is_early`] says so may be a
    /// repetition, and must be such that it does no harm.
    pub tls: Arc<rustls::ServerConfig>,
    /// The transport.
    pub transport: Arc<TransportConfig>,
    /// Addresses that clients are asked to move to; none: they stay.
    pub preferred_addresses: Option<PreferredAddresses>,
}
