//! A network of `equic-sim` in real time, between programs on the hosts of a lab.
//!
//! Each end of a connection is on a host with its own TUN interface, whose other side is in this
//! process. Packets that the host sends to this interface enter the simulated network. When they
//! leave the network, they are written to another host's interface. The code of the simulator
//! implements links, queues, delay and loss. The hosts can run any program, with the kernel's
//! sockets.
//!
//! [`Emulation::prepare`] creates the interfaces, [`Emulation::begin`] starts the time, and
//! [`Live::stop`] ends it.
//!
//! * `tun.rs`: interfaces; `packet.rs`: packet headers; `tap.rs`: where packets enter and leave the
//!   network;
//! * `engine.rs`: the thread that runs the network; `lateness.rs`: how well the thread keeps up
//!   with the clock.
//!
//! The kernel's `netem` is not used, because it has other queues and another model of loss, and
//! cannot drop the packets of a given list. Interfaces are TUN devices, because these carry whole
//! IP packets of any protocol. A raw socket on a veth interface would receive batches of segments
//! (GSO).

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

/// Maximum number of connections of an emulation. Each has its own port number.
pub const MAX_CONNECTIONS: usize = 10_000;

/// Server port of the first connection. Ephemeral client ports begin at 32768.
const FIRST_PORT: u16 = 10_000;

/// Settings of hosts and their interfaces.
#[derive(Clone, Debug)]
pub struct Settings {
    /// MTU of the hosts' interfaces in bytes. It must be the smallest MTU of the simulated network,
    /// so that no packet is too large for a link.
    pub mtu: u32,
    /// Initial congestion window of TCP in segments, or `None` for the kernel's default.
    pub initial_window: Option<u32>,
    /// Minimum that TCP's retransmission timeout adds to the round-trip time, or `None` for the
    /// kernel's default.
    pub min_rto: Option<Duration>,
    /// Number of interfaces per host: 1 or 2. With 2, each interface uses the link with the same
    /// index of the host's node. With 1, the network's routes choose the link.
    pub interfaces: u16,
}

/// A network with its hosts, before its time is started.
pub struct Emulation {
    engine: Engine,
    hosts: Vec<Namespace>,
    ends: Vec<Ends>,
    ip: IpVersion,
    losses: Losses,
}

/// For each host, how many of its next packets must be dropped.
type Losses = Arc<[AtomicU64]>;

/// The hosts at both ends of a connection, and the server's port.
#[derive(Clone, Copy)]
struct Ends {
    /// Index of the client's host; `server` has the index of the server's host.
    client: usize,
    server: usize,
    port: u16,
}

/// A running network, which has its own thread. Dropping the value ends the network.
#[derive(Debug)]
pub struct Live {
    start: Instant,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Report, LabError>>>,
    /// Index of the client's host, by connection.
    clients: Vec<usize>,
    losses: Losses,
}

/// Results of an emulation that has ended.
pub struct Report {
    /// The simulated network with its counters.
    pub run: Simulation,
    /// For each connection: the flows of the packets from its client, and from its server.
    pub flows: Vec<(FlowId, FlowId)>,
    /// Delay of each packet's real delivery after its emulated delivery, measured with the real
    /// clock.
    pub lateness: Lateness,
    /// Number of packets from hosts that belonged to no connection and were dropped. The kernel
    /// sends such packets, for example ICMP.
    pub strangers: u64,
}

impl Emulation {
    /// Returns the number of hosts, including the server, that a lab needs for connections between
    /// these nodes.
    pub fn hosts_for(connections: &[(NodeId, NodeId)]) -> usize {
        numbered(connections).len().max(2)
    }

    /// Assigns a host of the lab, with its interfaces, to each client and server node.
    /// An entry of `connections` is the node of a client and the node of its server. `run` is the network
    /// without agents.
    ///
    /// # Errors
    /// Fails with [`LabError::Plan`] if the lab is too small, if there are too many connections, or
    /// if a host does not have exactly one link for each of its interfaces. Fails with other errors
    /// if a system call fails.
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

    /// Returns the host of a connection's client, and an address to send from. Connections are
    /// counted from 0.
    ///
    /// # Panics
    /// Panics if there is no such connection.
    pub fn client(&self, connection: usize) -> (&Namespace, SocketAddr) {
        let ends = self.ends[connection];
        (&self.hosts[ends.client], SocketAddr::new(address(self.ip, ends.client, 0), 0))
    }

    /// Returns the address of a connection's client on one of its interfaces. Connections and
    /// interfaces are counted from 0.
    ///
    /// # Panics
    /// Panics if there is no such connection.
    pub fn client_address(&self, connection: usize, interface: u16) -> IpAddr {
        address(self.ip, self.ends[connection].client, interface)
    }

    /// Returns the host of a connection's server, and the address to listen on. Connections are
    /// counted from 0. Packets to other addresses are dropped.
    ///
    /// # Panics
    /// Panics if there is no such connection.
    pub fn server(&self, connection: usize) -> (&Namespace, SocketAddr) {
        let ends = self.ends[connection];
        (&self.hosts[ends.server], SocketAddr::new(address(self.ip, ends.server, 0), ends.port))
    }

    /// Returns the simulated network, so that the caller can add background traffic.
    pub fn network(&mut self) -> &mut Simulation {
        &mut self.engine.run
    }

    /// Returns the hosts that have an interface.
    pub fn hosts(&self) -> &[Namespace] {
        &self.hosts
    }

    /// Starts the network's time.
    ///
    /// # Errors
    /// Fails with [`LabError::System`] if the thread cannot be started.
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
    /// Returns the start time of the network.
    pub fn start(&self) -> Instant {
        self.start
    }

    /// Drops the next `packets` packets that the client of a connection sends, before they reach
    /// any queue.
    ///
    /// # Panics
    /// Panics if there is no such connection.
    pub fn lose(&self, connection: usize, packets: u64) {
        self.losses[self.clients[connection]].store(packets, Ordering::Relaxed);
    }

    /// Returns whether the emulation ended before [`Live::stop`] was called, because of an error.
    /// `stop` returns this error.
    pub fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends the emulation and returns its results.
    ///
    /// # Errors
    /// Returns the error that ended the emulation early, if there was one.
    pub fn stop(mut self) -> Result<Report, LabError> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            _ => Err(LabError::system(
                "emulate the network",
                std::io::Error::other("the thread of the emulation panicked"),
            )),
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The value was dropped without `stop`, so the report is not needed.
            let _ = thread.join();
        }
    }
}

/// Numbers the hosts of the nodes, in the order in which the connections name them.
fn numbered(connections: &[(NodeId, NodeId)]) -> HashMap<NodeId, usize> {
    let mut numbers = HashMap::new();
    for node in connections.iter().flat_map(|(client, server)| [*client, *server]) {
        let next = numbers.len();
        numbers.entry(node).or_insert(next);
    }
    numbers
}

/// Maximum number of interfaces of a host.
const MAX_INTERFACES: u16 = 2;

/// Checks that each host with several interfaces has exactly one link for each.
fn check_interfaces(
    run: &Simulation,
    mut nodes: impl Iterator<Item = NodeId>,
    interfaces: u16,
) -> Result<(), LabError> {
    let differs = |node: NodeId| run.topology().links(node) != usize::from(interfaces);
    let many = interfaces == 0 || interfaces > MAX_INTERFACES;
    if many || (interfaces > 1 && nodes.any(differs)) {
        let message = format!(
            "a host has {interfaces} interfaces, but its node in the network has a different number of links"
        );
        return Err(LabError::Plan(message));
    }
    Ok(())
}

/// Returns the address of a host on one of its interfaces, from the range for benchmarks (RFC 2544)
/// or a unique local prefix (RFC 4193).
fn address(ip: IpVersion, host: usize, interface: u16) -> IpAddr {
    // The address has room for both numbers: a lab has at most 251 hosts, and a host at most two
    // interfaces.
    match ip {
        IpVersion::V4 => Ipv4Addr::new(198, 18 + interface as u8, host as u8, 1).into(),
        IpVersion::V6 => {
            Ipv6Addr::new(0xfd65, 0x7175, 0x6964 + interface, host as u16, 0, 0, 0, 1).into()
        }
    }
}

/// Returns the prefix that contains the addresses of all interfaces with this index.
fn prefix(ip: IpVersion, interface: u16) -> String {
    match ip {
        IpVersion::V4 => format!("198.{}.0.0/16", 18 + interface),
        IpVersion::V6 => format!("fd65:7175:{:x}::/48", 0x6964 + interface),
    }
}
