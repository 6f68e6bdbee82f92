//! The endpoint's hooks over the gateway's ledger: all a server does to be protected.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use equic_endpoint::{Admission, Decision, Opened, Refused};
use equic_gateway::{Control, Guard, IpNet, Ledger, ListAction, Service};

/// Time for which the gateway's lists are taken as they were last seen.
const FRESH: Duration = Duration::from_millis(250);

/// Counts connections in a gateway's ledger; the gateway does the rest.
#[derive(Default)]
pub(super) struct GatewayAdmission {
    bound: OnceLock<Bound>,
    refused: AtomicU64,
}

struct Bound {
    service: Service,
    exempt: Exemptions,
}

/// The means to find out which sources the gateway would not stop.
pub(super) enum Exemptions {
    /// From its lists, as they were a moment ago.
    Lists(Box<Listed>),
    /// From a ledger of its socket.
    Ledger(Ledger),
}

/// A gateway, and its lists as they were last seen.
pub(super) struct Listed {
    control: Mutex<Control>,
    /// Of this process, which may move to the next gateway.
    ledger: Option<Ledger>,
    seen: Mutex<Option<(Instant, Exempt)>>,
}

/// Whom the gateway would not stop, whatever the count says. (Dry runs and the policy `strict` are the
/// guard's own business.)
#[derive(Clone, Default)]
pub(super) struct Exempt {
    lists: Vec<(IpNet, ListAction)>,
}

impl GatewayAdmission {
    /// Says where to count; until then, and if it never happens, nobody is counted.
    pub(super) fn bind(&self, service: Service, exempt: Exemptions) {
        // Twice would be a mistake of this command; the first then holds.
        let _ = self.bound.set(Bound { service, exempt });
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
            let reason = format!("{} connections of your address are open", bound.service.limit());
            return Err(Refused::excessive_load(reason));
        }
        Ok(Box::new(Counted(guard)))
    }
}

impl Exemptions {
    /// Those of a gateway whose maps can be read; of the one that `ledger` is in.
    pub(super) fn of(control: Control, ledger: Option<Ledger>) -> Exemptions {
        let control = Mutex::new(control);
        Exemptions::Lists(Box::new(Listed { control, ledger, seen: Mutex::default() }))
    }

    /// Only asked about connections over the limit, so it may look into the gateway now and then.
    fn cover(&self, peer: SocketAddr) -> bool {
        let listed = match self {
            Exemptions::Ledger(ledger) => return ledger.exempts(peer.ip()),
            Exemptions::Lists(listed) => &**listed,
        };
        let mut seen = listed.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let exempt = match &mut *seen {
            Some((at, exempt)) if at.elapsed() < FRESH => exempt,
            stale => &mut stale.insert((Instant::now(), listed.read())).1,
        };
        exempt.covers(peer)
    }
}

impl Listed {
    fn read(&self) -> Exempt {
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(program) = self.ledger.as_ref().and_then(Ledger::program_id)
            && program != control.program_id()
            && let Ok(next) = Control::open(Some(&program.to_string()))
        {
            *control = next;
        }
        Exempt::of(&control)
    }
}

impl Exempt {
    fn of(control: &Control) -> Exempt {
        // A gateway that cannot be asked has no exemptions.
        let lists = control.lists().unwrap_or_default();
        Exempt { lists: lists.into_iter().map(|entry| (entry.prefix, entry.action)).collect() }
    }

    fn covers(&self, peer: SocketAddr) -> bool {
        let address = peer.ip().to_canonical();
        let longest = self
            .lists
            .iter()
            .filter(|(prefix, _)| prefix.contains(&address))
            .max_by_key(|(prefix, _)| prefix.prefix_len());
        longest.is_some_and(|(_, action)| matches!(action, ListAction::Allow))
    }
}

struct Counted(Guard);

impl Opened for Counted {
    fn moved(&mut self, to: SocketAddr) {
        self.0.moved(to);
    }
}

struct Uncounted;

impl Opened for Uncounted {
    fn moved(&mut self, _to: SocketAddr) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_decides() {
        let lists = [("192.0.2.0/24", ListAction::Allow), ("192.0.2.7/32", ListAction::Deny)]
            .map(|(prefix, action)| (prefix.parse().unwrap(), action));
        let exempt = Exempt { lists: lists.to_vec() };
        let covers = |peer: &str| exempt.covers(peer.parse().unwrap());
        assert!(covers("192.0.2.1:4") && covers("[::ffff:192.0.2.1]:4"));
        assert!(!covers("192.0.2.7:4") && !covers("198.51.100.1:4") && !covers("[2001:db8::1]:4"));
    }
}
