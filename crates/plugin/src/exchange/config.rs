//! Configuration of an exchange, and the updates that it reports.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use equic_transport::operation::{AttachPoint, Hook, OwnFrame};

use super::cache::Cache;
use super::frame::Status;
use super::parameter::{Budgets, Parameter};
use crate::bundle::{Bundle, BundleError, sha256};
use crate::class::{Class, Origin};
use crate::manifest::{Manifest, Version};
use crate::policy::{Granted, Policy};
use crate::runtime::{Accounts, Allowance, Clock};

/// A plugin that may run: its bundle is the one that was offered, its signature right, and the policy lets it.
#[derive(Clone, Copy, Debug)]
pub struct Accepted<'a> {
    /// The bundle.
    pub bundle: &'a Bundle<'a>,
    /// SHA-256 of the bundle.
    pub hash: &'a [u8; 32],
    /// Classes that the plugin is granted.
    pub granted: &'a Granted,
    /// Frame types on the wire, one for each that the manifest has, in its order.
    pub frame_types: &'a [u64],
    /// The side that brought it.
    pub origin: Origin,
    /// Steps that it shares with the peer's other plugins on the connection; none: it is the owner's.
    pub allowance: Option<&'a Arc<Allowance>>,
}

/// A plugin as a hook, not attached yet.
pub struct Loaded {
    /// The plugin as a hook.
    pub hook: Box<dyn Hook>,
    /// Operations that it is attached to.
    pub points: Vec<AttachPoint>,
    /// Its frame types, as on the wire.
    pub frames: Vec<OwnFrame>,
}

/// Makes hooks of plugins: compiles their bytecode. It is called while the connection is locked, and only for what may
/// run.
pub trait Load: Send + Sync {
    /// Makes a hook of a plugin.
    ///
    /// # Errors
    /// Reason in words; the peer is told.
    fn load(&self, plugin: &Accepted<'_>) -> Result<Loaded, String>;

    /// True if the plugin was compiled before, so that [`Load::load`] costs no time to speak of. What is not ready is
    /// counted ([`ExchangeConfig::compile_limit`]).
    fn is_ready(&self, plugin: &Accepted<'_>) -> bool {
        let _ = plugin;
        false
    }
}

impl<F> Load for F
where
    F: Fn(&Accepted<'_>) -> Result<Loaded, String> + Send + Sync,
{
    fn load(&self, plugin: &Accepted<'_>) -> Result<Loaded, String> {
        self(plugin)
    }
}

/// A plugin to offer to peers.
#[derive(Debug)]
pub struct Push {
    pub(super) bytes: Arc<[u8]>,
    pub(super) hash: [u8; 32],
    /// Bytes before the object.
    pub(super) preamble: usize,
    pub(super) manifest: Manifest,
    pub(super) both: bool,
}

impl Push {
    /// A plugin for the peer alone, from the bytes of its bundle.
    ///
    /// # Errors
    /// They are no bundle.
    pub fn new(bundle: &[u8]) -> Result<Push, BundleError> {
        let read = Bundle::parse(bundle)?;
        let preamble = read.preamble().header.preamble();
        let manifest = read.manifest().clone();
        Ok(Push { bytes: bundle.into(), hash: sha256(bundle), preamble, manifest, both: false })
    }

    /// The same offer with these bytes instead, whatever they are: for tests of what peers make of a bundle that is none.
    #[must_use]
    pub fn with_bytes(self, bytes: &[u8]) -> Push {
        // There may be fewer of them than the preamble had.
        let preamble = self.preamble.min(bytes.len().saturating_sub(1));
        Push { bytes: bytes.into(), hash: sha256(bytes), preamble, ..self }
    }

    /// The same plugin runs at this end, too, from when the peer says that it runs there.
    #[must_use]
    pub fn at_both_ends(self) -> Push {
        Push { both: true, ..self }
    }

    /// The plugin's manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The bundle.
    pub fn bundle(&self) -> &[u8] {
        &self.bytes
    }

    /// SHA-256 of the bundle.
    pub fn hash(&self) -> &[u8; 32] {
        &self.hash
    }

    /// Checks that a peer with this parameter takes such a plugin at all; the error is the reason why not.
    pub(super) fn fits(&self, peer: &Parameter) -> Result<(), String> {
        if peer.budgets.plugins == 0 || peer.budgets.size == 0 {
            return Err("the peer takes no plugins".to_owned());
        }
        if u64::from(self.manifest.abi) != peer.abi {
            return Err(format!(
                "the peer has ABI {}, and it is for {}",
                peer.abi, self.manifest.abi
            ));
        }
        let (size, most) = (self.bytes.len() as u64, peer.budgets.size.min(peer.budgets.total));
        if size > most {
            return Err(format!("it has {size} bytes, and the peer takes {most}"));
        }
        let granted = |class: &&Class| !peer.classes.contains(class);
        match self.manifest.capabilities.iter().find(granted) {
            Some(class) => Err(format!("the peer grants `{class}` to nobody")),
            None => Ok(()),
        }
    }
}

/// Identity of an offer on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PluginId {
    /// The side that offered it.
    pub by: Origin,
    /// Number of the offer, as on the wire.
    pub number: u64,
}

/// Progress of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// It was offered.
    Offered,
    /// It was not offered: what the peer takes is known.
    NotOffered(String),
    /// Its bundle was in the cache: nothing of it was sent.
    Cached,
    /// Its bundle came over the connection.
    Fetched,
    /// It runs.
    Active,
    /// It does not run, or no longer, and why.
    Over(Status, String),
}

/// A plugin and its latest progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// The offer; none: it was not offered.
    pub id: Option<PluginId>,
    /// SHA-256 of its bundle.
    pub hash: [u8; 32],
    /// Name and version; none: its manifest was not read yet.
    pub name: Option<(String, Version)>,
    /// The latest progress.
    pub progress: Progress,
}

/// Callback for each update, called while the connection and its exchange are locked: it must not wait, nor use either.
pub type Listener = Arc<dyn Fn(&Update) + Send + Sync>;

/// Configuration of the exchange on a connection.
#[derive(Clone)]
pub struct ExchangeConfig {
    /// Policy for the peer's plugins; none: they are not taken.
    pub policy: Option<Policy>,
    /// Limits on the peer's plugins.
    pub budgets: Budgets,
    /// Bytes of one bundle that the peer may have on their way before more are asked for.
    pub window: u64,
    /// Bytes of objects that the peer of one connection may have compiled, all offers together. Objects that were
    /// compiled before count for nothing. What is beyond is refused.
    pub compile_limit: u64,
    /// Address of the peer, whose plugins share the policy's `address_steps_per_second` over all
    /// connections of the address. `None`: each connection has as much.
    pub peer: Option<IpAddr>,
    /// Steps of all peers and of their addresses. Clones of a configuration share them.
    pub accounts: Arc<Accounts>,
    /// Clock, in nanoseconds, by which calls and loading are timed, so that the peer is charged for
    /// the time that they take. `None`, as in virtual time: the charges do not depend on the machine.
    pub meter: Option<Clock>,
    /// Share of packets, in percent, that pieces of bundles take at most while the application has data to send; frames
    /// of plugins have as much again.
    pub share: u8,
    /// Longest time after the handshake for which stream data waits until it is known what becomes of the plugins to
    /// offer, a second at most; zero: it does not wait.
    pub hold: Duration,
    /// Bundles that were fetched before; none: they are not kept.
    pub cache: Option<Arc<dyn Cache>>,
    /// Makes hooks of plugins.
    pub load: Arc<dyn Load>,
    /// Plugins to offer as soon as the handshake is confirmed.
    pub push: Vec<Arc<Push>>,
    /// Callback for the progress of plugins; none: nobody is told.
    pub listener: Option<Listener>,
    /// Seconds after 1970, for plugins that expire.
    pub clock: Arc<dyn Fn() -> u64 + Send + Sync>,
}

impl ExchangeConfig {
    /// A configuration that takes nothing and offers nothing; `load` makes hooks of plugins.
    pub fn new(load: impl Load + 'static) -> ExchangeConfig {
        ExchangeConfig {
            policy: None,
            budgets: Budgets::default(),
            window: Budgets::default().size,
            compile_limit: 2 * Budgets::default().total,
            peer: None,
            accounts: Arc::default(),
            meter: None,
            share: 25,
            hold: Duration::ZERO,
            cache: None,
            load: Arc::new(load),
            push: Vec::new(),
            listener: None,
            clock: Arc::new(seconds),
        }
    }

    /// Transport parameter that the endpoint declares. It does not say whether anything is in the cache: that would
    /// tell who the endpoint is.
    pub(super) fn declared(&self) -> Parameter {
        Parameter::of(self.policy.as_ref(), self.budgets, self.cache.is_some())
    }

    /// The transport parameter that the endpoint declares, for
    /// [`TransportConfig::extra_parameters`](equic_transport::TransportConfig::extra_parameters).
    pub fn parameter(&self) -> (u64, Vec<u8>) {
        let parameter = self.declared();
        (super::parameter::PARAMETER, parameter.write(Some((0x2a, b"grease"))))
    }
}

/// Seconds after 1970 by the system's clock.
fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
