//! Bytecode on the operations of one connection.
//!
//! * [`Plugin`], here: a bundle that was loaded, and where its functions belong; connections share it;
//! * `allotted.rs`: its frame types under other numbers on the wire;
//! * `allowance.rs`: steps and frames that the plugins of a connection's peer have together;
//!   `account.rs`: those of an address, and of all peers; `bucket.rs`: what time gives back;
//! * `abi.rs`: the interface to bytecode: a call's arguments, the place of its words and bytes, the helpers;
//! * `instance.rs`: a plugin on one connection, as the transport's `Hook`;
//! * `helpers.rs`: functions of the host that bytecode may call; `view.rs`: the connection as they see it;
//! * `lint.rs`: what the code uses and the manifest does not declare, for authors;
//! * `places.rs`: how many plugins of peers a process has, and how much memory they take;
//! * `clamp.rs`: answers that are more than a plugin's classes allow;
//! * `trace.rs`: every call, for developers of plugins.

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

/// Reason for which a plugin cannot run on a connection.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PluginError {
    /// The object was refused: it cannot be read, or its bytecode may not run.
    #[error("the object: {0}")]
    Load(#[from] LoadError),
    /// The manifest names a function that the object does not have.
    #[error("the object has no function `{0}`, which the manifest attaches: is it static?")]
    NoFunction(String),
    /// The object's variables leave no room for calls.
    #[error(
        "its variables leave {left} bytes of its memory, and calls need {needed}: raise `memory`"
    )]
    NoRoom {
        /// Bytes that are left between variables and stack.
        left: u64,
        /// Bytes that calls need.
        needed: u64,
    },
    /// The plugin uses an operation or field of a class that was not granted.
    #[error("{what} takes `{class}`, which was not granted")]
    NotGranted {
        /// Operation or field that is used, by name.
        what: String,
        /// Class that it needs.
        class: Class,
    },
    /// A function that looks on, or that other plugins call, calls a helper that changes the connection.
    #[error(
        "`{function}` calls {helper}, which changes the connection, and is attached before or after an operation, or \
         provided for other plugins: attach it as `replace`, and have it return EQUIC_DEFAULT"
    )]
    LooksOn {
        /// Name of the function.
        function: String,
        /// Name of the helper.
        helper: String,
    },
    /// A function asks for the default's answer, and the manifest does not.
    #[error(
        "`{0}` calls equic_call_default, and is attached without `default = true`: add that to the operation in the \
         manifest"
    )]
    NoDefault(String),
    /// The connection has no place for it.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// There is no memory for an instance.
    #[error("memory for an instance: {0}")]
    Memory(#[from] io::Error),
}

/// Functions of a plugin at one operation.
#[derive(Clone, Copy, Debug, Default)]
struct Functions {
    before: Option<Entry>,
    replace: Option<Entry>,
    after: Option<Entry>,
    /// The one in the default's place is given what the default answers.
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

/// Fields and classes that a plugin has.
#[derive(Clone, Debug)]
struct Rights {
    /// A bit for each field, by its number.
    reads: u128,
    sets: u128,
    /// Operations of other plugins that it may call.
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

/// Helpers that functions call, by entry. A manifest can name one function often, and to find its
/// helpers takes a walk over the program.
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

/// Looks for helpers in a function that change the connection: it may have none of them, not even where it never calls
/// it. So what looks on is read-only before it runs.
fn looks_on(called: &[String], function: &str) -> Result<(), PluginError> {
    let changes = |name: &&String| HELPERS.iter().any(|one| one.changes && one.name == **name);
    match called.iter().find(changes) {
        Some(helper) => {
            Err(PluginError::LooksOn { function: function.to_owned(), helper: helper.clone() })
        }
        None => Ok(()),
    }
}

/// Looks for the helper in a function that has the default's answer, where that is not asked for.
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
    /// Functions at operations without frame types, by the operation's number.
    functions: Vec<Functions>,
    /// Functions at operations that are there for each frame type; a few.
    of_frames: Vec<((Operation, u64), Functions)>,
    /// Operations that it provides for other plugins.
    provided: Vec<Provided>,
    /// Offset in the sandbox of the call's words.
    area: u64,
    /// The program's bytes, which count for the process.
    _held: places::Held,
}

/// An operation that a plugin provides for others.
#[derive(Debug)]
struct Provided {
    /// Name by which others call it.
    name: String,
    inputs: usize,
    outputs: usize,
    entry: Entry,
}

/// A plugin that was loaded: checked, compiled, and held to what it was granted. Clones share it.
#[derive(Clone, Debug)]
pub struct Plugin {
    inner: Arc<Inner>,
}

impl Plugin {
    /// Loads the bundle's object. It takes time and memory in proportion to the object's size, and of the
    /// instance's memory nothing yet.
    ///
    /// # Errors
    /// [`PluginError`]: but for [`PluginError::Attach`] and [`PluginError::Memory`] any of them.
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

    /// The plugin's manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.inner.manifest
    }

    /// Instructions of its bytecode.
    pub fn instructions(&self) -> usize {
        self.inner.program.instructions()
    }

    /// Bytes that it takes, roughly, however many connections share it.
    pub(crate) fn size(&self) -> usize {
        self.inner.program.size() + self.inner.functions.len() * size_of::<Functions>()
    }

    /// Puts it on the operations of a connection, with memory of its own. `Connection::detach` takes it off; if it
    /// fails, it is taken off by itself, defaults run, and the application is told
    /// ([`Event::HookFailed`](equic_transport::Event::HookFailed)).
    ///
    /// # Errors
    /// [`PluginError::Attach`], [`PluginError::Memory`].
    pub fn attach(&self, connection: &mut Connection) -> Result<HookId, PluginError> {
        self.attach_with(connection, None)
    }

    /// As [`Plugin::attach`], and every call is reported to `trace`.
    ///
    /// # Errors
    /// As [`Plugin::attach`].
    pub fn attach_traced(
        &self,
        connection: &mut Connection,
        trace: Box<dyn Trace>,
    ) -> Result<HookId, PluginError> {
        self.attach_with(connection, Some(trace))
    }

    /// A hook with memory of its own, to be attached by other means than a [`Connection`].
    ///
    /// # Errors
    /// [`PluginError::Memory`].
    pub fn instantiate(&self) -> Result<Loaded, PluginError> {
        self.instantiate_with(None, None, &[])
    }

    /// As [`Plugin::instantiate`], of a peer's plugin, which takes its steps from `allowance`: if they are used up,
    /// it has failed.
    ///
    /// # Errors
    /// [`PluginError::Memory`], and so it is if the peers of this process have [`MAX_OF_PEERS`] plugins.
    pub fn instantiate_within(&self, allowance: Arc<Allowance>) -> Result<Loaded, PluginError> {
        self.instantiate_with(None, Some(allowance), &[])
    }

    /// As [`Plugin::instantiate`] or, with an allowance, [`Plugin::instantiate_within`], of a plugin whose frame types are
    /// these on the wire, one for each of the manifest.
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

    /// Its frame types; `wire` has the number on the wire.
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

    /// The function that a call goes to.
    fn function(&self, operation: Operation, frame: u64, anchor: Anchor) -> Option<Entry> {
        let inner = &self.inner;
        let simple = inner.functions.get(operation as usize).and_then(|one| one.at(anchor));
        simple.or_else(|| {
            let mut of_frames = inner.of_frames.iter();
            of_frames.find(|(key, _)| *key == (operation, frame))?.1.at(anchor)
        })
    }
}
