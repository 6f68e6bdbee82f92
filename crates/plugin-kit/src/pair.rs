//! A connection in memory on which a server pushes plugins to a client. It uses the same exchange
//! as connections over sockets.

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

/// Maximum virtual time until all plugins have arrived.
const PATIENCE: Duration = Duration::from_secs(60);

/// Reason that a trial has no result.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct TrialError(String);

impl TrialError {
    pub(crate) fn of(error: impl fmt::Display) -> TrialError {
        TrialError(error.to_string())
    }
}

/// The latest progress of a plugin at an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The offer. `None` if the plugin was not offered.
    pub id: Option<PluginId>,
    /// SHA-256 of its bundle.
    pub hash: [u8; 32],
    /// True if the plugin was active at some time ([`Progress::Active`]), even if it no longer is.
    pub ran: bool,
    /// The latest progress.
    pub progress: Progress,
}

type Standings = Arc<Mutex<Vec<Standing>>>;

/// The hook and handle of an end's exchange. `None` until the end has a connection.
type Handle = Arc<Mutex<Option<(HookId, ExchangeHandle)>>>;

/// A server that pushes plugins, and a client that accepts them.
pub struct Pair {
    /// The network of the connection, whose handshake is confirmed.
    pub network: Network,
    client: Standings,
    server: Standings,
    /// Exchanges of the client and of the server.
    handles: [Handle; 2],
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair").field("network", &self.network).finish_non_exhaustive()
    }
}

/// Returns the key of the author in [`policy`]. It is not secret, because it is in this crate's source.
pub(crate) fn key() -> Result<SigningKey, TrialError> {
    SigningKey::from_seed(&[7; 32]).map_err(TrialError::of)
}

/// Returns a policy that permits all plugins to tune and to define frames. It grants the plugins of
/// one author every class that a peer's plugin can get.
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

/// Returns an end with the exchange.
fn end(
    mut transport: TransportConfig,
    mut config: ExchangeConfig,
) -> (Beginning, Standings, Handle) {
    let standings = Standings::default();
    let heard = standings.clone();
    config.listener = Some(Arc::new(move |update: &Update| note(&heard, update)));
    // A fixed clock makes runs with the same seed equal. The plugins of these trials do not expire.
    config.clock = Arc::new(|| 0);
    transport.extra_parameters.push(config.parameter());
    let mut beginning = Beginning::new(transport);
    let config = Arc::new(config);
    let handle = Handle::default();
    let kept = handle.clone();
    beginning.prepare = Some(Box::new(move |connection: &mut Connection| {
        let attach =
            |hook, points: &[_], frames: &[_]| connection.attach_with_frames(hook, points, frames);
        // No other hook can conflict with the exchange. If attaching failed, no plugin would run,
        // which the tests notice.
        let attached = ExchangeHook::attach(config, attach).ok();
        *kept.lock().unwrap_or_else(PoisonError::into_inner) = attached;
    }));
    (beginning, standings, handle)
}

impl Pair {
    /// Connects a client and a server over a link, each with its transport configuration. The
    /// server offers `push` when the handshake is confirmed. The client accepts what `policy`
    /// permits.
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

    /// Connects like [`Pair::connect`] with [`policy`]. `adjust` changes the client's configuration
    /// of the exchange.
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

    /// Connects a client that accepts plugins and a server that declares the exchange but does not
    /// run it.
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

    /// Returns a client and a server with the same transport configuration that are about to
    /// connect over the first of these links. Each accepts from the other what `policy` permits
    /// ([`Pair::offer`]).
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

    /// Offers a plugin from one end to the other. The plugin replaces an earlier offer if
    /// `replaces` is given.
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

    /// Returns the state of each plugin as one end of the connection sees it.
    pub fn standings(&self, end: End) -> Vec<Standing> {
        let standings = match end {
            End::Client => &self.client,
            End::Server => &self.server,
        };
        standings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until both ends know the outcome of all plugins.
    ///
    /// # Errors
    /// The outcome of a plugin is unknown after a minute of virtual time, or the connection ends.
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
        let why = "the outcome of a plugin is unknown";
        self.network.run_until(PATIENCE, why, both).map_err(TrialError::of)
    }
}
