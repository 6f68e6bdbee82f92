//! The decision on a packet: takes the steps of policy.md section 2 in order, and keeps the state
//! that they need.

use super::acl::{Acl, AclAction};
use super::attempts::{Handshake, HandshakeKey};
use super::config::{Config, FragmentPolicy, Listener, QuotaPolicy, RetryPolicy, Service};
use super::frame::{Datagram, FragmentKey, Frame, LaterFragment, parse};
use super::outcome::{Arrival, Outcome, Verdict};
use super::own::{self, Macs, Own};
use super::prefix::{PrefixKey, Span};
use super::quic::{Class, Opening, Payload, Rules, classify};
use super::{address_bytes, answer, batch, ids, reset};
use equic_gateway::Reason;
use equic_token::{KeyRing, RetryToken, TokenError};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Minimum length in bytes of the Destination Connection ID in a packet that opens a connection
/// (RFC 9000 s.7.2).
const MIN_OPENING_DCID: usize = 8;

/// A source of packets: an address prefix, combined with a scope. In a server's ledger, the scope
/// is a quota group. In the table of sources, it is a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceKey {
    /// The address prefix, as 16 bytes. IPv4 is written as `::ffff:a.b.c.d`.
    pub addr: [u8; 16],
    /// The quota group, or the index of the service.
    pub scope: u32,
}

/// The statistics that the gateway keeps about a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceState {
    /// Number of packets from the source to the service, whatever their verdicts.
    pub packets: u64,
    /// Total UDP payload of these packets, in bytes.
    pub bytes: u64,
    /// Number of packets that had a reason to be dropped, including those that passed in a dry run.
    pub drops: u64,
    /// Time of the first packet, in nanoseconds.
    pub first_ns: u64,
    /// Time of the last packet, in nanoseconds.
    pub last_ns: u64,
    /// Reason of the verdict on the last packet.
    pub last_reason: Reason,
    new_tat: u64,
    packets_tat: u64,
    bytes_tat: u64,
    attempts: Attempts,
    /// Time in nanoseconds at which the last connection attempt of the source was admitted. `None`
    /// if none was admitted.
    let_in_ns: Option<u64>,
}

/// Counts of packets to one service that had one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    /// Packets.
    pub packets: u64,
    /// UDP payload of the packets, in bytes.
    pub bytes: u64,
    /// Number of packets that were really dropped, and not only judged in a dry run.
    pub dropped: u64,
}

/// Counts of events other than verdicts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tallies {
    /// Number of entries added to the table of sources.
    pub sources_created: u64,
    /// Number of entries added to the table of handshakes. Entries that were replaced by themselves
    /// do not count.
    pub handshakes_created: u64,
    /// Number of packets whose headers the host may parse but the gateway cannot.
    pub deep_headers: u64,
    /// Number of entries added to the table of prefixes.
    pub prefixes_created: u64,
}

/// A ledger: the connection counts that one server process reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Time of the server's last heartbeat, in nanoseconds.
    pub heartbeat_ns: u64,
    /// Number of open connections of each source.
    pub connections: HashMap<SourceKey, u32>,
    /// Number of connections that were ever opened. Several sources can share one counter: the key
    /// is the source that represents all of them ([`Model::cell`]).
    pub opened: HashMap<SourceKey, u32>,
    /// Bit set of quota groups for which the ledger's counts are ignored: bit `i` is for quota
    /// group `i`.
    pub barred: u64,
    /// True if the server was removed from its slot. The whole ledger is then ignored.
    pub taken_out: bool,
}

impl Ledger {
    /// Returns `true` if the ledger's counts for this quota group are valid.
    fn is_of(&self, group: u32) -> bool {
        !self.taken_out && self.barred >> (group & 63) & 1 == 0
    }
}

/// Number of admitted handshakes of a source that are not known to be complete (policy.md section
/// 7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Attempts {
    /// The current period, modulo 2^16. `recent` counts the handshakes that were admitted in it.
    period: u64,
    /// Number of handshakes that were admitted in the previous period.
    earlier: u64,
    recent: u64,
    /// The number of opened connections when it was last read from the ledgers.
    opened_seen: u32,
}

impl Attempts {
    /// Removes handshakes that have expired or have become connections. Returns how many are still
    /// in progress.
    fn look(&mut self, opened: u32, handshake_ns: u64, now: u64) -> u64 {
        let period = now / handshake_ns.max(1) % (1 << 16);
        if period != self.period {
            let next = (self.period + 1) % (1 << 16);
            self.earlier = if period == next { self.recent } else { 0 };
            (self.recent, self.period) = (0, period);
        }
        let done = opened.wrapping_sub(std::mem::replace(&mut self.opened_seen, opened));
        let mut done = if done < 1 << 31 { u64::from(done) } else { 0 };
        for count in [&mut self.earlier, &mut self.recent] {
            let gone = done.min(*count);
            *count -= gone;
            done -= gone;
        }
        self.earlier + self.recent
    }
}

/// State of adaptive Retry for one service (policy.md section 8).
#[derive(Clone, Copy, Debug, Default)]
struct Adaptive {
    /// Bucket for the rate of connection attempts without a token.
    tat: u64,
    asking_until_ns: u64,
    began: u64,
}

/// Buckets for the limits that unknown sources share.
#[derive(Clone, Copy, Debug, Default)]
struct Stranger {
    packets_tat: u64,
    bytes_tat: u64,
    versions_tat: u64,
}

/// The gateway's knowledge about the source of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// The source is on the allow list.
    Exempt,
    /// The packet has a valid token, which validates the source's address.
    Proved,
    Unproved,
}

#[derive(Clone, Copy, Debug)]
struct Fragmented {
    service: usize,
    dropped: bool,
}

/// A model of the gateway in plain Rust, with its configuration and its state. See
/// [`Model::judge`].
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// The configuration. A caller may change it between packets.
    pub config: Config,
    /// The deny and allow lists.
    pub acl: Acl,
    /// The ledgers of all servers behind the gateway.
    pub ledgers: Vec<Ledger>,
    /// For each slot of a server, a bit set of quota groups. Bit `i` is set if every server that
    /// ever had the slot is known to be dead, and one of them served quota group `i`.
    pub dead: [u64; 16],
    /// Seed of the hash that divides the receivers of stateless resets into shares.
    pub seed: u64,
    /// The host's addresses, or `None` while they are unknown.
    pub own: Option<Own>,
    /// The keys of Retry tokens and connection IDs. If it is `None`, no token is valid.
    pub ring: Option<KeyRing>,
    /// Maps all sources that share one counter cell of the ledgers to one of these sources
    /// (policy.md section 7). If it is `None`, no two sources share a cell.
    pub cell: Option<fn(&SourceKey) -> SourceKey>,
    /// Maps all unknown sources that share buckets to one of these sources (policy.md section 11).
    /// If it is `None`, no two sources share buckets.
    pub stranger: Option<fn(&SourceKey) -> SourceKey>,
    sources: HashMap<SourceKey, SourceState>,
    strangers: HashMap<SourceKey, Stranger>,
    handshakes: HashMap<HandshakeKey, Handshake>,
    prefixes: HashMap<PrefixKey, u64>,
    fragments: HashMap<FragmentKey, Fragmented>,
    new_per_service: HashMap<usize, u64>,
    // Each kind of answer has its own bucket, whose rate is `answers_per_service`.
    retries_per_service: HashMap<usize, u64>,
    negotiations_per_service: HashMap<usize, u64>,
    // This bucket, for packets of unknown versions, has the rate `new_per_service`.
    versions_per_service: HashMap<usize, u64>,
    resets_per_service: HashMap<usize, u64>,
    resets_by_share: HashMap<(usize, u64), u64>,
    packets_per_service: HashMap<usize, u64>,
    unproven_per_service: HashMap<usize, u64>,
    adaptive: HashMap<usize, Adaptive>,
    /// True if the packet that is being judged begins with its IP header.
    no_ethernet: bool,
    /// The frame that answers the last packet, or `None` if the last packet was not answered.
    answer: Option<Vec<u8>>,
    counters: HashMap<(usize, Reason), Counter>,
    tallies: Tallies,
}

impl Model {
    /// Creates a model that has not seen any packet.
    pub fn new(config: Config) -> Self {
        Model { config, ..Model::default() }
    }

    /// Judges a frame that arrives at the time `now`, in nanoseconds. `now` must not be earlier
    /// than the time of the previous frame.
    pub fn judge(&mut self, frame: &[u8], now: u64) -> Outcome {
        self.judge_as(frame, Arrival::default(), now)
    }

    /// Judges a packet that arrives at the time `now` in the form `arrival`: it may be a batch, or
    /// have no Ethernet header.
    pub fn judge_as(&mut self, packet: &[u8], arrival: Arrival, now: u64) -> Outcome {
        self.answer = None;
        self.no_ethernet = arrival.no_ethernet;
        if !arrival.no_ethernet {
            return self.judge_frame(packet, arrival.segment, now);
        }
        let ethertype = match packet.first().map(|first| first >> 4) {
            Some(4) => [0x08, 0x00],
            Some(6) => [0x86, 0xdd],
            _ => return Outcome::Foreign,
        };
        let header = [&[0; 12][..], &ethertype].concat();
        let outcome = self.judge_frame(&[&header, packet].concat(), arrival.segment, now);
        self.answer = self.answer.take().map(|answer| answer[header.len()..].to_vec());
        outcome
    }

    fn judge_frame(&mut self, frame: &[u8], segment: usize, now: u64) -> Outcome {
        match parse(frame) {
            Frame::Foreign => Outcome::Foreign,
            Frame::DeepHeaders => {
                self.tallies.deep_headers += 1;
                let dropped = self.config.drop_deep_headers && !self.config.dry_run;
                Outcome::DeepHeaders { dropped }
            }
            Frame::LaterFragment(fragment) => self.judge_later_fragment(&fragment, now),
            Frame::Datagram(datagram) => self.judge_datagram(frame, &datagram, segment, now),
        }
    }

    /// Returns the frame that answers the last packet, or `None` if the last packet was not
    /// answered.
    pub fn answer(&self) -> Option<&[u8]> {
        self.answer.as_deref()
    }

    /// Returns all sources in the table, with their states.
    pub fn sources(&self) -> &HashMap<SourceKey, SourceState> {
        &self.sources
    }

    /// Returns the state of adaptive Retry for a service: how many times it has begun to require
    /// tokens, and the time in nanoseconds until which it requires them.
    pub fn asking(&self, service: usize) -> (u64, u64) {
        self.adaptive.get(&service).map_or((0, 0), |state| (state.began, state.asking_until_ns))
    }

    /// Returns the counts of verdicts, by service and reason.
    pub fn counters(&self) -> &HashMap<(usize, Reason), Counter> {
        &self.counters
    }

    /// Returns the counts of events other than verdicts.
    pub fn tallies(&self) -> Tallies {
        self.tallies
    }

    /// Returns the number of handshakes in the table, including those that have expired.
    pub fn handshakes(&self) -> usize {
        self.handshakes.len()
    }

    /// Removes all handshakes from the table, as if newer ones had evicted them.
    pub fn forget_handshakes(&mut self) {
        self.handshakes.clear();
    }

    /// Returns the source to which `addr` belongs. `scope` is a quota group or the index of a
    /// service.
    pub fn source_key(&self, addr: IpAddr, scope: u32) -> SourceKey {
        let leading = match addr {
            IpAddr::V4(_) => 96 + u32::from(self.config.v4_prefix_len.min(32)),
            IpAddr::V6(addr) => match Span::of(addr) {
                Span::Prefix => u32::from(self.config.v6_prefix_len.min(128)),
                Span::Ipv4 => 96 + u32::from(self.config.v4_prefix_len.min(32)),
                Span::Whole => 128,
            },
        };
        let mask = u128::MAX.checked_shl(128 - leading).unwrap_or(0);
        let addr = (u128::from_be_bytes(address_bytes(addr)) & mask).to_be_bytes();
        SourceKey { addr, scope }
    }

    fn live_ledgers(&self, group: u32, now: u64) -> impl Iterator<Item = &Ledger> {
        let lease_ns = self.config.lease_ns;
        let counts = move |ledger: &&Ledger| {
            ledger.is_of(group) && now.abs_diff(ledger.heartbeat_ns) < lease_ns
        };
        self.ledgers.iter().filter(counts)
    }

    /// Returns the number of open connections of a source: the sum over all ledgers whose heartbeat
    /// is younger than the lease. The result is at most 2^32 - 1.
    pub fn connections(&self, source: &SourceKey, now: u64) -> u64 {
        self.live_ledgers(source.scope, now)
            .filter_map(|ledger| ledger.connections.get(source))
            .fold(0u32, |sum, count| sum.saturating_add(*count))
            .into()
    }

    /// Returns how many connections were ever opened by the sources that share a counter cell with
    /// `source`: the sum over all ledgers whose heartbeat is younger than the lease.
    fn opened_ever(&self, source: &SourceKey, now: u64) -> u32 {
        let cell = self.cell.map_or(*source, |cell| cell(source));
        self.live_ledgers(source.scope, now)
            .filter_map(|ledger| ledger.opened.get(&cell))
            .fold(0, |sum, opened| sum.wrapping_add(*opened))
    }

    fn enabled_service(&self, number: usize) -> Option<Service> {
        self.config.services.get(number).filter(|service| service.enabled).cloned()
    }

    /// Returns `true` if a listener of a service has exactly this destination address and port.
    /// Wildcard listeners do not count.
    fn names(&self, d: &Datagram<'_>) -> bool {
        let named = Listener { addr: d.dst, port: d.dport };
        !d.dst.is_unspecified()
            && self.config.listeners.iter().any(|(listener, _)| *listener == named)
    }

    fn can_answer(&self, frame: &[u8], d: &Datagram<'_>) -> bool {
        let (own, on_loopback) = (self.own.as_ref(), self.config.on_loopback);
        own::can_answer(own, on_loopback, self.macs(frame), d, self.names(d))
    }

    fn macs(&self, frame: &[u8]) -> Option<Macs> {
        if self.no_ethernet { None } else { Macs::of(frame) }
    }

    fn find_service(&self, addr: IpAddr, port: u16) -> Option<(usize, Service)> {
        let find = |wanted: Listener| {
            self.config.listeners.iter().find(|(listener, _)| *listener == wanted)
        };
        let (_, number) =
            find(Listener { addr, port }).or_else(|| find(Listener::wildcard(addr, port)))?;
        Some((*number, self.enabled_service(*number)?))
    }

    fn conclude(
        &mut self,
        number: usize,
        reason: Reason,
        (packets, bytes): (u64, u64),
        dry_run: bool,
    ) -> Verdict {
        let kept = reason.drops() || reason.answers();
        let dropped = kept && !dry_run && !self.config.dry_run;
        let counter = self.counters.entry((number, reason)).or_default();
        counter.packets += packets;
        counter.bytes += bytes;
        counter.dropped += packets * u64::from(dropped);
        Verdict { service: number, reason, dropped }
    }

    fn judge_later_fragment(&mut self, fragment: &LaterFragment, now: u64) -> Outcome {
        let Some(first) = self.fragments.get(&fragment.key).copied() else {
            return Outcome::Foreign;
        };
        let Some(service) = self.enabled_service(first.service) else {
            return Outcome::Foreign;
        };
        let reason = match service.fragments {
            FragmentPolicy::Pass => return Outcome::Foreign,
            FragmentPolicy::Follow if !first.dropped => Reason::Fragment,
            FragmentPolicy::Follow | FragmentPolicy::Drop => Reason::LaterFragment,
        };
        let bytes = fragment.length as u64;
        let key = self.source_key(fragment.key.src, first.service as u32);
        self.record(key, reason, (1, bytes), now);
        Outcome::Service(self.conclude(first.service, reason, (1, bytes), service.dry_run))
    }

    fn judge_datagram(
        &mut self,
        frame: &[u8],
        datagram: &Datagram<'_>,
        segment: usize,
        now: u64,
    ) -> Outcome {
        let Some((number, service)) = self.find_service(datagram.dst, datagram.dport) else {
            return Outcome::Foreign;
        };
        let named = self.names(datagram);
        if self
            .own
            .as_ref()
            .is_some_and(|own| own.passes_through(self.macs(frame), datagram.dst, named))
        {
            return Outcome::Foreign;
        }
        let service = service.for_source(datagram.src);
        let is_batch = segment > 0 && datagram.payload.is_some_and(|p| p.data.len() > segment);
        let first = if is_batch {
            batch::take_apart(datagram, segment, &service, self.ring.as_ref())
        } else {
            Some(*datagram)
        };
        let (reason, unproved) = first.map_or((Reason::Batch, false), |first| {
            self.decide(number, &service, frame, &first, now)
        });
        // If the UDP length is invalid, the length of the IP payload is counted instead. Bytes that
        // are not in the frame are not counted.
        let bytes = datagram.payload.map_or(datagram.ip_payload_len, |p| p.data.len()) as u64;
        let packets = if is_batch { bytes.div_ceil(segment as u64) } else { 1 };
        if !unproved {
            let key = self.source_key(datagram.src, number as u32);
            self.record(key, reason, (packets, bytes), now);
        }
        let verdict = self.conclude(number, reason, (packets, bytes), service.dry_run);
        self.answer.take_if(|_| !verdict.dropped);
        if let Some(key) = datagram.first_fragment
            && service.fragments != FragmentPolicy::Pass
        {
            let dropped = verdict.dropped;
            self.fragments.insert(key, Fragmented { service: number, dropped });
        }
        Outcome::Service(verdict)
    }

    /// Updates what is recorded about the source. No entry is created for a packet that was dropped
    /// before its source was considered, nor for the later fragments of such a packet.
    fn record(&mut self, key: SourceKey, reason: Reason, (packets, bytes): (u64, u64), now: u64) {
        use Reason::{BadSource, BadUdp, Batch, Denied, Fragment, LaterFragment};
        let makes_no_entry =
            matches!(reason, BadUdp | Batch | BadSource | Denied | Fragment | LaterFragment);
        if !makes_no_entry {
            self.ensure_source(key, now);
        }
        if let Some(source) = self.sources.get_mut(&key) {
            source.packets += packets;
            source.bytes += bytes;
            source.drops += packets * u64::from(reason.drops());
            source.last_ns = now;
            source.last_reason = reason;
        }
    }

    fn ensure_source(&mut self, key: SourceKey, now: u64) -> &mut SourceState {
        let tallies = &mut self.tallies;
        self.sources.entry(key).or_insert_with(|| {
            tallies.sources_created += 1;
            SourceState {
                packets: 0,
                bytes: 0,
                drops: 0,
                first_ns: now,
                last_ns: now,
                last_reason: Reason::New,
                new_tat: 0,
                packets_tat: 0,
                bytes_tat: 0,
                attempts: Attempts::default(),
                let_in_ns: None,
            }
        })
    }

    /// Returns the reason of the verdict. The second value is `true` if the packet does not count
    /// against its source, because its source address may be forged.
    fn decide(
        &mut self,
        number: usize,
        service: &Service,
        frame: &[u8],
        d: &Datagram<'_>,
        now: u64,
    ) -> (Reason, bool) {
        let Some(payload) = d.payload else {
            return (Reason::BadUdp, false);
        };
        if is_nobody(d.src, self.config.on_loopback) {
            return (Reason::BadSource, false);
        }
        let exempt = match self.acl.look_up(d.src, now) {
            Some(AclAction::Deny) => return (Reason::Denied, false),
            Some(AclAction::Allow) => true,
            None => false,
        };
        let is_long = payload.data.first().is_some_and(|first| first >> 7 == 1);
        if d.first_fragment.is_some() && (is_long || service.fragments == FragmentPolicy::Drop) {
            return (Reason::FirstFragment, true);
        }
        let class = classify(payload, &rules(service));
        match class {
            Err(reason @ (Reason::UnknownVersion | Reason::SmallVersion)) => return (reason, true),
            Ok(Class::UnknownVersion) => {
                return (self.judge_unknown_version(number, service, frame, d, exempt, now), true);
            }
            _ => {}
        }
        let mut proved = false;
        if !exempt {
            match self.ask_for_more(number, service, frame, d, class, now) {
                Ok(brought) => proved = brought,
                Err(reason) => return (reason, true),
            }
        }
        let standing = match (exempt, proved) {
            (true, _) => Standing::Exempt,
            (false, true) => Standing::Proved,
            (false, false) => Standing::Unproved,
        };
        let source = self.source_key(d.src, number as u32);
        let unknown = service.knows_sources()
            && !self.sources.contains_key(&source)
            && !matches!(class, Ok(Class::Opening(_)))
            && self.connections(&self.source_key(d.src, service.group), now) == 0;
        let reason = (!exempt)
            .then(|| self.refuse_source(number, service, d, payload, unknown, now))
            .flatten()
            .unwrap_or_else(|| self.decide_quic(number, service, d, class, standing, now));
        let reason = match reason {
            Reason::Established if service.stateless_reset => {
                self.reset_for_the_dead(number, service, frame, d, now)
            }
            other => other,
        };
        let goes_on = !reason.drops() && !reason.answers();
        let reason = match reason {
            _ if exempt && goes_on => Reason::Allowed,
            _ if goes_on && !self.has_room(number, service, d.datagrams, now) => {
                Reason::RatePacketsService
            }
            other => other,
        };
        (reason, unknown)
    }

    /// Checks the connection ID, the limits for unknown sources, and the validation of the client's
    /// address. Returns whether the packet has a valid token, or the reason for which the gateway
    /// drops or answers it.
    fn ask_for_more(
        &mut self,
        number: usize,
        service: &Service,
        frame: &[u8],
        d: &Datagram<'_>,
        class: Result<Class, Reason>,
        now: u64,
    ) -> Result<bool, Reason> {
        if service.check_ids && self.is_forged_id(number, service, d, class, now) {
            return Err(Reason::ForgedId);
        }
        if self.is_unproven(number, service, d, class, now) {
            return Err(Reason::RateUnproven);
        }
        match class {
            Ok(Class::Opening(opening)) if service.retry != RetryPolicy::Never => {
                self.ask_for_proof(number, service, frame, d, &opening, now)
            }
            _ => Ok(false),
        }
    }

    /// Judges a packet whose version the service does not accept (policy.md section 9).
    fn judge_unknown_version(
        &mut self,
        number: usize,
        service: &Service,
        frame: &[u8],
        d: &Datagram<'_>,
        exempt: bool,
        now: u64,
    ) -> Reason {
        if service.version_negotiation || (service.retry != RetryPolicy::Never && !exempt) {
            return self.negotiate(number, service, frame, d, now);
        }
        if exempt {
            return Reason::Allowed;
        }
        let limit = u64::from(service.max_connections);
        let held = self.connections(&self.source_key(d.src, service.group), now);
        match service.policy {
            _ if limit == 0 => {}
            QuotaPolicy::Strict if held > limit => return Reason::QuotaStrict,
            QuotaPolicy::New | QuotaPolicy::Underway if held >= limit => return Reason::Quota,
            _ => {}
        }
        let stranger = self.stranger(self.source_key(d.src, number as u32));
        if !service.new_per_source.charge(&mut stranger.versions_tat, d.datagrams, now) {
            return Reason::RateNewSource;
        }
        let tat = self.versions_per_service.entry(number).or_insert(0);
        if !service.new_per_service.charge(tat, d.datagrams, now) {
            return Reason::RateNewService;
        }
        if !self.has_room(number, service, d.datagrams, now) {
            return Reason::RatePacketsService;
        }
        Reason::NewVersion
    }

    /// Answers a packet whose version the service does not accept with Version Negotiation.
    fn negotiate(
        &mut self,
        number: usize,
        service: &Service,
        frame: &[u8],
        d: &Datagram<'_>,
        now: u64,
    ) -> Reason {
        if !self.can_answer(frame, d) {
            return Reason::UnknownVersion;
        }
        let tat = self.negotiations_per_service.entry(number).or_insert(0);
        if !service.answers_per_service.charge(tat, 1, now) {
            return Reason::RateAnswers;
        }
        self.answer = answer::version_negotiation(frame, d, service.versions);
        Reason::VersionNegotiationSent
    }

    /// Returns `true` if no server of the service can have made the packet's connection ID. Also
    /// returns `true` for a 0-RTT packet that belongs to no attempt in progress (policy.md section
    /// 10).
    fn is_forged_id(
        &mut self,
        number: usize,
        service: &Service,
        d: &Datagram<'_>,
        class: Result<Class, Reason>,
        now: u64,
    ) -> bool {
        let id = match class {
            Ok(Class::Short) => {
                d.payload.and_then(|payload| ids::of_short(payload.data)).unwrap_or_default()
            }
            Ok(Class::Handshake(dcid)) => dcid,
            Ok(Class::Early(scid)) => {
                let attempt = self.handshakes.get_mut(&HandshakeKey::of(d, number, scid));
                return !attempt.is_some_and(|one| one.takes_early(d.datagrams, service, now));
            }
            _ => return false,
        };
        match ids::judge(self.ring.as_ref(), id.as_bytes()) {
            ids::Proof::Made => false,
            ids::Proof::Before => {
                now >= self.config.older_ids_until_ns
                    || self.connections(&self.source_key(d.src, service.group), now) == 0
            }
            ids::Proof::None => true,
        }
    }

    /// Charges a packet that would pass to the rate of its service (policy.md section 11). Returns
    /// `false` if that rate is exceeded.
    fn has_room(&mut self, number: usize, service: &Service, packets: u64, now: u64) -> bool {
        let tat = self.packets_per_service.entry(number).or_insert(0);
        service.packets_per_service.charge(tat, packets, now)
    }

    /// Returns `true` if the packet comes from an unknown source, does not open a connection, and
    /// the bucket for such packets is empty (policy.md section 11).
    fn is_unproven(
        &mut self,
        number: usize,
        service: &Service,
        d: &Datagram<'_>,
        class: Result<Class, Reason>,
        now: u64,
    ) -> bool {
        if !matches!(class, Ok(Class::Short | Class::Handshake(_) | Class::Early(_) | Class::Other))
        {
            return false;
        }
        let let_in = self
            .sources
            .get(&self.source_key(d.src, number as u32))
            .and_then(|source| source.let_in_ns);
        if let_in.is_some_and(|at| now.saturating_sub(at) <= service.handshake_ns)
            || self.connections(&self.source_key(d.src, service.group), now) > 0
        {
            return false;
        }
        let tat = self.unproven_per_service.entry(number).or_insert(0);
        !service.unproven_per_service.charge(tat, d.datagrams, now)
    }

    fn stranger(&mut self, source: SourceKey) -> &mut Stranger {
        let shared = self.stranger.map_or(source, |stranger| stranger(&source));
        self.strangers.entry(shared).or_default()
    }

    /// Judges a packet of an established connection to a service that answers in the name of dead
    /// servers (policy.md section 14).
    fn reset_for_the_dead(
        &mut self,
        number: usize,
        service: &Service,
        frame: &[u8],
        d: &Datagram<'_>,
        now: u64,
    ) -> Reason {
        let unanswerable = !self.can_answer(frame, d);
        let question = d.payload.filter(|_| !unanswerable).zip(self.ring.as_ref());
        let question = question.and_then(|(payload, ring)| reset::Question::read(ring, payload));
        let Some(question) = question.filter(|q| self.is_dead(q.place, service.group)) else {
            return Reason::Established;
        };
        let Some(packet) = question.answer(service.name, now) else { return Reason::Established };
        let share = reset::share(self.seed, &self.source_key(d.src, 0).addr);
        let tat = self.resets_by_share.entry((number, share)).or_insert(0);
        if !service.answers_per_service.charge_at_most_all(tat, reset::SHARE_PART, now) {
            return Reason::RateAnswers;
        }
        let tat = self.resets_per_service.entry(number).or_insert(0);
        if !service.answers_per_service.charge(tat, 1, now) {
            return Reason::RateAnswers;
        }
        self.answer = Some(answer::answer(frame, d, &packet));
        Reason::ResetSent
    }

    /// Returns `true` if every server that had the slot `place` is dead, and one of them served the
    /// quota group (policy.md section 14).
    fn is_dead(&self, place: u8, group: u32) -> bool {
        let place = usize::from(place);
        let dead = self.dead.get(place).is_some_and(|groups| groups >> (group & 63) & 1 == 1);
        dead && self.ledgers.get(place).is_none_or(|ledger| ledger.taken_out)
    }

    /// Returns whether an Initial packet has a valid token, or the reason for which the gateway
    /// drops or answers it (policy.md section 8). A packet of an admitted attempt needs no token.
    fn ask_for_proof(
        &mut self,
        number: usize,
        service: &Service,
        frame: &[u8],
        d: &Datagram<'_>,
        opening: &Opening,
        now: u64,
    ) -> Result<bool, Reason> {
        let attempt = self.handshakes.get(&HandshakeKey::of(d, number, opening.scid));
        if attempt.is_some_and(|one| one.has_place(opening, service, false, now)) {
            return Ok(false);
        }
        let short = opening.dcid.as_bytes().len() < MIN_OPENING_DCID;
        let now_ms = now / 1_000_000;
        if opening.token_len > 0 && !short {
            match self.open_token(d, opening, now_ms) {
                Ok(_) => return Ok(true),
                Err(TokenError::NewToken | TokenError::Malformed) => {}
                Err(_) => return Err(Reason::BadToken),
            }
        }
        if service.retry == RetryPolicy::Adaptive && !self.asks(number, service, now) {
            return Ok(false);
        }
        if short {
            return Err(Reason::ShortDcid);
        }
        if !self.can_answer(frame, d) {
            return Err(Reason::Unproved);
        }
        let tat = self.retries_per_service.entry(number).or_insert(0);
        if !service.answers_per_service.charge(tat, 1, now) {
            return Err(Reason::RateAnswers);
        }
        let ring = self.ring.as_ref();
        self.answer = ring.and_then(|ring| answer::retry(frame, d, opening, ring, now_ms));
        Err(if self.answer.is_some() { Reason::RetrySent } else { Reason::Unproved })
    }

    /// Charges one more connection attempt without a token. Returns `true` if adaptive Retry now
    /// requires tokens.
    fn asks(&mut self, number: usize, service: &Service, now: u64) -> bool {
        let state = self.adaptive.entry(number).or_default();
        let asked = now < state.asking_until_ns;
        if service.retry_above.charge(&mut state.tat, if asked { 2 } else { 1 }, now) {
            return asked;
        }
        state.asking_until_ns = now + service.retry_hold_ns;
        state.began += u64::from(!asked);
        true
    }

    fn open_token(
        &self,
        d: &Datagram<'_>,
        opening: &Opening,
        now_ms: u64,
    ) -> Result<RetryToken, TokenError> {
        let payload = d.payload.map_or(&[][..], |payload| payload.data);
        let token = payload.get(opening.token_at..opening.token_at + opening.token_len);
        let token = token.ok_or(TokenError::Malformed)?;
        let ring = self.ring.as_ref().ok_or(TokenError::UnknownEpoch)?;
        let client = SocketAddr::new(d.src, d.sport);
        RetryToken::open(ring, now_ms, client, opening.dcid.as_bytes(), token)
    }

    /// Takes steps 10 to 12 of policy.md section 2: the strict quota, and the rates of packets and
    /// bytes.
    fn refuse_source(
        &mut self,
        number: usize,
        service: &Service,
        d: &Datagram<'_>,
        payload: Payload<'_>,
        unknown: bool,
        now: u64,
    ) -> Option<Reason> {
        let limit = u64::from(service.max_connections);
        let held = || self.connections(&self.source_key(d.src, service.group), now);
        if service.policy == QuotaPolicy::Strict && limit > 0 && held() > limit {
            return Some(Reason::QuotaStrict);
        }
        let source = self.source_key(d.src, number as u32);
        let (packets, bytes) = if unknown {
            let stranger = self.stranger(source);
            (&mut stranger.packets_tat, &mut stranger.bytes_tat)
        } else {
            let state = self.ensure_source(source, now);
            (&mut state.packets_tat, &mut state.bytes_tat)
        };
        if !service.packets_per_source.charge(packets, d.datagrams, now) {
            return Some(Reason::RatePackets);
        }
        let whole = if d.datagrams > 1 { d.whole } else { payload.data.len() };
        if !service.bytes_per_source.charge(bytes, whole as u64, now) {
            return Some(Reason::RateBytes);
        }
        None
    }

    /// Takes steps 13 to 22 of policy.md section 2.
    fn decide_quic(
        &mut self,
        number: usize,
        service: &Service,
        d: &Datagram<'_>,
        class: Result<Class, Reason>,
        standing: Standing,
        now: u64,
    ) -> Reason {
        let (exempt, proved) = (standing == Standing::Exempt, standing == Standing::Proved);
        let opening = match class {
            Err(malformed) => return malformed,
            Ok(Class::Short) => return Reason::Established,
            Ok(Class::Handshake(_) | Class::Early(_) | Class::Other) => return Reason::Handshake,
            // Judged earlier.
            Ok(Class::UnknownVersion) => return Reason::NewVersion,
            Ok(Class::Opening(opening)) => opening,
        };
        let (addr, key) = (d.src, HandshakeKey::of(d, number, opening.scid));
        let attempt = self.handshakes.get_mut(&key);
        if attempt.is_some_and(|one| one.takes(&opening, d.datagrams, service, exempt, now)) {
            return Reason::Underway;
        }
        let state = self.ensure_source(self.source_key(addr, number as u32), now);
        let forgotten = |at: u64| now.saturating_sub(at) <= service.handshake_ns;
        if opening.dcid.as_bytes().len() < MIN_OPENING_DCID
            && !state.let_in_ns.is_some_and(forgotten)
        {
            return Reason::ShortDcid;
        }
        if !exempt && let Some(refused) = self.refuse_opening(number, service, d.src, now) {
            return refused;
        }
        let state = self.ensure_source(self.source_key(addr, number as u32), now);
        state.let_in_ns = Some(now);
        if !exempt && service.policy == QuotaPolicy::Underway && service.max_connections > 0 {
            state.attempts.recent += 1;
        }
        let fresh = Handshake::new(opening.dcid, d.datagrams, proved, now);
        if self.handshakes.insert(key, fresh).is_none() {
            self.tallies.handshakes_created += 1;
        }
        if proved { Reason::Proved } else { Reason::New }
    }

    /// Takes steps 18 to 21 of policy.md section 2: the quota, and the rates of new connections.
    fn refuse_opening(
        &mut self,
        number: usize,
        service: &Service,
        src: IpAddr,
        now: u64,
    ) -> Option<Reason> {
        let limit = u64::from(service.max_connections);
        let held = || self.connections(&self.source_key(src, service.group), now);
        if service.policy == QuotaPolicy::New && limit > 0 && held() >= limit {
            return Some(Reason::Quota);
        }
        if service.policy == QuotaPolicy::Underway && limit > 0 {
            let group = self.source_key(src, service.group);
            let (held, opened) = (self.connections(&group, now), self.opened_ever(&group, now));
            let state = self.ensure_source(self.source_key(src, number as u32), now);
            let under_way = state.attempts.look(opened, service.handshake_ns, now);
            if held >= limit {
                return Some(Reason::Quota);
            }
            if held + under_way >= limit {
                return Some(Reason::QuotaUnderway);
            }
        }
        let state = self.ensure_source(self.source_key(src, number as u32), now);
        if !service.new_per_source.charge(&mut state.new_tat, 1, now) {
            return Some(Reason::RateNewSource);
        }
        if !self.has_room_in_prefixes(number, service, src, now) {
            return Some(Reason::RateNewPrefix);
        }
        let tat = self.new_per_service.entry(number).or_insert(0);
        if !service.new_per_service.charge(tat, 1, now) {
            return Some(Reason::RateNewService);
        }
        None
    }
}

impl Model {
    /// Charges a new connection to the rates of the prefixes that contain its source. Returns
    /// `false` if one of these rates is exceeded (policy.md section 12).
    fn has_room_in_prefixes(
        &mut self,
        number: usize,
        service: &Service,
        src: IpAddr,
        now: u64,
    ) -> bool {
        let (tallies, prefixes) = (&mut self.tallies, &mut self.prefixes);
        service.new_per_prefix.buckets(number, src).into_iter().all(|(key, rate)| {
            let tat = prefixes.entry(key).or_insert_with(|| {
                tallies.prefixes_created += 1;
                0
            });
            rate.charge(tat, 1, now)
        })
    }
}

pub(super) fn rules(service: &Service) -> Rules {
    Rules {
        require_fixed_bit: service.require_fixed_bit,
        versions: service.versions,
        refuse_unknown_versions: service.refuse_unknown_versions,
        version_negotiation: service.version_negotiation,
        also_client: service.also_client,
    }
}

/// Returns `true` if the address may belong to many hosts, for example a multicast address. No host
/// can send an answer from such an address.
pub(super) fn is_group(dst: IpAddr) -> bool {
    match dst {
        IpAddr::V4(addr) => addr.octets()[0] >= 224,
        IpAddr::V6(addr) => addr.is_multicast(),
    }
}

/// Returns `true` if no host on a network can have this source address (RFC 6890).
fn is_nobody(src: IpAddr, on_loopback: bool) -> bool {
    match src {
        IpAddr::V4(addr) if addr.is_loopback() => !on_loopback,
        IpAddr::V4(addr) => {
            addr.octets()[0] == 0 || addr.is_multicast() || addr == Ipv4Addr::BROADCAST
        }
        IpAddr::V6(addr) if addr.is_loopback() => !on_loopback,
        IpAddr::V6(addr) => {
            addr.is_unspecified() || addr.is_multicast() || addr.to_ipv4_mapped().is_some()
        }
    }
}
