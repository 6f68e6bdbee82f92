//! Configuration of an exchange, and the updates that an exchange reports.

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

/// A plugin that may run: its bundle has the offered hash, its signature is valid, and the policy
/// permits it.
#[derive(Clone, Copy, Debug)]
pub struct Accepted<'a> {
    /// The bundle.
    pub bundle: &'a Bundle<'a>,
    /// SHA-256 of the bundle.
    pub hash: &'a [u8; 32],
    /// Classes that the plugin is granted.
    pub granted: &'a Granted,
    /// Frame types on the wire, one for each frame type of the manifest, in the same order.
    pub frame_types: &'a [u64],
    /// Side that offered the plugin.
    pub origin: Origin,
    /// Steps that this plugin shares with the peer's other plugins on the connection. `None` for
    /// the owner's plugins.
    pub allowance: Option<&'a Arc<Allowance>>,
}

/// A loaded plugin that is not attached yet.
pub struct Loaded {
    /// The plugin as a hook.
    pub hook: Box<dyn Hook>,
    /// Operations that it is attached to.
    pub points: Vec<AttachPoint>,
    /// The plugin's frame types on the wire.
    pub frames: Vec<OwnFrame>,
}

/// Loads plugins by compiling their bytecode. It is called while the connection is locked, and only
/// for plugins that may run.
pub trait Load: Send + Sync {
    /// Loads a plugin.
    ///
    /// # Errors
    /// The reason as text. The exchange sends it to the peer.
    fn load(&self, plugin: &Accepted<'_>) -> Result<Loaded, String>;

    /// Returns `true` if the plugin is already compiled, so that [`Load::load`] takes little time.
    /// Other plugins count toward [`ExchangeConfig::compile_limit`].
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
    /// Number of bytes before the object.
    pub(super) preamble: usize,
    pub(super) manifest: Manifest,
    pub(super) both: bool,
}

impl Push {
    /// Returns an offer of the plugin in these bytes. The plugin runs only at the peer's end.
    ///
    /// # Errors
    /// The bytes are not a bundle.
    pub fn new(bundle: &[u8]) -> Result<Push, BundleError> {
        let read = Bundle::parse(bundle)?;
        let preamble = read.preamble().header.preamble();
        let manifest = read.manifest().clone();
        Ok(Push { bytes: bundle.into(), hash: sha256(bundle), preamble, manifest, both: false })
    }

    /// Returns the same offer with other bytes, which need not be a bundle. Tests use it to send
    /// malformed bundles. The offer's preamble size is the one in the header of the bytes. If they
    /// have no header, it stays the same.
    #[must_use]
    pub fn with_bytes(self, bytes: &[u8]) -> Push {
        let preamble = Header::read(bytes).map_or(self.preamble, |header| header.preamble());
        // There may be fewer bytes than the preamble.
        let preamble = preamble.min(bytes.len().saturating_sub(1));
        Push { bytes: bytes.into(), hash: sha256(bytes), preamble, ..self }
    }

    /// Makes the plugin run at this end too, as soon as the peer reports that it runs there.
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

    /// Returns an error with the reason if a peer with this parameter would not accept the plugin.
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
            Some(class) => Err(format!("the peer grants `{class}` to no plugin of a peer")),
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
    /// The plugin was offered.
    Offered,
    /// The plugin was not offered, because the peer would refuse it. The text is the reason.
    NotOffered(String),
    /// The bundle was in the cache, so the peer did not send it.
    Cached,
    /// The bundle has arrived over the connection.
    Fetched,
    /// The plugin runs.
    Active,
    /// The plugin does not run, or no longer runs. The text is the reason.
    Over(Status, String),
}

/// A plugin and its latest progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// The offer. `None` if the plugin was not offered.
    pub id: Option<PluginId>,
    /// SHA-256 of its bundle.
    pub hash: [u8; 32],
    /// Name and version. `None` until the manifest was read.
    pub name: Option<(String, Version)>,
    /// The latest progress.
    pub progress: Progress,
}

/// Callback for each update. It is called while the connection and its exchange are locked, so it must neither wait nor
/// use them.
pub type Listener = Arc<dyn Fn(&Update) + Send + Sync>;

/// Configuration of the exchange on a connection.
#[derive(Clone)]
pub struct ExchangeConfig {
    /// Policy for the peer's plugins. `None` refuses all of them.
    pub policy: Option<Policy>,
    /// Limits on the peer's plugins.
    pub budgets: Budgets,
    /// Number of bytes of one bundle that the peer may have in flight.
    pub window: u64,
    /// Maximum size of the objects that are compiled for the peer of one connection, over all its
    /// offers, in bytes. Objects that were compiled earlier do not count. Offers beyond this limit
    /// are refused.
    pub compile_limit: u64,
    /// Address of the peer. All connections of an address share the policy's
    /// `address_steps_per_second`. If it is `None`, each connection has that many steps.
    pub peer: Option<IpAddr>,
    /// Steps of all peers and of their addresses. Clones of a configuration share them.
    pub accounts: Arc<Accounts>,
    /// Clock in nanoseconds that measures calls and loads, so that the peer is charged for their
    /// time. If it is `None`, charges do not depend on the machine, which simulations need.
    pub meter: Option<Clock>,
    /// Maximum share of packets, in percent, for pieces of bundles while the application has data
    /// to send. Plugins' own frames have the same share in addition.
    pub share: u8,
    /// Maximum time after the handshake for which stream data waits for the answers to this end's
    /// offers. It is at most one second. With zero, stream data does not wait.
    pub hold: Duration,
    /// Cache of bundles that were fetched before. With `None`, bundles are not kept.
    pub cache: Option<Arc<dyn Cache>>,
    /// Loads the plugins.
    pub load: Arc<dyn Load>,
    /// Plugins to offer as soon as the handshake is confirmed.
    pub push: Vec<Arc<Push>>,
    /// Callback for the progress of plugins. With `None`, progress is not reported.
    pub listener: Option<Listener>,
    /// Clock for plugins that expire. It returns seconds since the Unix epoch.
    pub clock: Arc<dyn Fn() -> u64 + Send + Sync>,
}

impl ExchangeConfig {
    /// Returns a configuration that neither accepts nor offers plugins. `load` loads plugins.
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
    /// of the cache, because that would identify the endpoint.
    pub(super) fn declared(&self) -> Parameter {
        Parameter::of(self.policy.as_ref(), self.budgets, self.cache.is_some())
    }

    /// Returns the transport parameter that the endpoint sends, for
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
