//! Measures the cost of the extensions that PQUIC implements as plugins (De Coninck et al.,
//! "Pluginizing QUIC", SIGCOMM 2019): monitoring, multipath, and forward error correction. Also
//! measures how long it takes until a plugin runs.

use std::time::{Duration, Instant};

use equic_net::Link;
use equic_plugin::{Bundle, Origin, Plugin, Policy, decide};
use equic_transport::TransportConfig;

use super::cost::{Way, carry};
use crate::network::{Beginning, End, Network};
use crate::pair::{TrialError, key};
use crate::tree::Source;

/// An extension whose cost is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension {
    /// No extension is used. This is the baseline.
    None,
    /// The plugin `monitor` runs at the server.
    Monitoring,
    /// The ends negotiate multipath (RFC 10069), but only one path is open.
    OnePathOfTwo,
    /// Two paths carry the data, and the transport's own scheduler chooses the path of each packet.
    TwoPaths,
    /// Two paths carry the data, and the plugin `lowest-latency` chooses the path of each packet.
    TwoPathsScheduled,
    /// The plugin `fec-xor` runs at both ends. For every eight packets, it sends their XOR sum.
    ErrorCorrection,
}

impl Extension {
    /// All extensions. The first one is the baseline for the others.
    pub const ALL: [Extension; 6] = [
        Extension::None,
        Extension::Monitoring,
        Extension::OnePathOfTwo,
        Extension::TwoPaths,
        Extension::TwoPathsScheduled,
        Extension::ErrorCorrection,
    ];

    fn source(self) -> Option<&'static str> {
        match self {
            Extension::None | Extension::OnePathOfTwo | Extension::TwoPaths => None,
            Extension::Monitoring => Some("monitor"),
            Extension::TwoPathsScheduled => Some("lowest-latency"),
            Extension::ErrorCorrection => Some("fec-xor"),
        }
    }

    /// Compiles and loads the extension's plugin. Returns `None` if the extension has no plugin.
    ///
    /// # Errors
    /// Clang is not installed, or the code does not compile.
    pub fn load(self) -> Result<Option<(Source, Plugin)>, TrialError> {
        self.source()
            .map(|name| {
                let source = of_the_tree(name)?;
                Ok((source, source.load()?))
            })
            .transpose()
    }
}

fn of_the_tree(name: &str) -> Result<Source, TrialError> {
    Source::find(name).ok_or_else(|| TrialError::of("the tree has no such plugin"))
}

/// Sends `bytes` bytes from a server to a client, with an extension and its plugin from
/// [`Extension::load`]. Only the CPU limits the transfer.
///
/// # Errors
/// The plugin cannot be attached or fails, or the transfer is not complete.
pub fn extended(
    extension: Extension,
    plugin: Option<&(Source, Plugin)>,
    seed: u64,
    bytes: u64,
) -> Result<(), TrialError> {
    let (agreed, open) = match extension {
        Extension::None | Extension::Monitoring | Extension::ErrorCorrection => (1, 1),
        Extension::OnePathOfTwo => (2, 1),
        Extension::TwoPaths | Extension::TwoPathsScheduled => (2, 2),
    };
    let config = TransportConfig::default().with_max_paths(agreed);
    let attached = plugin.map(|(source, plugin)| (plugin, source.ends()));
    carry(attached, config, (Way::Unlimited, open), seed, bytes).map(drop)
}

/// Time that it takes until a plugin runs on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loading {
    /// Time for a new plugin. It includes the checks of signature, manifest, policy and bytecode,
    /// and the compilation.
    pub first: Duration,
    /// Time for the same plugin on another connection. The plugin is already compiled.
    pub again: Duration,
}

/// Returns the signed bundle of a plugin of this source tree, so that its loading can be measured.
///
/// # Errors
/// The tree has no such plugin, or the plugin cannot be built.
pub fn signed(name: &str) -> Result<Vec<u8>, TrialError> {
    of_the_tree(name)?.bundle(Some(&key()?))
}

/// Loads a plugin from its bundle and attaches it to one connection, and then to another one.
/// Returns the time that each of the two takes.
///
/// # Errors
/// The plugin is refused.
pub fn loading(bundle: &[u8], seed: u64) -> Result<Loading, TrialError> {
    let mut networks = [connected(seed)?, connected(seed + 1)?];
    let [one, other] = networks.each_mut().map(|network| {
        network.connection(End::Server).ok_or_else(|| TrialError::of("there is no connection"))
    });
    let (one, other) = (one?, other?);
    let begun = Instant::now();
    let parsed = Bundle::parse(bundle).map_err(TrialError::of)?;
    let granted = decide(&parsed, Origin::Own, &Policy::default(), 0).map_err(TrialError::of)?;
    let plugin = Plugin::load(&parsed, &granted).map_err(TrialError::of)?;
    plugin.attach(one).map_err(TrialError::of)?;
    let first = begun.elapsed();
    let begun = Instant::now();
    plugin.attach(other).map_err(TrialError::of)?;
    Ok(Loading { first, again: begun.elapsed() })
}

fn connected(seed: u64) -> Result<Network, TrialError> {
    let link = Link { delay: Duration::from_millis(1), ..Link::default() };
    let ends = [(); 2].map(|()| Beginning::new(TransportConfig::default()));
    let [client, server] = ends;
    let mut network = Network::over(&[&link], client, server, seed).map_err(TrialError::of)?;
    network.connect().map_err(TrialError::of)?;
    Ok(network)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pquic_extensions_carry_data_and_their_plugins_load() {
        for extension in Extension::ALL {
            let plugin = extension.load().unwrap();
            extended(extension, plugin.as_ref(), 1, 100_000).unwrap();
            if let Some((source, _)) = plugin {
                let loaded = loading(&signed(source.name).unwrap(), 1).unwrap();
                assert!(loaded.first > Duration::ZERO && loaded.again > Duration::ZERO);
            }
        }
    }
}
