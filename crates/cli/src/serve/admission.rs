//! Connects the QUIC endpoint's admission hooks to the server's ledger, the table in which the
//! gateway sees the server's connections. A server needs nothing else to be protected.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use equic_gateway::{Control, Guard, IpNet, Ledger, ListAction, Service};
use equic_http3::{Admission, Decision, Opened, Refused};

/// Counts the server's connections in its ledger. The gateway enforces the limits.
#[derive(Default)]
pub(super) struct GatewayAdmission {
    bound: OnceLock<Arc<Bound>>,
    refused: AtomicU64,
}

struct Bound {
    service: Service,
    exempt: Exemptions,
}

/// Place where the server looks up the sources that the gateway exempts from the quota.
pub(super) enum Exemptions {
    /// The deny and allow lists of a gateway whose maps this process can read.
    Lists(Box<Listed>),
    /// A ledger that was opened through the gateway's socket.
    Ledger(Ledger),
}

/// A gateway whose lists say which sources are exempt from the quota. The ledger's guard already
/// handles dry runs and the policy `strict`.
pub(super) struct Listed {
    control: Mutex<Control>,
    /// The ledger of this process. When the gateway is replaced, it moves to the next one.
    ledger: Option<Ledger>,
}

impl GatewayAdmission {
    /// Sets the service whose connections are counted. Without this call, none are counted.
    pub(super) fn bind(&self, service: Service, exempt: Exemptions) {
        // A second call would be a bug in this command. The first value stays.
        let _ = self.bound.set(Arc::new(Bound { service, exempt }));
    }

    /// Returns the number of connections that were refused after their handshake. When the
    /// handshake started, there was room in the quota, but other connections have filled it since.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

impl Admission for GatewayAdmission {
    fn incoming(&self, _peer: SocketAddr) -> Decision {
        // Accept all attempts, because the gateway has already dropped the packets of those that it
        // refuses.
        Decision::Accept
    }

    fn opened(&self, peer: SocketAddr) -> Result<Box<dyn Opened>, Refused> {
        let Some(bound) = self.bound.get() else { return Ok(Box::new(Uncounted)) };
        let guard = bound.service.opened(peer);
        if guard.over_limit() && !bound.exempt.cover(peer) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(full(&bound.service, peer, "the client's address"));
        }
        Ok(Box::new(Counted { guard, bound: Arc::clone(bound) }))
    }
}

/// Returns the refusal for a source that has reached its quota.
fn full(service: &Service, peer: SocketAddr, whose: &str) -> Refused {
    let reason =
        format!("{whose} has reached its quota of {} open connections", service.limit_for(peer));
    Refused::excessive_load(reason)
}

impl Exemptions {
    /// Returns the exemptions of a gateway whose maps this process can read. `ledger` is this
    /// process's ledger in that gateway.
    pub(super) fn of(control: Control, ledger: Option<Ledger>) -> Exemptions {
        let control = Mutex::new(control);
        Exemptions::Lists(Box::new(Listed { control, ledger }))
    }

    /// Returns whether a peer is exempt from the quota. Only called for connections above the
    /// quota.
    fn cover(&self, peer: SocketAddr) -> bool {
        match self {
            Exemptions::Ledger(ledger) => ledger.exempts(peer.ip()),
            Exemptions::Lists(listed) => listed.cover(peer),
        }
    }
}

impl Listed {
    /// Returns whether a peer is exempt. Looks up only its address, because the lists may be long.
    fn cover(&self, peer: SocketAddr) -> bool {
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(program) = self.ledger.as_ref().and_then(Ledger::program_id)
            && program != control.program_id()
            && let Ok(next) = Control::open(Some(&program.to_string()))
        {
            *control = next;
        }
        // If the gateway cannot be read, treat no source as exempt.
        let entry = control.listed(IpNet::from(peer.ip().to_canonical())).ok().flatten();
        entry.is_some_and(|entry| entry.action == ListAction::Allow)
    }
}

struct Counted {
    guard: Guard,
    bound: Arc<Bound>,
}

impl Opened for Counted {
    fn moved(&mut self, to: SocketAddr) -> Result<(), Refused> {
        if self.guard.try_moved(to) {
            return Ok(());
        }
        if !self.bound.exempt.cover(to) {
            return Err(full(&self.bound.service, to, "the client's new address"));
        }
        self.guard.moved(to);
        Ok(())
    }
}

struct Uncounted;

impl Opened for Uncounted {
    fn moved(&mut self, _to: SocketAddr) -> Result<(), Refused> {
        Ok(())
    }
}
