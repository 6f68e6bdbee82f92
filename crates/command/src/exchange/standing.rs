//! State of plugins on connections, as the listeners of the plugin exchange report it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use equic_plugin::Origin;
use equic_plugin::exchange::{Listener, Progress, Update};
use serde::Serialize;
use tokio::sync::Notify;

use crate::plugin::Counts;

/// State of a plugin, for text output and JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Standing {
    /// Address of the peer.
    pub peer: String,
    /// Side that offered the plugin: `own` or `peer`, or `local` for a plugin that was given with
    /// `--plugin`.
    pub by: &'static str,
    /// Number of the offer, or `None` if the plugin was not offered.
    pub offer: Option<u64>,
    /// SHA-256 of the plugin's bundle.
    pub hash: String,
    /// Name of the plugin in its manifest, or `None` if the manifest was not read.
    pub name: Option<String>,
    /// Version of the plugin in its manifest, or `None` if the manifest was not read.
    pub version: Option<String>,
    /// `offered`, `not offered`, `fetched`, `active`, or the name of the final status.
    pub state: String,
    /// True if the bundle was in the cache and did not have to be fetched.
    pub cached: bool,
    /// True if the plugin was active on this connection at any time, even if it no longer is.
    pub ran: bool,
    /// Why the plugin does not run, in words, or `None` if it runs.
    pub reason: Option<String>,
    /// Number of connections on which the plugin failed, or to which it could not be attached. Only
    /// for a `local` plugin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failures: Option<u64>,
    /// Calls of the plugin on this endpoint, over all connections. `None` if it never ran here, or
    /// if calls are not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counters: Option<Counts>,
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

    /// Returns whether both values belong to the same offer.
    fn is(&self, other: &Standing) -> bool {
        let of = |one: &Standing| (one.by, one.offer);
        self.peer == other.peer && of(self) == of(other) && self.hash == other.hash
    }

    /// Returns whether the outcome of the offer is known.
    pub fn is_settled(&self) -> bool {
        !matches!(&*self.state, "offered" | "fetched")
    }

    /// Returns whether the plugin has ended, or will never run.
    fn is_over(&self) -> bool {
        self.is_settled() && self.state != "active"
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

    /// Formats the state as a line of text.
    pub fn line(&self) -> String {
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
        // Reasons come from peers or from bundles of peers, and may contain any characters.
        let reason = self.reason.as_ref().map(|why| format!(": {}", equic_quic::printable(why)));
        let reason = reason.unwrap_or_default();
        let counters = self.counters.map(|Counts { calls, answers, frames }| {
            format!(" ({calls} calls, {answers} answered, {frames} frames)")
        });
        let counters = counters.unwrap_or_default();
        format!("plugin {name}{whose}: {}{cached}{counters}{reason}", self.state)
    }
}

/// Callback for every change of a plugin's state. It is called while the connection is locked, so
/// it must not block.
pub(super) type Teller = Arc<dyn Fn(&Standing) + Send + Sync>;

/// Offers of one connection that have not ended.
#[derive(Default)]
struct Open(Vec<Standing>);

impl Open {
    /// Applies an update, and returns the new state of the plugin. An offer that has ended is
    /// removed, because no update follows, and because a peer can make many offers that end at
    /// once.
    fn on_update(&mut self, peer: &str, update: &Update) -> Standing {
        let new = Standing::of(peer, update);
        let known = self.0.iter().rposition(|one| one.is(&new));
        let mut standing = known.map_or(new, |at| self.0.remove(at));
        standing.on_update(update);
        if !matches!(update.progress, Progress::Over(..)) {
            self.0.push(standing.clone());
        }
        standing
    }
}

/// Returns a listener for the exchange on one connection.
pub(super) fn listener(peer: String, tell: Teller) -> Listener {
    let open = Mutex::new(Open::default());
    Arc::new(move |update: &Update| {
        let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
        tell(&open.on_update(&peer, update));
    })
}

/// Maximum number of ended plugins of peers that [`Standings`] keeps. If there are more, they are
/// only counted.
const MAX_OVER: usize = 64;

/// State of the plugins on all connections of a command. The command must have few connections.
#[derive(Clone, Default)]
pub struct Standings {
    kept: Arc<Mutex<Kept>>,
    changed: Arc<Notify>,
}

#[derive(Default)]
struct Kept {
    /// States of the plugins, in the order in which they were first reported.
    all: Vec<Standing>,
    /// Number of entries in `all` that are plugins of peers and have ended.
    over: usize,
    /// Number of plugins of peers that have ended and are not in `all`, because it was full.
    left_out: u64,
}

impl Standings {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the current state of all plugins, in the order in which they were first reported.
    pub fn all(&self) -> Vec<Standing> {
        self.kept().all.clone()
    }

    /// Returns the number of ended plugins of peers that [`Standings::all`] does not contain.
    pub fn left_out(&self) -> u64 {
        self.kept().left_out
    }

    /// Waits until the outcome of each plugin is known, but no longer than `most`.
    pub async fn settled(&self, most: Duration) {
        let settle = async {
            loop {
                // Register before checking the plugins. Otherwise, a change in between would be
                // missed.
                let changed = self.changed.notified();
                if self.kept().all.iter().all(Standing::is_settled) {
                    return;
                }
                changed.await;
            }
        };
        // A timeout is not an error: plugins without an outcome are reported in their current
        // state.
        let _ = tokio::time::timeout(most, settle).await;
    }

    /// Stores the new state of a plugin.
    pub fn set(&self, standing: &Standing) {
        self.kept().set(standing);
        self.changed.notify_one();
    }
}

impl Kept {
    fn set(&mut self, standing: &Standing) {
        let known = self.all.iter().rposition(|one| one.is(standing));
        let at = known.unwrap_or_else(|| {
            self.all.push(standing.clone());
            self.all.len() - 1
        });
        self.all[at].clone_from(standing);
        // Only plugins of peers need a limit, because the user gives the plugins of this endpoint.
        if standing.by == "peer" && standing.is_over() {
            if self.over == MAX_OVER {
                self.all.remove(at);
                self.left_out += 1;
            } else {
                self.over += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use equic_plugin::exchange::{PluginId, Status};

    use super::*;

    fn update(by: Origin, number: u64, progress: Progress) -> Update {
        Update { id: Some(PluginId { by, number }), hash: [number as u8; 32], name: None, progress }
    }

    fn over() -> Progress {
        Progress::Over(Status::Refused, "not wanted".to_owned())
    }

    #[test]
    fn offers_that_are_over_are_reported_and_forgotten() {
        let mut open = Open::default();
        open.on_update("peer", &update(Origin::Peer, 1_000, Progress::Active));
        for number in 0..256 {
            open.on_update("peer", &update(Origin::Peer, number, Progress::Offered));
            let reported = open.on_update("peer", &update(Origin::Peer, number, over()));
            assert_eq!((reported.offer, &*reported.state), (Some(number), "refused"));
            assert_eq!(reported.reason.as_deref(), Some("not wanted"));
        }
        let left: Vec<Option<u64>> = open.0.iter().map(|one| one.offer).collect();
        assert_eq!(left, [Some(1_000)]);
        // The plugin was active and was then detached. `ran` must still be true.
        let reported = open.on_update("peer", &update(Origin::Peer, 1_000, over()));
        assert!(reported.ran && open.0.is_empty());
    }

    #[tokio::test]
    async fn standings_keep_some_that_are_over_and_count_the_others() {
        let standings = Standings::default();
        let mut open = Open::default();
        let mut tell = |update| standings.set(&open.on_update("peer", &update));
        tell(update(Origin::Peer, 0, Progress::Active));
        for number in 1..=300 {
            tell(update(Origin::Peer, number, Progress::Offered));
            tell(update(Origin::Peer, number, over()));
            tell(update(Origin::Own, number, Progress::Offered));
            tell(update(Origin::Own, number, over()));
        }
        let all = standings.all();
        let peers = all.iter().filter(|one| one.by == "peer").count();
        assert_eq!((peers, all.len() - peers, standings.left_out()), (1 + MAX_OVER, 300, 236));
        assert!(all[0].ran && all[0].state == "active");
        // No plugin that has ended is awaited, so this returns at once.
        standings.settled(Duration::from_secs(3_600)).await;
    }
}
