//! The part of a socket's task that others use: its clock, and its list of work.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Instant;

use equic_transport::{DatagramMeta, Timestamp};

use crate::memory::SendMemory;

/// Maximum number of datagrams from other sockets of the endpoint that wait for the task. Further
/// ones are dropped.
const MAX_FORWARDED: usize = 256;

/// A handle of a socket's task. `C` is the type of a connection.
pub(crate) struct DriverHandle<C> {
    start: Instant,
    work: Mutex<Work<C>>,
    /// Limits the data that the connections of the endpoint have waiting.
    pub send_memory: SendMemory,
}

/// Work for the next run of the task.
struct Work<C> {
    connections: Vec<Arc<C>>,
    forwarded: VecDeque<ForwardedDatagram>,
    task: Option<Waker>,
    /// True if the task has ended.
    dead: bool,
}

/// A datagram that another socket of the endpoint has received.
pub(crate) struct ForwardedDatagram {
    pub arrival: DatagramMeta,
    pub bytes: Vec<u8>,
}

impl<C> DriverHandle<C> {
    /// Creates the handle of a task. `start` is the time that the clock of the endpoint counts
    /// from.
    pub(crate) fn new(start: Instant, send_memory: SendMemory) -> DriverHandle<C> {
        let work =
            Work { connections: Vec::new(), forwarded: VecDeque::new(), task: None, dead: false };
        DriverHandle { start, work: Mutex::new(work), send_memory }
    }

    pub(crate) fn now(&self) -> Timestamp {
        let nanos = Instant::now().saturating_duration_since(self.start).as_nanos();
        Timestamp::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Converts an endpoint's time to the system's clock. Returns `None` if it is out of the
    /// clock's range.
    pub(crate) fn instant(&self, at: Timestamp) -> Option<Instant> {
        self.start.checked_add(at - Timestamp::START)
    }

    fn work(&self) -> MutexGuard<'_, Work<C>> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Schedules a connection with the task.
    pub(crate) fn schedule(&self, connection: Arc<C>) {
        let task = {
            let mut work = self.work();
            if work.dead {
                return;
            }
            work.connections.push(connection);
            work.task.take()
        };
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Wakes the task.
    pub(crate) fn wake(&self) {
        let task = self.work().task.take();
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Adds a datagram that another socket has received for a connection of this socket.
    pub(crate) fn forward(&self, datagram: ForwardedDatagram) {
        let task = {
            let mut work = self.work();
            if work.dead || work.forwarded.len() == MAX_FORWARDED {
                return;
            }
            work.forwarded.push_back(datagram);
            work.task.take()
        };
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Takes the scheduled connections and the datagrams that other sockets have forwarded. Wakes
    /// `task` when more are added.
    pub(crate) fn take_work(
        &self,
        connections: &mut VecDeque<Arc<C>>,
        task: &Waker,
    ) -> VecDeque<ForwardedDatagram> {
        let mut work = self.work();
        connections.extend(work.connections.drain(..));
        match &mut work.task {
            Some(known) => known.clone_from(task),
            None => work.task = Some(task.clone()),
        }
        std::mem::take(&mut work.forwarded)
    }

    /// Drops the work, and accepts no more, because the task has ended.
    pub(crate) fn stop(&self) {
        let left = {
            let mut work = self.work();
            work.dead = true;
            std::mem::take(&mut work.connections)
        };
        // Dropping a connection may lock other things, so the list is unlocked first.
        drop(left);
    }
}
