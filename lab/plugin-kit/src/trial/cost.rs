//! Measures how much a plugin slows down a transfer that it does not improve.

use std::sync::Arc;
use std::time::Duration;

use equic_net::{Chance, Link};
use equic_plugin::Plugin;
use equic_transport::TransportConfig;

use super::{PATIENCE, bottleneck, milliseconds};
use crate::network::{Beginning, End, Network};
use crate::pair::TrialError;
use crate::tree::Source;

/// The network path of a transfer that measures the cost of a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Only the CPU limits the transfer. The cost is the additional CPU time.
    Unlimited,
    /// The path has a bottleneck of 20 Mbit/s with a queue of 100 ms, a round-trip time of 40 ms,
    /// and a loss of one packet in 10,000. The cost is the additional virtual time of the transfer.
    Bottleneck,
}

impl Way {
    fn link(self) -> Link {
        match self {
            Way::Unlimited => Link { delay: milliseconds(1), ..Link::default() },
            Way::Bottleneck => Link { drop: Chance::percent(0.01), ..bottleneck(20, 20, 100) },
        }
    }
}

/// Sends `bytes` bytes from a server to a client, and returns the duration of the transfer, to
/// measure the cost of a plugin. The plugin runs at the ends for which it is meant. Without a
/// plugin, this measures the baseline. If the plugin is a congestion controller, the connection
/// uses a native controller of the same kind, so that only the bytecode makes a difference.
///
/// # Errors
/// The plugin cannot be attached or fails, or the transfer is not complete.
pub fn bulk(
    source: &Source,
    plugin: Option<&Plugin>,
    way: Way,
    seed: u64,
    bytes: u64,
) -> Result<Duration, TrialError> {
    let congestion = Arc::new(source.counterpart(plugin.is_some()));
    let config = TransportConfig::default().with_congestion(congestion);
    let attached = plugin.map(|plugin| (plugin, source.ends()));
    let config = config.with_max_paths(source.paths());
    carry(attached, config, (way, source.paths()), seed, bytes)
}

/// Sends `bytes` bytes from a server to a client over `paths` paths. If there is a plugin, it runs
/// at the given ends.
pub(super) fn carry(
    attached: Option<(&Plugin, &[End])>,
    config: TransportConfig,
    (way, paths): (Way, usize),
    seed: u64,
    bytes: u64,
) -> Result<Duration, TrialError> {
    let (link, [client, server]) = (way.link(), [config.clone(), config].map(Beginning::new));
    let links = vec![&link; paths];
    let mut network = Network::over(&links, client, server, seed).map_err(TrialError::of)?;
    network.connect().map_err(TrialError::of)?;
    for link in 1..paths {
        network.open_path(link).map_err(TrialError::of)?;
    }
    if let Some((plugin, ends)) = attached {
        for end in ends {
            let connection = network.connection(*end);
            let connection = connection.ok_or_else(|| TrialError::of("there is no connection"))?;
            plugin.attach(connection).map_err(TrialError::of)?;
        }
    }
    let took = network.transfer(End::Server, bytes, PATIENCE).map_err(TrialError::of)?;
    for end in [End::Client, End::Server] {
        if let Some((_, error)) = network.failures(end).pop() {
            return Err(TrialError::of(error));
        }
    }
    Ok(took)
}
