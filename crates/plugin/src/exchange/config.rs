//! Configuration of a plugin exchange, and the updates that the exchange reports. In an exchange,
//! the two ends of a connection offer plugins to each other.

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
use crate::preamble::Header;
use crate::runtime::{Accounts, Allowance, Clock};

/// A plugin that may run. Its bundle has the offered hash, its signature is valid, and the policy
/// permits it.
#[derive(Clone, Copy, Debug)]
pub struct Accepted<'a> {
    /// The bundle.
    pub bundle: &'a Bundle<'a>,
    /// SHA-256 of the plugin's bundle.
    pub hash: &'a [u8; 32],
    /// Classes that the plugin is granted.
    pub granted: &'a Granted,
    /// Frame types that the plugin uses on the wire, one for each frame type of the manifest, in
    /// the same order.
    pub frame_types: &'a [u64],
    /// The side that offered the plugin.
    pub origin: Origin,
    /// Steps that this plugin shares with the peer's other plugins on the connection. `None` for
    /// the owner's plugins.
    pub allowance: Option<&'a Arc<Allowance>>,
}

/// A plugin that was loaded but is not attached to a connection yet.
pub struct Loaded {
    /// The plugin as a hook of the connection.
    pub hook: Box<dyn Hook>,
    /// Operations that the plugin is attached to.
    pub points: Vec<AttachPoint>,
    /// Frame types that the plugin uses on the wire.
    pub frames: Vec<OwnFrame>,
}

/// Loads plugins, which includes compiling their bytecode. The exchange calls it while the
/// connection is locked, and only for plugins that may run.
pub trait Load: Send + Sync {
    /// Loads a plugin.
    ///
    /// # Errors
    /// The reason as text. The exchange sends this text to the peer.
    fn load(&self, plugin: &Accepted<'_>) -> Result<Loaded, String>;

    /// Returns `true` if the plugin is already compiled, so that [`Load::load`] takes little time.
    /// The objects of other plugins count toward [`ExchangeConfig::compile_limit`].
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
    /// Size of the bundle's preamble (everything before the object), in bytes.
    pub(super) preamble: usize,
    pub(super) manifest: Manifest,
    pub(super) both: bool,
}

impl Push {
    /// Creates an offer of the plugin in this bundle. The plugin runs only at the peer's end.
    ///
    /// # Errors
    /// `bundle` is not a valid bundle.
    pub fn new(bundle: &[u8]) -> Result<Push, BundleError> {
        let read = Bundle::parse(bundle)?;
        let preamble = read.preamble().header.preamble();
        let manifest = read.manifest().clone();
        Ok(Push { bytes: bundle.into(), hash: sha256(bundle), preamble, manifest, both: false })
    }

    /// Returns the same offer with other bytes, which need not be a bundle. Tests use it to send
    /// malformed bundles. The preamble size of the offer is taken from the header of the new bytes.
    /// If they have no header, it stays the same.
    #[must_use]
    pub fn with_bytes(self, bytes: &[u8]) -> Push {
        let preamble = Header::read(bytes).map_or(self.preamble, |header| header.preamble());
        // The new bytes may be shorter than the preamble size.
        let preamble = preamble.min(bytes.len().saturating_sub(1));
        Push { bytes: bytes.into(), hash: sha256(bytes), preamble, ..self }
    }

    /// Makes the plugin run at this end too, as soon as the peer reports that the plugin runs at
    /// its end.
    #[must_use]
    pub fn at_both_ends(self) -> Push {
        Push { both: true, ..self }
    }

    /// Returns the plugin's manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The bundle.
    pub fn bundle(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the SHA-256 of the bundle.
    pub fn hash(&self) -> &[u8; 32] {
        &self.hash
    }

    /// Checks whether a peer that sent this parameter would accept the plugin. The error is the
    /// reason why not.
    pub(super) fn fits(&self, peer: &Parameter) -> Result<(), String> {
        if peer.budgets.plugins == 0 || peer.budgets.size == 0 {
            return Err("the peer accepts no plugins".to_owned());
        }
        if u64::from(self.manifest.abi) != peer.abi {
            return Err(format!(
                "the peer has ABI {}, but the plugin is for ABI {}",
                peer.abi, self.manifest.abi
            ));
        }
        let (size, most) = (self.bytes.len() as u64, peer.budgets.size.min(peer.budgets.total));
        if size > most {
            return Err(format!(
                "the bundle has {size} bytes, but the peer accepts at most {most}"
            ));
        }
        let granted = |class: &&Class| !peer.classes.contains(class);
        match self.manifest.capabilities.iter().find(granted) {
            Some(class) => Err(format!(
                "the peer does not grant the class `{class}` to plugins that it receives"
            )),
            None => Ok(()),
        }
    }
}

/// Identifies an offer on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PluginId {
    /// The side that made the offer.
    pub by: Origin,
    /// Number of the offer on the wire (its plugin ID).
    pub number: u64,
}

/// Latest known step of an offered plugin, from the offer to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// The plugin was offered.
    Offered,
    /// The plugin was not offered, because the peer would refuse it. The text says why.
    NotOffered(String),
    /// The bundle was in the cache, so the peer did not have to send it.
    Cached,
    /// The whole bundle has arrived over the connection.
    Fetched,
    /// The plugin runs.
    Active,
    /// The plugin does not run, or no longer runs, with this status. The text is the reason.
    Over(Status, String),
}

/// A plugin and its latest progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// Identity of the offer, or `None` if the plugin was not offered.
    pub id: Option<PluginId>,
    /// SHA-256 of the plugin's bundle.
    pub hash: [u8; 32],
    /// Name and version of the plugin, or `None` if its manifest has not been read yet.
    pub name: Option<(String, Version)>,
    /// The plugin's latest progress.
    pub progress: Progress,
}

/// Callback for each update. The connection and its exchange are locked during the call, so the
/// callback must neither block nor use them.
pub type Listener = Arc<dyn Fn(&Update) + Send + Sync>;

/// Configuration of the plugin exchange on a connection.
#[derive(Clone)]
pub struct ExchangeConfig {
    /// Policy for the peer's plugins. With `None`, all of them are refused.
    pub policy: Option<Policy>,
    /// Limits on the number and size of the peer's plugins.
    pub budgets: Budgets,
    /// Maximum number of bytes of a bundle that the peer may send beyond those that have arrived.
    pub window: u64,
    /// Maximum total size of the objects that one connection compiles for its peer, in bytes.
    /// Objects that were already compiled do not count. Offers above this limit are refused.
    pub compile_limit: u64,
    /// Address of the peer, to which its plugins' steps are charged. All connections of an address
    /// share the policy's `address_steps_per_second`. If it is `None`, each connection has that
    /// many steps of its own.
    pub peer: Option<IpAddr>,
    /// Accounts of the steps and memory that the plugins of all peers use. Clones of a
    /// configuration share them.
    pub accounts: Arc<Accounts>,
    /// Clock in nanoseconds that measures calls and loads, so that the peer is charged for the time
    /// they take. If it is `None`, charges do not depend on the machine, which simulations need.
    pub meter: Option<Clock>,
    /// Maximum percentage of packets that carry pieces of bundles while the application has data to
    /// send. Frames that plugins define may use another share of the same size.
    pub share: u8,
    /// Maximum time after the handshake for which stream data waits for the peer's answers to this
    /// end's offers, at most one second. With zero, stream data does not wait.
    pub hold: Duration,
    /// Cache of bundles that were fetched before. With `None`, bundles are not kept.
    pub cache: Option<Arc<dyn Cache>>,
    /// Loads the plugins that may run.
    pub load: Arc<dyn Load>,
    /// Plugins to offer to the peer as soon as the handshake is confirmed.
    pub push: Vec<Arc<Push>>,
    /// Callback for the progress of plugins. With `None`, progress is not reported.
    pub listener: Option<Listener>,
    /// Clock that determines whether a plugin has expired. It returns seconds since the Unix epoch.
    pub clock: Arc<dyn Fn() -> u64 + Send + Sync>,
}

impl ExchangeConfig {
    /// Returns a configuration that neither accepts nor offers plugins until its fields are
    /// changed. `load` loads plugins.
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

    /// Returns the transport parameter that the endpoint sends. It does not depend on the content
    /// of the cache, because a peer could otherwise recognize the endpoint by its cache.
    pub(super) fn declared(&self) -> Parameter {
        Parameter::of(self.policy.as_ref(), self.budgets, self.cache.is_some())
    }

    /// Returns the ID and the value of the transport parameter that the endpoint sends, for
    /// [`TransportConfig::extra_parameters`](equic_transport::TransportConfig::extra_parameters).
    pub fn parameter(&self) -> (u64, Vec<u8>) {
        let parameter = self.declared();
        (super::parameter::PARAMETER, parameter.write(Some((0x2a, b"grease"))))
    }
}

/// Returns the system's time in seconds since the Unix epoch.
fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
