//! Runs eQUIC's protocol plugins as congestion controllers of quinn. The plugin bundles are the
//! same as for eQUIC's own connections.
//!
//! A plugin knows operations, fields and helpers (`plugins/sdk/equic_plugin.h`), but not the QUIC
//! stack that runs it. quinn allows its users to replace only the congestion controller. So only
//! plugins whose operations are those of a congestion controller can run here. All other plugins
//! are refused when they are loaded, with an error that names the operation.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let plugin = quinn_plugin::Controllers::load(&std::fs::read("reno.qplug")?)?;
//! let mut transport = quinn_proto::TransportConfig::default();
//! transport.congestion_controller_factory(std::sync::Arc::new(plugin));
//! # Ok(()) }
//! ```
//!
//! * `controller.rs`: an implementation of quinn's `Controller`, which maps each of its methods to
//!   a plugin operation.
//! * `host.rs`: the helpers, and the path as plugins see it.
//! * This file: loads bundles, and defines the reasons for refusing them.
//!
//! The crate uses `equic-vm`, which runs the bytecode, and the bundle format and tables of
//! `equic-plugin`. It does not use eQUIC's own connections.

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

/// The plugin operations that correspond to calls of a controller by quinn.
const OPERATIONS: [Operation; 3] =
    [Operation::CongestionSent, Operation::CongestionAcked, Operation::CongestionEvent];

/// Operations that a plugin may implement although quinn never calls them, because quinn does not
/// detect the events that they report.
const NEVER_ASKED: [Operation; 1] = [Operation::SpuriousLoss];

/// Reason why a plugin cannot become a controller.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The file is not a bundle, or the bundle is invalid.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// The manifest declares a permission that no plugin can have, or the bundle has expired.
    #[error(transparent)]
    Refused(#[from] equic_plugin::Refusal),
    /// The plugin implements an operation that quinn does not let a controller replace or observe.
    #[error("quinn has no operation {0}: use a plugin that is only a congestion controller")]
    Operation(Operation),
    /// The plugin reads or sets a field that quinn does not provide.
    #[error("quinn does not provide the field {0:?}")]
    Field(Field),
    /// The object file was refused, for example because it calls a helper that does not exist here.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The manifest names a function that the object file does not contain.
    #[error("the object has no function `{0}`")]
    NoFunction(String),
    /// The plugin's variables leave no room in its memory for the arguments of a call.
    #[error("the plugin's variables leave no room for calls: increase `memory` in its manifest")]
    NoRoom,
}

/// A call of a plugin function that replaces an operation, with its result. Listeners receive it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginCall {
    /// Time of the call, in nanoseconds since the plugin's clock started.
    pub now: u64,
    /// The operation for which the plugin was called.
    pub operation: Operation,
    /// The arguments of the operation, as `crates/transport/src/operation/catalogue.rs` defines
    /// them.
    pub words: Vec<u64>,
    /// State of the path before the call.
    pub before: Path,
    /// State of the path after the call.
    pub after: Path,
    /// Reason why the plugin was removed, or `None` if the call succeeded.
    pub failed: Option<String>,
}

/// State of a network path as a plugin sees it. Sizes are in bytes, and times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Congestion window.
    pub window: u64,
    /// Slow start threshold, in bytes. It is `u64::MAX` until it is set for the first time.
    pub threshold: u64,
    /// Bytes in flight, as quinn last reported them.
    pub in_flight: u64,
    /// Size of datagrams, in bytes.
    pub datagram_size: u64,
    /// Smoothed round-trip time in nanoseconds. Until the first acknowledgement, it is quinn's
    /// initial value.
    pub smoothed_rtt: u64,
    /// Smallest round-trip time that was measured, in nanoseconds.
    pub min_rtt: u64,
    /// Round-trip time of the last acknowledged packet, in nanoseconds. It includes the peer's ACK
    /// delay.
    pub latest_rtt: u64,
}

type Listener = Arc<dyn Fn(&PluginCall) + Send + Sync>;

/// A loaded plugin. quinn uses it as a factory of congestion controllers, each of which has its own
/// memory for one path.
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

/// A plugin's functions for one operation, in the order in which they are called: before, replace,
/// after.
type Functions = [Option<Entry>; 3];

/// The data that all controllers of one plugin share.
struct Plugin {
    manifest: Manifest,
    granted: Granted,
    program: Program<Abi>,
    /// The functions for each operation, in the order of `OPERATIONS`.
    functions: [Functions; OPERATIONS.len()],
    /// Offset of a call's arguments in the memory of an instance.
    words: u64,
}

impl Controllers {
    /// Loads a bundle that the application itself has chosen. The plugin gets all permissions that
    /// its manifest declares.
    ///
    /// # Errors
    /// Fails with [`Error`] if the bundle is invalid, or if it needs something that quinn does not
    /// provide.
    pub fn load(bundle: &[u8]) -> Result<Controllers, Error> {
        let bundle = Bundle::parse(bundle)?;
        // The expiry does not matter here, so the time is 0: only plugins from peers expire, and
        // this one was chosen by the application.
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

    /// Returns the same factory, with a listener. It is called for each call of a plugin function
    /// that replaces an operation, in the thread in which quinn runs.
    pub fn with_listener(
        self,
        listener: impl Fn(&PluginCall) + Send + Sync + 'static,
    ) -> Controllers {
        Controllers { listener: Some(Arc::new(listener)), ..self }
    }
}

/// Returns the index in [`Functions`] of the function with this anchor.
fn at(anchor: Anchor) -> usize {
    match anchor {
        Anchor::Before => 0,
        Anchor::Replace => 1,
        Anchor::After => 2,
    }
}
