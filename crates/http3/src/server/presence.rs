//! Notifies the admission exactly once when a connection opens, moves and closes.
//!
//! Only validated addresses of the client are reported. QUIC follows the first packet from a new
//! address (RFC 9000 s.9.3) before the address is validated, and that packet may be forged.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::server::{Opened, Refused};

/// Holds the value by which the admission counts an open connection. It is empty before the
/// admission counts the connection and after the connection is closed.
#[derive(Default)]
pub(super) struct Presence(Mutex<State>);

#[derive(Default)]
enum State {
    /// The admission does not count the connection yet, because the client's address is not
    /// validated or the handshake is not complete.
    #[default]
    Uncounted,
    Counted {
        opened: Box<dyn Opened>,
        /// Address under which the admission counts the client.
        at: SocketAddr,
    },
    Released,
}

impl Presence {
    /// Records that the admission counts the connection under this address. Drops `opened` if the
    /// connection is already closed.
    pub(super) fn count(&self, opened: Box<dyn Opened>, at: SocketAddr) {
        let mut state = self.lock();
        if matches!(*state, State::Uncounted) {
            *state = State::Counted { opened, at };
        }
    }

    /// Reports a validated address of the client to the admission. Returns `true` if it differs
    /// from the address under which the admission counted the connection before.
    ///
    /// # Errors
    /// Returns the admission's error if it has no room for the connection at the new address. The
    /// connection still counts toward its old address.
    pub(super) fn moved(&self, to: SocketAddr) -> Result<bool, Refused> {
        match &mut *self.lock() {
            State::Counted { opened, at } if *at != to => {
                opened.moved(to)?;
                *at = to;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Drops the value by which the admission counts a connection that was closed. This works even
    /// if other tasks still refer to the connection.
    pub(super) fn release(&self) {
        let state = std::mem::replace(&mut *self.lock(), State::Released);
        drop(state);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const FULL: &str = "198.51.100.9:1";

    struct Log(Arc<Mutex<Vec<SocketAddr>>>);

    impl Opened for Log {
        fn moved(&mut self, to: SocketAddr) -> Result<(), Refused> {
            if to == at(FULL) {
                return Err(Refused::excessive_load("full"));
            }
            self.0.lock().unwrap().push(to);
            Ok(())
        }
    }

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn counted() -> (Presence, Arc<Mutex<Vec<SocketAddr>>>) {
        let (presence, moves) = (Presence::default(), Arc::default());
        presence.count(Box::new(Log(Arc::clone(&moves))), at("192.0.2.1:1"));
        (presence, moves)
    }

    #[test]
    fn migration_is_reported_once() {
        let (presence, moves) = counted();
        assert_eq!(presence.moved(at("192.0.2.1:1")), Ok(false));
        assert_eq!(presence.moved(at("192.0.2.1:2")), Ok(true), "another port");
        assert_eq!(presence.moved(at("198.51.100.1:2")), Ok(true));
        assert_eq!(presence.moved(at("198.51.100.1:2")), Ok(false));
        assert_eq!(*moves.lock().unwrap(), [at("192.0.2.1:2"), at("198.51.100.1:2")]);
    }

    #[test]
    fn migration_that_is_refused_leaves_the_count_unchanged() {
        let (presence, moves) = counted();
        for _ in 0..2 {
            assert!(presence.moved(at(FULL)).is_err());
        }
        assert_eq!(presence.moved(at("192.0.2.1:1")), Ok(false), "it never left");
        assert!(moves.lock().unwrap().is_empty());
    }

    #[test]
    fn presence_is_not_reported_before_the_count_or_after_the_close() {
        let (presence, moves) = counted();
        presence.release();
        assert_eq!(Arc::strong_count(&moves), 1, "the guard is dropped");
        assert_eq!(presence.moved(at("192.0.2.1:2")), Ok(false));
        presence.count(Box::new(Log(Arc::clone(&moves))), at("192.0.2.1:1"));
        assert_eq!(Arc::strong_count(&moves), 1, "a closed connection is not counted");
        assert_eq!(Presence::default().moved(at("192.0.2.1:2")), Ok(false));
    }
}
