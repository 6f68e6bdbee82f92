//! One connection's standing with the admission: opened, moved, closed.
//!
//! The address is looked at now and then. An address counts when it has proved itself: QUIC switches
//! to a new one at the first packet, before the client has shown that it receives there, and switches
//! back when no proof comes (RFC 9000 s.9.3). Each switch is counted as a move, so an address that
//! stays for longer than a validation may take, without another move, is the client's own.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::server::Opened;

pub(super) struct Presence {
    settle: Duration,
    state: Mutex<Option<State>>,
}

struct State {
    opened: Box<dyn Opened>,
    /// Address at which the admission counts the client.
    counted: SocketAddr,
    claim: Option<Claim>,
}

struct Claim {
    address: SocketAddr,
    since: Instant,
    moves: u64,
}

impl Presence {
    pub(super) fn new(opened: Box<dyn Opened>, peer: SocketAddr, settle: Duration) -> Self {
        let state = State { opened, counted: peer, claim: None };
        Self { settle, state: Mutex::new(Some(state)) }
    }

    /// Takes note of the connection's address and of how often it has moved so far;
    /// returns whether the admission was told of a move.
    pub(super) fn observe(&self, address: SocketAddr, moves: u64, now: Instant) -> bool {
        let mut state = self.lock();
        let Some(state) = state.as_mut() else { return false };
        if address == state.counted {
            state.claim = None;
            return false;
        }
        if address.ip() != state.counted.ip() && !self.settle.is_zero() {
            match &state.claim {
                Some(claim) if claim.address.ip() == address.ip() && claim.moves == moves => {
                    if now.saturating_duration_since(claim.since) < self.settle {
                        return false;
                    }
                }
                _ => {
                    state.claim = Some(Claim { address, since: now, moves });
                    return false;
                }
            }
        }
        state.opened.moved(address);
        state.counted = address;
        state.claim = None;
        true
    }

    /// The connection is closed: the guard goes, whoever else still holds the presence.
    pub(super) fn release(&self) {
        let state = self.lock().take();
        drop(state);
    }

    fn lock(&self) -> MutexGuard<'_, Option<State>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    struct Log(Arc<Mutex<Vec<SocketAddr>>>);

    impl Opened for Log {
        fn moved(&mut self, to: SocketAddr) {
            self.0.lock().unwrap().push(to);
        }
    }

    struct Bench {
        presence: Presence,
        moves: Arc<Mutex<Vec<SocketAddr>>>,
        start: Instant,
    }

    impl Bench {
        fn new() -> Self {
            let moves = Arc::default();
            let opened = Box::new(Log(Arc::clone(&moves)));
            let presence = Presence::new(opened, at("192.0.2.1:1"), Duration::from_secs(4));
            Self { presence, moves, start: Instant::now() }
        }

        fn observe(&self, address: &str, challenges: u64, seconds: u64) -> bool {
            let now = self.start + Duration::from_secs(seconds);
            self.presence.observe(at(address), challenges, now)
        }
    }

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_new_address_counts_when_it_has_settled() {
        let bench = Bench::new();
        assert!(!bench.observe("192.0.2.1:1", 0, 0));
        assert!(!bench.observe("198.51.100.1:1", 2, 1));
        assert!(!bench.observe("198.51.100.1:1", 2, 4));
        assert!(bench.observe("198.51.100.1:2", 2, 5));
        assert_eq!(*bench.moves.lock().unwrap(), [at("198.51.100.1:2")]);
    }

    #[test]
    fn a_new_port_counts_at_once() {
        let bench = Bench::new();
        assert!(bench.observe("192.0.2.1:2", 1, 0));
    }

    #[test]
    fn a_claim_that_is_renewed_without_proof_never_counts() {
        let bench = Bench::new();
        for second in 0..100 {
            assert!(!bench.observe("198.51.100.1:1", 1 + second / 3, second));
        }
        assert!(!bench.observe("192.0.2.1:1", 40, 100));
        assert!(!bench.observe("198.51.100.1:1", 40, 105));
        assert!(bench.moves.lock().unwrap().is_empty());
    }

    #[test]
    fn nothing_is_reported_after_the_close() {
        let bench = Bench::new();
        bench.presence.release();
        assert_eq!(Arc::strong_count(&bench.moves), 1, "the guard is dropped");
        assert!(!bench.observe("192.0.2.1:2", 1, 0));
    }
}
