//! The configuration that an operator writes: services, listeners, and settings of the whole
//! gateway.

use super::prefix::PrefixRates;
use super::rate::Rate;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Treatment of a source that has reached its limit on connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuotaPolicy {
    /// At the limit, drops packets that open a connection.
    #[default]
    New,
    /// Above the limit, drops every packet of the source (Algorithm 1 of the paper "eQUIC
    /// Gateway").
    Strict,
    /// Like [`QuotaPolicy::New`], but handshakes in progress count as connections, too.
    Underway,
}

/// The Initial packets of versions 1 and 2 that must carry a token that validates the client's
/// address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RetryPolicy {
    /// None.
    #[default]
    Never,
    /// All Initial packets. The gateway answers an Initial packet without a token with a Retry
    /// packet.
    Always,
    /// All Initial packets while they arrive faster than `retry_above`. Otherwise none.
    Adaptive,
}

/// The QUIC versions that a service accepts. All other versions count as unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TakenVersions {
    /// Version 1 (RFC 9000) and version 2 (RFC 9369).
    #[default]
    Both,
    /// Version 1 only.
    V1,
    /// Version 2 only.
    V2,
}

/// Treatment of IP fragments of datagrams to a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FragmentPolicy {
    /// The gateway judges the first fragment, and passes later fragments.
    #[default]
    Pass,
    /// The gateway judges the first fragment, and applies the same verdict to later fragments.
    Follow,
    /// The gateway drops all fragments.
    Drop,
}

/// Limits of a service for the sources in one prefix, which override those of the service. If a
/// limit is `None`, the limit of the service applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Override {
    /// Any address in the prefix.
    pub addr: IpAddr,
    /// Length of the prefix in bits.
    pub prefix_len: u8,
    /// Maximum number of connections of one source. 0 means no limit.
    pub max_connections: Option<u32>,
    /// Rate of new connections from one source.
    pub new_per_source: Option<Rate>,
    /// Rate of packets from one source.
    pub packets_per_source: Option<Rate>,
    /// Rate of bytes of UDP payload from one source.
    pub bytes_per_source: Option<Rate>,
}

impl Override {
    fn covers(&self, src: IpAddr) -> bool {
        let bits = |addr: IpAddr, width: u8| match addr {
            IpAddr::V4(addr) => u128::from(addr.to_bits()) << 96 >> (128 - u32::from(width)),
            IpAddr::V6(addr) => addr.to_bits() >> (128 - u32::from(width)),
        };
        let same = |len| len == 0 || bits(self.addr, len) == bits(src, len);
        self.addr.is_ipv4() == src.is_ipv4() && same(self.prefix_len)
    }
}

/// One protected service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Name of the service, of at most 31 bytes.
    pub name: &'static str,
    /// If `true`, the gateway judges packets to the service. If `false`, all of them pass.
    pub enabled: bool,
    /// If `true`, the gateway judges and counts packets to the service, but drops none.
    pub dry_run: bool,
    /// If `true`, packets with a zero Fixed Bit are dropped. It must be `false` if clients grease
    /// this bit (RFC 9287).
    pub require_fixed_bit: bool,
    /// Versions that the service accepts.
    pub versions: TakenVersions,
    /// If `true`, packets of versions that the service does not accept are dropped.
    pub refuse_unknown_versions: bool,
    /// If `true`, packets of versions that the service does not accept are answered with Version
    /// Negotiation.
    pub version_negotiation: bool,
    /// If `true`, Retry and Version Negotiation packets are accepted, because the service also
    /// opens connections as a client from its port.
    pub also_client: bool,
    /// If `true`, packets whose connection ID was not made by a server of the service are dropped.
    pub check_ids: bool,
    /// If `true`, packets of a connection whose server is dead are answered with a stateless reset.
    pub stateless_reset: bool,
    /// Quota group of the service. The connections of a source to all services of the same group
    /// count together.
    pub group: u32,
    /// Maximum number of connections of a source. 0 means no limit.
    pub max_connections: u32,
    /// Treatment of a source that has reached its limit on connections.
    pub policy: QuotaPolicy,
    /// Treatment of IP fragments of datagrams to the service.
    pub fragments: FragmentPolicy,
    /// The Initial packets that must carry a token.
    pub retry: RetryPolicy,
    /// Maximum rate of the packets with which the gateway answers in the service's name. It applies
    /// to each kind of answer separately.
    pub answers_per_service: Rate,
    /// Rate of connection attempts without a token above which adaptive Retry requires tokens.
    pub retry_above: Rate,
    /// Time in nanoseconds for which adaptive Retry still requires tokens after the rate was last
    /// exceeded.
    pub retry_hold_ns: u64,
    /// Rate of new connections from one source.
    pub new_per_source: Rate,
    /// Rates of new connections from the address prefixes that contain a source.
    pub new_per_prefix: PrefixRates,
    /// Rate of new connections from all sources together.
    pub new_per_service: Rate,
    /// Rate of packets from one source.
    pub packets_per_source: Rate,
    /// Rate of bytes of UDP payload from one source.
    pub bytes_per_source: Rate,
    /// Rate of packets that pass to the service, from all sources together.
    pub packets_per_service: Rate,
    /// Rate of packets from all unknown sources together. A source is unknown if it has neither a
    /// connection nor a handshake in progress. Packets that open a connection do not count.
    pub unproven_per_service: Rate,
    /// Time in nanoseconds after which an admitted handshake no longer counts as in progress.
    pub handshake_ns: u64,
    /// Other limits for the sources in particular prefixes.
    pub overrides: Vec<Override>,
}

impl Service {
    /// Returns `true` if the service treats unknown sources differently from known ones. The
    /// gateway then stores nothing about unknown sources (policy.md section 11).
    pub(super) fn knows_sources(&self) -> bool {
        self.check_ids || self.retry != RetryPolicy::Never || self.unproven_per_service != Rate::OFF
    }

    /// Returns the service with the limits for this source address. They come from the longest
    /// override prefix that contains the address (policy.md section 13).
    pub(super) fn for_source(&self, src: IpAddr) -> Service {
        let mut service = self.clone();
        let covering = self.overrides.iter().filter(|own| own.covers(src));
        if let Some(own) = covering.max_by_key(|own| own.prefix_len) {
            service.max_connections = own.max_connections.unwrap_or(self.max_connections);
            service.new_per_source = own.new_per_source.unwrap_or(self.new_per_source);
            service.packets_per_source = own.packets_per_source.unwrap_or(self.packets_per_source);
            service.bytes_per_source = own.bytes_per_source.unwrap_or(self.bytes_per_source);
        }
        service
    }
}

impl Default for Service {
    /// Returns an enabled service without limits. Fragments pass, and a handshake may take 10
    /// seconds.
    fn default() -> Self {
        Service {
            name: "",
            enabled: true,
            dry_run: false,
            require_fixed_bit: false,
            versions: TakenVersions::Both,
            refuse_unknown_versions: false,
            version_negotiation: false,
            also_client: false,
            check_ids: false,
            stateless_reset: false,
            group: 0,
            max_connections: 0,
            policy: QuotaPolicy::New,
            fragments: FragmentPolicy::Pass,
            retry: RetryPolicy::Never,
            answers_per_service: Rate::OFF,
            retry_above: Rate::OFF,
            retry_hold_ns: 30_000_000_000,
            new_per_source: Rate::OFF,
            new_per_prefix: PrefixRates::default(),
            new_per_service: Rate::OFF,
            packets_per_source: Rate::OFF,
            bytes_per_source: Rate::OFF,
            packets_per_service: Rate::OFF,
            unproven_per_service: Rate::OFF,
            handshake_ns: 10_000_000_000,
            overrides: Vec::new(),
        }
    }
}

/// A destination address and port that belongs to a service. An unspecified address means every
/// address of its family. A listener with an exact address takes precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Listener {
    /// Destination address.
    pub addr: IpAddr,
    /// Destination port.
    pub port: u16,
}

impl Listener {
    /// Returns the listener for `port` on every address of the family of `addr`.
    pub(super) fn wildcard(addr: IpAddr, port: u16) -> Listener {
        let addr = match addr {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        Listener { addr, port }
    }
}

/// The complete configuration of a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The services. Listeners refer to them by index.
    pub services: Vec<Service>,
    /// The listeners, each with the index of its service. If the service does not exist, it counts
    /// as disabled.
    pub listeners: Vec<(Listener, usize)>,
    /// Number of leading bits of an IPv4 address that identify a source, at most 32.
    pub v4_prefix_len: u8,
    /// Number of leading bits of an IPv6 address that identify a source, at most 128.
    pub v6_prefix_len: u8,
    /// If `true`, drops packets whose headers the host may parse but the gateway cannot.
    pub drop_deep_headers: bool,
    /// If `true`, packets may have a loopback address as their source, because they arrive on the
    /// loopback interface.
    pub on_loopback: bool,
    /// If `true`, the whole gateway makes a dry run: it drops no packet for any service.
    pub dry_run: bool,
    /// Lease of a server's ledger, in nanoseconds. A ledger without a heartbeat for this time is
    /// ignored.
    pub lease_ns: u64,
    /// Time in nanoseconds until which there may be connections whose IDs were made before this key
    /// ring.
    pub older_ids_until_ns: u64,
}

impl Default for Config {
    /// Returns a configuration without services. A source is an IPv4 /32 or an IPv6 /64. The lease
    /// is one second. At any time, there may be connections whose IDs were made before the key
    /// ring.
    fn default() -> Self {
        Config {
            services: Vec::new(),
            listeners: Vec::new(),
            v4_prefix_len: 32,
            v6_prefix_len: 64,
            drop_deep_headers: true,
            on_loopback: false,
            dry_run: false,
            lease_ns: 1_000_000_000,
            older_ids_until_ns: u64::MAX,
        }
    }
}
