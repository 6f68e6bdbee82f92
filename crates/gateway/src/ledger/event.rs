//! Events about the gateway that a ledger counts for: it ended, or the ledger joined the next one.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::sync::{Mutex, lock};

/// An event about the gateway that a ledger counts for. Its `Display` is a line for a log.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum JoinEvent {
    /// The gateway ended. Until the ledger joins the next gateway, which happens automatically, no
    /// gateway reads it and no quota applies.
    Lost {
        /// The name of the gateway.
        gateway: String,
    },
    /// The gateway ended, and the next one cannot be joined. The ledger keeps trying to join it.
    Unreachable {
        /// The name of the gateway that ended.
        gateway: String,
        /// The reason that the next gateway cannot be joined.
        why: String,
    },
    /// The ledger joined the next gateway.
    Joined {
        /// The name of the next gateway.
        gateway: String,
        /// Time for which no gateway read the ledger.
        unheard: Duration,
        /// Number of open connections that the next gateway counts.
        connections: u64,
        /// True if the next gateway counts connections that were open before it was joined. False
        /// if it has longer source prefixes, or splits a group of services.
        carried: bool,
        /// Services of the previous gateway that the next gateway does not have. Their connections
        /// are not counted.
        missing: Vec<String>,
    },
}

impl fmt::Display for JoinEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JoinEvent::Lost { gateway } => write!(
                f,
                "gateway `{gateway}` has ended: the kernel does not enforce this server's quotas until the server has joined another gateway"
            ),
            JoinEvent::Unreachable { gateway, why } => {
                write!(
                    f,
                    "gateway `{gateway}` has ended, and this server cannot join another one: {why}"
                )
            }
            JoinEvent::Joined { gateway, unheard, connections, carried, missing } => {
                let unheard = unheard.as_secs_f64();
                write!(f, "joined gateway `{gateway}` after {unheard:.1} s without a gateway; ")?;
                match carried {
                    true if *connections == 1 => write!(f, "the gateway counts 1 open connection")?,
                    true => write!(f, "the gateway counts {connections} open connections")?,
                    false => {
                        write!(f, "the gateway does not count connections that were opened before")?
                    }
                }
                if !missing.is_empty() {
                    let missing = missing.join("`, `");
                    write!(
                        f,
                        "; it has no service `{missing}`, so connections of this service are not counted"
                    )?;
                }
                Ok(())
            }
        }
    }
}

type Listener = dyn Fn(&JoinEvent) + Send + Sync;

/// The application's callback for join events. `None` if it has not set one.
#[derive(Default)]
pub(crate) struct Listeners {
    listener: Mutex<Option<Arc<Listener>>>,
}

impl fmt::Debug for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listeners")
    }
}

impl Listeners {
    pub(crate) fn set(&self, listener: Arc<Listener>) {
        *lock(&self.listener) = Some(listener);
    }

    /// Logs an event and calls the application's callback.
    pub(crate) fn tell(&self, event: &JoinEvent) {
        tracing::warn!("{event}");
        // The callback is called without the lock, because it may replace itself.
        let listener = lock(&self.listener).clone();
        if let Some(listener) = listener {
            listener(event);
        }
    }
}

/// A period without a gateway: when it began, and which events about it were reported, so that each
/// is reported once.
#[derive(Debug, Default)]
pub(crate) struct Absence {
    since: Option<Instant>,
    lost: bool,
    unreachable: bool,
    passed_over: bool,
}

impl Absence {
    /// Records that the gateway is gone, unless that is already known.
    pub(crate) fn begins(&mut self) {
        let _ = self.since.get_or_insert_with(Instant::now);
    }

    /// Reports that the gateway is gone and no other gateway has been found yet.
    pub(crate) fn lost(&mut self, listeners: &Listeners, gateway: &str) {
        if !std::mem::replace(&mut self.lost, true) {
            listeners.tell(&JoinEvent::Lost { gateway: gateway.to_owned() });
        }
    }

    /// Reports that another gateway may exist but cannot be joined.
    pub(crate) fn unreachable(&mut self, listeners: &Listeners, gateway: &str, why: String) {
        if !std::mem::replace(&mut self.unreachable, true) {
            let gateway = gateway.to_owned();
            listeners.tell(&JoinEvent::Unreachable { gateway, why });
        }
    }

    /// Logs once which other gateways were ignored, because their owners may expect this server to
    /// join them.
    pub(crate) fn passed_over(&mut self, gateway: &str, others: &[String]) {
        if !others.is_empty() && !std::mem::replace(&mut self.passed_over, true) {
            let others = others.join(", ");
            tracing::warn!(
                "searching for the successor of gateway `{gateway}`: ignored these gateways, which are \
                 on other interfaces or in other network namespaces: {others}"
            );
        }
    }

    /// Records that the ledger has a gateway again. Returns how long it had none.
    pub(crate) fn ends(&mut self) -> Duration {
        std::mem::take(self).since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Returns true if the loss of the gateway was reported.
    pub(crate) fn was_told(&self) -> bool {
        self.lost || self.unreachable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn join_event_text_names_gateway_gap_and_connections() {
        let told = |connections, millis| {
            let unheard = Duration::from_millis(millis);
            let (gateway, missing) = ("web".to_owned(), Vec::new());
            JoinEvent::Joined { gateway, unheard, connections, carried: true, missing }.to_string()
        };
        assert_eq!(
            told(1, 37_356),
            "joined gateway `web` after 37.4 s without a gateway; the gateway counts 1 open connection"
        );
        assert!(told(2, 0).ends_with("; the gateway counts 2 open connections"));
    }
}
