//! A socket, shared by its task and the application.
//!
//! Datagrams are sent with sendmsg and GSO, and received with recvmmsg and GRO. `make bench-kernel`
//! measures the kernel's other ways (io_uring, AF_XDP, MSG_ZEROCOPY). None of them saves 5 % on
//! every path.

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

/// Datagrams that other sockets of the endpoint passed on and that wait for the task; more are
/// dropped.
const MAX_PASSED: usize = 256;

pub(crate) struct Socket {
    inner: Mutex<Inner>,
    wake: Mutex<WakeList>,
    start: Instant,
    /// Shared by all sockets of an endpoint.
    pub shared: Arc<Shared>,
}

/// State that all sockets of an endpoint share.
pub(crate) struct Shared {
    pub incoming: Mutex<IncomingQueue>,
    /// Something was put into the queue, or it was closed.
    pub arrived: Notify,
    /// A connection is gone.
    pub gone: Notify,
    /// Number of connections that a panic has ended.
    pub broken: AtomicU64,
    #[cfg(feature = "qlog")]
    pub logs: Logs,
    /// Tokens that servers gave, for later connections to them.
    pub tokens: Arc<Tokens>,
    /// True if a server gives its clients tokens.
    pub gives_tokens: bool,
    /// True if a client keeps the tokens that servers give.
    pub keeps_tokens: bool,
    /// See [`EndpointConfig::heed_unreachable`](crate::EndpointConfig::heed_unreachable).
    pub heeds_unreachable: bool,
    pub send_memory: SendMemory,
    /// Makes connection IDs that name their socket; none where that is not needed.
    pub ids: Option<Arc<dyn SocketIdGenerator>>,
}

/// Attempts that the application has not looked at. At most `max_incoming` of each socket.
#[derive(Default)]
pub(crate) struct IncomingQueue {
    pub list: VecDeque<Incoming>,
    /// Nobody will look at them any more.
    pub closed: bool,
    /// The application was given one, and other tasks have had no turn since.
    pub given: bool,
}

pub(crate) struct Inner {
    pub endpoint: equic_transport::Endpoint,
    /// The open connections, indexed by their handles' numbers.
    pub cells: Vec<Option<Arc<Cell>>>,
    /// Number of open connections.
    pub open: usize,
    pub udp: Arc<Udp>,
    /// Sockets of further local addresses.
    pub others: Arc<[Arc<Local>]>,
    /// Looks at clients' connections before their first packet.
    pub prepare: Option<Prepare>,
    /// The socket that was replaced, and the time until which it still receives; none if none was.
    pub before: Option<(Arc<Udp>, Timestamp)>,
    pub timers: BTreeSet<(Timestamp, Handle)>,
    /// Connections by the address of their peer.
    pub crowds: Crowds,
    /// Connections of clients of which no datagram has come, where ICMP errors about them are heeded.
    pub unanswered: Vec<Handle>,
    /// The application has let go of the endpoint: the task ends with the last connection.
    pub released: bool,
    /// Clients are accepted. If not, and the endpoint was a server before, they are refused.
    pub serving: bool,
    /// Setting of the server's transport that is out of range.
    pub invalid: Option<SettingError>,
    /// The application has closed the endpoint: no connection can begin.
    pub closed: bool,
    /// The task is gone.
    pub dead: bool,
}

#[derive(Default)]
struct WakeList {
    cells: Vec<Arc<Cell>>,
    passed: VecDeque<Passed>,
    task: Option<Waker>,
    /// There is no task any more.
    dead: bool,
}

/// A datagram that came to another socket of the endpoint.
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

    /// The system's clock at a time of the endpoint; none if it is out of the clock's range.
    pub(crate) fn instant(&self, at: Timestamp) -> Option<Instant> {
        self.start.checked_add(at - Timestamp::START)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_list(&self) -> MutexGuard<'_, WakeList> {
        self.wake.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the task look at a connection.
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

    /// Has the task look at everything.
    pub(crate) fn wake(&self) {
        let task = self.wake_list().task.take();
        if let Some(task) = task {
            task.wake();
        }
    }

    /// A datagram of one of this socket's connections came to another.
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

    /// The task ends: nothing is left for it any more, and whoever waits hears of it.
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

    /// Takes the connections that have to be looked at and the datagrams passed by other sockets.
    /// The task is woken when more come.
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

    /// A new connection, for the application and for the task.
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

    /// Sends an answer that belongs to no connection; if the system is busy it is lost.
    pub(crate) fn respond(udp: &Udp, arrival: DatagramMeta, bytes: &[u8]) {
        // Its sender asks again.
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
    /// Another local address; in the place of one that is the same.
    pub(crate) fn add_local(&mut self, local: Local) {
        let differs = |other: &&Arc<Local>| other.address != local.address;
        let others: Vec<_> = self.others.iter().filter(differs).cloned().collect();
        self.others = others.into_iter().chain([Arc::new(local)]).collect();
    }

    /// Nothing is sent from this address any more; true if it was there.
    pub(crate) fn remove_local(&mut self, address: IpAddr) -> bool {
        let before = self.others.len();
        self.others = self.others.iter().filter(|l| l.address != address).cloned().collect();
        self.others.len() < before
    }

    /// The connection is over.
    pub(crate) fn remove(&mut self, handle: Handle) -> Option<Arc<Cell>> {
        let cell = self.cells.get_mut(handle.0)?.take()?;
        self.endpoint.remove(handle);
        self.open -= 1;
        Some(cell)
    }
}
