//! Runs plugin bytecode at the operations of a connection.
//!
//! * [`Plugin`], in this file: a loaded bundle and the operations that its functions are attached
//!   to. Connections share it.
//! * `allotted.rs`: translates the plugin's frame types to their numbers on the wire.
//! * `allowance.rs`: limits the steps and frame bytes of the peer's plugins on one connection.
//!   `account.rs`: limits the steps and memory of all connections of an address, and of all peers.
//!   `bucket.rs`: an amount that refills with time.
//! * `abi.rs`: the interface to bytecode, with the arguments of a call and the list of helpers.
//! * `instance.rs`: a plugin on one connection, as a `Hook` of the transport.
//! * `helpers.rs`: functions of the host that bytecode may call. `view.rs`: the connection as
//!   helpers see it.
//! * `lint.rs`: finds uses that the manifest does not declare, for authors of plugins.
//! * `places.rs`: limits the number and the memory of peers' plugins in a process.
//! * `clamp.rs`: limits the answers of functions to what a plugin's classes permit.
//! * `trace.rs`: reports every call of a plugin to its developer.

mod abi;
mod account;
mod allotted;
mod allowance;
mod bucket;
mod clamp;
mod helpers;
mod instance;
mod lint;
mod places;
mod trace;
mod view;

use std::io;
use std::sync::Arc;

use equic_transport::Connection;
use equic_transport::operation::{AttachError, AttachPoint, Field, HookId, Operation, OwnFrame};
use equic_vm::{Config, Entry, LoadError, Program};
use thiserror::Error;

use crate::bundle::Bundle;
use crate::class::Class;
use crate::exchange::Loaded;
use crate::manifest::{Anchor, Calls, Manifest};
use crate::policy::Granted;

use abi::Abi;
pub(crate) use abi::HELPERS;
pub use abi::{DEFAULT, DONE};
pub use account::{Account, Accounts, Bytes, Usage};
use allotted::Allotted;
pub use allowance::{Allowance, Clock};
pub(crate) use bucket::Bucket;
use instance::Instance;
pub use lint::lint;
pub use places::{MAX_BYTES_OF_PEERS, MAX_OF_PEERS};
pub use trace::{Answer, Trace, Traced};

/// Why a plugin cannot be loaded, or cannot run on a connection.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PluginError {
    /// The object cannot be read, or its bytecode is refused.
    #[error("the object cannot be loaded: {0}")]
    Load(#[from] LoadError),
    /// The manifest names a function that the object does not define.
    #[error(
        "the object has no function `{0}`, which the manifest attaches: define the function, without `static`"
    )]
    NoFunction(String),
    /// The variables in the object leave too little of the plugin's memory for the arguments of
    /// calls.
    #[error(
        "the plugin's variables leave {left} bytes of its memory, but calls need {needed}: increase `memory`"
    )]
    NoRoom {
        /// Number of bytes between the variables and the stack.
        left: u64,
        /// Number of bytes that the arguments of calls need.
        needed: u64,
    },
    /// The plugin uses an operation or field whose class it was not granted.
    #[error("{what} needs the class `{class}`, which was not granted")]
    NotGranted {
        /// Name of the operation or field.
        what: String,
        /// Class that the operation or field needs.
        class: Class,
    },
    /// A function calls a helper that changes the connection, but the function only observes, or
    /// provides an operation to other plugins.
    #[error(
        "`{function}` calls {helper}, which changes the connection. Functions that are attached before or after an operation, or provided for other plugins, may only observe: attach the function as `replace`, and let it return EQUIC_DEFAULT"
    )]
    LooksOn {
        /// Name of the plugin's function.
        function: String,
        /// Name of the helper.
        helper: String,
    },
    /// A function calls `equic_call_default`, but the manifest attaches it without `default =
    /// true`.
    #[error(
        "`{0}` calls equic_call_default, but is attached without `default = true`: add this key to the operation in the manifest"
    )]
    NoDefault(String),
    /// The connection cannot attach the plugin as a hook.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The memory for an instance of the plugin cannot be allocated.
    #[error("cannot allocate memory for an instance of the plugin: {0}")]
    Memory(#[from] io::Error),
}

/// Functions of a plugin that are attached to one operation.
#[derive(Clone, Copy, Debug, Default)]
struct Functions {
    before: Option<Entry>,
    replace: Option<Entry>,
    after: Option<Entry>,
    /// True if the host runs the default implementation before the `replace` function and passes it
    /// the answer.
    with_default: bool,
}

impl Functions {
    fn set(&mut self, anchor: Anchor, entry: Entry) {
        match anchor {
            Anchor::Before => self.before = Some(entry),
            Anchor::Replace => self.replace = Some(entry),
            Anchor::After => self.after = Some(entry),
        }
    }

    fn at(&self, anchor: Anchor) -> Option<Entry> {
        match anchor {
            Anchor::Before => self.before,
            Anchor::Replace => self.replace,
            Anchor::After => self.after,
        }
    }
}

/// Fields, classes, and operations of other plugins that a plugin may use.
#[derive(Clone, Debug)]
struct Rights {
    /// Readable fields, as a bit set indexed by field number.
    reads: u128,
    sets: u128,
    /// Operations of other plugins that the plugin may call.
    calls: Vec<Calls>,
    granted: Granted,
}

impl Rights {
    fn may_read(&self, field: Field) -> bool {
        self.reads & bit(field) != 0
    }

    fn may_set(&self, field: Field) -> bool {
        self.sets & bit(field) != 0
    }

    fn has(&self, class: Class) -> bool {
        self.granted.has(class)
    }
}

/// Caches the names of the helpers that each function calls. Finding them requires a walk over the
/// program, and a manifest can name the same function several times.
#[derive(Default)]
struct Called(Vec<(Entry, Vec<String>)>);

impl Called {
    fn of(&mut self, program: &Program<Abi>, entry: Entry) -> &[String] {
        let found = self.0.iter().position(|(known, _)| *known == entry);
        let at = found.unwrap_or_else(|| {
            let names = program.helpers_of(entry).into_iter().map(str::to_owned).collect();
            self.0.push((entry, names));
            self.0.len() - 1
        });
        &self.0[at].1
    }
}

/// Returns an error if a function that may only observe calls a helper that changes the connection.
/// A call that is never reached counts, too. Such functions are therefore known to be read-only
/// before they run.
fn looks_on(called: &[String], function: &str) -> Result<(), PluginError> {
    let changes = |name: &&String| HELPERS.iter().any(|one| one.changes && one.name == **name);
    match called.iter().find(changes) {
        Some(helper) => {
            Err(PluginError::LooksOn { function: function.to_owned(), helper: helper.clone() })
        }
        None => Ok(()),
    }
}

/// Returns an error if a function calls `equic_call_default`. The caller checks only functions
/// whose manifest entry has no `default = true`, because the host does not compute the default's
/// answer for them.
fn asks_no_default(called: &[String], function: &str) -> Result<(), PluginError> {
    if called.iter().any(|name| name == "equic_call_default") {
        return Err(PluginError::NoDefault(function.to_owned()));
    }
    Ok(())
}

fn bit(field: Field) -> u128 {
    1u128.checked_shl(u32::from(field as u16)).unwrap_or(0)
}

#[derive(Debug)]
struct Inner {
    manifest: Manifest,
    program: Program<Abi>,
    rights: Rights,
    /// Functions that are attached to operations without frame types. The index is the operation's
    /// number.
    functions: Vec<Functions>,
    /// Functions that are attached to operations that exist once for each frame type. There are
    /// only a few.
    of_frames: Vec<((Operation, u64), Functions)>,
    /// Operations that the plugin provides for other plugins.
    provided: Vec<Provided>,
    /// Offset in the sandbox at which the arguments of a call begin.
    area: u64,
    /// Memory that the program takes up in the process-wide limit.
    _held: places::Held,
}

/// An operation that a plugin provides for other plugins.
#[derive(Debug)]
struct Provided {
    /// Name by which other plugins call the operation.
    name: String,
    inputs: usize,
    outputs: usize,
    entry: Entry,
}

/// A loaded plugin: its bytecode is checked and compiled, and it can use only what it was granted.
/// Clones share the program.
#[derive(Clone, Debug)]
pub struct Plugin {
    inner: Arc<Inner>,
}

impl Plugin {
    /// Loads the bundle's object. Time and memory are proportional to the object's size. The memory
    /// of an instance is only allocated when the plugin is attached.
    ///
    /// # Errors
    /// Any [`PluginError`] except [`PluginError::Attach`] and [`PluginError::Memory`].
    pub fn load(bundle: &Bundle<'_>, granted: &Granted) -> Result<Plugin, PluginError> {
        let manifest = bundle.manifest().clone();
        for (what, class) in manifest.uses() {
            if !granted.has(class) {
                return Err(PluginError::NotGranted { what, class });
            }
        }
        let mut config = Config::default();
        config.memory = manifest.memory;
        let helpers = Arc::new(helpers::table(&manifest, granted));
        let program = Program::load(bundle.code(), helpers, &config)?;
        let free = program.free();
        if free.len < abi::AREA {
            return Err(PluginError::NoRoom { left: free.len, needed: abi::AREA });
        }
        let mut called = Called::default();
        let mut functions = Vec::new();
        let mut of_frames: Vec<((Operation, u64), Functions)> = Vec::new();
        for one in &manifest.operations {
            let entry = program.entry(&one.function);
            let entry = entry.ok_or_else(|| PluginError::NoFunction(one.function.clone()))?;
            let called = called.of(&program, entry);
            if one.anchor != Anchor::Replace {
                looks_on(called, &one.function)?;
            }
            if !one.default {
                asks_no_default(called, &one.function)?;
            }
            let number = usize::from(one.operation.describe().id);
            let slot = match one.frame {
                Some(frame) => {
                    let key = (one.operation, frame);
                    let found = of_frames.iter().position(|(other, _)| *other == key);
                    let at = found.unwrap_or_else(|| {
                        of_frames.push((key, Functions::default()));
                        of_frames.len() - 1
                    });
                    &mut of_frames[at].1
                }
                None => {
                    if functions.len() <= number {
                        functions.resize(number + 1, Functions::default());
                    }
                    &mut functions[number]
                }
            };
            slot.set(one.anchor, entry);
            slot.with_default |= one.default;
        }
        let set = |fields: &[Field]| fields.iter().fold(0, |bits, field| bits | bit(*field));
        let rights = Rights {
            reads: set(&manifest.reads),
            sets: set(&manifest.sets),
            calls: manifest.calls.clone(),
            granted: granted.clone(),
        };
        let area = free.offset;
        let provided = manifest.provides.iter().map(|one| {
            let entry = program.entry(&one.function);
            let entry = entry.ok_or_else(|| PluginError::NoFunction(one.function.clone()))?;
            let called = called.of(&program, entry);
            looks_on(called, &one.function)?;
            asks_no_default(called, &one.function)?;
            let name = format!("{}.{}", manifest.name, one.name);
            Ok(Provided { name, inputs: one.inputs, outputs: one.outputs, entry })
        });
        let provided = provided.collect::<Result<Vec<Provided>, PluginError>>()?;
        let _held = places::Held::count(program.size());
        let inner =
            Inner { manifest, program, rights, functions, of_frames, provided, area, _held };
        Ok(Plugin { inner: Arc::new(inner) })
    }

    /// Returns the plugin's manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.inner.manifest
    }

    /// Returns the number of instructions of the plugin's bytecode.
    pub fn instructions(&self) -> usize {
        self.inner.program.instructions()
    }

    /// Returns the approximate memory of the loaded plugin, in bytes. All connections share this
    /// memory.
    pub(crate) fn size(&self) -> usize {
        self.inner.program.size() + self.inner.functions.len() * size_of::<Functions>()
    }

    /// Attaches the plugin to the operations of a connection, with memory of its own.
    /// `Connection::detach` detaches it. If the plugin fails, the connection detaches it, runs the
    /// default implementations again, and reports
    /// [`Event::HookFailed`](equic_transport::Event::HookFailed) to the application.
    ///
    /// # Errors
    /// [`PluginError::Attach`], [`PluginError::Memory`].
    pub fn attach(&self, connection: &mut Connection) -> Result<HookId, PluginError> {
        self.attach_with(connection, None)
    }

    /// Attaches the plugin like [`Plugin::attach`], and reports every call to `trace`.
    ///
    /// # Errors
    /// Those of [`Plugin::attach`].
    pub fn attach_traced(
        &self,
        connection: &mut Connection,
        trace: Box<dyn Trace>,
    ) -> Result<HookId, PluginError> {
        self.attach_with(connection, Some(trace))
    }

    /// Returns a hook with memory of its own, for callers that attach the hook without
    /// [`Plugin::attach`].
    ///
    /// # Errors
    /// [`PluginError::Memory`].
    pub fn instantiate(&self) -> Result<Loaded, PluginError> {
        self.instantiate_with(None, None, &[])
    }

    /// Returns a hook for a peer's plugin, like [`Plugin::instantiate`]. The plugin takes its steps
    /// from `allowance`, and fails if these are used up.
    ///
    /// # Errors
    /// [`PluginError::Memory`]. This includes the case that the process already runs
    /// [`MAX_OF_PEERS`] plugins of peers.
    pub fn instantiate_within(&self, allowance: Arc<Allowance>) -> Result<Loaded, PluginError> {
        self.instantiate_with(None, Some(allowance), &[])
    }

    /// Returns a hook like [`Plugin::instantiate`] or, with an allowance, like
    /// [`Plugin::instantiate_within`]. `frame_types` are the numbers on the wire of the plugin's
    /// frame types, in the order of the manifest.
    pub(crate) fn instantiate_as(
        &self,
        frame_types: &[u64],
        allowance: Option<Arc<Allowance>>,
    ) -> Result<Loaded, PluginError> {
        self.instantiate_with(None, allowance, frame_types)
    }

    fn attach_with(
        &self,
        connection: &mut Connection,
        trace: Option<Box<dyn Trace>>,
    ) -> Result<HookId, PluginError> {
        let Loaded { hook, points, frames } = self.instantiate_with(trace, None, &[])?;
        Ok(connection.attach_with_frames(hook, &points, &frames)?)
    }

    fn instantiate_with(
        &self,
        trace: Option<Box<dyn Trace>>,
        allowance: Option<Arc<Allowance>>,
        frame_types: &[u64],
    ) -> Result<Loaded, PluginError> {
        let allotted = Allotted::new(&self.inner.manifest.frames, frame_types);
        let wire = |named| allotted.wire(named).unwrap_or(named);
        let (points, frames) = (self.points(wire), self.frames(wire));
        let allotted = Some(allotted).filter(Allotted::differ);
        let instance = Instance::new(self, trace, allowance, allotted)?;
        Ok(Loaded { hook: Box::new(instance), points, frames })
    }

    /// Returns the frame types that the plugin defines, by their numbers on the wire. `wire`
    /// translates a number of the manifest.
    fn frames(&self, wire: impl Fn(u64) -> u64) -> Vec<OwnFrame> {
        let frames = self.inner.manifest.frames.iter().map(|own| OwnFrame {
            frame_type: wire(own.frame_type),
            ack_eliciting: own.ack_eliciting,
        });
        frames.collect()
    }

    fn points(&self, wire: impl Fn(u64) -> u64) -> Vec<AttachPoint> {
        let of = |functions: &Functions, operation, frame_type| AttachPoint {
            operation,
            frame_type,
            before: functions.before.is_some(),
            replace: functions.replace.is_some(),
            with_default: functions.with_default,
            after: functions.after.is_some(),
        };
        let inner = &self.inner;
        let simple = Operation::ALL.iter().filter_map(|operation| {
            let functions = inner.functions.get(usize::from(operation.describe().id))?;
            Some(of(functions, *operation, None))
        });
        let of_frames = inner.of_frames.iter();
        let of_frames = of_frames
            .map(|((operation, frame), functions)| of(functions, *operation, Some(wire(*frame))));
        simple.chain(of_frames).filter(|one| one.before || one.replace || one.after).collect()
    }

    /// Returns the function that handles a call at this anchor, or `None` if the plugin attaches
    /// none there.
    fn function(&self, operation: Operation, frame: u64, anchor: Anchor) -> Option<Entry> {
        let inner = &self.inner;
        let simple = inner.functions.get(operation as usize).and_then(|one| one.at(anchor));
        simple.or_else(|| {
            let mut of_frames = inner.of_frames.iter();
            of_frames.find(|(key, _)| *key == (operation, frame))?.1.at(anchor)
        })
    }
}
