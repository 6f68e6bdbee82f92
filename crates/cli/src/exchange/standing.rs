//! Plugins as they stand on connections, told by listeners of the exchange.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use equic_plugin::Origin;
use equic_plugin::exchange::{Listener, Progress, Update};
use serde::Serialize;
use tokio::sync::Notify;

use crate::plugin::Counts;

/// A plugin as it stands, for people and JSON.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Standing {
    /// Address of the peer.
    pub(crate) peer: String,
    /// Side that offered it: `own` or `peer`. `local` if it was not offered but given by `--plugin`.
    pub(crate) by: &'static str,
    /// Number of the offer; none: it was not offered.
    pub(crate) offer: Option<u64>,
    /// SHA-256 of its bundle.
    pub(crate) hash: String,
    /// Name by its manifest; none: the manifest was not read.
    pub(crate) name: Option<String>,
    /// Version by its manifest.
    pub(crate) version: Option<String>,
    /// `offered`, `not offered`, `fetched`, `active`, or the name of the status that it ended with.
    pub(crate) state: String,
    /// Whether its bundle was in the cache, so that nothing had to be fetched.
    pub(crate) cached: bool,
    /// True once it was active on this connection, even if it no longer is.
    pub(crate) ran: bool,
    /// Reason for which it does not run, in words.
    pub(crate) reason: Option<String>,
    /// Connections on which it failed, or to which it could not be attached; only of a `local` plugin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failures: Option<u64>,
    /// Its calls on this end, on all connections; left out if it never ran here, or if they are not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) counters: Option<Counts>,
}

impl Standing {
    fn of(peer: &str, update: &Update) -> Standing {
        let by = match update.id.map(|id| id.by) {
            Some(Origin::Peer) => "peer",
            _ => "own",
        };
        Standing {
            peer: peer.to_owned(),
            by,
            offer: update.id.map(|id| id.number),
            hash: update.hash.iter().map(|byte| format!("{byte:02x}")).collect(),
            name: None,
            version: None,
            state: String::new(),
            cached: false,
            ran: false,
            reason: None,
            failures: None,
            counters: None,
        }
    }

    /// Whether both are of the same offer.
    fn is(&self, other: &Standing) -> bool {
        let of = |one: &Standing| (one.by, one.offer);
        self.peer == other.peer && of(self) == of(other) && self.hash == other.hash
    }

    /// Whether it is settled what became of it, for now.
    pub(crate) fn is_settled(&self) -> bool {
        !matches!(&*self.state, "offered" | "fetched")
    }

    fn on_update(&mut self, update: &Update) {
        if let Some((name, version)) = &update.name {
            (self.name, self.version) = (Some(name.clone()), Some(version.to_string()));
        }
        self.state = match &update.progress {
            Progress::Offered => "offered".to_owned(),
            Progress::NotOffered(why) => {
                self.reason = Some(why.clone());
                "not offered".to_owned()
            }
            Progress::Cached => {
                self.cached = true;
                "fetched".to_owned()
            }
            Progress::Fetched => "fetched".to_owned(),
            Progress::Active => {
                self.ran = true;
                "active".to_owned()
            }
            Progress::Over(status, why) => {
                self.reason = Some(why.clone()).filter(|why| !why.is_empty());
                status.to_string()
            }
            _ => return,
        };
    }

    /// A line for people.
    pub(crate) fn line(&self) -> String {
        let name = match (&self.name, &self.version) {
            (Some(name), Some(version)) => format!("{name} {version}"),
            _ => self.hash.chars().take(16).collect(),
        };
        let whose = match self.by {
            "local" if self.peer.is_empty() => String::new(),
            "local" => format!(" on the connection with {}", self.peer),
            "own" => format!(" to {}", self.peer),
            _ => format!(" of {}", self.peer),
        };
        let cached = if self.cached { ", from the cache" } else { "" };
        // A peer's words, and what is wrong with a peer's bundle, may hold anything.
        let reason = self.reason.as_ref().map(|why| format!(": {}", equic_quic::printable(why)));
        let reason = reason.unwrap_or_default();
        let counters = self.counters.map(|Counts { calls, answers, frames }| {
            format!(" ({calls} calls, {answers} answered, {frames} frames)")
        });
        let counters = counters.unwrap_or_default();
        format!("plugin {name}{whose}: {}{cached}{counters}{reason}", self.state)
    }
}

/// Callback for every change of a plugin's standing, called while its connection is locked.
pub(super) type Teller = Arc<dyn Fn(&Standing) + Send + Sync>;

/// Listener for the exchange on one connection.
pub(super) fn listener(peer: String, tell: Teller) -> Listener {
    let all = Mutex::new(Vec::<Standing>::new());
    Arc::new(move |update: &Update| {
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        let new = Standing::of(&peer, update);
        let known = all.iter().rposition(|one| one.is(&new));
        let at = known.unwrap_or_else(|| {
            all.push(new);
            all.len() - 1
        });
        all[at].on_update(update);
        tell(&all[at]);
        // No update follows. A peer can make many offers that end at once.
        if matches!(update.progress, Progress::Over(..)) {
            all.remove(at);
        }
    })
}

/// Plugins of all connections, as they stand: for a command that has a few of these.
#[derive(Clone, Default)]
pub(crate) struct Standings {
    all: Arc<Mutex<Vec<Standing>>>,
    changed: Arc<Notify>,
}

impl Standings {
    /// As they stand now, in the order in which they were first heard of.
    pub(crate) fn all(&self) -> Vec<Standing> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until it is settled what became of each, for so long at most.
    pub(crate) async fn settled(&self, most: Duration) {
        let settle = async {
            loop {
                // Registered before the plugins are looked at, or a change in between would be missed.
                let changed = self.changed.notified();
                if self.all().iter().all(Standing::is_settled) {
                    return;
                }
                changed.await;
            }
        };
        // The limit is no error: plugins that are not settled are reported as they stand then.
        let _ = tokio::time::timeout(most, settle).await;
    }

    /// Remembers how a plugin stands.
    pub(crate) fn set(&self, standing: &Standing) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        match all.iter_mut().rev().find(|one| one.is(standing)) {
            Some(known) => known.clone_from(standing),
            None => all.push(standing.clone()),
        }
        drop(all);
        self.changed.notify_one();
    }
}
