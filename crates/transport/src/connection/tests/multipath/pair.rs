//! A client with several addresses and a server with one. Each address of the client has its own
//! link.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use equic_net::{Link, Port};
use equic_wire::packet::{Datagram, Packet, ParseOptions};
use equic_wire::{Direction, PathId, Side, StreamId};
use rustls::pki_types::ServerName;

use super::super::byte;
use crate::connection::receive_plain::EARLY_EXITS;
use crate::connection::*;
use crate::crypto::testing::configs;
use crate::stream::ReadOutcome;

pub(super) const SERVER: &str = "192.0.2.1:443";

/// Returns the client's address on a link.
pub(super) fn client_address(link: usize) -> SocketAddr {
    SocketAddr::from(([198, 51, 100, 1 + link as u8], 4433))
}

pub(super) fn local(link: usize) -> Option<IpAddr> {
    Some(client_address(link).ip())
}

/// Returns a link without faults and with this one-way delay in milliseconds.
pub(super) fn link(ms: u64) -> Link {
    Link { delay: Duration::from_millis(ms), mtu: Some(1500), ..Link::default() }
}

struct InFlight {
    link: usize,
    to_server: bool,
    ecn: EcnCodepoint,
    bytes: Vec<u8>,
}

pub(super) struct Pair {
    pub now: Timestamp,
    pub client: Connection,
    server: Option<Connection>,
    config: Arc<dyn Serve>,
    seed: u64,
    order: u64,
    in_flight: BTreeMap<(Timestamp, u64), InFlight>,
    /// The two ports of each link: toward the server, and toward the client.
    ports: Vec<[Port; 2]>,
    /// Links on which all packets are lost.
    pub down: Vec<bool>,
    /// Links on which the source port of the client's packets is changed.
    pub rebound: Vec<bool>,
    /// Events of the client and of the server, except those of streams.
    pub events: [Vec<Event>; 2],
    /// Bytes sent on each link, to the server and to the client.
    pub sent: Vec<[usize; 2]>,
    /// All datagrams sent: time, link, whether to the server, size, and ECN mark.
    pub trace: Vec<(Timestamp, usize, bool, usize, EcnCodepoint)>,
    /// Link whose packets are held back until `let_go`.
    pub held: Option<usize>,
    held_back: Vec<InFlight>,
    /// Maximum number of datagrams to request from `poll_transmit_more` after `poll_transmit`.
    pub together: usize,
    /// Number of datagrams that `poll_transmit_more` returned.
    pub gathered: usize,
    /// If set, counts for each link the datagrams that took the early exit of the route, and those
    /// that took the general route.
    pub tried: Option<Vec<[usize; 2]>>,
    stuck: u32,
}

impl Pair {
    /// Creates a pair that permits four paths.
    pub(super) fn new(seed: u64, links: &[Link]) -> Pair {
        Pair::with(seed, links, |_| {})
    }

    pub(super) fn with(seed: u64, links: &[Link], set: impl Fn(&mut TransportConfig)) -> Pair {
        Pair::unlike(seed, links, &set, &set)
    }

    pub(super) fn unlike(
        seed: u64,
        links: &[Link],
        client: &dyn Fn(&mut TransportConfig),
        server: &dyn Fn(&mut TransportConfig),
    ) -> Pair {
        let (client_tls, server_tls) = configs();
        let config = |set: &dyn Fn(&mut TransportConfig)| {
            let mut transport = TransportConfig { max_paths: 4, ..TransportConfig::default() };
            set(&mut transport);
            Arc::new(transport)
        };
        let (start, remote) = (Timestamp::START, SERVER.parse().unwrap());
        let name = ServerName::try_from("equic.test").unwrap();
        let transport = config(client);
        let client = ClientConfig { tls: client_tls, transport };
        let client = Connection::connect(start, &client, name, remote, [seed as u8; 32]).unwrap();
        let transport = config(server);
        let server = ServerConfig { tls: server_tls, transport, preferred_addresses: None };
        let ports = links.iter().enumerate().map(|(at, link)| {
            [1, 2].map(|way| Port::new(link.clone(), seed.rotate_left(3) ^ (at as u64) << 8 ^ way))
        });
        Pair {
            now: start,
            client,
            server: None,
            config: Arc::new(server),
            seed,
            order: 0,
            in_flight: BTreeMap::new(),
            ports: ports.collect(),
            down: vec![false; links.len()],
            rebound: vec![false; links.len()],
            events: [Vec::new(), Vec::new()],
            sent: vec![[0; 2]; links.len()],
            trace: Vec::new(),
            held: None,
            held_back: Vec::new(),
            together: 0,
            gathered: 0,
            tried: None,
            stuck: 0,
        }
    }

    pub(super) fn server(&mut self) -> &mut Connection {
        self.server.as_mut().expect("the first packet arrived")
    }

    pub(super) fn ends(&self) -> [&Connection; 2] {
        [&self.client, self.server.as_ref().expect("the first packet arrived")]
    }

    /// Completes the handshake and exchanges connection IDs for all paths.
    pub(super) fn connect(&mut self) {
        self.run_until(Duration::from_secs(60), |client, server| {
            client.handshake.is_confirmed() && server.handshake.is_confirmed()
        });
        self.wait(Duration::from_millis(500));
    }

    /// Opens a path of the client on a link, and waits until both ends have validated it.
    pub(super) fn open(&mut self, link: usize) -> PathId {
        let id = self.begin(link);
        self.run_until(Duration::from_secs(60), |client, server| {
            [client, server]
                .into_iter()
                .all(|end| end.paths().any(|path| path.id == id && path.validated))
        });
        id
    }

    pub(super) fn begin(&mut self, link: usize) -> PathId {
        let remote = SERVER.parse().unwrap();
        let opened = self.client.open_path(self.now, local(link), remote);
        opened.unwrap_or_else(|error| panic!("{error}: {}", self.describe()))
    }

    pub(super) fn describe(&self) -> String {
        let ends = [Some(&self.client), self.server.as_ref()];
        let mut text = format!("EQUIC_SEED={} at {:?}", self.seed, self.now);
        for end in ends.into_iter().flatten() {
            // Ignores whether packets were decrypted directly into stream buffers. The general
            // route never does this.
            let stats = Stats { packets_opened_to_streams: 0, ..end.stats() };
            text += &format!("\n{:?} {stats:?} {:?}", end.side, end.multipath);
            for path in end.paths() {
                text += &format!("\n  {path:?}");
            }
            for (id, space) in end.spaces.iter() {
                text += &format!(
                    "\n  {id:?}: {} in flight, probes {}, acked {:?}",
                    space.loss.sent().len(),
                    space.probes(),
                    space.loss.largest_acked()
                );
            }
        }
        text + &format!("\n{:?}", self.events)
    }

    /// Runs until `done` returns `true`. It is called after each step.
    pub(super) fn run_until(
        &mut self,
        limit: Duration,
        mut done: impl FnMut(&mut Connection, &mut Connection) -> bool,
    ) {
        let end = self.now + limit;
        loop {
            self.transmit();
            let finished =
                self.server.as_mut().is_some_and(|server| done(&mut self.client, server));
            self.transmit();
            if finished {
                return;
            }
            assert!(self.now < end, "{}", self.describe());
            self.step(end);
        }
    }

    /// Runs for `time`.
    pub(super) fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.transmit();
            self.step(end);
        }
        self.transmit();
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
        self.now = self.now.max(next);
        while let Some(entry) = self.in_flight.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let packet = entry.remove();
            self.arrive(packet);
        }
        for end in [Some(&mut self.client), self.server.as_mut()].into_iter().flatten() {
            if end.poll_timeout().is_some_and(|at| at <= self.now) {
                end.handle_timeout(self.now);
            }
        }
        self.listen();
    }

    fn listen(&mut self) {
        let ends = [Some(&mut self.client), self.server.as_mut()];
        for (events, end) in self.events.iter_mut().zip(ends) {
            let Some(end) = end else { continue };
            while let Some(event) = end.poll_event() {
                if !matches!(event, Event::Stream(_)) {
                    events.push(event);
                }
            }
        }
    }

    fn arrive(&mut self, mut packet: InFlight) {
        let mut from = client_address(packet.link);
        if self.rebound[packet.link] {
            from.set_port(5544);
        }
        let server: SocketAddr = SERVER.parse().unwrap();
        let (remote, local) =
            if packet.to_server { (from, server.ip()) } else { (server, from.ip()) };
        let arrival = DatagramMeta { remote, local: Some(local), ecn: packet.ecn };
        if let Some(tried) = &mut self.tried {
            let server = self.server.as_mut().expect("the first packet arrived");
            let end = if packet.to_server { server } else { &mut self.client };
            let datagram = &mut packet.bytes;
            let before = EARLY_EXITS.get();
            end.handle_datagram(self.now, arrival, datagram);
            tried[packet.link][usize::from(EARLY_EXITS.get() == before)] += 1;
            return;
        }
        if !packet.to_server {
            return self.client.handle_datagram(self.now, arrival, &mut packet.bytes);
        }
        if self.server.is_none() {
            let mut packets = Datagram::new(&packet.bytes, ParseOptions::default());
            let Some(Ok(Packet::Long(first))) = packets.next() else { return };
            let (dcid, scid) = (first.dcid(), first.scid());
            let first = FirstPacket::without_token(first.version(), dcid, scid, from);
            let seed = [self.seed as u8 ^ 0xff; 32];
            self.server =
                Some(Connection::accept_alone(self.now, &*self.config, &first, seed).unwrap());
        }
        let now = self.now;
        self.server().handle_datagram(now, arrival, &mut packet.bytes);
    }

    fn transmit(&mut self) {
        let mut buffer = vec![0; 1500 * (1 + self.together)];
        for to_server in [true, false] {
            for count in 0.. {
                assert!(count < 10_000, "endless sending: {}", self.describe());
                let end = if to_server { Some(&mut self.client) } else { self.server.as_mut() };
                let Some(end) = end else { break };
                let Some(sent) = end.poll_transmit(self.now, &mut buffer[..1500]) else { break };
                let mut more = 0;
                if self.together > 0 {
                    let rest = &mut buffer[sent.size..];
                    more = end.poll_transmit_more(self.now, &sent, rest, self.together);
                    self.gathered += more.div_ceil(sent.size);
                    assert!(more <= sent.size * self.together);
                }
                let link = self.link_of(to_server, &sent);
                if !to_server {
                    let rebound = sent.destination.port() == 5544;
                    assert!(
                        !rebound || self.rebound[link],
                        "sent to a port that the client never had"
                    );
                }
                for bytes in buffer[..sent.size + more].chunks(sent.size) {
                    let bytes = bytes.to_vec();
                    self.send(InFlight { link, to_server, ecn: sent.ecn, bytes });
                }
            }
        }
        self.listen();
    }

    /// Returns the link that a datagram is sent on.
    fn link_of(&self, to_server: bool, sent: &Transmit) -> usize {
        let address = if to_server {
            sent.source.unwrap_or(client_address(0).ip())
        } else {
            sent.destination.ip()
        };
        let mut links = 0..self.ports.len();
        links.find(|link| client_address(*link).ip() == address).expect("an address of the client")
    }

    /// Sends one datagram of an end, if there is one.
    pub(super) fn transmit_one(&mut self, sender: Side) {
        let mut bytes = vec![0; 1500];
        let to_server = sender == Side::Client;
        let now = self.now;
        let end = if to_server { &mut self.client } else { self.server() };
        let Some(sent) = end.poll_transmit(now, &mut bytes) else { return };
        bytes.truncate(sent.size);
        let link = self.link_of(to_server, &sent);
        self.send(InFlight { link, to_server, ecn: sent.ecn, bytes });
    }

    /// Delivers all datagrams in flight. Nothing is sent meanwhile.
    pub(super) fn deliver_all(&mut self) {
        let packets = std::mem::take(&mut self.in_flight);
        for ((at, _), packet) in packets {
            self.now = self.now.max(at);
            self.arrive(packet);
        }
    }

    fn send(&mut self, packet: InFlight) {
        let way = usize::from(!packet.to_server);
        self.sent[packet.link][way] += packet.bytes.len();
        self.trace.push((self.now, packet.link, packet.to_server, packet.bytes.len(), packet.ecn));
        let now = self.now.since(Timestamp::START);
        let verdict = self.ports[packet.link][way].send(now, packet.bytes.len());
        if !verdict.fate.arrived() || self.down[packet.link] {
            return;
        }
        if self.held == Some(packet.link) {
            self.held_back.push(packet);
            return;
        }
        let copies = [Some(verdict.arrival), verdict.copy];
        for arrival in copies.into_iter().flatten() {
            self.order += 1;
            let InFlight { link, to_server, ecn, ref bytes } = packet;
            let copy = InFlight { link, to_server, ecn, bytes: bytes.clone() };
            self.in_flight.insert((Timestamp::START + arrival, self.order), copy);
        }
    }

    /// Delivers the datagrams that were held back.
    pub(super) fn let_go(&mut self) -> usize {
        self.held = None;
        let packets = std::mem::take(&mut self.held_back);
        let count = packets.len();
        packets.into_iter().for_each(|packet| self.arrive(packet));
        self.listen();
        count
    }

    /// Sends `length` bytes on a stream to the server, and at the same time as many back on the
    /// same stream. Checks that they arrive in order. Calls `act` with the number of bytes that the
    /// server has received.
    pub(super) fn exchange(&mut self, length: usize, act: impl FnMut(&mut Pair, usize)) {
        self.exchange_of([length; 2], act);
    }

    /// As [`Pair::exchange`], with a length for the bytes to the server and one for those to the
    /// client.
    pub(super) fn exchange_of(
        &mut self,
        lengths: [usize; 2],
        mut act: impl FnMut(&mut Pair, usize),
    ) {
        let id = self.client.open(Direction::Bidirectional).expect("streams are allowed");
        let mut server_id: Option<StreamId> = None;
        let data: Vec<u8> = (0..lengths[0].max(lengths[1])).map(byte).collect();
        let (mut written, mut read) = ([0; 2], [0; 2]);
        let mut finished = [false; 2];
        while finished != [true; 2] {
            let before = read;
            self.run_until(Duration::from_secs(60), |client, server| {
                server_id = server_id.or_else(|| server.accept(Direction::Bidirectional));
                for (at, end) in [client, server].into_iter().enumerate() {
                    if at == 1 && server_id.is_none() {
                        continue;
                    }
                    let (length, theirs) = (lengths[at], lengths[1 - at]);
                    if written[at] < length {
                        written[at] +=
                            end.streams().write(id, &data[written[at]..length]).unwrap_or(0);
                        if written[at] == length {
                            end.streams().finish(id).unwrap();
                        }
                    }
                    let mut buffer = [0; 8192];
                    loop {
                        match end.streams().read(id, &mut buffer) {
                            Ok(ReadOutcome::Bytes(count)) => {
                                let wanted = data.get(read[at]..read[at] + count);
                                assert_eq!(wanted, Some(&buffer[..count]), "other bytes");
                                read[at] += count;
                            }
                            Ok(ReadOutcome::Finished) => {
                                assert_eq!(read[at], theirs);
                                finished[at] = true;
                                break;
                            }
                            _ => break,
                        }
                    }
                }
                finished == [true; 2] || read != before
            });
            act(self, read[1]);
        }
    }
}
