//! Reads manifests: TOML files in which plugins declare their name, needs and limits. Unknown keys,
//! values out of range and contradictions are errors. Every size is checked before it is used.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;

use equic_transport::operation::{Field, Operation as TransportOperation, PayloadKind};
use serde::Deserialize;
use thiserror::Error;

use crate::class::{Class, class_of, class_of_setting};
use crate::key::unhex;
#[cfg(feature = "schema")]
use crate::schema;

/// Version of the interface between bytecode and connection that this crate implements.
pub const ABI: u32 = 2;

/// Maximum length of a plugin's name, in bytes.
pub(crate) const MAX_NAME: usize = 64;
/// Maximum length of the author's name, in bytes.
const MAX_AUTHOR: usize = 128;
/// Maximum number of steps of one call.
const MAX_STEPS: u64 = 1 << 24;
/// Range of the memory of one instance, in bytes.
pub(crate) const MEMORY: RangeInclusive<u64> = 16 << 10..=16 << 20;
/// Maximum number of operations that a plugin may attach functions to.
const MAX_OPERATIONS: usize = 32;
/// Maximum number of frame types that a plugin defines.
const MAX_FRAMES: usize = 8;
/// Maximum number of operations that a plugin provides to other plugins. Also the maximum number of
/// other plugins' operations that a plugin calls.
const MAX_PROVIDED: usize = 16;
/// Maximum number of 8-byte inputs, and of 8-byte outputs, of an operation that a plugin provides.
pub(crate) const MAX_WORDS: usize = 8;
/// The largest value of a variable-length integer (RFC 9000 s.16).
const MAX_VARINT: u64 = (1 << 62) - 1;
/// First frame type that a plugin may use. The IETF assigns the smaller numbers (RFC 9000 s.22.1.1
/// and s.22.4).
const FIRST_PRIVATE_FRAME: u64 = 0x40;

/// Error of reading a manifest.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// The manifest is not valid UTF-8.
    #[error("the manifest is not UTF-8")]
    Text,
    /// The manifest is not valid TOML, or has unknown keys.
    #[error("the manifest is invalid: {0}")]
    Toml(String),
    /// A key has an invalid value.
    #[error("the manifest is invalid: `{key}` {unfit}")]
    Value {
        /// The key.
        key: String,
        /// Why the value is invalid.
        unfit: Unfit,
    },
    /// The plugin uses an operation or field without declaring the class that it needs.
    #[error(
        "the manifest is invalid: {what} needs the capability `{class}`: add it to `capabilities`"
    )]
    Undeclared {
        /// Name of the operation or field.
        what: String,
        /// Class that the operation or field needs.
        class: Class,
    },
    /// The plugin uses an operation or field that is not available to plugins.
    #[error("the manifest is invalid: {what} is not available to plugins")]
    Impossible {
        /// Name of the operation or field.
        what: String,
    },
}

/// Why a value in a manifest is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Unfit {
    /// The name is empty or too long, or contains a character that is not allowed.
    #[error("must have 1 to {0} of these characters: lower-case letters, digits, `-`, `_`, `.`")]
    Name(usize),
    /// The text is empty or too long, or contains control characters.
    #[error("must have 1 to {0} printable characters")]
    Printable(usize),
    /// The version does not consist of three numbers.
    #[error("must consist of three numbers, such as 1.0.0")]
    Version,
    /// The hash is malformed.
    #[error("must be `sha256:` and 64 hexadecimal digits")]
    Hash,
    /// The time is malformed.
    #[error("must be a time such as 2030-01-01T00:00:00Z")]
    Time,
    /// The value is out of range.
    #[error("must be from {0} to {1}")]
    Range(u64, u64),
    /// The memory is not a power of two, or out of range.
    #[error("must be a power of two from 16384 to 16777216")]
    Memory,
    /// The list has too many entries.
    #[error("must not have more than {0} entries")]
    Many(usize),
    /// The list has the same entry twice.
    #[error("has the same entry twice: {0}")]
    Twice(String),
    /// No operation or field has this name.
    #[error("names {0}, which does not exist")]
    Unknown(String),
    /// The field cannot be set.
    #[error("names {0}, which cannot be set")]
    ReadOnly(String),
    /// The entry has no frame type although the operation exists once for each frame type, or has
    /// one although the operation does not.
    #[error(
        "of the operation {0} is invalid: `frame` is required for operations that exist for each frame type, and not permitted for all others"
    )]
    Frame(String),
    /// The entry has `default`, which this operation does not support.
    #[error(
        "of the operation {0} is invalid: `default` requires the anchor `replace`, and an operation that only outputs words"
    )]
    NoDefault(String),
    /// The name does not have the form `PLUGIN.NAME` of an operation that a plugin provides.
    #[error("names {0}: write the operation of another plugin as PLUGIN.NAME")]
    Own(String),
    /// The frame type is one that the IETF assigns.
    #[error("must be 0x40 or more, because the IETF assigns the smaller frame types")]
    Reserved,
    /// The plugin attaches no function to any operation.
    #[error("is empty: a plugin without operations does nothing")]
    Empty,
    /// The plugin declares a class that no plugin gets.
    #[error("contains `never`, which no plugin gets")]
    Never,
}

/// A plugin's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Major number, which increases when a version removes something.
    pub major: u32,
    /// Minor number, which increases when a version adds something.
    pub minor: u32,
    /// Changes otherwise.
    pub patch: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Position of a plugin's function relative to the operation that it is attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Anchor {
    /// The function runs instead of the operation's default implementation.
    Replace,
    /// The function runs before the operation. It only observes.
    Before,
    /// The function runs after the operation. It only observes.
    After,
}

impl fmt::Display for Anchor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Anchor::Replace => "replace",
            Anchor::Before => "before",
            Anchor::After => "after",
        })
    }
}

/// A function of a plugin and the operation that it is attached to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The operation.
    pub operation: TransportOperation,
    /// Position of the function relative to the operation.
    pub anchor: Anchor,
    /// Frame type, for an operation that exists once for each frame type. Otherwise `None`.
    pub frame: Option<u64>,
    /// True if the default implementation runs first, and the function finds the default's answer
    /// in its outputs.
    pub default: bool,
    /// Name of the function in the object file.
    pub function: String,
}

/// An operation that a plugin provides for other plugins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provides {
    /// Name of the operation, a C identifier. Other plugins call it `PLUGIN.NAME`.
    pub name: String,
    /// Name of the function in the object file.
    pub function: String,
    /// Number of 8-byte inputs.
    pub inputs: usize,
    /// Number of 8-byte outputs.
    pub outputs: usize,
}

/// An operation of another plugin that this plugin calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calls {
    /// Name of the operation, in the form `PLUGIN.NAME`.
    pub operation: String,
    /// Number of 8-byte inputs.
    pub inputs: usize,
    /// Number of 8-byte outputs.
    pub outputs: usize,
}

/// A frame type that a plugin defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Frame {
    /// Number of the frame type in the manifest. The number on the wire can differ for each
    /// connection.
    #[serde(rename = "type")]
    #[cfg_attr(feature = "schema", schemars(range(min = FIRST_PRIVATE_FRAME, max = MAX_VARINT)))]
    pub frame_type: u64,
    /// True if packets with this frame are ack-eliciting (RFC 9000 s.1.2).
    pub ack_eliciting: bool,
}

/// A valid manifest. It has the name, needs and limits of a plugin, as the plugin's author declares
/// them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Manifest {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: Version,
    /// Name of the author, for people to read. It is not verified: only the signature proves who
    /// the author is.
    pub author: String,
    /// Version of the plugin interface that the plugin is written for.
    pub abi: u32,
    /// SHA-256 of the object.
    pub code: [u8; 32],
    /// Classes of permissions that the plugin declares.
    pub capabilities: BTreeSet<Class>,
    /// The plugin's functions, each with the operation that it is attached to.
    pub operations: Vec<Operation>,
    /// Operations that the plugin provides for other plugins.
    pub provides: Vec<Provides>,
    /// Operations of other plugins that the plugin calls. Bytecode refers to them by their index in
    /// this list.
    pub calls: Vec<Calls>,
    /// Frame types that the plugin defines.
    pub frames: Vec<Frame>,
    /// Fields of the connection that the plugin reads.
    pub reads: Vec<Field>,
    /// Fields of the connection that the plugin sets.
    pub sets: Vec<Field>,
    /// Sandbox memory of one instance of the plugin, in bytes.
    pub memory: usize,
    /// Maximum number of steps of one call.
    pub steps: u64,
    /// Expiry, in seconds since the Unix epoch. The bundle is refused from this time on. `None` if
    /// the plugin never expires.
    pub expires: Option<u64>,
}

/// The structure of the TOML file, before its values are checked.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(title = "Manifest of a plugin"))]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    /// Hash of the object. `equic plugin build` and `pack` write it, so a manifest in a plugin's
    /// folder must not have it.
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::hash"))]
    code: String,
    /// Name of the plugin.
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::name"))]
    name: String,
    /// Version of the plugin: three numbers, such as `1.0.0`.
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::version"))]
    version: String,
    /// Name of the author, for people to read. Only the signature proves who the author is.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = MAX_AUTHOR)))]
    author: String,
    /// Version of the plugin interface that the plugin is written for.
    abi: u32,
    /// Memory of one instance, in bytes: a power of two from 16 KiB to 16 MiB. Default: 65536.
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::memory"))]
    #[serde(default)]
    memory: Option<u64>,
    /// Maximum number of steps of one call.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = MAX_STEPS)))]
    steps: u64,
    /// Time from which the bundle is refused, such as `2030-01-01T00:00:00Z`. Default: the plugin
    /// never expires.
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::time"))]
    #[serde(default)]
    expires: Option<String>,
    /// Classes of permissions that the plugin uses.
    #[cfg_attr(feature = "schema", schemars(extend("uniqueItems" = true)))]
    capabilities: Vec<Class>,
    /// Fields of the connection that the plugin reads.
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::readable"))]
    #[serde(default)]
    reads: Vec<String>,
    /// Fields of the connection that the plugin sets.
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::settable"))]
    #[serde(default)]
    sets: Vec<String>,
    /// Functions of the plugin, each with the operation that it is attached to.
    #[cfg_attr(feature = "schema", schemars(length(max = MAX_OPERATIONS)))]
    #[serde(default)]
    operations: Vec<Attached>,
    /// Functions that other plugins can call.
    #[cfg_attr(feature = "schema", schemars(length(max = MAX_PROVIDED)))]
    #[serde(default)]
    provides: Vec<Provided>,
    /// Functions of other plugins that the plugin calls.
    #[cfg_attr(feature = "schema", schemars(length(max = MAX_PROVIDED)))]
    #[serde(default)]
    calls: Vec<Called>,
    /// Frame types that the plugin defines.
    #[cfg_attr(feature = "schema", schemars(length(max = MAX_FRAMES)))]
    #[serde(default)]
    frames: Vec<Frame>,
}

/// A function of the plugin, and the operation that it is attached to.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct Attached {
    /// Name of the operation, from `equic plugin operations`.
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::operation"))]
    operation: String,
    /// Position of the function relative to the operation.
    anchor: Anchor,
    /// Name of the function in the object.
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::c_name"))]
    function: String,
    /// Frame type. Required for operations that exist for each frame type, and not permitted for
    /// others.
    #[cfg_attr(feature = "schema", schemars(range(max = MAX_VARINT)))]
    frame: Option<u64>,
    /// If true, the default implementation runs first, and the function finds its answer in
    /// `call->out`. Default: false.
    #[serde(default)]
    default: bool,
}

/// A function that other plugins can call.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct Provided {
    /// Name of the operation. Other plugins call it as `PLUGIN.NAME`.
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::c_name"))]
    name: String,
    /// Name of the function in the object.
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::c_name"))]
    function: String,
    /// Number of 8-byte inputs.
    #[cfg_attr(feature = "schema", schemars(range(max = MAX_WORDS)))]
    inputs: u64,
    /// Number of 8-byte outputs.
    #[cfg_attr(feature = "schema", schemars(range(max = MAX_WORDS)))]
    outputs: u64,
}

/// A function of another plugin that the plugin calls.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct Called {
    /// Name of the operation, in the form `PLUGIN.NAME`.
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::called"))]
    operation: String,
    /// Number of 8-byte inputs.
    #[cfg_attr(feature = "schema", schemars(range(max = MAX_WORDS)))]
    inputs: u64,
    /// Number of 8-byte outputs.
    #[cfg_attr(feature = "schema", schemars(range(max = MAX_WORDS)))]
    outputs: u64,
}

/// Returns an error message with line and column. The message does not quote the manifest, because
/// the manifest may come from a peer.
fn located(text: &str, lines: usize, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start));
    let Some(before) = before else { return error.message().to_owned() };
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    match line.checked_sub(lines) {
        Some(line) if line > 0 => format!("line {line}, column {column}: {}", error.message()),
        _ => error.message().to_owned(),
    }
}

fn value(key: &str, unfit: Unfit) -> ManifestError {
    ManifestError::Value { key: key.to_owned(), unfit }
}

impl Manifest {
    /// Parses a manifest of at most [`crate::MAX_MANIFEST`] bytes.
    pub fn parse(text: &[u8]) -> Result<Manifest, ManifestError> {
        Manifest::parse_behind(text, 0)
    }

    /// Parses a manifest whose first `lines` lines were added when the bundle was packed. Line
    /// numbers in errors do not count these lines.
    pub(crate) fn parse_behind(text: &[u8], lines: usize) -> Result<Manifest, ManifestError> {
        if text.len() > crate::MAX_MANIFEST {
            return Err(ManifestError::Toml(format!(
                "the text has more than {} bytes, which is the maximum",
                crate::MAX_MANIFEST
            )));
        }
        let text = std::str::from_utf8(text).map_err(|_| ManifestError::Text)?;
        let file: File = toml::from_str(text)
            .map_err(|error| ManifestError::Toml(located(text, lines, &error)))?;
        let manifest = read(file)?;
        declared(&manifest)?;
        Ok(manifest)
    }

    /// Returns `true` if the plugin defines this frame type.
    pub fn owns(&self, frame: Option<u64>) -> bool {
        frame.is_some_and(|frame| self.frames.iter().any(|own| own.frame_type == frame))
    }

    /// Returns the class that the plugin needs for a function at its operation.
    pub fn class_of(&self, operation: &Operation) -> Class {
        class_of(operation.operation, operation.anchor, self.owns(operation.frame))
    }

    /// Returns every operation and field that the plugin uses, with the class that it needs.
    pub fn uses(&self) -> impl Iterator<Item = (String, Class)> {
        let operations = self.operations.iter().map(|one| {
            let what = format!("{} of {}", one.anchor, one.operation);
            (what, self.class_of(one))
        });
        let frames =
            self.frames.iter().map(|own| (format!("frame {:#x}", own.frame_type), Class::Frames));
        let reads = self.reads.iter().map(|field| (format!("field {field:?}"), Class::Observe));
        let sets = self.sets.iter().map(|field| {
            (format!("setting {field:?}"), class_of_setting(*field).unwrap_or(Class::Never))
        });
        operations.chain(frames).chain(reads).chain(sets)
    }
}

/// Checks that the manifest declares every class that the plugin needs.
fn declared(manifest: &Manifest) -> Result<(), ManifestError> {
    for (what, class) in manifest.uses() {
        if class == Class::Never {
            return Err(ManifestError::Impossible { what });
        }
        if !manifest.capabilities.contains(&class) {
            return Err(ManifestError::Undeclared { what, class });
        }
    }
    Ok(())
}

fn read(file: File) -> Result<Manifest, ManifestError> {
    let name = identifier("name", file.name)?;
    let printable = |text: &str| text.chars().all(|c| !c.is_control() && c != '\u{fffd}');
    if file.author.is_empty() || file.author.len() > MAX_AUTHOR || !printable(&file.author) {
        return Err(value("author", Unfit::Printable(MAX_AUTHOR)));
    }
    let code = file.code.strip_prefix("sha256:").and_then(unhex);
    let memory = file.memory.unwrap_or(64 << 10);
    if !memory.is_power_of_two() || !MEMORY.contains(&memory) {
        return Err(value("memory", Unfit::Memory));
    }
    if !(1..=MAX_STEPS).contains(&file.steps) {
        return Err(value("steps", Unfit::Range(1, MAX_STEPS)));
    }
    let capabilities: BTreeSet<Class> = file.capabilities.iter().copied().collect();
    if capabilities.contains(&Class::Never) {
        return Err(value("capabilities", Unfit::Never));
    }
    if capabilities.len() != file.capabilities.len() {
        let twice = format!("{:?}", file.capabilities).to_lowercase();
        return Err(value("capabilities", Unfit::Twice(twice)));
    }
    let frames = frames(file.frames)?;
    Ok(Manifest {
        name,
        version: version(&file.version).ok_or_else(|| value("version", Unfit::Version))?,
        author: file.author,
        abi: file.abi,
        code: code.ok_or_else(|| value("code", Unfit::Hash))?,
        capabilities,
        operations: operations(file.operations, file.provides.is_empty())?,
        provides: provides(file.provides)?,
        calls: calls(file.calls)?,
        frames,
        reads: fields("reads", &file.reads, |_| true)?,
        sets: fields("sets", &file.sets, |field| class_of_setting(field).is_some())?,
        memory: memory as usize,
        steps: file.steps,
        expires: file.expires.as_deref().map(time).transpose()?,
    })
}

fn identifier(key: &str, text: String) -> Result<String, ManifestError> {
    let allowed = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.');
    let fits = (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(allowed);
    if fits { Ok(text) } else { Err(value(key, Unfit::Name(MAX_NAME))) }
}

/// Parses a version: three numbers of at most nine digits each, without leading zeros.
fn version(text: &str) -> Option<Version> {
    let number = |part: &str| {
        let digits = (1..=9).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
        (digits && (part == "0" || !part.starts_with('0'))).then(|| part.parse().ok())?
    };
    let mut parts = text.splitn(3, '.');
    let mut next = || number(parts.next()?);
    Some(Version { major: next()?, minor: next()?, patch: next()? })
}

fn time(text: &str) -> Result<u64, ManifestError> {
    crate::freshness::time(text).ok_or_else(|| value("expires", Unfit::Time))
}

fn operations(attached: Vec<Attached>, needed: bool) -> Result<Vec<Operation>, ManifestError> {
    let wrong = |unfit| value("operations", unfit);
    if attached.is_empty() && needed {
        return Err(wrong(Unfit::Empty));
    }
    if attached.len() > MAX_OPERATIONS {
        return Err(wrong(Unfit::Many(MAX_OPERATIONS)));
    }
    let mut seen = BTreeSet::new();
    attached
        .into_iter()
        .map(|one| {
            let found =
                TransportOperation::ALL.iter().find(|known| known.describe().name == one.operation);
            let Some(operation) = found.copied() else {
                return Err(wrong(Unfit::Unknown(shown(&one.operation))));
            };
            let name = || operation.describe().name.to_owned();
            let for_each_frame = operation.describe().carries == PayloadKind::Frame;
            if for_each_frame != one.frame.is_some() {
                return Err(wrong(Unfit::Frame(name())));
            }
            if one.frame.is_some_and(|frame| frame > MAX_VARINT) {
                return Err(wrong(Unfit::Range(0, MAX_VARINT)));
            }
            if !seen.insert((operation, one.anchor, one.frame)) {
                return Err(wrong(Unfit::Twice(name())));
            }
            if one.default && !(one.anchor == Anchor::Replace && operation.offers_default()) {
                return Err(wrong(Unfit::NoDefault(name())));
            }
            let function = c_name("function", one.function)?;
            let Attached { anchor, frame, default, .. } = one;
            Ok(Operation { operation, anchor, frame, default, function })
        })
        .collect()
}

/// Checks that a name is a C identifier of at most [`MAX_NAME`] bytes.
fn c_name(key: &str, text: String) -> Result<String, ManifestError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let fits = (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(allowed);
    if fits { Ok(text) } else { Err(value(key, Unfit::Name(MAX_NAME))) }
}

/// Checks that a number of inputs or outputs is within its limit.
fn words(key: &str, number: u64) -> Result<usize, ManifestError> {
    let number = usize::try_from(number).ok().filter(|number| *number <= MAX_WORDS);
    number.ok_or_else(|| value(key, Unfit::Range(0, MAX_WORDS as u64)))
}

fn provides(provided: Vec<Provided>) -> Result<Vec<Provides>, ManifestError> {
    if provided.len() > MAX_PROVIDED {
        return Err(value("provides", Unfit::Many(MAX_PROVIDED)));
    }
    let mut seen = BTreeSet::new();
    let provided = provided.into_iter().map(|one| {
        let name = c_name("name", one.name)?;
        if !seen.insert(name.clone()) {
            return Err(value("provides", Unfit::Twice(name)));
        }
        Ok(Provides {
            name,
            function: c_name("function", one.function)?,
            inputs: words("inputs", one.inputs)?,
            outputs: words("outputs", one.outputs)?,
        })
    });
    provided.collect()
}

fn calls(called: Vec<Called>) -> Result<Vec<Calls>, ManifestError> {
    if called.len() > MAX_PROVIDED {
        return Err(value("calls", Unfit::Many(MAX_PROVIDED)));
    }
    let called = called.into_iter().map(|one| {
        let name = || value("calls", Unfit::Own(shown(&one.operation)));
        let (plugin, operation) = one.operation.rsplit_once('.').ok_or_else(name)?;
        identifier("operation", plugin.to_owned())?;
        c_name("operation", operation.to_owned())?;
        let (inputs, outputs) = (words("inputs", one.inputs)?, words("outputs", one.outputs)?);
        Ok(Calls { operation: one.operation, inputs, outputs })
    });
    called.collect()
}

fn frames(frames: Vec<Frame>) -> Result<Vec<Frame>, ManifestError> {
    if frames.len() > MAX_FRAMES {
        return Err(value("frames", Unfit::Many(MAX_FRAMES)));
    }
    let mut seen = BTreeSet::new();
    for frame in &frames {
        if frame.frame_type > MAX_VARINT {
            return Err(value("type", Unfit::Range(FIRST_PRIVATE_FRAME, MAX_VARINT)));
        }
        if frame.frame_type < FIRST_PRIVATE_FRAME {
            return Err(value("type", Unfit::Reserved));
        }
        if !seen.insert(frame.frame_type) {
            return Err(value("frames", Unfit::Twice(format!("{:#x}", frame.frame_type))));
        }
    }
    Ok(frames)
}

fn fields(
    key: &str,
    names: &[String],
    can_be: impl Fn(Field) -> bool,
) -> Result<Vec<Field>, ManifestError> {
    if names.len() > Field::ALL.len() {
        return Err(value(key, Unfit::Many(Field::ALL.len())));
    }
    let mut found: Vec<Field> = Vec::with_capacity(names.len());
    for name in names {
        let field = Field::ALL.iter().find(|field| format!("{field:?}") == *name);
        let field = *field.ok_or_else(|| value(key, Unfit::Unknown(shown(name))))?;
        if !can_be(field) {
            return Err(value(key, Unfit::ReadOnly(shown(name))));
        }
        if found.contains(&field) {
            return Err(value(key, Unfit::Twice(shown(name))));
        }
        found.push(field);
    }
    Ok(found)
}

/// Returns untrusted text for a message, shortened and with control characters escaped.
fn shown(text: &str) -> String {
    text.chars().take(MAX_NAME).flat_map(char::escape_debug).collect()
}
