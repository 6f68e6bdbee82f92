//! If a socket's task panics while it works for a connection, only that connection ends.
//!
//! The state of such a connection may be inconsistent. Only the accessors that the application
//! calls still read or write it. The connection is removed without a notice to the peer. The
//! endpoint answers the peer's next packet with a stateless reset (RFC 9000 s.10.3).
//!
//! Connections share only their routes, timers and bottleneck groups. These are cleaned up as for
//! every connection that ends. This crate and the transport have no `unsafe` code, so an
//! inconsistent state cannot break memory safety.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::ConnectionError;
use crate::shared::{SharedConnection, State};
use crate::socket::{Inner, Socket};

/// INTERNAL_ERROR (RFC 9000 s.20.1).
const INTERNAL_ERROR: u64 = 0x1;

/// Calls a function. Returns `None` if the function panicked. In that case, the panic hook has
/// already reported the panic.
pub(crate) fn contain<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

impl Inner {
    /// Ends a connection after the task has panicked while it worked for this connection.
    pub(crate) fn break_off(&mut self, socket: &Socket, conn: &Arc<SharedConnection>) {
        let mut state = conn.lock();
        let handle = state.handle;
        if std::mem::replace(&mut state.removed, true) {
            return;
        }
        tracing::error!(
            handle = handle.0,
            "a panic ended this connection; other connections continue"
        );
        if let Some(timer) = state.timer.take() {
            self.timers.remove(&(timer, handle));
        }
        self.unanswered.retain(|one| *one != handle);
        // This accesses the connection's state, so it may panic, too.
        let _ = contain(|| {
            let State { connection, membership, .. } = &mut *state;
            self.bottlenecks.leave(connection, membership);
        });
        socket.shared.send_memory.update(&mut state.counted, 0);
        state.on_closed(panicked());
        drop(state);
        self.remove(handle);
        socket.shared.broken.fetch_add(1, Ordering::Relaxed);
        socket.shared.gone.notify_waiters();
    }
}

fn panicked() -> ConnectionError {
    let reason = "a panic in this process ended the connection: please report it".to_owned();
    ConnectionError::Transport { code: INTERNAL_ERROR, reason }
}
