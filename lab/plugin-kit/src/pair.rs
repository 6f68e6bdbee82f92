//! A connection in memory on which a server pushes plugins to a client. It uses the same plugin
//! exchange as connections over sockets.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use equic_net::Link;
use equic_plugin::exchange::{
    Bytecode, ExchangeConfig, ExchangeHandle, ExchangeHook, PluginId, Progress, Push, Update,
};
use equic_plugin::{Policy, SigningKey};
use equic_transport::operation::HookId;
use equic_transport::{Connection, TransportConfig};
use thiserror::Error;

use crate::network::{Beginning, End, Network};

/// Maximum virtual time to wait until the outcome of all plugins is known.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why a trial of plugins has no result.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct TrialError(String);

impl TrialError {
    pub(crate) fn of(error: impl fmt::Display) -> TrialError {
        TrialError(error.to_string())
    }
}

/// A plugin and its latest progress, as one end of the connection sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Identity of the offer, or `None` if the plugin was not offered.
    pub id: Option<PluginId>,
    /// SHA-256 of the plugin's bundle.
    pub hash: [u8; 32],
    /// True if the plugin has run ([`Progress::Active`]), even if it no longer does.
    pub ran: bool,
    /// The plugin's latest progress.
    pub progress: Progress,
}

type Standings = Arc<Mutex<Vec<Standing>>>;

/// The exchange's hook and handle at one end. `None` until that end has a connection.
type Handle = Arc<Mutex<Option<(HookId, ExchangeHandle)>>>;

/// A server that pushes plugins, a client that accepts them, and the network between the two.
pub struct Pair {
    /// The network, with a connection whose handshake is confirmed.
    pub network: Network,
    client: Standings,
    server: Standings,
    /// Handles of the plugin exchange: the client's and the server's.
    handles: [Handle; 2],
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair").field("network", &self.network).finish_non_exhaustive()
    }
}

/// Returns the signing key of the author in [`policy`]. It is not secret, because it is in this
/// crate's source code.
pub(crate) fn key() -> Result<SigningKey, TrialError> {
    SigningKey::from_seed(&[7; 32]).map_err(TrialError::of)
}

/// Returns a policy that grants `observe`, `tune` and `frames` to all plugins. It grants every
/// class that a peer's plugin can get to the plugins of one author, whose key is [`key`].
pub(crate) fn policy() -> Result<Policy, TrialError> {
    let text = format!(
        "anyone = [\"observe\", \"tune\", \"frames\"]\n[[author]]\nname = \"known\"\nkey = \"{}\"\n\
         classes = [\"observe\", \"tune\", \"frames\", \"raise\", \"choose\"]\n",
        key()?.public()
    );
    Policy::parse(&text).map_err(TrialError::of)
}

fn note(standings: &Standings, update: &Update) {
    let mut all = standings.lock().unwrap_or_else(PoisonError::into_inner);
    let ran = update.progress == Progress::Active;
    match all.iter_mut().find(|one| one.hash == update.hash) {
        Some(known) => {
            known.ran |= ran;
            known.id = update.id.or(known.id);
            known.progress = update.progress.clone();
        }
        None => {
            let (id, hash, progress) = (update.id, update.hash, update.progress.clone());
            all.push(Standing { id, hash, ran, progress });
        }
    }
}

/// Returns the configuration of an end that takes part in the plugin exchange.
fn end(
    mut transport: TransportConfig,
    mut config: ExchangeConfig,
) -> (Beginning, Standings, Handle) {
    let standings = Standings::default();
    let heard = standings.clone();
    config.listener = Some(Arc::new(move |update: &Update| note(&heard, update)));
    // With a fixed clock, two runs with the same seed are equal. The plugins of these trials do not
    // expire.
    config.clock = Arc::new(|| 0);
    transport.extra_parameters.push(config.parameter());
    let mut beginning = Beginning::new(transport);
    let config = Arc::new(config);
    let handle = Handle::default();
    let kept = handle.clone();
    beginning.prepare = Some(Box::new(move |connection: &mut Connection| {
        let attach =
            |hook, points: &[_], frames: &[_]| connection.attach_with_frames(hook, points, frames);
        // Attaching cannot fail, because there is no other hook. If it did, no plugin would run,
        // and the tests would fail.
        let attached = ExchangeHook::attach(config, attach).ok();
        *kept.lock().unwrap_or_else(PoisonError::into_inner) = attached;
    }));
    (beginning, standings, handle)
}

impl Pair {
    /// Connects a client and a server over a link, each with its own transport configuration. The
    /// server offers the plugins in `push` when the handshake is confirmed, and the client accepts
    /// what `policy` permits.
    ///
    /// # Errors
    /// The link is invalid, or the handshake fails.
    pub fn connect(
        link: &Link,
        [client, server]: [TransportConfig; 2],
        push: Vec<Arc<Push>>,
        policy: Policy,
        seed: u64,
    ) -> Result<Pair, TrialError> {
        let (mut takes, mut pushes) =
            (ExchangeConfig::new(Bytecode::default()), ExchangeConfig::new(Bytecode::default()));
        (takes.policy, pushes.push) = (Some(policy), push);
        let (client, server) = (end(client, takes), end(server, pushes));
        let mut pair = Pair::begin(&[link], client, server, seed)?;
        pair.network.connect().map_err(TrialError::of)?;
        Ok(pair)
    }

    /// Connects like [`Pair::connect`], with the policy of [`policy`]. `adjust` changes the
    /// client's configuration of the plugin exchange.
    ///
    /// # Errors
    /// Those of [`Pair::connect`].
    pub(crate) fn connect_with(
        link: &Link,
        [client, server]: [TransportConfig; 2],
        push: Vec<Arc<Push>>,
        seed: u64,
        adjust: impl FnOnce(&mut ExchangeConfig),
    ) -> Result<Pair, TrialError> {
        let (mut takes, mut pushes) =
            (ExchangeConfig::new(Bytecode::default()), ExchangeConfig::new(Bytecode::default()));
        (takes.policy, pushes.push) = (Some(policy()?), push);
        adjust(&mut takes);
        let mut pair = Pair::begin(&[link], end(client, takes), end(server, pushes), seed)?;
        pair.network.connect().map_err(TrialError::of)?;
        Ok(pair)
    }

    /// Connects a client that accepts plugins to a server that declares the plugin exchange but
    /// does not run it. A test can then send the server's frames itself.
    ///
    /// # Errors
    /// Those of [`Pair::connect`].
    pub(crate) fn with_bare_server(link: &Link, seed: u64) -> Result<Pair, TrialError> {
        let mut takes = ExchangeConfig::new(Bytecode::default());
        takes.policy = Some(policy()?);
        let server = ExchangeConfig::new(Bytecode::default());
        let both = [takes, server].map(|config| end(TransportConfig::default(), config));
        let [client, mut server] = both;
        server.0.prepare = None;
        let mut pair = Pair::begin(&[link], client, server, seed)?;
        pair.network.connect().map_err(TrialError::of)?;
        Ok(pair)
    }

    /// Returns a client and a server with the same transport configuration, which are about to
    /// connect over the first of these links. Each end accepts the plugins that `policy` permits
    /// and that the other end offers with [`Pair::offer`].
    ///
    /// # Errors
    /// A link is invalid.
    pub(crate) fn over(
        links: &[&Link],
        transport: &TransportConfig,
        policy: &Policy,
        seed: u64,
    ) -> Result<Pair, TrialError> {
        let one = || {
            let mut config = ExchangeConfig::new(Bytecode::default());
            config.policy = Some(policy.clone());
            end(transport.clone(), config)
        };
        Pair::begin(links, one(), one(), seed)
    }

    fn begin(
        links: &[&Link],
        (client_end, client, ours): (Beginning, Standings, Handle),
        (server_end, server, theirs): (Beginning, Standings, Handle),
        seed: u64,
    ) -> Result<Pair, TrialError> {
        let network = Network::over(links, client_end, server_end, seed);
        let network = network.map_err(TrialError::of)?;
        Ok(Pair { network, client, server, handles: [ours, theirs] })
    }

    /// Offers a plugin from one end to the other. If `replaces` is given, the plugin replaces that
    /// of the earlier offer.
    ///
    /// # Errors
    /// The end has no connection.
    pub(crate) fn offer(
        &mut self,
        from: End,
        push: Arc<Push>,
        replaces: Option<PluginId>,
    ) -> Result<(), TrialError> {
        let none = || TrialError::of("there is no connection");
        let handle = &self.handles[usize::from(from == End::Server)];
        let handle = handle.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (hook, handle) = handle.ok_or_else(none)?;
        handle.offer(push, replaces);
        let connection = self.network.connection(from).ok_or_else(none)?;
        connection.tell_hook(hook, &[]).map_err(TrialError::of)
    }

    /// Returns the state of each offered plugin, as one end of the connection sees it.
    pub fn standings(&self, end: End) -> Vec<Standing> {
        let standings = match end {
            End::Client => &self.client,
            End::Server => &self.server,
        };
        standings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Runs the network until both ends know the outcome of all offered plugins.
    ///
    /// # Errors
    /// The outcome of a plugin is still unknown after a minute of virtual time, or the connection
    /// ends.
    pub fn settle(&mut self) -> Result<(), TrialError> {
        let (client, server) = (self.client.clone(), self.server.clone());
        let settled = move |standings: &Standings| {
            let all = standings.lock().unwrap_or_else(PoisonError::into_inner);
            let over = |one: &Standing| {
                use Progress::{Active, NotOffered, Over};
                matches!(one.progress, Active | NotOffered(_) | Over(..))
            };
            !all.is_empty() && all.iter().all(over)
        };
        let both = |_: &mut Network| settled(&client) && settled(&server);
        let why = "a plugin did not reach its final state in time";
        self.network.run_until(PATIENCE, why, both).map_err(TrialError::of)
    }
}
