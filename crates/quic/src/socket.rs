//! A socket, which its task and the application share.
//!
//! Datagrams are sent with sendmsg and GSO, and received with recvmmsg and GRO. `make bench-kernel`
//! measures the kernel's other interfaces (io_uring, AF_XDP, MSG_ZEROCOPY). None of them saves 5 %
//! on every path.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use equic_transport::{Connection, DatagramMeta, EcnCodepoint, Handle, SettingError, Timestamp};

use crate::bottleneck::BottleneckGroups;
use crate::driver_handle::DriverHandle;
use crate::endpoint_shared::EndpointShared;
use crate::error::ConnectionError;
use crate::memory::SendMemory;
use crate::new_connection::Prepare;
use crate::send_sockets::LocalSocket;
use crate::sendmsg::Outgoing;
use crate::shared::{SharedConnection, State};
use crate::udp::Udp;

pub(crate) struct Socket {
    inner: Mutex<Inner>,
    /// The socket's task.
    pub driver: Arc<DriverHandle<SharedConnection>>,
    pub shared: Arc<EndpointShared>,
}

pub(crate) struct Inner {
    pub endpoint: equic_transport::Endpoint,
    /// The open connections, indexed by their handles.
    pub connections: Vec<Option<Arc<SharedConnection>>>,
    /// Number of open connections.
    pub open: usize,
    pub udp: Arc<Udp>,
    /// Sockets of further local addresses.
    pub others: Arc<[Arc<LocalSocket>]>,
    /// Called with each new client's connection before its first packet.
    pub prepare: Option<Prepare>,
    /// The socket that was last replaced, and the time until which it still receives. `None` after
    /// that time.
    pub before: Option<(Arc<Udp>, Timestamp)>,
    pub timers: BTreeSet<(Timestamp, Handle)>,
    /// Connections, grouped by the address of their peer.
    pub bottlenecks: BottleneckGroups<SharedConnection>,
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

impl Socket {
    pub(crate) fn new(
        endpoint: equic_transport::Endpoint,
        udp: Udp,
        prepare: Option<Prepare>,
        start: Instant,
        shared: Arc<EndpointShared>,
    ) -> Arc<Socket> {
        let inner = Inner {
            endpoint,
            connections: Vec::new(),
            open: 0,
            udp: Arc::new(udp),
            others: Arc::default(),
            prepare,
            before: None,
            timers: BTreeSet::new(),
            bottlenecks: BottleneckGroups::default(),
            unanswered: Vec::new(),
            released: false,
            serving: true,
            invalid: None,
            closed: false,
            dead: false,
        };
        let driver = Arc::new(DriverHandle::new(start, shared.send_memory.clone()));
        Arc::new(Socket { inner: Mutex::new(inner), driver, shared })
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.driver.now()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes all connections and wakes all tasks that wait, because the socket's task ends.
    pub(crate) fn die(&self) {
        self.driver.stop();
        let mut inner = self.lock();
        inner.dead = true;
        inner.open = 0;
        inner.bottlenecks = BottleneckGroups::default();
        let connections = std::mem::take(&mut inner.connections);
        drop(inner);
        for conn in connections.into_iter().flatten() {
            conn.lock().on_closed(ConnectionError::EndpointGone);
        }
        self.shared.gone.notify_waiters();
    }

    /// Adds a new connection, and schedules it with the task.
    pub(crate) fn add(
        &self,
        inner: &mut Inner,
        handle: Handle,
        connection: Connection,
    ) -> Arc<SharedConnection> {
        let conn = SharedConnection::new(Arc::clone(&self.driver), connection, handle);
        if inner.connections.len() <= handle.0 {
            inner.connections.resize_with(handle.0 + 1, || None);
        }
        inner.connections[handle.0] = Some(Arc::clone(&conn));
        inner.open += 1;
        let mut state = conn.lock();
        let State { connection, membership, .. } = &mut *state;
        inner.bottlenecks.enter(connection, membership);
        conn.wake_driver(&mut state);
        drop(state);
        conn
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
    pub(crate) fn add_local(&mut self, local: LocalSocket) {
        let differs = |other: &&Arc<LocalSocket>| other.address != local.address;
        let others: Vec<_> = self.others.iter().filter(differs).cloned().collect();
        self.others = others.into_iter().chain([Arc::new(local)]).collect();
    }

    /// Removes a local address. Returns `false` if it was not there.
    pub(crate) fn remove_local(&mut self, address: IpAddr) -> bool {
        let before = self.others.len();
        self.others = self.others.iter().filter(|l| l.address != address).cloned().collect();
        self.others.len() < before
    }

    /// Ends the connection's part in what several connections share: the socket's timers, bottleneck
    /// groups, and the memory for data to send. The caller then [removes](Self::remove) the
    /// connection.
    pub(crate) fn retire(&mut self, state: &mut State, memory: &SendMemory) {
        state.removed = true;
        let State { connection, membership, counted, .. } = state;
        self.bottlenecks.leave(connection, membership);
        memory.update(counted, 0);
        if let Some(timer) = state.timer.take() {
            self.timers.remove(&(timer, state.handle));
        }
    }

    /// Removes a connection that is closed.
    pub(crate) fn remove(&mut self, handle: Handle) -> Option<Arc<SharedConnection>> {
        let conn = self.connections.get_mut(handle.0)?.take()?;
        self.endpoint.remove(handle);
        self.open -= 1;
        Some(conn)
    }
}
