//! Measures the cost of the extensions that PQUIC has as plugins (De Coninck et al., "Pluginizing QUIC", SIGCOMM 2019):
//! monitoring, several paths, and forward error correction; and the time until a plugin runs.

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
    /// No extension, as the baseline.
    None,
    /// The plugin `monitor` at the server.
    Monitoring,
    /// Several paths are agreed on (RFC 10069), and one is open.
    OnePathOfTwo,
    /// Two paths carry the data, as the transport's own scheduler divides it.
    TwoPaths,
    /// The same with the plugin `lowest-latency` as the scheduler.
    TwoPathsScheduled,
    /// The plugin `fec-xor` at both ends: after every eight packets their sum.
    ErrorCorrection,
}

impl Extension {
    /// All of them; the first is the one that the others are compared with.
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

    /// Compiles and loads its plugin. Returns `None` if it has no plugin.
    ///
    /// # Errors
    /// Clang is not installed, or refuses it.
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

/// Sends this many bytes from a server to a client over links that only the CPU limits, with an extension and its plugin
/// from [`Extension::load`].
///
/// # Errors
/// The plugin is not attached, or fails; the transfer is not complete.
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
    let config = TransportConfig { max_paths: agreed, ..TransportConfig::default() };
    let attached = plugin.map(|(source, plugin)| (plugin, source.ends()));
    carry(attached, config, (Way::Unlimited, open), seed, bytes).map(drop)
}

/// Times until a plugin runs on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loading {
    /// From the bytes of its bundle: signature, manifest, policy and bytecode are checked, and it is compiled.
    pub first: Duration,
    /// Once it is compiled, on another connection.
    pub again: Duration,
}

/// Bundles of plugins of the tree, signed, whose loading can be measured.
///
/// # Errors
/// The tree has no such plugin, or it is not built.
pub fn signed(name: &str) -> Result<Vec<u8>, TrialError> {
    of_the_tree(name)?.bundle(Some(&key()?))
}

/// Loads a plugin from its bundle and puts it on a connection, and then on another.
///
/// # Errors
/// It is refused.
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
    fn every_extension_carries_data_and_every_plugin_of_them_loads() {
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
