//! The relay's thread: its sockets, the datagrams in flight, and the bindings of clients. A binding
//! is the socket that the server sees as the client's address.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use super::observe::Observer;
use super::socket::{BUFFER, Socket};
use equic_net::{Delivery, Fate, Link, Port};

use super::{Config, RebindTo, Record, RelayError, Report, Way};

/// Length of the IPv4 and UDP headers in bytes. They count towards the rate of a link.
const HEADERS: usize = 28;
/// Maximum time until the thread checks whether it must end.
const LOOK: Duration = Duration::from_millis(20);
/// Maximum number of sockets towards the server, because file descriptors are limited. A client
/// that moves to another address needs a further socket.
const MAX_BINDINGS: usize = 500;
/// Maximum number of datagrams in flight on a link without a queue limit.
const MAX_UNDER_WAY: usize = 1 << 16;

/// Identifies a client: its address, and the index of the relay's front that it sends to.
type Client = (SocketAddr, usize);

/// A socket towards the server. The server sees its address as the address of a client, at present
/// or in the past.
struct Binding {
    socket: Socket,
    client: Client,
}

struct Mapping {
    binding: usize,
    /// Time at which the client moves to another binding, or `None` if no move is planned.
    next_move: Option<Duration>,
    /// True if the time of the client's first move has been decided.
    settled: bool,
}

/// A datagram in flight. The order is by delivery time, then by arrival at the relay.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct UnderWay {
    at: Duration,
    number: u64,
    /// Index of the socket to send on: a binding if the datagram goes to the server, a front if it
    /// goes to the client.
    through: usize,
    way_to_server: bool,
    to: SocketAddr,
    ecn: u8,
    content: Vec<u8>,
}

pub(super) struct Engine {
    config: Config,
    fronts: Vec<Socket>,
    bindings: Vec<Binding>,
    clients: BTreeMap<Client, Mapping>,
    under_way: BinaryHeap<Reverse<UnderWay>>,
    to_server: Port,
    to_client: Port,
    observer: Observer,
    report: Report,
    kept: usize,
    number: u64,
    start: Instant,
}

/// Creates the simulated link for one direction of the relay.
fn port(link: &Link, seed: u64, way: Way) -> Port {
    // Use a different seed for each direction, so that the directions are independent.
    let seed = seed.rotate_left(1) ^ u64::from(way == Way::ToClient);
    Port::new(Link { overhead: link.overhead + HEADERS, ..link.clone() }, seed)
}

impl Engine {
    pub(super) fn new(config: Config) -> Result<Engine, RelayError> {
        let fronts = config.fronts.iter().map(|front| Socket::bind(*front));
        Ok(Engine {
            fronts: fronts.collect::<Result<_, _>>()?,
            bindings: Vec::new(),
            clients: BTreeMap::new(),
            under_way: BinaryHeap::new(),
            to_server: port(&config.to_server, config.seed, Way::ToServer),
            to_client: port(&config.to_client, config.seed, Way::ToClient),
            observer: Observer::default(),
            report: Report::default(),
            kept: 0,
            number: 0,
            start: Instant::now(),
            config,
        })
    }

    pub(super) fn fronts(&self) -> Result<Vec<SocketAddr>, RelayError> {
        Ok(self.fronts.iter().map(|front| front.local).collect())
    }

    pub(super) fn run(mut self, stop: &AtomicBool) -> Result<Report, RelayError> {
        let mut buffer = vec![0; BUFFER];
        while !stop.load(Ordering::Relaxed) {
            for ready in self.wait()? {
                self.read(ready, &mut buffer)?;
            }
            self.deliver();
        }
        self.report.counts = self.observer.finish();
        Ok(self.report)
    }

    /// Waits until a datagram arrives or must be sent. Returns the indices of readable sockets:
    /// fronts first, then bindings.
    fn wait(&self) -> Result<Vec<usize>, RelayError> {
        let sockets = self.fronts.iter().chain(self.bindings.iter().map(|b| &b.socket));
        let mut polled: Vec<PollFd<'_>> =
            sockets.map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)).collect();
        let due = self.under_way.peek().map(|Reverse(first)| first.at);
        let timeout = due.map_or(LOOK, |at| at.saturating_sub(self.start.elapsed()).min(LOOK));
        match ppoll(&mut polled, Some(TimeSpec::from_duration(timeout)), None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(std::io::Error::from(errno).into()),
        }
        let ready = |fd: &PollFd<'_>| fd.revents().is_some_and(|events| !events.is_empty());
        Ok(polled.iter().enumerate().filter(|(_, fd)| ready(fd)).map(|(at, _)| at).collect())
    }

    fn read(&mut self, ready: usize, buffer: &mut [u8]) -> Result<(), RelayError> {
        let mut came = Vec::new();
        let mut note = |from, ecn, content: &[u8]| came.push((from, ecn, content.to_vec()));
        if let Some(front) = self.fronts.get(ready) {
            front.receive(buffer, &mut note)?;
            for (from, ecn, content) in came {
                self.client_sent((from, ready), ecn, content)?;
            }
        } else if let Some(binding) = self.bindings.get(ready - self.fronts.len()) {
            binding.socket.receive(buffer, &mut note)?;
            for (from, ecn, content) in came {
                // Ignore datagrams from other senders: only the server may reach the client through
                // this socket.
                if from == self.config.server {
                    self.server_sent(ready - self.fronts.len(), ecn, content);
                }
            }
        }
        Ok(())
    }

    fn client_sent(&mut self, client: Client, ecn: u8, content: Vec<u8>) -> Result<(), RelayError> {
        let now = self.start.elapsed();
        let Some(binding) = self.binding_of(client, now)? else {
            self.observer.refused();
            return Ok(());
        };
        self.settle_move(client, now, &content);
        let seen_as = self.bindings.get(binding).map_or(client.0, |b| b.socket.local);
        let verdict = self.to_server.send(now, content.len());
        let to = self.config.server;
        self.enter(Way::ToServer, client, seen_as, (binding, to), ecn, content, now, verdict);
        Ok(())
    }

    fn server_sent(&mut self, number: usize, ecn: u8, content: Vec<u8>) {
        let now = self.start.elapsed();
        let Some(binding) = self.bindings.get(number) else { return };
        let (client, seen_as) = (binding.client, binding.socket.local);
        let mut verdict = self.to_client.send(now, content.len());
        if self.clients.get(&client).is_none_or(|mapping| mapping.binding != number) {
            verdict.fate = Fate::Unreachable;
        }
        let through = (client.1, client.0);
        self.enter(Way::ToClient, client, seen_as, through, ecn, content, now, verdict);
    }

    /// Records a datagram, and puts it on the link unless the link drops it.
    #[expect(clippy::too_many_arguments, reason = "all properties of a datagram")]
    fn enter(
        &mut self,
        way: Way,
        client: Client,
        seen_as: SocketAddr,
        (through, to): (usize, SocketAddr),
        ecn: u8,
        content: Vec<u8>,
        now: Duration,
        mut verdict: Delivery,
    ) {
        if verdict.fate.arrived() && self.under_way.len() >= MAX_UNDER_WAY {
            verdict.fate = Fate::QueueFull;
        }
        self.observer.saw(way, client.0, verdict.fate, ecn, &content);
        let arrivals = [Some(verdict.arrival), verdict.copy].into_iter().flatten();
        for at in arrivals.filter(|_| verdict.fate.arrived()) {
            let mut content = content.clone();
            if let Some(corruption) = verdict.corruption {
                corruption.apply(&mut content);
            }
            self.number += 1;
            self.under_way.push(Reverse(UnderWay {
                at,
                number: self.number,
                through,
                way_to_server: way == Way::ToServer,
                to,
                ecn,
                content,
            }));
        }
        if self.kept + content.len() <= self.config.keep {
            self.kept += content.len();
            self.report.records.push(Record {
                sent: now,
                arrived: verdict.arrival,
                way,
                client: client.0,
                front: client.1,
                seen_as,
                ecn,
                fate: verdict.fate,
                payload: content,
            });
        } else if self.config.keep > 0 {
            self.observer.not_kept();
        }
    }

    fn deliver(&mut self) {
        let now = self.start.elapsed();
        while self.under_way.peek().is_some_and(|Reverse(first)| first.at <= now) {
            let Some(Reverse(due)) = self.under_way.pop() else { return };
            let socket = if due.way_to_server {
                self.bindings.get(due.through).map(|binding| &binding.socket)
            } else {
                self.fronts.get(due.through)
            };
            if socket.is_none_or(|socket| !socket.send(due.to, due.ecn, &due.content)) {
                self.observer.unsent();
            }
        }
    }

    /// Returns the index of the client's current binding, or `None` if no more bindings can be
    /// created.
    fn binding_of(&mut self, client: Client, now: Duration) -> Result<Option<usize>, RelayError> {
        let rebind = self.config.rebind;
        let moved = match self.clients.get(&client) {
            Some(Mapping { binding, next_move, .. }) => {
                if next_move.is_none_or(|at| now < at) {
                    return Ok(Some(*binding));
                }
                true
            }
            None => false,
        };
        if self.bindings.len() >= MAX_BINDINGS {
            return Ok(self.clients.get(&client).map(|mapping| mapping.binding));
        }
        let source = self.next_source(moved);
        self.bindings.push(Binding { socket: Socket::bind(source)?, client });
        let binding = self.bindings.len() - 1;
        let every = rebind.and_then(|rebind| rebind.every).filter(|_| moved);
        let next_move = every.map(|every| now + every);
        self.clients.insert(client, Mapping { binding, next_move, settled: moved });
        if moved {
            self.observer.moved();
        }
        Ok(Some(binding))
    }

    /// Schedules the client's first move. A client must not move before the handshake is confirmed
    /// (RFC 9000 s.9), so the delay starts with the client's first datagram that does not begin
    /// with a long header.
    fn settle_move(&mut self, client: Client, now: Duration, content: &[u8]) {
        let Some(rebind) = self.config.rebind else { return };
        let long = content.first().is_some_and(|first| first & 0x80 != 0);
        if let Some(mapping) = self.clients.get_mut(&client).filter(|one| !one.settled && !long) {
            mapping.next_move = Some(now + rebind.first);
            mapping.settled = true;
        }
    }

    /// Returns the local address for the next socket towards the server.
    fn next_source(&self, moved: bool) -> SocketAddr {
        let server = self.config.server.ip();
        let address = match (self.config.rebind.map(|rebind| rebind.to), server) {
            (Some(RebindTo::Address), IpAddr::V4(_)) if moved => {
                // Addresses from 127.0.1.1 up. The range has room for MAX_BINDINGS addresses.
                let [_, _, high, low] =
                    u32::try_from(self.bindings.len()).unwrap_or(0).to_be_bytes();
                Ipv4Addr::new(127, 0, 1 + high, low.max(1)).into()
            }
            (_, IpAddr::V4(address)) if address.is_loopback() => Ipv4Addr::LOCALHOST.into(),
            (_, IpAddr::V4(_)) => Ipv4Addr::UNSPECIFIED.into(),
            (_, IpAddr::V6(address)) if address.is_loopback() => server,
            (_, IpAddr::V6(_)) => std::net::Ipv6Addr::UNSPECIFIED.into(),
        };
        SocketAddr::new(address, 0)
    }
}
