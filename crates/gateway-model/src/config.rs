//! An operator's configuration: services, listeners, and settings of the gateway as a whole.

use super::prefix::PrefixRates;
use super::rate::Rate;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Treatment of a source that has reached its connection limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuotaPolicy {
    /// At the limit, drop packets that open a connection.
    #[default]
    New,
    /// Over the limit, drop every packet (Algorithm 1 of the paper).
    Strict,
    /// Like [`QuotaPolicy::New`], but handshakes in progress also count.
    Underway,
}

/// Which Initials of versions 1 and 2 need a token that validates the client's address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RetryPolicy {
    /// None.
    #[default]
    Never,
    /// All Initials. An Initial without a token is answered with a Retry packet.
    Always,
    /// All Initials while they arrive faster than `retry_above`; otherwise none.
    Adaptive,
}

/// QUIC versions that a service accepts. All others are unknown.
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

/// Treatment of the fragments of datagrams to a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FragmentPolicy {
    /// The first fragment is judged, and later fragments pass.
    #[default]
    Pass,
    /// The first fragment is judged, and later fragments get the same verdict.
    Follow,
    /// All fragments are dropped.
    Drop,
}

/// Limits of a service for the sources in a prefix. If a limit is `None`, the limit of the service
/// applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Override {
    /// An address of the prefix.
    pub addr: IpAddr,
    /// Length of the prefix in bits.
    pub prefix_len: u8,
    /// Maximum number of connections of a source. 0 means no limit.
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
    /// Whether packets to the service are judged. If `false`, all of them pass.
    pub enabled: bool,
    /// If `true`, packets are judged and counted, but never dropped.
    pub dry_run: bool,
    /// Drop packets with a zero Fixed Bit. Must be `false` for clients that grease this bit (RFC
    /// 9287).
    pub require_fixed_bit: bool,
    /// Versions that the service accepts.
    pub versions: TakenVersions,
    /// Drop packets of versions that the service does not accept.
    pub refuse_unknown_versions: bool,
    /// Answer packets of versions that the service does not accept with Version Negotiation.
    pub version_negotiation: bool,
    /// Accept Retry and Version Negotiation packets, because the port also opens connections as a
    /// client.
    pub also_client: bool,
    /// Drop packets whose connection ID is not valid.
    pub check_ids: bool,
    /// Answer packets of connections whose server is dead with stateless resets.
    pub stateless_reset: bool,
    /// Quota group. A source's connections to all services of the group count together.
    pub group: u32,
    /// Maximum number of connections of a source. 0 means no limit.
    pub max_connections: u32,
    /// Treatment of a source that has reached its connection limit.
    pub policy: QuotaPolicy,
    /// Treatment of the fragments of datagrams.
    pub fragments: FragmentPolicy,
    /// Which Initials need a token.
    pub retry: RetryPolicy,
    /// Rate of answers in the server's name. Each kind of answer has this rate.
    pub answers_per_service: Rate,
    /// Rate of openings without a token. If it is exceeded, adaptive Retry asks for tokens.
    pub retry_above: Rate,
    /// Time in nanoseconds for which adaptive Retry asks for tokens after the rate was last
    /// exceeded.
    pub retry_hold_ns: u64,
    /// Rate of new connections from one source.
    pub new_per_source: Rate,
    /// Rates of new connections from the prefixes of a source.
    pub new_per_prefix: PrefixRates,
    /// Rate of new connections from all sources together.
    pub new_per_service: Rate,
    /// Rate of packets from one source.
    pub packets_per_source: Rate,
    /// Rate of bytes of UDP payload from one source.
    pub bytes_per_source: Rate,
    /// Rate of packets that pass, from all sources together.
    pub packets_per_service: Rate,
    /// Rate of packets that do not open a connection, for all sources together that have neither a
    /// connection nor a handshake in progress.
    pub unproven_per_service: Rate,
    /// Time in nanoseconds that an admitted handshake may take.
    pub handshake_ns: u64,
    /// Other limits for the sources in some prefixes.
    pub overrides: Vec<Override>,
}

impl Service {
    /// Returns `true` if the service treats known and unknown sources differently. It then stores
    /// nothing about unknown sources (section 11).
    pub(super) fn knows_sources(&self) -> bool {
        self.check_ids || self.retry != RetryPolicy::Never || self.unproven_per_service != Rate::OFF
    }

    /// Returns the service with the limits that apply to this source address, which are those of
    /// its longest matching prefix (section 13).
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

/// A destination address and port. An unspecified address stands for every address of its family. A
/// listener with an exact address takes precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Listener {
    /// Destination address.
    pub addr: IpAddr,
    /// Destination port.
    pub port: u16,
}

impl Listener {
    /// Returns the listener for every address of the family of `addr`, at `port`.
    pub(super) fn wildcard(addr: IpAddr, port: u16) -> Listener {
        let addr = match addr {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        Listener { addr, port }
    }
}

/// All settings of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The services, by index.
    pub services: Vec<Service>,
    /// The listeners, each with the index of its service. A service that does not exist counts as
    /// disabled.
    pub listeners: Vec<(Listener, usize)>,
    /// Number of leading bits of an IPv4 address that identify a source, at most 32.
    pub v4_prefix_len: u8,
    /// Number of leading bits of an IPv6 address that identify a source, at most 128.
    pub v6_prefix_len: u8,
    /// Drop packets with headers that the host may parse and the gateway cannot.
    pub drop_deep_headers: bool,
    /// Accept loopback addresses as sources, because packets arrive on the loopback interface.
    pub on_loopback: bool,
    /// Dry run of the gateway. If `true`, nothing is dropped, for any service.
    pub dry_run: bool,
    /// Lease of a ledger, in nanoseconds. A ledger without a heartbeat for this time is ignored.
    pub lease_ns: u64,
    /// Time in nanoseconds until which connections may be older than the key ring.
    pub older_ids_until_ns: u64,
}

impl Default for Config {
    /// Returns a configuration without services. Sources are IPv4 /32 and IPv6 /64, the lease is
    /// one second, and connections may be older than the ring at any time.
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
