//! Exchange of plugins over connections: the plugins that `equic serve` and `equic get` offer to
//! their peers, and the plugins that they accept from them.
//!
//! * [`ExchangeArgs`] has the options, and creates the QUIC extension from them.
//! * `lists`: lists of plugins to offer, by the peer's address.
//! * `standing`: the state of each plugin. `writer` prints it to standard output without
//!   blocking a connection.

mod lines;
mod lists;
mod standing;
mod writer;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use equic_gateway::parse_duration;
use equic_http3::{Extension, Hooks};
use equic_plugin::exchange::{Bytecode, ExchangeConfig, ExchangeHook, FolderCache};
use equic_plugin::{Clock, Policy};
use equic_quic::NewConnection;

use crate::failure::{Failure, Result};
use crate::plugin::Tally;

pub use lines::Lines;
use lists::Lists;
pub use standing::{Standing, Standings};
use standing::{Teller, listener};
pub use writer::{Report, Writer};

/// Options for plugins that are offered, and for those that are accepted.
#[derive(Args)]
pub struct ExchangeArgs {
    /// Plugin (.qplug) to offer to the peer of each connection; may be given several times. A file
    /// NAME.toml has rules: a peer is offered the plugins of the first rule that matches its
    /// address, instead of the other plugins
    #[arg(long, value_name = "FILE", help_heading = "Plugins")]
    push: Vec<PathBuf>,
    /// Send no stream data until the peer has accepted or refused the offered plugins, for at most
    /// this time (1s)
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, help_heading = "Plugins")]
    push_hold: Option<Duration>,
    /// Policy (TOML): accept those plugins of the peer that the policy permits
    #[arg(long, value_name = "POLICY", help_heading = "Plugins")]
    accept_plugins: Option<PathBuf>,
    /// Directory in which accepted plugins are cached, so that they need not be fetched again
    #[arg(long, value_name = "DIR", requires = "accept_plugins", help_heading = "Plugins")]
    plugin_cache: Option<PathBuf>,
}

/// Says whose plugins a cache stores, or why no cache may be used.
pub enum CacheOf {
    /// The name of the peer: its authenticated name or its certificate. A server uses one name for
    /// all its clients.
    Peer(String),
    /// No cache may be used. Contains the reason.
    Nobody(&'static str),
}

impl ExchangeArgs {
    /// Returns the QUIC extension that exchanges plugins, or `None` if the options enable no
    /// exchange. `tally` counts the calls of plugins that run on this endpoint.
    pub fn extension(
        &self,
        cache: &CacheOf,
        tally: Option<&Tally>,
        tell: impl Fn(&Standing) + Send + Sync + 'static,
    ) -> Result<Option<Extension>> {
        let lists = Lists::read(&self.push)?;
        if lists.is_empty() && self.push_hold.is_some() {
            return Err(Failure::usage(
                "--push-hold has no effect without plugins to offer: add --push",
            ));
        }
        if lists.is_empty() && self.accept_plugins.is_none() {
            return Ok(None);
        }
        Ok(Some(extension(self.config(cache, tally)?, lists, Arc::new(tell))))
    }

    fn config(&self, cache: &CacheOf, tally: Option<&Tally>) -> Result<ExchangeConfig> {
        let mut config = match tally {
            Some(tally) => ExchangeConfig::new(tally.counting(Bytecode::default())),
            None => ExchangeConfig::new(Bytecode::default()),
        };
        config.hold = self.push_hold.unwrap_or_default();
        config.policy = self.accept_plugins.as_deref().map(policy).transpose()?;
        config.meter = Some(meter());
        if let Some(folder) = &self.plugin_cache {
            let peer = match cache {
                CacheOf::Peer(peer) => peer,
                CacheOf::Nobody(why) => {
                    let why = format!(
                        "--plugin-cache stores the plugins of each server separately: {why}"
                    );
                    return Err(Failure::usage(why));
                }
            };
            let cache = FolderCache::open(folder, peer).map_err(|error| {
                Failure::because(format_args!("cannot keep plugins in {}", folder.display()), error)
            })?;
            config.cache = Some(Arc::new(cache));
        }
        Ok(config)
    }
}

/// Returns the clock that measures how long the plugins of a peer run. This time is charged to the
/// peer.
fn meter() -> Clock {
    let start = Instant::now();
    Arc::new(move || u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

fn policy(file: &Path) -> Result<Policy> {
    let what = |error: &dyn std::fmt::Display| {
        Failure::because(format_args!("cannot read the policy {}", file.display()), error)
    };
    let text = equic_gateway::read_regular_text(file, equic_gateway::Config::MAX_BYTES)
        .map_err(|error| what(&error))?;
    Policy::parse(&text).map_err(|error| what(&error))
}

/// Wraps the plugin exchange as a QUIC extension, with the lists of plugins to offer.
fn extension(config: ExchangeConfig, lists: Lists, tell: Teller) -> Extension {
    let parameters = vec![config.parameter()];
    let hooks = Hooks::new(move |connection: &mut NewConnection<'_>| {
        let mut config = config.clone();
        let peer = connection.remote_address();
        // Show an IPv4 peer of a dual-stack socket as IPv4.
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        config.push = lists.of(peer.ip()).to_vec();
        config.listener = Some(listener(peer.to_string(), Arc::clone(&tell)));
        attach(config, connection);
    });
    Extension { parameters, hooks }
}

/// Returns the configuration of an exchange that offers the plugins `push` and accepts plugins of
/// any author. It grants every capability class that a policy may grant to `anyone`.
pub fn open_to_all(push: &[PathBuf]) -> Result<ExchangeConfig> {
    let mut config = ExchangeConfig::new(Bytecode::default());
    config.policy = Some(Policy::parse("anyone = [\"observe\", \"tune\", \"frames\"]")?);
    config.push = Lists::read(push)?.usual().to_vec();
    config.meter = Some(meter());
    Ok(config)
}

/// Attaches the plugin exchange to a connection.
pub fn attach(mut config: ExchangeConfig, connection: &mut NewConnection<'_>) {
    config.peer = Some(connection.remote_address().ip());
    let attach =
        |hook, points: &[_], frames: &[_]| connection.attach_with_frames(hook, points, frames);
    if let Err(error) = ExchangeHook::attach(Arc::new(config), attach) {
        tracing::warn!(%error, "plugins could not be attached to a connection");
    }
}
