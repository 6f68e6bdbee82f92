//! The endpoint's hooks over the gateway's ledger: all a server does to be protected.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use equic_gateway::{Control, Guard, IpNet, Ledger, ListAction, Service};
use equic_http3::{Admission, Decision, Opened, Refused};

/// Counts connections in a gateway's ledger; the gateway does the rest.
#[derive(Default)]
pub(super) struct GatewayAdmission {
    bound: OnceLock<Arc<Bound>>,
    refused: AtomicU64,
}

struct Bound {
    service: Service,
    exempt: Exemptions,
}

/// The means to find out which sources the gateway would not stop.
pub(super) enum Exemptions {
    /// From its lists.
    Lists(Box<Listed>),
    /// From a ledger of its socket.
    Ledger(Ledger),
}

/// A gateway, to be asked whom it would not stop, whatever the count says. (Dry runs and the policy
/// `strict` are the guard's own business.)
pub(super) struct Listed {
    control: Mutex<Control>,
    /// Of this process, which may move to the next gateway.
    ledger: Option<Ledger>,
}

impl GatewayAdmission {
    /// Says where to count; until then, and if it never happens, nobody is counted.
    pub(super) fn bind(&self, service: Service, exempt: Exemptions) {
        // Twice would be a mistake of this command; the first then holds.
        let _ = self.bound.set(Arc::new(Bound { service, exempt }));
    }

    /// Connections refused after their handshake: they began before others filled the quota.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

impl Admission for GatewayAdmission {
    fn incoming(&self, _peer: SocketAddr) -> Decision {
        // What should not have come this far was dropped before the kernel saw it.
        Decision::Accept
    }

    fn opened(&self, peer: SocketAddr) -> Result<Box<dyn Opened>, Refused> {
        let Some(bound) = self.bound.get() else { return Ok(Box::new(Uncounted)) };
        let guard = bound.service.opened(peer);
        if guard.over_limit() && !bound.exempt.cover(peer) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(full(&bound.service, peer, "your address"));
        }
        Ok(Box::new(Counted { guard, bound: Arc::clone(bound) }))
    }
}

/// The source has as many connections as it may.
fn full(service: &Service, peer: SocketAddr, whose: &str) -> Refused {
    let reason = format!("{} connections of {whose} are open", service.limit_for(peer));
    Refused::excessive_load(reason)
}

impl Exemptions {
    /// Those of a gateway whose maps can be read; of the one that `ledger` is in.
    pub(super) fn of(control: Control, ledger: Option<Ledger>) -> Exemptions {
        let control = Mutex::new(control);
        Exemptions::Lists(Box::new(Listed { control, ledger }))
    }

    /// Only asked about connections over the limit.
    fn cover(&self, peer: SocketAddr) -> bool {
        match self {
            Exemptions::Ledger(ledger) => ledger.exempts(peer.ip()),
            Exemptions::Lists(listed) => listed.cover(peer),
        }
    }
}

impl Listed {
    /// Looks up one address: lists may be long.
    fn cover(&self, peer: SocketAddr) -> bool {
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(program) = self.ledger.as_ref().and_then(Ledger::program_id)
            && program != control.program_id()
            && let Ok(next) = Control::open(Some(&program.to_string()))
        {
            *control = next;
        }
        // A gateway that cannot be asked has no exemptions.
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
            return Err(full(&self.bound.service, to, "your new address"));
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
