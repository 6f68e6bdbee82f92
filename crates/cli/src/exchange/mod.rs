//! Plugins over the connection: those that `equic serve` and `equic get` offer to their peers, and those that they take.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use equic_endpoint::{Extension, Hooks};
use equic_gateway::parse_duration;
use equic_plugin::exchange::{
    Bytecode, ExchangeConfig, ExchangeHook, FolderCache, Listener, Progress, Push, Update,
};
use equic_plugin::{Origin, Policy};
use equic_quic::NewConnection;
use serde::Serialize;
use tokio::sync::Notify;

use crate::failure::{Done, Failure};

/// Plugins that are offered, and those that are taken.
#[derive(Args)]
pub(crate) struct ExchangeArgs {
    /// Offer this plugin (.qplug) to the peer of each connection; it may be given more than once
    #[arg(long, value_name = "FILE")]
    push: Vec<PathBuf>,
    /// Hold stream data back until the peer has said what becomes of these plugins, for so long at most (1s)
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, requires = "push")]
    push_hold: Option<Duration>,
    /// Take plugins that the peer offers, as far as this policy (TOML) lets them
    #[arg(long, value_name = "POLICY")]
    accept_plugins: Option<PathBuf>,
    /// Keep plugins that were taken in this folder, so that they are not fetched again
    #[arg(long, value_name = "DIR", requires = "accept_plugins")]
    plugin_cache: Option<PathBuf>,
}

/// A plugin as it stands, for people and JSON.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Standing {
    /// Address of the peer.
    pub(crate) peer: String,
    /// Side that offered it: `own` or `peer`.
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
    /// Whether it has run on this connection.
    pub(crate) ran: bool,
    /// Reason for which it does not run, in words.
    pub(crate) reason: Option<String>,
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
        let way = if self.by == "own" { "to" } else { "of" };
        let cached = if self.cached { ", from the cache" } else { "" };
        // A peer's words, and what is wrong with a peer's bundle, may hold anything.
        let reason = self.reason.as_ref().map(|why| format!(": {}", equic_quic::printable(why)));
        let reason = reason.unwrap_or_default();
        format!("plugin {name} {way} {}: {}{cached}{reason}", self.peer, self.state)
    }
}

/// Callback for every change of a plugin's standing, called while its connection is locked.
type Teller = Arc<dyn Fn(&Standing) + Send + Sync>;

/// Listener for the exchange on one connection.
fn listener(peer: String, tell: Teller) -> Listener {
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

impl ExchangeArgs {
    /// The extension for connections; none: no plugins are wanted. `server` is the name of the only server, whose
    /// plugins may be kept.
    pub(crate) fn extension(
        &self,
        server: Option<&str>,
        tell: impl Fn(&Standing) + Send + Sync + 'static,
    ) -> Done<Option<Extension>> {
        if self.push.is_empty() && self.accept_plugins.is_none() {
            return Ok(None);
        }
        let config = self.config(server)?;
        let (parameters, tell): (_, Teller) = (vec![config.parameter()], Arc::new(tell));
        let hooks = Hooks::new(move |connection: &mut NewConnection<'_>| {
            let mut config = config.clone();
            let peer = connection.remote_address().to_string();
            config.listener = Some(listener(peer, Arc::clone(&tell)));
            let attach = |hook, points: &[_], frames: &[_]| {
                connection.attach_with_frames(hook, points, frames)
            };
            if let Err(error) = ExchangeHook::attach(Arc::new(config), attach) {
                tracing::warn!(%error, "a connection without plugins");
            }
        });
        Ok(Some(Extension { parameters, hooks }))
    }

    fn config(&self, server: Option<&str>) -> Done<ExchangeConfig> {
        let mut config = ExchangeConfig::new(Bytecode);
        config.hold = self.push_hold.unwrap_or_default();
        for file in &self.push {
            let what = |error: &dyn std::fmt::Display| {
                Failure::because(format_args!("cannot push {}", file.display()), error)
            };
            let bytes = fs::read(file).map_err(|error| what(&error))?;
            config.push.push(Arc::new(Push::new(&bytes).map_err(|error| what(&error))?));
        }
        if let Some(file) = &self.accept_plugins {
            let what = |error: &dyn std::fmt::Display| {
                Failure::because(format_args!("cannot read the policy {}", file.display()), error)
            };
            let text = fs::read_to_string(file).map_err(|error| what(&error))?;
            config.policy = Some(Policy::parse(&text).map_err(|error| what(&error))?);
        }
        if let Some(folder) = &self.plugin_cache {
            let server = server.ok_or_else(|| {
                Failure::usage(
                    "--plugin-cache keeps plugins of each server apart: give URLs of one server",
                )
            })?;
            let cache = FolderCache::open(folder, server).map_err(|error| {
                Failure::because(format_args!("cannot keep plugins in {}", folder.display()), error)
            })?;
            config.cache = Some(Arc::new(cache));
        }
        Ok(config)
    }
}
