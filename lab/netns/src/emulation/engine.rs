//! The thread that advances the simulated network's virtual time with the real clock.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use equic_sim::{AgentId, FlowId, NodeId, Simulation, Time, TopologyError};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use super::tap::{Outbox, Tap};
use super::{Ends, FIRST_PORT, Lateness, Losses, Report, packet};
use crate::LabError;

/// Maximum time until the thread checks whether it must end.
const LOOK: Duration = Duration::from_millis(20);
/// Number of packets read from one host before the next host's turn.
const TURN: usize = 64;
/// Size of the buffer in bytes. It is larger than any packet.
const BUFFER: usize = 1 << 16;

/// The two ends of a connection in the simulated network.
struct Taps {
    ends: Ends,
    client: AgentId,
    server: AgentId,
    flows: (FlowId, FlowId),
}

pub(super) struct Engine {
    /// TUN devices of the first host, then of the next one, and so on.
    tuns: Vec<File>,
    /// Number of interfaces per host.
    interfaces: u16,
    losses: Losses,
    pub(super) run: Simulation,
    /// The connections of the emulation, in the order of their ports.
    connections: Vec<Taps>,
    outbox: Outbox,
    lateness: Lateness,
    strangers: u64,
}

impl Engine {
    pub(super) fn new(run: Simulation, tuns: Vec<File>, interfaces: u16, losses: Losses) -> Engine {
        Engine {
            tuns,
            interfaces,
            losses,
            run,
            connections: Vec::new(),
            outbox: Outbox::default(),
            lateness: Lateness::default(),
            strangers: 0,
        }
    }

    /// Attaches both ends of a connection to their nodes in the simulated network.
    pub(super) fn connect(
        &mut self,
        (client, server): (NodeId, NodeId),
        ends: Ends,
    ) -> Result<(), TopologyError> {
        let run = &mut self.run;
        let ip = run.topology().ip;
        let (from, to) = (run.address(client)?, run.address(server)?);
        let flows = (run.flow(from, to)?, run.flow(to, from)?);
        let tap = |peer, flow, host| Tap::new(peer, flow, ip, host, Arc::clone(&self.outbox));
        let (client, server) = (tap(to, flows.0, ends.client), tap(from, flows.1, ends.server));
        let client = run.attach(from, Box::new(client));
        let server = run.attach(to, Box::new(server));
        self.connections.push(Taps { ends, client, server, flows });
        Ok(())
    }

    pub(super) fn run(mut self, start: Instant, stop: &AtomicBool) -> Result<Report, LabError> {
        be_punctual();
        let now = || Time::START + start.elapsed();
        let stuck = |error: equic_sim::Stuck| LabError::Plan(error.to_string());
        let mut buffer = vec![0; BUFFER];
        let mut ready = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            self.run.run(now()).map_err(stuck)?;
            self.hand_over(start)?;
            for tun in ready.drain(..) {
                self.run.run(now()).map_err(stuck)?;
                self.read(tun, &mut buffer)?;
            }
            self.hand_over(start)?;
            let due = self.run.next_event().map_or(LOOK, |at| at.since(now()).min(LOOK));
            self.wait(due, &mut ready)?;
        }
        self.run.run(now()).map_err(stuck)?;
        let flows = self.connections.iter().map(|one| one.flows).collect();
        Ok(Report { run: self.run, flows, lateness: self.lateness, strangers: self.strangers })
    }

    /// Waits until a host has sent packets, but for at most `most`. Stores the indices of the TUN
    /// devices with packets in `ready`.
    fn wait(&self, most: Duration, ready: &mut Vec<usize>) -> Result<(), LabError> {
        let mut polled: Vec<PollFd<'_>> =
            self.tuns.iter().map(|tun| PollFd::new(tun.as_fd(), PollFlags::POLLIN)).collect();
        match ppoll(&mut polled, Some(TimeSpec::from_duration(most)), None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(LabError::system("wait for packets", errno)),
        }
        let has = |fd: &PollFd<'_>| fd.revents().is_some_and(|events| !events.is_empty());
        ready.extend(polled.iter().enumerate().filter(|(_, fd)| has(fd)).map(|(tun, _)| tun));
        Ok(())
    }

    /// Reads the packets that a host has sent on one interface, and puts them into the network.
    fn read(&mut self, tun: usize, buffer: &mut [u8]) -> Result<(), LabError> {
        let several = usize::from(self.interfaces);
        let (host, link) = (tun / several, tun % several);
        // If the host has only one interface, the network's routes choose the link.
        let link = (several > 1).then_some(link as u16);
        for _ in 0..TURN {
            let length = match (&self.tuns[tun]).read(buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(LabError::system("read from a host's interface", error)),
            };
            let packet = &buffer[..length];
            let found = packet::read(packet)
                .and_then(|header| self.tap(host, header.ports).map(|tap| (tap, header.ecn)));
            match found {
                Some(_) if self.is_lost(host) => {}
                Some((tap, ecn)) => {
                    self.run.act::<Tap, _>(tap, |tap| tap.take(packet, ecn, link));
                }
                None => self.strangers += 1,
            }
        }
        Ok(())
    }

    /// Returns whether the next packet of a host must be dropped (see
    /// [`Live::lose`](super::Live::lose)).
    fn is_lost(&self, host: usize) -> bool {
        let left = |count: u64| count.checked_sub(1);
        self.losses[host].fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok()
    }

    /// Finds a packet's connection by the packet's ports. Returns the agent of the connection's end
    /// on this host.
    fn tap(&self, host: usize, (source, destination): (u16, u16)) -> Option<AgentId> {
        let find = |port: u16| self.connections.get(usize::from(port.checked_sub(FIRST_PORT)?));
        match find(destination).filter(|one| one.ends.client == host) {
            Some(connection) => Some(connection.client),
            None => find(source).filter(|one| one.ends.server == host).map(|one| one.server),
        }
    }

    /// Writes packets that have crossed the network to their hosts.
    fn hand_over(&mut self, start: Instant) -> Result<(), LabError> {
        let mut outbox = self.outbox.lock().unwrap_or_else(PoisonError::into_inner);
        for delivered in outbox.drain(..) {
            let interfaces = self.interfaces;
            let tun = match interfaces {
                1 => delivered.host,
                _ => delivered.host * usize::from(interfaces) + usize::from(delivered.link),
            };
            match (&self.tuns[tun]).write(&delivered.packet) {
                Ok(_) => {}
                // The kernel rejects a corrupted header. The packet is lost, as on a real link.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
                Err(error) => return Err(LabError::system("write to a host's interface", error)),
            }
            self.lateness.add(start.elapsed().saturating_sub(delivered.at.elapsed()));
        }
        Ok(())
    }
}

/// Asks the kernel for precise and prioritised wake-ups of this thread. Without permission, the
/// thread wakes up later. [`Lateness`] shows by how much.
fn be_punctual() {
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: prctl(2) with this option takes an integer. The structure that is passed to the other
    // call lives during the call.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1_000);
        libc::sched_setscheduler(0, libc::SCHED_RR, &raw const priority);
    }
}
