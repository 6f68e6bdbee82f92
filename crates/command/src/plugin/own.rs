//! Local plugins on the connections of a command. Each plugin is attached to each connection, its
//! calls are counted, and its failures are reported.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use equic_http3::Hooks;
use equic_plugin::Plugin;
use equic_plugin::exchange::{Accepted, Load, Loaded};
use equic_quic::NewConnection;
use equic_transport::operation::{
    Call, Decision, Hook, HookContext, HookError, HookEvent, Operation, Provided, ProvidedCall,
};
use serde::Serialize;

use crate::exchange::Standing;
use crate::failure::{Failure, Result};

/// Minimum time between two reports that the same plugin failed. This limits the output, because a
/// peer may be able to make the plugin fail on each connection.
const BETWEEN_REPORTS: Duration = Duration::from_secs(10);

/// Number of calls of a plugin's hook on one connection.
#[derive(Debug, Default)]
struct Counters {
    calls: AtomicU64,
    answers: AtomicU64,
    frames: AtomicU64,
}

/// Number of calls of a plugin in total, for text output and JSON.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Counts {
    /// Number of calls of the plugin's functions.
    pub calls: u64,
    /// Number of calls in which the plugin replaced an operation's default behaviour.
    pub answers: u64,
    /// Number of frames that the plugin wrote, of frame types that it defines itself.
    pub frames: u64,
}

/// Maps the hash of a plugin's bundle to the counters of its hooks, one for each connection.
type ByHash = HashMap<[u8; 32], Vec<Arc<Counters>>>;

/// Counts of each plugin's calls over all connections.
#[derive(Clone, Default)]
pub struct Tally(Arc<Mutex<ByHash>>);

impl Tally {
    fn new_counters(&self, hash: &[u8; 32]) -> Arc<Counters> {
        let counters = Arc::<Counters>::default();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(*hash).or_default().push(Arc::clone(&counters));
        counters
    }

    /// Returns the counts of the plugin whose bundle has this hash, or `None` if it was never
    /// loaded.
    pub fn of(&self, hash: &str) -> Option<Counts> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, found) = all.iter().find(|(known, _)| hex(*known) == hash)?;
        let mut sum = Counts::default();
        for one in found {
            sum.calls += one.calls.load(Ordering::Relaxed);
            sum.answers += one.answers.load(Ordering::Relaxed);
            sum.frames += one.frames.load(Ordering::Relaxed);
        }
        Some(sum)
    }

    /// Wraps a plugin loader so that this tally counts the calls of the hooks that it loads.
    pub fn counting(&self, load: impl Load + 'static) -> Counting {
        Counting { load: Box::new(load), tally: self.clone() }
    }
}

/// A loader for the plugins of an exchange, which also counts their calls.
pub struct Counting {
    load: Box<dyn Load>,
    tally: Tally,
}

impl Load for Counting {
    fn load(&self, plugin: &Accepted<'_>) -> Result<Loaded, String> {
        let Loaded { hook, points, frames } = self.load.load(plugin)?;
        let counters = self.tally.new_counters(plugin.hash);
        Ok(Loaded { hook: Box::new(Watched { hook, counters, failed: None }), points, frames })
    }

    fn is_ready(&self, plugin: &Accepted<'_>) -> bool {
        self.load.is_ready(plugin)
    }
}

fn hex(hash: &[u8]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Callback for the failure of a hook.
type Failed = Box<dyn FnMut(&HookError) + Send>;

/// A hook whose calls are counted and whose failure is reported.
struct Watched {
    hook: Box<dyn Hook>,
    counters: Arc<Counters>,
    failed: Option<Failed>,
}

impl Watched {
    fn called(&self) {
        self.counters.calls.fetch_add(1, Ordering::Relaxed);
    }

    fn watch<T>(&mut self, result: Result<T, HookError>) -> Result<T, HookError> {
        if let (Err(error), Some(failed)) = (&result, &mut self.failed) {
            failed(error);
        }
        result
    }
}

impl Hook for Watched {
    fn before(&mut self, host: &mut HookContext<'_>, call: &Call<'_>) -> Result<(), HookError> {
        self.called();
        let result = self.hook.before(host, call);
        self.watch(result)
    }

    fn replace(
        &mut self,
        host: &mut HookContext<'_>,
        call: &mut Call<'_>,
        outputs: &mut [u64],
    ) -> Result<Decision, HookError> {
        self.called();
        let result = self.hook.replace(host, call, outputs);
        if result == Ok(Decision::Done) {
            self.counters.answers.fetch_add(1, Ordering::Relaxed);
            let wrote = outputs.first().is_some_and(|length| *length > 0);
            if call.operation == Operation::WriteFrame && wrote {
                self.counters.frames.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.watch(result)
    }

    fn after(
        &mut self,
        host: &mut HookContext<'_>,
        call: &Call<'_>,
        outputs: &[u64],
    ) -> Result<(), HookError> {
        self.called();
        let result = self.hook.after(host, call, outputs);
        self.watch(result)
    }

    fn provides(&self) -> bool {
        self.hook.provides()
    }

    fn provide(
        &mut self,
        host: &mut HookContext<'_>,
        call: &ProvidedCall<'_>,
        outputs: &mut [u64],
    ) -> Result<Provided, HookError> {
        let result = self.hook.provide(host, call, outputs);
        if matches!(result, Ok(Provided::Done(_)) | Err(_)) {
            self.called();
        }
        self.watch(result)
    }

    fn on_event(&mut self, host: &mut HookContext<'_>, event: &HookEvent) -> Result<(), HookError> {
        let result = self.hook.on_event(host, event);
        self.watch(result)
    }

    fn memory(&self) -> usize {
        self.hook.memory()
    }
}

/// A local plugin and its results on all connections so far.
struct One {
    plugin: Plugin,
    hash: [u8; 32],
    /// Number of connections to which the plugin was attached.
    attached: u64,
    /// Number of connections on which the plugin failed, or to which it could not be attached.
    failed: u64,
    /// State of the plugin at its first failure, or `None` if it never failed.
    first: Option<Standing>,
    reported: Option<Instant>,
}

/// Callback for failures. It is called while a connection is locked, so it must not block.
pub type OnFailure = Arc<dyn Fn(&Standing) + Send + Sync>;

/// Local plugins on the connections of a command.
#[derive(Clone, Default)]
pub struct OwnPlugins {
    all: Arc<Mutex<Vec<One>>>,
    /// Counts the calls, or `None` if the command has too many connections for counting.
    tally: Option<Tally>,
    tell: Option<OnFailure>,
}

impl OwnPlugins {
    /// Creates the state of these plugins, given with the hashes of their bundles. `tally` counts
    /// their calls, and `tell` is called when one fails.
    pub(super) fn new(
        plugins: Vec<(Plugin, [u8; 32])>,
        tally: Option<Tally>,
        tell: Option<OnFailure>,
    ) -> OwnPlugins {
        let one = |(plugin, hash)| One {
            plugin,
            hash,
            attached: 0,
            failed: 0,
            first: None,
            reported: None,
        };
        let all = plugins.into_iter().map(one).collect();
        OwnPlugins { all: Arc::new(Mutex::new(all)), tally, tell }
    }

    fn all(&self) -> MutexGuard<'_, Vec<One>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns hooks that attach the plugins to each new connection, or `None` if there are no
    /// plugins.
    pub fn hooks(&self) -> Option<Hooks> {
        if self.all().is_empty() {
            return None;
        }
        let own = self.clone();
        Some(Hooks::new(move |connection| own.attach(connection)))
    }

    fn attach(&self, connection: &mut NewConnection<'_>) {
        let plugins: Vec<(Plugin, [u8; 32])> =
            self.all().iter().map(|one| (one.plugin.clone(), one.hash)).collect();
        for (at, (plugin, hash)) in plugins.into_iter().enumerate() {
            let peer = connection.remote_address();
            let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port()).to_string();
            let loaded = match plugin.instantiate() {
                Ok(loaded) => loaded,
                Err(error) => {
                    self.failed(at, &peer, "not attached", &error.to_string());
                    continue;
                }
            };
            let counters = self.tally.as_ref().map(|tally| tally.new_counters(&hash));
            let (own, to) = (self.clone(), peer.clone());
            let failed: Failed = Box::new(move |error| own.failed(at, &to, "failed", &error.0));
            let hook = Watched {
                hook: loaded.hook,
                counters: counters.unwrap_or_default(),
                failed: Some(failed),
            };
            match connection.attach_with_frames(Box::new(hook), &loaded.points, &loaded.frames) {
                Ok(_) => self.all()[at].attached += 1,
                Err(error) => self.failed(at, &peer, "not attached", &error.to_string()),
            }
        }
    }

    /// Records that a plugin failed, and reports it, but at most once every [`BETWEEN_REPORTS`] for
    /// each plugin.
    fn failed(&self, at: usize, peer: &str, state: &str, why: &str) {
        let standing = {
            let mut all = self.all();
            let one = &mut all[at];
            one.failed += 1;
            let standing = one.standing(peer, state, Some(why));
            one.first.get_or_insert_with(|| standing.clone());
            let now = Instant::now();
            let soon = |last: Instant| now.saturating_duration_since(last) < BETWEEN_REPORTS;
            if one.reported.is_some_and(soon) {
                return;
            }
            one.reported = Some(now);
            standing
        };
        if let Some(tell) = &self.tell {
            tell(&standing);
        }
    }

    /// Returns the state of each plugin, with its counts.
    pub fn standings(&self) -> Vec<Standing> {
        let all = self.all();
        let standing = |one: &One| {
            let state = if one.attached > 0 { "active" } else { "no connection" };
            let mut standing = one.first.clone().unwrap_or_else(|| one.standing("", state, None));
            standing.ran = one.attached > 0;
            standing.failures = Some(one.failed);
            standing
        };
        all.iter().map(standing).collect()
    }

    /// Fails if one of the plugins has failed on a connection, or could not be attached to one.
    pub fn check(&self) -> Result {
        let all = self.all();
        let Some(one) = all.iter().find(|one| one.failed > 0) else { return Ok(()) };
        let name = &one.plugin.manifest().name;
        let (state, why) = one.first.as_ref().map_or(("failed", ""), |first| {
            (first.state.as_str(), first.reason.as_deref().unwrap_or_default())
        });
        let more = match one.failed {
            1 => String::new(),
            failed => format!(" (the same happened on {} more connections)", failed - 1),
        };
        let message = format!("the plugin {name} {}: {why}{more}", was(state));
        Err(Failure::new(message)
            .help("the connections continued without the plugin; `equic plugin run` shows the plugin's calls"))
    }
}

/// Returns the verb that describes a state in a sentence.
fn was(state: &str) -> &str {
    if state == "failed" { "failed and was detached" } else { "was not attached" }
}

impl One {
    fn standing(&self, peer: &str, state: &str, why: Option<&str>) -> Standing {
        let manifest = self.plugin.manifest();
        Standing {
            peer: peer.to_owned(),
            by: "local",
            offer: None,
            hash: hex(&self.hash),
            name: Some(manifest.name.clone()),
            version: Some(manifest.version.to_string()),
            state: state.to_owned(),
            cached: false,
            ran: self.attached > 0,
            reason: why.map(str::to_owned),
            failures: Some(self.failed),
            counters: None,
        }
    }
}

/// Attaches plugins to a connection in memory, in the same way as to a real connection, to find
/// errors early.
///
/// # Errors
/// A plugin cannot be attached to any connection.
pub fn try_to_attach(plugins: &[&Plugin]) -> Result {
    use equic_plugin_kit::{End, Network};
    let config = equic_transport::TransportConfig::default();
    let network = Network::new(&equic_net::Link::default(), config, 1);
    let mut network = network.map_err(|error| Failure::new(error.to_string()))?;
    let Some(connection) = network.connection(End::Client) else { return Ok(()) };
    for plugin in plugins {
        plugin.attach(connection).map_err(|error| {
            let name = &plugin.manifest().name;
            Failure::because(format_args!("the plugin {name} cannot be attached"), error)
        })?;
    }
    Ok(())
}
