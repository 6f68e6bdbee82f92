//! A network of `equic-sim` in real time, between programs on the hosts of a lab.
//!
//! Each end of a connection is on a host that has an interface of its own (TUN), whose other side is in this process:
//! packets that the host sends there enter the network, and are written to another host's interface when they have
//! come out of it. Links, queues, delay and loss are those of the simulator, in the same code; the ends are whatever
//! runs on the hosts, with the kernel's sockets below.
//!
//! [`Emulation::prepare`] makes the interfaces, [`Emulation::begin`] lets time run, [`Live::stop`] ends it.
//!
//! * `tun.rs`: interfaces; `packet.rs`: the headers of packets; `tap.rs`: where packets enter the network and leave it;
//! * `engine.rs`: the thread that drives it all; `lateness.rs`: how well it kept up with the clock.

mod engine;
mod lateness;
mod packet;
mod tap;
mod tun;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use equic_sim::{FlowId, IpVersion, NodeId, Simulation};

use crate::{Lab, LabError, Namespace};
use engine::Engine;
pub use lateness::Lateness;
use tun::Place;

/// The most connections of an emulation: each has a port number of its own.
pub const MAX_CONNECTIONS: usize = 10_000;

/// Port number of the first connection's server; no host chooses one below 32768 for a client.
const FIRST_PORT: u16 = 10_000;

/// Settings of hosts and their interfaces.
#[derive(Clone, Debug)]
pub struct Settings {
    /// MTU of the hosts' interfaces in bytes: the smallest of the network, so that no packet is too large on its way.
    pub mtu: u32,
    /// Initial congestion window of TCP in segments; none: the kernel's.
    pub initial_window: Option<u32>,
    /// Least time of TCP's retransmission timer beyond the round trip; none: the kernel's.
    pub min_rto: Option<Duration>,
    /// Interfaces of each host: 1 or 2. With two, each leads over the link of its node that has the same number, and
    /// a packet takes the link of the interface that it was sent by; with one, packets go as the network's routes say.
    pub interfaces: u16,
}

/// A network with its hosts, before its time begins.
pub struct Emulation {
    engine: Engine,
    hosts: Vec<Namespace>,
    ends: Vec<Ends>,
    ip: IpVersion,
    losses: Losses,
}

/// Of each host, the number of packets that are to be lost of those that it sends next.
type Losses = Arc<[AtomicU64]>;

/// Numbers of the hosts of a connection's ends, and its port.
#[derive(Clone, Copy)]
struct Ends {
    /// Numbers of the hosts.
    client: usize,
    server: usize,
    port: u16,
}

/// A network whose time runs, in a thread of its own. Dropping it ends it.
#[derive(Debug)]
pub struct Live {
    start: Instant,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Report, LabError>>>,
    /// Numbers of the clients' hosts, by connection.
    clients: Vec<usize>,
    losses: Losses,
}

/// Counters of an emulation that has ended.
pub struct Report {
    /// The network with its counters.
    pub run: Simulation,
    /// Of each connection the packets from its client, and those from its server.
    pub flows: Vec<(FlowId, FlowId)>,
    /// Delay of packets at their hosts beyond the emulated one, measured by the clock.
    pub lateness: Lateness,
    /// Packets of hosts that belonged to no connection, and were dropped: of the kernel itself, such as ICMP.
    pub strangers: u64,
}

impl Emulation {
    /// Number of hosts that a lab needs for connections between these nodes, its server among them.
    pub fn hosts_for(connections: &[(NodeId, NodeId)]) -> usize {
        numbered(connections).len().max(2)
    }

    /// Gives the ends of all connections, each from a client's node to a server's, a host of the lab with an interface.
    /// `run` is the network, in which nobody is yet.
    ///
    /// # Errors
    /// [`LabError::Plan`] if the lab is too small, there are too many connections, or a host has another number of links
    /// than interfaces; others if the system refuses.
    pub fn prepare(
        lab: &Lab,
        run: Simulation,
        connections: &[(NodeId, NodeId)],
        settings: &Settings,
    ) -> Result<Emulation, LabError> {
        let numbers = numbered(connections);
        let all: Vec<Namespace> =
            std::iter::once(lab.server()).chain(lab.clients()).cloned().collect();
        if numbers.len() > all.len() || connections.len() > MAX_CONNECTIONS {
            return Err(LabError::Plan(format!(
                "it has {} hosts, and an emulation of {} connections needs {}, of at most {MAX_CONNECTIONS}",
                all.len(),
                connections.len(),
                numbers.len()
            )));
        }
        check_interfaces(&run, numbers.keys().copied(), settings.interfaces)?;
        let hosts: Vec<Namespace> = all.into_iter().take(numbers.len()).collect();
        let ip = run.topology().ip;
        let mut tuns = Vec::new();
        for (number, host) in hosts.iter().enumerate() {
            for interface in 0..settings.interfaces {
                let place = Place {
                    interface,
                    address: address(ip, number, interface),
                    prefixes: (0..settings.interfaces).map(|other| prefix(ip, other)).collect(),
                };
                tuns.push(tun::make(host, &place, settings)?);
            }
        }
        let losses: Losses = hosts.iter().map(|_| AtomicU64::new(0)).collect();
        let mut engine = Engine::new(run, tuns, settings.interfaces, Arc::clone(&losses));
        let mut ends = Vec::new();
        for (index, (client, server)) in connections.iter().enumerate() {
            let port = FIRST_PORT + index as u16;
            let places = Ends { client: numbers[client], server: numbers[server], port };
            engine
                .connect((*client, *server), places)
                .map_err(|error| LabError::Plan(error.to_string()))?;
            ends.push(places);
        }
        Ok(Emulation { engine, hosts, ends, ip, losses })
    }

    /// The client's host of a connection, counted from 0, and an address to send from.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn client(&self, connection: usize) -> (&Namespace, SocketAddr) {
        let ends = self.ends[connection];
        (&self.hosts[ends.client], SocketAddr::new(address(self.ip, ends.client, 0), 0))
    }

    /// Address of a connection's client on one of its interfaces, counted from 0, to send from there.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn client_address(&self, connection: usize, interface: u16) -> IpAddr {
        address(self.ip, self.ends[connection].client, interface)
    }

    /// The server's host of a connection, counted from 0, and the address to listen at. What goes elsewhere is not
    /// carried.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn server(&self, connection: usize) -> (&Namespace, SocketAddr) {
        let ends = self.ends[connection];
        (&self.hosts[ends.server], SocketAddr::new(address(self.ip, ends.server, 0), ends.port))
    }

    /// The network, for other traffic in it.
    pub fn network(&mut self) -> &mut Simulation {
        &mut self.engine.run
    }

    /// Hosts that have an interface.
    pub fn hosts(&self) -> &[Namespace] {
        &self.hosts
    }

    /// Lets the network's time begin.
    ///
    /// # Errors
    /// [`LabError::System`] if the thread cannot be started.
    pub fn begin(self) -> Result<Live, LabError> {
        let stop = Arc::new(AtomicBool::new(false));
        let (engine, seen, start) = (self.engine, Arc::clone(&stop), Instant::now());
        let thread = std::thread::Builder::new()
            .name("emulation".into())
            .spawn(move || engine.run(start, &seen))
            .map_err(|error| LabError::system("start a thread", error))?;
        let clients = self.ends.iter().map(|ends| ends.client).collect();
        Ok(Live { start, stop, thread: Some(thread), clients, losses: self.losses })
    }
}

impl Live {
    /// The moment at which the network's time began.
    pub fn start(&self) -> Instant {
        self.start
    }

    /// Loses the next packets, so many, that the host of a connection's client sends, before they get to any queue.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn lose(&self, connection: usize, packets: u64) {
        self.losses[self.clients[connection]].store(packets, Ordering::Relaxed);
    }

    /// True if it has ended of itself: [`Live::stop`] says why.
    pub fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends it.
    ///
    /// # Errors
    /// It had ended before, with this error.
    pub fn stop(mut self) -> Result<Report, LabError> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            _ => Err(LabError::system("emulate", std::io::Error::other("the thread panicked"))),
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Nobody asked for its report.
            let _ = thread.join();
        }
    }
}

/// Numbers of hosts, by node, in the order in which connections name them.
fn numbered(connections: &[(NodeId, NodeId)]) -> HashMap<NodeId, usize> {
    let mut numbers = HashMap::new();
    for node in connections.iter().flat_map(|(client, server)| [*client, *server]) {
        let next = numbers.len();
        numbers.entry(node).or_insert(next);
    }
    numbers
}

/// The most interfaces of a host.
const MAX_INTERFACES: u16 = 2;

/// Each host has as many links as interfaces, if it has several of these.
fn check_interfaces(
    run: &Simulation,
    mut nodes: impl Iterator<Item = NodeId>,
    interfaces: u16,
) -> Result<(), LabError> {
    let differs = |node: NodeId| run.topology().links(node) != usize::from(interfaces);
    let many = interfaces == 0 || interfaces > MAX_INTERFACES;
    if many || (interfaces > 1 && nodes.any(differs)) {
        let message = format!("a host has {interfaces} interfaces, and its node not as many links");
        return Err(LabError::Plan(message));
    }
    Ok(())
}

/// Address of a host on one of its interfaces: of the ranges for benchmarks (RFC 2544), or of a unique local prefix
/// (RFC 4193).
fn address(ip: IpVersion, host: usize, interface: u16) -> IpAddr {
    // A lab has at most 251 hosts, and a host two interfaces.
    match ip {
        IpVersion::V4 => Ipv4Addr::new(198, 18 + interface as u8, host as u8, 1).into(),
        IpVersion::V6 => {
            Ipv6Addr::new(0xfd65, 0x7175, 0x6964 + interface, host as u16, 0, 0, 0, 1).into()
        }
    }
}

/// The prefix of all hosts' interfaces with this number.
fn prefix(ip: IpVersion, interface: u16) -> String {
    match ip {
        IpVersion::V4 => format!("198.{}.0.0/16", 18 + interface),
        IpVersion::V6 => format!("fd65:7175:{:x}::/48", 0x6964 + interface),
    }
}
