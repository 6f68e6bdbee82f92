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
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use equic_sim::{FlowId, IpVersion, NodeId, Simulation};

use crate::{Lab, LabError, Namespace};
use engine::Engine;
pub use lateness::Lateness;

/// The most connections of an emulation: each has a port number of its own.
pub const MAX_CONNECTIONS: usize = 10_000;

/// Port number of the first connection's server; no host chooses one below 32768 for a client.
const FIRST_PORT: u16 = 10_000;

/// How hosts and their interfaces are set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// MTU of the hosts' interfaces in bytes: the smallest of the network, so that no packet is too large on its way.
    pub mtu: u32,
    /// Initial congestion window of TCP in segments; none: the kernel's.
    pub initial_window: Option<u32>,
    /// Least time of TCP's retransmission timer beyond the round trip; none: the kernel's.
    pub min_rto: Option<Duration>,
}

/// A network with its hosts, before its time begins.
pub struct Emulation {
    engine: Engine,
    hosts: Vec<Namespace>,
    ends: Vec<Ends>,
    ip: IpVersion,
}

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
}

/// Counters of an emulation that has ended.
pub struct Report {
    /// The network with its counters.
    pub run: Simulation,
    /// Of each connection the packets from its client, and those from its server.
    pub flows: Vec<(FlowId, FlowId)>,
    /// How late packets were at their hosts, measured by the clock.
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
    /// [`LabError::Plan`] if the lab is too small or there are too many connections, others if the system refuses.
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
        let hosts: Vec<Namespace> = all.into_iter().take(numbers.len()).collect();
        let ip = run.topology().ip;
        let tuns = hosts
            .iter()
            .enumerate()
            .map(|(number, host)| tun::make(host, address(ip, number), prefix(ip), settings));
        let tuns = tuns.collect::<Result<_, _>>()?;
        let mut engine = Engine::new(run, tuns);
        let mut ends = Vec::new();
        for (index, (client, server)) in connections.iter().enumerate() {
            let port = FIRST_PORT + index as u16;
            let places = Ends { client: numbers[client], server: numbers[server], port };
            engine
                .connect((*client, *server), places)
                .map_err(|error| LabError::Plan(error.to_string()))?;
            ends.push(places);
        }
        Ok(Emulation { engine, hosts, ends, ip })
    }

    /// The client's host of a connection, counted from 0, and an address to send from.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn client(&self, connection: usize) -> (&Namespace, SocketAddr) {
        let ends = self.ends[connection];
        (&self.hosts[ends.client], SocketAddr::new(address(self.ip, ends.client), 0))
    }

    /// The server's host of a connection, counted from 0, and the address to listen at. What goes elsewhere is not
    /// carried.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn server(&self, connection: usize) -> (&Namespace, SocketAddr) {
        let ends = self.ends[connection];
        (&self.hosts[ends.server], SocketAddr::new(address(self.ip, ends.server), ends.port))
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
        Ok(Live { start, stop, thread: Some(thread) })
    }
}

impl Live {
    /// The moment at which the network's time began.
    pub fn start(&self) -> Instant {
        self.start
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

/// Address of a host on its interface: of the range for benchmarks (RFC 2544), or of a unique local prefix (RFC 4193).
fn address(ip: IpVersion, host: usize) -> IpAddr {
    // A lab has at most 251 hosts.
    match ip {
        IpVersion::V4 => Ipv4Addr::new(198, 18, host as u8, 1).into(),
        IpVersion::V6 => Ipv6Addr::new(0xfd65, 0x7175, 0x6964, host as u16, 0, 0, 0, 1).into(),
    }
}

/// The prefix of all hosts.
fn prefix(ip: IpVersion) -> &'static str {
    match ip {
        IpVersion::V4 => "198.18.0.0/16",
        IpVersion::V6 => "fd65:7175:6964::/48",
    }
}
