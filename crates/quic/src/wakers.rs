//! The tasks that wait for events of a connection and of its streams.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::task::{Context, Waker};

use equic_wire::{Direction, StreamId};

/// Events of a connection that an application's task can wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    Connected,
    /// The peer has opened a stream of this direction.
    Accept(Direction),
    /// The peer permits one more stream of this direction.
    Open(Direction),
    Datagrams,
    /// The queue has room for a datagram to send.
    Room,
    /// A path was opened or closed, or a datagram was received. The state of a path may have
    /// changed.
    Paths,
    /// The peer's last validated address may have changed.
    Address,
}

/// Tasks that wait for events of the connection. Usually there is at most one, so that a single
/// list takes less memory than one field for each event.
#[derive(Default)]
pub(crate) struct Wakers(Vec<(Wait, Waker)>);

impl Wakers {
    pub(crate) fn register(&mut self, wait: Wait, cx: &Context<'_>) {
        let is_it = |(own, waker): &(Wait, Waker)| *own == wait && waker.will_wake(cx.waker());
        if !self.0.iter().any(is_it) {
            // By default, a `Vec` would reserve room for four entries.
            self.0.reserve_exact(1);
            self.0.push((wait, cx.waker().clone()));
        }
    }

    /// Wakes the tasks that wait for an event. Returns `true` if there was one.
    pub(crate) fn wake(&mut self, wait: Wait) -> bool {
        if !self.0.iter().any(|(own, _)| *own == wait) {
            return false;
        }
        // The memory of the list is freed, because most connections never wait again.
        for (own, waker) in std::mem::take(&mut self.0) {
            if own == wait {
                waker.wake();
            } else {
                self.0.push((own, waker));
            }
        }
        true
    }

    /// Wakes all tasks, because the connection is closed and no event follows.
    pub(crate) fn wake_all(&mut self) {
        std::mem::take(&mut self.0).into_iter().for_each(|(_, waker)| waker.wake());
    }
}

pub(crate) fn register(place: &mut Option<Waker>, cx: &Context<'_>) {
    match place {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *place = Some(cx.waker().clone()),
    }
}

/// State of the streams for which the application has a handle.
pub(crate) type StreamMap = HashMap<StreamId, StreamState, BuildHasherDefault<StreamHasher>>;

/// Hashes stream IDs with one multiplication. The peer cannot cause collisions: streams have
/// consecutive numbers (RFC 9000 s.2.1), and our limit on streams bounds how many are open at a
/// time.
#[derive(Default)]
pub(crate) struct StreamHasher(u64);

impl Hasher for StreamHasher {
    fn finish(&self) -> u64 {
        // The map selects buckets by the lowest bits, but the highest bits of the product are the
        // best.
        self.0.swap_bytes()
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        // This is 2^64 divided by the golden ratio.
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// The state of a stream for which the application has a handle.
#[derive(Default)]
pub(crate) struct StreamState {
    /// Number of the stream's halves for which the application has a handle: 0 to 2.
    pub halves: u8,
    pub reader: Option<Waker>,
    pub writer: Option<Waker>,
    /// True if the peer has acknowledged all data of the stream.
    pub finished: bool,
    /// The error code of the peer's STOP_SENDING frame, or `None` if the peer sent none.
    pub stopped: Option<u64>,
}
