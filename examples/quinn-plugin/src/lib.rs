//! Protocol plugins as quinn's congestion controllers: the same bundles that run on eQUIC's connections, unchanged.
//!
//! A plugin knows operations, fields and helpers (`plugins/sdk/equic_plugin.h`), and nothing of the stack that runs it. quinn
//! lets its users replace one thing, the congestion controller; so what runs here are plugins whose operations are those of
//! a controller. Others are refused by name when they are loaded.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let plugin = quinn_plugin::Controllers::load(&std::fs::read("reno.qplug")?)?;
//! let mut transport = quinn_proto::TransportConfig::default();
//! transport.congestion_controller_factory(std::sync::Arc::new(plugin));
//! # Ok(()) }
//! ```
//!
//! * `controller.rs`: quinn's `Controller`, and which operation each of its methods is;
//! * `host.rs`: the helpers, and the path as they see it;
//! * here: bundles, and what is refused.
//!
//! It needs `equic-vm`, which runs the bytecode, and of `equic-plugin` bundles and tables; not the transport's connections.

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

/// Operations that quinn asks a controller for.
const OPERATIONS: [Operation; 3] =
    [Operation::CongestionSent, Operation::CongestionAcked, Operation::CongestionEvent];

/// Operations that quinn never comes to, since it does not look for what they tell of: a plugin may be attached there, as on
/// a path where that does not happen.
const NEVER_ASKED: [Operation; 1] = [Operation::SpuriousLoss];

/// Reason for which a plugin does not become a controller.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// Not a bundle, or not a sound one.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// Its manifest wants what no plugin gets, or has expired.
    #[error(transparent)]
    Refused(#[from] equic_plugin::Refusal),
    /// It is attached to an operation that quinn has no way to replace or to watch.
    #[error("quinn does not ask for {0}: this plugin is not only a congestion controller")]
    Operation(Operation),
    /// It reads or sets a field that quinn does not show.
    #[error("quinn does not show {0:?}")]
    Field(Field),
    /// The object was refused, such as for a helper that there is not here.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The manifest names a function that the object does not have.
    #[error("the object has no function `{0}`")]
    NoFunction(String),
    /// The object's variables leave no room for the words of a call.
    #[error("its variables leave no room for calls: raise `memory`")]
    NoRoom,
}

/// A call of a plugin's function in an operation's place, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Time of the call in nanoseconds after the path began.
    pub now: u64,
    /// Operation that the plugin was asked for.
    pub operation: Operation,
    /// The operation's words, as `crates/transport/src/operation/catalogue.rs` has them.
    pub words: Vec<u64>,
    /// The path before the call.
    pub before: Path,
    /// The path after the call.
    pub after: Path,
    /// Reason for which the plugin was taken off, if this call was its last.
    pub failed: Option<String>,
}

/// A path as a plugin sees it. Sizes are in bytes, times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Congestion window.
    pub window: u64,
    /// Slow start threshold; all ones: none yet.
    pub threshold: u64,
    /// Bytes in flight, as quinn last said.
    pub in_flight: u64,
    /// Size of datagrams.
    pub datagram_size: u64,
    /// Smoothed round-trip time; quinn's initial one until an acknowledgement came.
    pub smoothed_rtt: u64,
    /// Least round-trip time.
    pub min_rtt: u64,
    /// Round-trip time of the packet that was acknowledged last, with what the peer waited.
    pub latest_rtt: u64,
}

type Listener = Arc<dyn Fn(&Asked) + Send + Sync>;

/// A plugin that was loaded, as quinn's factory of controllers: each path of a connection has memory of its own.
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

/// Functions of a plugin at one operation, in the order in which they are called: before, replace, after.
type Functions = [Option<Entry>; 3];

/// Parts that all controllers of one plugin share.
struct Plugin {
    manifest: Manifest,
    granted: Granted,
    program: Program<Abi>,
    /// By place in `OPERATIONS`.
    functions: [Functions; OPERATIONS.len()],
    /// Offset of a call's words in an instance's memory.
    words: u64,
}

impl Controllers {
    /// Loads a bundle, one of the application's own: it is granted what its manifest declares.
    ///
    /// # Errors
    /// [`Error`]: also if it wants more than quinn has.
    pub fn load(bundle: &[u8]) -> Result<Controllers, Error> {
        let bundle = Bundle::parse(bundle)?;
        // An expiry is for peers' plugins; the application chose this one.
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

    /// The same, and `listener` is told of each call in an operation's place; from whichever thread quinn is in.
    pub fn with_listener(self, listener: impl Fn(&Asked) + Send + Sync + 'static) -> Controllers {
        Controllers { listener: Some(Arc::new(listener)), ..self }
    }
}

/// Place of an anchor's function in [`Functions`].
fn at(anchor: Anchor) -> usize {
    match anchor {
        Anchor::Before => 0,
        Anchor::Replace => 1,
        Anchor::After => 2,
    }
}
