//! Runs protocol plugins as congestion controllers of quinn. The bundles are the same as on eQUIC's
//! connections, unchanged.
//!
//! A plugin knows operations, fields and helpers (`plugins/sdk/equic_plugin.h`), but not the QUIC
//! stack that runs it. In quinn, users can replace only the congestion controller. So only plugins
//! whose operations are those of a controller can run here. All other plugins are refused when they
//! are loaded, with an error that names the operation.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let plugin = quinn_plugin::Controllers::load(&std::fs::read("reno.qplug")?)?;
//! let mut transport = quinn_proto::TransportConfig::default();
//! transport.congestion_controller_factory(std::sync::Arc::new(plugin));
//! # Ok(()) }
//! ```
//!
//! * `controller.rs`: quinn's `Controller`, and the operation for each of its methods.
//! * `host.rs`: the helpers, and the path as plugins see it.
//! * This file: loading bundles, and the reasons for refusing them.
//!
//! The crate needs `equic-vm`, which runs the bytecode, and the bundles and tables of
//! `equic-plugin`. It does not need the transport's connections.

#![forbid(unsafe_code)]

mod controller;
mod host;

use std::fmt;
use std::sync::Arc;

use equic_plugin::{Anchor, Bundle, BundleError, Granted, Manifest, Origin, Policy, decide};
use equic_transport::operation::{Field, Operation};
use equic_vm::{Config, Entry, LoadError, Program};
use thiserror::Error;

use host::{Abi, WORDS};

/// Operations that quinn calls a controller for.
const OPERATIONS: [Operation; 3] =
    [Operation::CongestionSent, Operation::CongestionAcked, Operation::CongestionEvent];

/// Operations that a plugin may have although quinn never calls them. quinn does not detect the
/// events that these operations report.
const NEVER_ASKED: [Operation; 1] = [Operation::SpuriousLoss];

/// Reason why a plugin cannot become a controller.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The file is not a bundle, or the bundle is invalid.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// The manifest wants a permission that no plugin gets, or the bundle has expired.
    #[error(transparent)]
    Refused(#[from] equic_plugin::Refusal),
    /// The plugin is attached to an operation that quinn cannot replace or observe.
    #[error("quinn has no operation {0}: use a plugin that is only a congestion controller")]
    Operation(Operation),
    /// The plugin reads or sets a field that quinn does not provide.
    #[error("quinn does not provide the field {0:?}")]
    Field(Field),
    /// The object was refused, for example because it calls a helper that does not exist here.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The manifest names a function that the object does not have.
    #[error("the object has no function `{0}`")]
    NoFunction(String),
    /// The variables of the object leave no room for the arguments of a call.
    #[error("the plugin's variables leave no room for calls: increase `memory` in its manifest")]
    NoRoom,
}

/// A call of a plugin's function that replaces an operation, and its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginCall {
    /// Time of the call, in nanoseconds after the path began.
    pub now: u64,
    /// The operation that the plugin was called for.
    pub operation: Operation,
    /// The arguments of the operation, as `crates/transport/src/operation/catalogue.rs` defines
    /// them.
    pub words: Vec<u64>,
    /// The path before the call.
    pub before: Path,
    /// The path after the call.
    pub after: Path,
    /// Reason why the plugin was removed, or `None` if the call succeeded.
    pub failed: Option<String>,
}

/// A path as a plugin sees it. Sizes are in bytes, and times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Congestion window.
    pub window: u64,
    /// Slow start threshold, in bytes. `u64::MAX` until it is set for the first time.
    pub threshold: u64,
    /// Bytes in flight, as quinn last reported them.
    pub in_flight: u64,
    /// Size of datagrams, in bytes.
    pub datagram_size: u64,
    /// Smoothed round-trip time in nanoseconds. Until the first acknowledgement, it is quinn's
    /// initial value.
    pub smoothed_rtt: u64,
    /// Smallest round-trip time, in nanoseconds.
    pub min_rtt: u64,
    /// Round-trip time of the last acknowledged packet, in nanoseconds. It includes the peer's ACK
    /// delay.
    pub latest_rtt: u64,
}

type Listener = Arc<dyn Fn(&PluginCall) + Send + Sync>;

/// A loaded plugin, as a factory of controllers for quinn. Each path of a connection has its own
/// memory.
#[derive(Clone)]
pub struct Controllers {
    plugin: Arc<Plugin>,
    listener: Option<Listener>,
}

impl fmt::Debug for Controllers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controllers").field("plugin", &self.plugin.manifest.name).finish()
    }
}

/// A plugin's functions for one operation, in the order of the calls: before, replace, after.
type Functions = [Option<Entry>; 3];

/// The parts that all controllers of one plugin share.
struct Plugin {
    manifest: Manifest,
    granted: Granted,
    program: Program<Abi>,
    /// The functions for each operation, in the order of `OPERATIONS`.
    functions: [Functions; OPERATIONS.len()],
    /// Offset of the arguments of a call in the memory of an instance.
    words: u64,
}

impl Controllers {
    /// Loads a bundle of the application's own. It gets all permissions that its manifest declares.
    ///
    /// # Errors
    /// Fails with [`Error`] if the bundle is invalid, or if it needs something that quinn does not
    /// provide.
    pub fn load(bundle: &[u8]) -> Result<Controllers, Error> {
        let bundle = Bundle::parse(bundle)?;
        // Only peers' plugins expire. The application chose this one itself.
        let granted = decide(&bundle, Origin::Own, &Policy::default(), 0)?;
        let manifest = bundle.manifest().clone();
        if let Some(field) = manifest.reads.iter().find(|field| !host::can_be_read(**field)) {
            return Err(Error::Field(*field));
        }
        if let Some(field) = manifest.sets.iter().find(|field| !host::can_be_set(**field)) {
            return Err(Error::Field(*field));
        }
        let mut config = Config::default();
        config.memory = manifest.memory;
        let program = Program::load(bundle.code(), Arc::new(host::helpers()), &config)?;
        let free = program.free();
        if free.len < WORDS {
            return Err(Error::NoRoom);
        }
        let mut functions = [Functions::default(); OPERATIONS.len()];
        for one in &manifest.operations {
            let entry = program.entry(&one.function);
            let entry = entry.ok_or_else(|| Error::NoFunction(one.function.clone()))?;
            if NEVER_ASKED.contains(&one.operation) {
                continue;
            }
            let place = OPERATIONS.iter().position(|known| *known == one.operation);
            let place = place.ok_or(Error::Operation(one.operation))?;
            functions[place][at(one.anchor)] = Some(entry);
        }
        let words = free.offset;
        let plugin = Plugin { manifest, granted, program, functions, words };
        Ok(Controllers { plugin: Arc::new(plugin), listener: None })
    }

    /// Returns the same factory, which calls `listener` for each call of a function that replaces
    /// an operation. The thread is the one in which quinn runs.
    pub fn with_listener(self, listener: impl Fn(&PluginCall) + Send + Sync + 'static) -> Controllers {
        Controllers { listener: Some(Arc::new(listener)), ..self }
    }
}

/// Returns the index of an anchor's function in [`Functions`].
fn at(anchor: Anchor) -> usize {
    match anchor {
        Anchor::Before => 0,
        Anchor::Replace => 1,
        Anchor::After => 2,
    }
}
