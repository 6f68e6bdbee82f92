//! A socket, which its task and the application share.
//!
//! Datagrams are sent with sendmsg and GSO, and received with recvmmsg and GRO. `make bench-kernel`
//! measures the kernel's other interfaces (io_uring, AF_XDP, MSG_ZEROCOPY). None of them saves 5 %
//! on every path.

use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Instant;

use equic_transport::{Connection, DatagramMeta, EcnCodepoint, Handle, SettingError, Timestamp};
use tokio::sync::Notify;

use crate::SocketIdGenerator;
use crate::cell::Cell;
use crate::config::Prepare;
use crate::crowd::Crowds;
use crate::error::ConnectionError;
use crate::incoming::Incoming;
#[cfg(feature = "qlog")]
use crate::log::Logs;
use crate::memory::SendMemory;
use crate::outlets::Local;
use crate::tokens::Tokens;
use crate::udp::{Outgoing, Udp};

/// Maximum number of datagrams from other sockets of the endpoint that wait for the task. Further
/// ones are dropped.
const MAX_PASSED: usize = 256;

pub(crate) struct Socket {
    inner: Mutex<Inner>,
    wake: Mutex<WakeList>,
    start: Instant,
    /// State that all sockets of the endpoint share.
    pub shared: Arc<Shared>,
}

/// State that all sockets of an endpoint share.
pub(crate) struct Shared {
    pub incoming: Mutex<IncomingQueue>,
    /// Notified when an attempt was added to the queue, or the queue was closed.
    pub arrived: Notify,
    /// Notified when a connection was removed.
    pub gone: Notify,
    /// Number of connections that a panic has ended.
    pub broken: AtomicU64,
    #[cfg(feature = "qlog")]
    pub logs: Logs,
    /// Tokens that servers have sent, for later connections to them.
    pub tokens: Arc<Tokens>,
    /// See [`EndpointConfig::give_tokens`](crate::EndpointConfig::give_tokens).
    pub gives_tokens: bool,
    /// See [`EndpointConfig::keep_tokens`](crate::EndpointConfig::keep_tokens).
    pub keeps_tokens: bool,
    /// See [`EndpointConfig::heed_unreachable`](crate::EndpointConfig::heed_unreachable).
    pub heeds_unreachable: bool,
    pub send_memory: SendMemory,
    /// Generates connection IDs that name their socket. `None` if there is one socket and no
    /// generator is configured.
    pub ids: Option<Arc<dyn SocketIdGenerator>>,
}

/// Connection attempts that the application has not taken yet: at most `max_incoming` for each
/// socket.
#[derive(Default)]
pub(crate) struct IncomingQueue {
    pub list: VecDeque<Incoming>,
    /// True if the application takes no more attempts.
    pub closed: bool,
    /// True if the application has taken an attempt, and other tasks have had no turn since.
    pub given: bool,
}

pub(crate) struct Inner {
    pub endpoint: equic_transport::Endpoint,
    /// The open connections, indexed by their handles.
    pub cells: Vec<Option<Arc<Cell>>>,
    /// Number of open connections.
    pub open: usize,
    pub udp: Arc<Udp>,
    /// Sockets of further local addresses.
    pub others: Arc<[Arc<Local>]>,
    /// Called with each new client's connection before its first packet.
    pub prepare: Option<Prepare>,
    /// The socket that was last replaced, and the time until which it still receives. `None` after
    /// that time.
    pub before: Option<(Arc<Udp>, Timestamp)>,
    pub timers: BTreeSet<(Timestamp, Handle)>,
    /// Connections, grouped by the address of their peer.
    pub crowds: Crowds,
    /// Client connections that have received no datagram, if ICMP errors can end them.
    pub unanswered: Vec<Handle>,
    /// True if the application has dropped the endpoint. The task then ends with the last
    /// connection.
    pub released: bool,
    /// True if the endpoint accepts clients. If not, and the endpoint was a server before, it
    /// refuses them.
    pub serving: bool,
    /// The error of a transport setting of the server that is out of range, if there is one.
    pub invalid: Option<SettingError>,
    /// True if the application has closed the endpoint. Then no connection can start.
    pub closed: bool,
    /// True if the task has ended.
    pub dead: bool,
}

#[derive(Default)]
struct WakeList {
    cells: Vec<Arc<Cell>>,
    passed: VecDeque<Passed>,
    task: Option<Waker>,
    /// True if the task has ended.
    dead: bool,
}

/// A datagram that another socket of the endpoint has received.
pub(crate) struct Passed {
    pub arrival: DatagramMeta,
    pub bytes: Vec<u8>,
}

impl Socket {
    pub(crate) fn new(
        endpoint: equic_transport::Endpoint,
        udp: Udp,
        prepare: Option<Prepare>,
        start: Instant,
        shared: Arc<Shared>,
    ) -> Arc<Socket> {
        let inner = Inner {
            endpoint,
            cells: Vec::new(),
            open: 0,
            udp: Arc::new(udp),
            others: Arc::default(),
            prepare,
            before: None,
            timers: BTreeSet::new(),
            crowds: Crowds::default(),
            unanswered: Vec::new(),
            released: false,
            serving: true,
            invalid: None,
            closed: false,
            dead: false,
        };
        Arc::new(Socket { inner: Mutex::new(inner), wake: Mutex::default(), start, shared })
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.timestamp(Instant::now())
    }

    fn timestamp(&self, at: Instant) -> Timestamp {
        let nanos = at.saturating_duration_since(self.start).as_nanos();
        Timestamp::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Converts an endpoint's time to the system's clock. Returns `None` if it is out of the
    /// clock's range.
    pub(crate) fn instant(&self, at: Timestamp) -> Option<Instant> {
        self.start.checked_add(at - Timestamp::START)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_list(&self) -> MutexGuard<'_, WakeList> {
        self.wake.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Schedules a connection with the task.
    pub(crate) fn touch(&self, cell: Arc<Cell>) {
        let task = {
            let mut list = self.wake_list();
            if list.dead {
                return;
            }
            list.cells.push(cell);
            list.task.take()
        };
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Wakes the task.
    pub(crate) fn wake(&self) {
        let task = self.wake_list().task.take();
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Adds a datagram that another socket has received for a connection of this socket.
    pub(crate) fn pass(&self, passed: Passed) {
        let task = {
            let mut list = self.wake_list();
            if list.dead || list.passed.len() == MAX_PASSED {
                return;
            }
            list.passed.push_back(passed);
            list.task.take()
        };
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Closes all connections and wakes all tasks that wait, because the socket's task ends.
    pub(crate) fn die(&self) {
        let left = {
            let mut list = self.wake_list();
            list.dead = true;
            std::mem::take(&mut list.cells)
        };
        drop(left);
        let mut inner = self.lock();
        inner.dead = true;
        inner.open = 0;
        inner.crowds = Crowds::default();
        let cells = std::mem::take(&mut inner.cells);
        drop(inner);
        for cell in cells.into_iter().flatten() {
            cell.lock().on_closed(ConnectionError::EndpointGone);
        }
        self.shared.gone.notify_waiters();
        // A socket without a task receives no more attempts.
        self.shared.close();
    }

    /// Takes the scheduled connections and the datagrams that other sockets passed on. Wakes the
    /// task when more are added.
    pub(crate) fn take_touched(
        &self,
        cells: &mut VecDeque<Arc<Cell>>,
        task: &Waker,
    ) -> VecDeque<Passed> {
        let mut list = self.wake_list();
        cells.extend(list.cells.drain(..));
        match &mut list.task {
            Some(known) => known.clone_from(task),
            None => list.task = Some(task.clone()),
        }
        std::mem::take(&mut list.passed)
    }

    /// Adds a new connection, and schedules it with the task.
    pub(crate) fn add(
        self: &Arc<Self>,
        inner: &mut Inner,
        handle: Handle,
        connection: Connection,
    ) -> Arc<Cell> {
        let cell = Cell::new(Arc::clone(self), connection, handle);
        if inner.cells.len() <= handle.0 {
            inner.cells.resize_with(handle.0 + 1, || None);
        }
        inner.cells[handle.0] = Some(Arc::clone(&cell));
        inner.open += 1;
        let mut state = cell.lock();
        inner.crowds.enter(&mut state);
        cell.touch(&mut state);
        drop(state);
        cell
    }

    /// Sends an answer that belongs to no connection. If the system is busy, the answer is lost.
    pub(crate) fn respond(udp: &Udp, arrival: DatagramMeta, bytes: &[u8]) {
        // The client sends its packet again if it gets no answer.
        let _ = udp.send(&Outgoing {
            destination: arrival.remote,
            source: arrival.local,
            ecn: EcnCodepoint::NotEct,
            bytes,
            segment: bytes.len(),
        });
    }
}

impl Inner {
    /// Adds a local address. Replaces an entry with the same address.
    pub(crate) fn add_local(&mut self, local: Local) {
        let differs = |other: &&Arc<Local>| other.address != local.address;
        let others: Vec<_> = self.others.iter().filter(differs).cloned().collect();
        self.others = others.into_iter().chain([Arc::new(local)]).collect();
    }

    /// Removes a local address. Returns `false` if it was not there.
    pub(crate) fn remove_local(&mut self, address: IpAddr) -> bool {
        let before = self.others.len();
        self.others = self.others.iter().filter(|l| l.address != address).cloned().collect();
        self.others.len() < before
    }

    /// Removes a connection that is closed.
    pub(crate) fn remove(&mut self, handle: Handle) -> Option<Arc<Cell>> {
        let cell = self.cells.get_mut(handle.0)?.take()?;
        self.endpoint.remove(handle);
        self.open -= 1;
        Some(cell)
    }
}
