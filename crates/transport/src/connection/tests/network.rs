//! The simulated network between the two ends, and the clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use equic_net::{BlackHole, Chance, Link, Port, Queue, Stall};
use equic_wire::packet::{Datagram, LongKind, Packet, ParseOptions};
use equic_wire::{ConnectionId, Direction};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustls::pki_types::ServerName;

use super::super::*;
use crate::crypto::testing::configs;

/// Faults of the simulated network. Probabilities are from 0 to 1.
#[derive(Debug, Clone, Copy)]
pub(super) struct Faults {
    pub loss: f64,
    pub duplication: f64,
    pub corruption: f64,
    /// Probability that a copy of a datagram with some bytes replaced at random arrives as well.
    pub forged: f64,
    /// Maximum additional delay of a datagram.
    pub jitter: Duration,
    /// Rate in bytes per second. `None` means no limit.
    pub rate: Option<u64>,
    /// Capacity of the queue of a rate-limited path, as time. The path drops datagrams that would
    /// wait longer.
    pub queue: Duration,
    /// The path silently drops larger datagrams.
    pub mtu: u16,
    /// Time from which the path silently drops datagrams above the given size.
    pub black_hole: Option<(Duration, u16)>,
    /// One-way delay without queues.
    pub delay: Duration,
    /// Probability that a datagram triggers a delay spike, in which all datagrams stall for a
    /// while.
    pub spike: f64,
    /// Interval at which a NAT changes the client's port, after the handshake is confirmed.
    pub rebind: Option<Duration>,
}

impl Faults {
    pub(super) fn none() -> Faults {
        Faults {
            loss: 0.0,
            duplication: 0.0,
            corruption: 0.0,
            forged: 0.0,
            jitter: Duration::ZERO,
            rate: None,
            queue: QUEUE,
            mtu: 1500,
            black_hole: None,
            delay: DELAY,
            spike: 0.0,
            rebind: None,
        }
    }

    /// Returns one direction of a path with these faults.
    fn link(&self) -> Link {
        let chance = |share: f64| Chance::percent(100.0 * share);
        let ms = Duration::from_millis;
        Link {
            delay: self.delay,
            jitter: self.jitter,
            rate: self.rate.map(|bytes| 8 * bytes),
            queue: Queue::Time(self.queue),
            mtu: Some(self.mtu.into()),
            black_hole: self.black_hole.map(|(from, mtu)| BlackHole { from, mtu: mtu.into() }),
            drop: chance(self.loss),
            duplicate: chance(self.duplication),
            corrupt: chance(self.corruption),
            stall: Stall { percent: 100.0 * self.spike, least: ms(100), most: ms(900) },
            ..Link::default()
        }
    }

    pub(super) fn by_chance(seed: u64) -> Faults {
        let mut rng = StdRng::seed_from_u64(seed ^ 0xfa017);
        // A round-trip time of one second, as over satellites or worse. Fewer retransmissions fit
        // into the idle timeout.
        let long = rng.random_bool(0.1);
        let black_hole = rng.random_bool(0.15).then(|| {
            let at = Duration::from_millis(rng.random_range(0..2000));
            (at, rng.random_range(1200..1400))
        });
        let rebind =
            rng.random_bool(0.1).then(|| Duration::from_millis(rng.random_range(1500..5000)));
        let mut often =
            |most: f64| if rng.random_bool(0.6) { rng.random_range(0.0..most) } else { 0.0 };
        Faults {
            black_hole: black_hole.filter(|_| !long),
            delay: if long { Duration::from_millis(500) } else { DELAY },
            spike: if seed.is_multiple_of(4) { often(0.01) } else { 0.0 },
            rebind: rebind.filter(|_| !long),
            // At most a quarter of all datagrams may be lost or corrupted. With 30 % loss in each
            // direction, some connections reach the idle timeout, because ten exchanges in a row
            // fail occasionally.
            loss: often(if long { 0.05 } else { 0.2 }),
            duplication: often(0.2),
            corruption: often(0.05),
            forged: often(0.1),
            jitter: Duration::from_millis(often(60.0) as u64),
            rate: None,
            queue: QUEUE,
            mtu: if seed.is_multiple_of(3) { 1250 } else { 1500 },
        }
    }
}

/// Returns the datagrams that arrive in place of one.
type Meddle = Box<dyn FnMut(bool, &[u8]) -> Vec<(bool, Vec<u8>)>>;

/// Function that is applied to a connection once.
type Prepare = Box<dyn FnOnce(&mut Connection)>;

/// Function that is applied once to the end on this side, before the call with this number into its
/// connection. Calls are counted from the creation of the end.
pub(super) type Act = (u64, Side, Box<dyn FnOnce(&mut Connection, Timestamp)>);

const DELAY: Duration = Duration::from_millis(10);
/// The default queue of a rate-limited path.
const QUEUE: Duration = Duration::from_millis(60);

/// Initial addresses of the client and of the server.
const CLIENT: &str = "198.51.100.1:4433";
const SERVER: &str = "192.0.2.1:443";

struct InFlight {
    to_server: bool,
    from: SocketAddr,
    to: SocketAddr,
    ecn: EcnCodepoint,
    bytes: Vec<u8>,
}

pub(super) struct Network {
    seed: u64,
    faults: Faults,
    rng: StdRng,
    now: Timestamp,
    order: u64,
    in_flight: BTreeMap<(Timestamp, u64), InFlight>,
    /// The ports toward the client and toward the server.
    ports: [Port; 2],
    pub client: Connection,
    server: Option<Connection>,
    pub server_config: Arc<dyn Serve>,
    /// Source address of the client's datagrams. The client receives at this address.
    pub client_address: SocketAddr,
    /// Server addresses at which no host receives.
    pub lost_addresses: Vec<SocketAddr>,
    closed: [Option<CloseReason>; 2],
    /// Datagram events of both ends.
    seen: [Vec<Event>; 2],
    /// Hooks of the client that were detached.
    pub failed: Vec<HookId>,
    connected: [bool; 2],
    only_first: bool,
    /// Returns the ECN mark with which a datagram arrives. The arguments are whether it goes to the
    /// server, and the mark with which it was sent.
    pub mark: Option<fn(bool, EcnCodepoint) -> EcnCodepoint>,
    /// Prepares the server's end before it receives its first datagram.
    pub on_server: Option<Prepare>,
    /// Function that alters datagrams on arrival. Its arguments are whether a datagram goes to the
    /// server, and its bytes.
    pub meddle: Option<Meddle>,
    /// See [`Act`]. `None` after it was applied.
    pub act: Option<Act>,
    /// If set, an Initial packet to a connection ID that is unknown to the server's end creates a
    /// new server.
    pub new_servers: bool,
    /// Events of the client and of the server, except those of streams.
    pub events: [Vec<Event>; 2],
    rebound_at: Timestamp,
    /// Number of consecutive steps in which a timer was due and time did not advance.
    stuck: u32,
    trace: Vec<(Timestamp, bool, usize)>,
    /// FNV-1a digest of the time and direction of each sent datagram, with its bytes or its length.
    /// `None` unless a test requested it.
    digest: Option<u64>,
    digest_bytes: bool,
    /// Both ends run only at multiples of this interval. Timers and received datagrams wait until
    /// then. With zero, the ends can always run.
    pub every: Duration,
    /// Number of datagrams that are requested at once after the first one.
    pub together: usize,
    /// Number of datagrams that such requests returned.
    pub gathered: usize,
    /// Bytes sent to each of the client's addresses.
    sent_to: BTreeMap<SocketAddr, usize>,
}

impl Network {
    pub(super) fn new(seed: u64, faults: Faults) -> Network {
        Network::with(seed, faults, |_| {})
    }

    pub(super) fn with(seed: u64, faults: Faults, set: impl Fn(&mut TransportConfig)) -> Network {
        let (client_tls, server_tls) = configs();
        let mut transport = TransportConfig::default();
        set(&mut transport);
        let transport = Arc::new(transport);
        let client = ClientConfig { tls: client_tls, transport: transport.clone() };
        let server = ServerConfig { tls: server_tls, transport, preferred_addresses: None };
        Network::between(seed, faults, &client, server)
    }

    pub(super) fn between(
        seed: u64,
        faults: Faults,
        config: &ClientConfig,
        server_config: ServerConfig,
    ) -> Network {
        let name = ServerName::try_from("equic.test").unwrap();
        let (start, remote) = (Timestamp::START, SERVER.parse().unwrap());
        let client = Connection::connect(start, config, name, remote, [seed as u8; 32]).unwrap();
        Network::of(seed, faults, client, Arc::new(server_config))
    }

    /// Creates a network whose ends do not protect packets.
    #[cfg(feature = "null-crypto")]
    pub(super) fn null(
        seed: u64,
        faults: Faults,
        client: &InsecureNullConfig,
        server: InsecureNullConfig,
    ) -> Network {
        let (start, remote) = (Timestamp::START, SERVER.parse().unwrap());
        let client = Connection::connect_insecure_null(start, client, remote, [seed as u8; 32]);
        Network::of(seed, faults, client.unwrap(), Arc::new(server))
    }

    fn of(seed: u64, faults: Faults, client: Connection, server_config: Arc<dyn Serve>) -> Network {
        let start = Timestamp::START;
        Network {
            seed,
            faults,
            rng: StdRng::seed_from_u64(seed),
            now: start,
            order: 0,
            in_flight: BTreeMap::new(),
            ports: [1, 2].map(|way| Port::new(faults.link(), seed.rotate_left(2) ^ way)),
            client,
            server: None,
            server_config,
            client_address: CLIENT.parse().expect("an address"),
            lost_addresses: Vec::new(),
            closed: [None, None],
            seen: [Vec::new(), Vec::new()],
            failed: Vec::new(),
            connected: [false; 2],
            only_first: false,
            mark: None,
            on_server: None,
            meddle: None,
            act: None,
            new_servers: false,
            events: [Vec::new(), Vec::new()],
            rebound_at: start,
            stuck: 0,
            trace: Vec::new(),
            digest: None,
            digest_bytes: false,
            every: Duration::ZERO,
            together: 0,
            gathered: 0,
            sent_to: BTreeMap::new(),
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.now
    }

    pub(super) fn server(&self) -> &Connection {
        self.server.as_ref().expect("the first packet arrived")
    }

    pub(super) fn server_mut(&mut self) -> &mut Connection {
        self.server.as_mut().expect("the first packet arrived")
    }

    /// Returns `false` until the client's first packet arrives.
    pub(super) fn has_server(&self) -> bool {
        self.server.is_some()
    }

    /// Delivers to the client a datagram that the server did not send.
    pub(super) fn forge_to_client(&mut self, mut bytes: Vec<u8>) {
        let remote = SERVER.parse().expect("an address");
        let arrival = DatagramMeta { remote, local: None, ecn: EcnCodepoint::NotEct };
        self.client.handle_datagram(self.now, arrival, &mut bytes);
    }

    /// Returns the two ends and the time.
    pub(super) fn into_ends(self) -> (Connection, Connection, Timestamp) {
        (self.client, self.server.expect("the first packet arrived"), self.now)
    }

    /// Returns `true` if the client (0) or the server (1) emitted `event`.
    pub(super) fn seen(&self, end: usize, event: &Event) -> bool {
        self.seen[end].contains(event)
    }

    pub(super) fn closed(&self) -> [Option<CloseReason>; 2] {
        self.closed.clone()
    }

    pub(super) fn trace(&self) -> Vec<(Timestamp, bool, usize)> {
        self.trace.clone()
    }

    /// Starts a digest of sent datagrams. If `bytes` is set, the digest covers their bytes, and
    /// otherwise their lengths.
    #[cfg(feature = "null-crypto")]
    pub(super) fn sum_up(&mut self, bytes: bool) {
        self.digest_bytes = bytes;
        self.digest = Some(0xcbf2_9ce4_8422_2325);
    }

    /// Returns the digest of the datagrams sent so far, or `None` if it was not requested.
    #[cfg(feature = "null-crypto")]
    pub(super) fn digest(&self) -> Option<u64> {
        self.digest
    }

    /// Returns the number of bytes sent to an address.
    pub(super) fn to(&self, address: SocketAddr) -> usize {
        self.sent_to.get(&address).copied().unwrap_or(0)
    }

    pub(super) fn deliver_only_first_client_datagram(&mut self) {
        self.only_first = true;
    }

    fn paths(&self) -> String {
        let ends = [Some(&self.client), self.server.as_ref()].into_iter().flatten();
        let of = |end: &Connection| {
            let active = end.path().key();
            let one = |path: &Path| {
                format!(
                    "\n{:?}{} to {} from {:?}: validated {}, asking {}, credit {:?}, in flight {} of {}",
                    path.key(),
                    if path.key() == active { " (active)" } else { "" },
                    path.remote(),
                    path.local(),
                    path.is_validated(),
                    path.is_asking(),
                    path.credit(),
                    path.in_flight(),
                    path.controller().window()
                )
            };
            end.paths.iter().map(one).collect::<String>()
        };
        ends.map(of).collect()
    }

    fn spaces(&self) -> String {
        let ends = [Some(&self.client), self.server.as_ref()].into_iter().flatten();
        let of = |end: &Connection| {
            let one = |(id, space): (SpaceId, &Space)| {
                format!(
                    "\n{:?} {id:?}: next {}, {} in flight, probes {}, acked {:?}, received {:?}, to send {}, {}",
                    end.side,
                    space.numbers.next(),
                    space.loss.sent().len(),
                    space.probes(),
                    space.loss.largest_acked(),
                    space.received.largest(),
                    space.has_crypto(),
                    if end.keys.is_discarded(id) { "discarded" } else { "in use" },
                )
            };
            end.spaces.iter().map(one).collect::<String>()
        };
        ends.map(of).collect()
    }

    pub(super) fn describe(&self) -> String {
        format!(
            "EQUIC_SEED={} at {:?}: {:?}\nclient {:?} {:?}\nserver {:?} {:?}",
            self.seed,
            self.now,
            self.faults,
            self.closed[0],
            self.client.stats(),
            self.closed[1],
            self.server.as_ref().map(Connection::stats)
        ) + &self.paths()
            + &self.spaces()
    }

    /// Returns `true` if the memory that two well-behaved ends keep for each other is small.
    pub(super) fn within_limits(&self) -> bool {
        [&self.client, self.server()].into_iter().all(|end| {
            end.path().in_flight() <= end.path().controller().window() + 10 * 1500
                && end.spaces.iter().all(|(_, space)| space.loss.sent().len() < 10_000)
                && end.memory() < 4 << 20
        })
    }

    pub(super) fn connect(&mut self) {
        self.run_until(Duration::from_secs(120), |client, server| {
            client.handshake.is_confirmed() && server.handshake.is_confirmed()
        });
        assert_eq!(self.connected, [true; 2], "{}", self.describe());
    }

    /// Runs until `done` returns `true`. It is called after each step. Panics after `limit`.
    pub(super) fn run_until(
        &mut self,
        limit: Duration,
        mut done: impl FnMut(&mut Connection, &mut Connection) -> bool,
    ) {
        let end = self.now + limit;
        let mut none = None;
        loop {
            self.transmit();
            let server = match self.server.as_mut() {
                Some(server) => Some(server),
                None => none.as_mut(),
            };
            let finished = match server {
                Some(server) => done(&mut self.client, server),
                None => {
                    // Until the server's end exists, `done` gets a substitute for it.
                    let mut nobody = self.nobody();
                    let finished = done(&mut self.client, &mut nobody);
                    none = Some(nobody);
                    finished
                }
            };
            self.transmit();
            if finished {
                return;
            }
            assert!(self.now < end, "{}", self.describe());
            self.step(end);
        }
    }

    /// Runs for `time`, with PINGs that prevent the idle timeout.
    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.client.ping();
            self.transmit();
            self.step(end.min(self.now + Duration::from_millis(50)));
        }
    }

    /// Runs for `time`.
    pub(super) fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.transmit();
            self.step(end);
        }
    }

    /// Runs `steps` steps with a stream's worth of data, whether or not the data arrives.
    pub(super) fn run_some(&mut self, steps: usize) {
        let end = self.now + Duration::from_secs(120);
        for _ in 0..steps {
            self.tolerant_transmit();
            if let Some(id) = self.client.open(Direction::Unidirectional) {
                let _ = self.client.streams().write(id, &[1; 3000]);
                let _ = self.client.streams().finish(id);
            }
            self.stuck = 0;
            if self.now < end {
                self.step(end);
            }
        }
    }

    /// As [`Network::transmit`], for ends that may send endlessly because of a hook.
    fn tolerant_transmit(&mut self) {
        let mut buffer = vec![0; 1500];
        for to_server in [true, false] {
            for _ in 0..20 {
                let end = if to_server { Some(&mut self.client) } else { self.server.as_mut() };
                let Some(end) = end else { break };
                let Some(sent) = end.poll_transmit(self.now, &mut buffer) else { break };
                self.send(to_server, sent, buffer[..sent.size].to_vec());
            }
        }
        self.listen();
    }

    /// Applies [`Act`] when it is due. Must be called before each call into a connection.
    fn before_call(&mut self) {
        let Some((left, side, act)) = self.act.take() else { return };
        let end = match side {
            Side::Client => Some(&mut self.client),
            Side::Server => self.server.as_mut(),
        };
        match end {
            Some(end) if left == 0 => act(end, self.now),
            end => self.act = Some((left - u64::from(end.is_some()), side, act)),
        }
    }

    fn nobody(&self) -> Connection {
        let id = ConnectionId::cut(&[0; 8]);
        let remote = "192.0.2.9:9".parse().unwrap();
        let version = self.client.version;
        let first = FirstPacket::without_token(version, id, id, remote);
        Connection::accept_alone(self.now, &*self.server_config, &first, [9; 32]).unwrap()
    }

    fn step(&mut self, end: Timestamp) {
        let arrival = self.in_flight.keys().next().map(|(at, _)| *at);
        let ends = [Some(&mut self.client), self.server.as_mut()];
        let timer = ends.into_iter().flatten().filter_map(Connection::poll_timeout).min();
        let still =
            timer.is_some_and(|at| at <= self.now) && arrival.is_none_or(|at| at > self.now);
        self.stuck = if still { self.stuck + 1 } else { 0 };
        assert!(self.stuck < 100, "a timer fires without effect: {}", self.describe());
        let next = [arrival, timer].into_iter().flatten().min().unwrap_or(end).min(end);
        self.now = self.now.max(self.turn_after(next));
        // RFC 9000 s.9: QUIC relies on addresses that stay for the duration of the handshake.
        let settled = self.client.handshake.is_confirmed()
            && self.server.as_ref().is_some_and(|server| server.handshake.is_confirmed());
        let rebind = |every| settled && self.now.since(self.rebound_at) >= every;
        if self.faults.rebind.is_some_and(rebind) {
            self.rebound_at = self.now;
            self.client_address.set_port(self.client_address.port() ^ 1);
        }
        while let Some(entry) = self.in_flight.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let packet = entry.remove();
            self.deliver(packet);
        }
        for client in [true, false] {
            self.before_call();
            let end = if client { Some(&mut self.client) } else { self.server.as_mut() };
            let Some(end) = end else { continue };
            if end.poll_timeout().is_some_and(|at| at <= self.now) {
                end.handle_timeout(self.now);
            }
        }
        self.listen();
    }

    /// Returns the first time from `time` on at which the ends can run.
    fn turn_after(&self, time: Timestamp) -> Timestamp {
        let every = self.every.as_nanos().max(1) as u64;
        Timestamp::START + Duration::from_nanos(time.as_nanos().next_multiple_of(every))
    }

    fn listen(&mut self) {
        for (index, end) in [Some(&mut self.client), self.server.as_mut()].into_iter().enumerate() {
            let Some(end) = end else { continue };
            while let Some(event) = end.poll_event() {
                if !matches!(event, Event::Stream(_)) {
                    self.events[index].push(event.clone());
                }
                match event {
                    Event::Closed(reason) => self.closed[index] = Some(reason),
                    Event::DatagramsReadable | Event::DatagramsWritable => {
                        self.seen[index].push(event);
                    }
                    Event::Connected => self.connected[index] = true,
                    Event::HookFailed(id, _) if index == 0 => self.failed.push(id),
                    _ => {}
                }
            }
        }
    }

    fn deliver(&mut self, packet: InFlight) {
        let Some(mut meddle) = self.meddle.take() else { return self.arrive(packet) };
        let datagrams = meddle(packet.to_server, &packet.bytes);
        self.meddle = Some(meddle);
        for (to_server, bytes) in datagrams {
            let (from, to) = if to_server == packet.to_server {
                (packet.from, packet.to)
            } else {
                (packet.to, packet.from)
            };
            self.arrive(InFlight { to_server, from, to, ecn: packet.ecn, bytes });
        }
    }

    /// Returns `true` if a datagram begins a connection other than that of the server's end.
    fn is_another(&self, bytes: &[u8]) -> bool {
        let Some(server) = &self.server else { return true };
        let mut packets =
            Datagram::new(bytes, ParseOptions::default()).including(self.client.version);
        let Some(Ok(Packet::Long(first))) = packets.next() else { return false };
        self.new_servers
            && matches!(first.kind(), LongKind::Initial { .. })
            && first.dcid() != server.ids.original_dcid()
            && !server.ids.local.contains(first.dcid())
    }

    fn arrive(&mut self, mut packet: InFlight) {
        let ecn = self.mark.map_or(packet.ecn, |mark| mark(packet.to_server, packet.ecn));
        let arrival = DatagramMeta { remote: packet.from, local: Some(packet.to.ip()), ecn };
        let reached = if packet.to_server {
            !self.lost_addresses.contains(&packet.to)
        } else {
            packet.to == self.client_address
        };
        if !reached {
            return;
        }
        if !packet.to_server {
            self.before_call();
            return self.client.handle_datagram(self.now, arrival, &mut packet.bytes);
        }
        if self.is_another(&packet.bytes) {
            let mut packets = Datagram::new(&packet.bytes, ParseOptions::default())
                .including(self.client.version);
            let Some(Ok(Packet::Long(first))) = packets.next() else { return };
            let (dcid, scid) = (first.dcid(), first.scid());
            let first = FirstPacket::without_token(first.version(), dcid, scid, packet.from);
            let (serve, seed) = (&*self.server_config, [self.seed as u8 ^ 0xff; 32]);
            let mut made = Connection::accept_alone(self.now, serve, &first, seed).unwrap();
            if let Some(prepare) = self.on_server.take() {
                prepare(&mut made);
            }
            self.server = Some(made);
        }
        self.before_call();
        if let Some(server) = &mut self.server {
            server.handle_datagram(self.now, arrival, &mut packet.bytes);
        }
    }

    fn transmit(&mut self) {
        let largest = usize::from(self.faults.mtu.max(1500));
        let mut buffer = vec![0; largest * (1 + self.together)];
        for to_server in [true, false] {
            for count in 0.. {
                assert!(count < 10_000, "endless sending: {}", self.describe());
                self.before_call();
                let end = if to_server { Some(&mut self.client) } else { self.server.as_mut() };
                let Some(end) = end else { break };
                let Some(sent) = end.poll_transmit(self.now, &mut buffer[..largest]) else { break };
                assert!(sent.size > 0 && sent.size <= largest);
                let mut more = 0;
                if self.together > 0 {
                    let rest = &mut buffer[sent.size..];
                    more = end.poll_transmit_more(self.now, &sent, rest, self.together);
                    self.gathered += more.div_ceil(sent.size);
                    assert!(more <= sent.size * self.together);
                }
                for bytes in buffer[..sent.size + more].chunks(sent.size) {
                    self.take_note(to_server, sent, bytes);
                    self.send(to_server, Transmit { size: bytes.len(), ..sent }, bytes.to_vec());
                }
            }
        }
        self.listen();
    }

    fn take_note(&mut self, to_server: bool, sent: Transmit, bytes: &[u8]) {
        self.trace.push((self.now, to_server, bytes.len()));
        self.digest = self.digest.map(|digest| {
            let time = self.now.as_nanos().to_be_bytes();
            let marks = [u8::from(to_server), sent.ecn as u8];
            let size = bytes.len().to_be_bytes();
            let bytes = if self.digest_bytes { bytes } else { &size };
            let bytes = time.iter().chain(&marks).chain(bytes);
            bytes.fold(digest, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
        });
    }

    fn send(&mut self, to_server: bool, sent: Transmit, bytes: Vec<u8>) {
        *self.sent_to.entry(sent.destination).or_default() += bytes.len();
        let from = if to_server {
            self.client_address
        } else {
            let first: SocketAddr = SERVER.parse().expect("an address");
            SocketAddr::new(sent.source.unwrap_or(first.ip()), first.port())
        };
        if self.only_first && to_server && self.trace.iter().filter(|(_, to, _)| *to).count() > 1 {
            return;
        }
        let now = self.now.since(Timestamp::START);
        let verdict = self.ports[usize::from(to_server)].send(now, bytes.len());
        if !verdict.fate.arrived() {
            return;
        }
        let mut copies = vec![(verdict.arrival, bytes.clone())];
        copies.extend(verdict.copy.map(|arrival| (arrival, bytes.clone())));
        if self.rng.random_bool(self.faults.forged) {
            let mut forged = bytes;
            let from = self.rng.random_range(0..forged.len());
            forged[from..].fill_with(|| self.rng.random());
            copies.push((verdict.arrival, forged));
        }
        // The first packet is not corrupted. Otherwise a server would be created for a random
        // connection ID.
        if let Some(corruption) = verdict.corruption.filter(|_| self.server.is_some()) {
            corruption.apply(&mut copies[0].1);
        }
        for (arrival, bytes) in copies {
            self.order += 1;
            let packet = InFlight { to_server, from, to: sent.destination, ecn: sent.ecn, bytes };
            self.in_flight.insert((Timestamp::START + arrival, self.order), packet);
        }
    }
}
