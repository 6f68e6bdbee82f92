//! The policy of an endpoint's owner, and the decision whether a peer's plugin may run under it.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;

use crate::bundle::Bundle;
use crate::class::{Class, Origin, Requires};
use crate::freshness;
use crate::key::PublicKey;
use crate::manifest::{ABI, Manifest};
use crate::preamble::Preamble;
#[cfg(feature = "schema")]
use crate::schema;
use crate::transparency::Staple;

/// Maximum length of a policy's text, in bytes.
const MAX_POLICY: usize = 64 << 10;

/// An author that a policy names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Author {
    /// Name that the owner gives the author. It is only for messages.
    pub name: String,
    /// Public key of the author.
    pub key: PublicKey,
    /// Classes that the policy grants to plugins with this author's signature.
    pub classes: BTreeSet<Class>,
    /// Transparency log that must contain this author's plugins. `None` if no log is required.
    pub log: Option<Log>,
}

/// A transparency log that a policy requires for plugins of an author.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    /// Public key of the log.
    pub key: PublicKey,
    /// Minimum time of the signed tree head in a plugin's log proof, in seconds since the Unix
    /// epoch. 0 accepts any time.
    pub since: u64,
}

/// Limits of a policy on the plugins of peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Maximum size of a plugin's object, in bytes.
    pub code: usize,
    /// Maximum sandbox memory of a plugin on one connection, in bytes.
    pub memory: usize,
    /// Maximum number of steps of one call.
    pub steps: u64,
    /// Steps per second that all plugins of the peer share on one connection. A step takes less
    /// than two nanoseconds.
    pub steps_per_second: u64,
    /// Steps that the plugins of the peer get in addition for each packet that the connection sends
    /// or receives.
    pub steps_per_packet: u64,
    /// Steps per second that the plugins of a peer share on all connections of one address. An
    /// address is an IPv4 address or an IPv6 /64.
    pub address_steps_per_second: u64,
    /// Steps per second that the plugins of all peers share.
    pub process_steps_per_second: u64,
    /// Maximum number of frame types that a plugin defines.
    pub frames: usize,
    /// Bytes per second that the plugins of the peer may send on one connection in the frames that
    /// they define.
    pub frame_bytes_per_second: u64,
    /// Maximum memory of all plugins of the peer on one connection, in bytes. It includes
    /// sandboxes, programs with their compiled code, and bundles that are being fetched.
    pub total_memory: usize,
    /// Maximum memory of the peers' plugins on all connections of one address, in bytes.
    pub address_memory: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            code: 64 << 10,
            memory: 64 << 10,
            steps: 100_000,
            steps_per_second: 20_000_000,
            steps_per_packet: 1_500,
            address_steps_per_second: 100_000_000,
            process_steps_per_second: 400_000_000,
            frames: 4,
            frame_bytes_per_second: 125_000,
            total_memory: 3 << 19,
            address_memory: 16 << 20,
        }
    }
}

/// The permissions that the owner of an endpoint grants to plugins of peers. The default policy
/// grants none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Classes granted to every plugin, even if it is unsigned or its author is not in `authors`.
    pub anyone: BTreeSet<Class>,
    /// Authors whose signed plugins get more classes than `anyone`.
    pub authors: Vec<Author>,
    /// SHA-256 hashes of plugins that are refused even with a valid signature. Each is the hash of
    /// an object, of a manifest or of a whole bundle.
    pub withdrawn: BTreeSet<[u8; 32]>,
    /// Maximum time until a plugin expires. A plugin that expires later, or never, is refused. With
    /// `None`, plugins may expire at any time or never.
    pub max_age: Option<Duration>,
    /// Limits on size, memory, steps and frames.
    pub limits: Limits,
}

/// Error of reading a policy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// The text is not valid TOML, or has unknown keys.
    #[error("the policy is invalid: {0}")]
    Toml(String),
    /// The policy grants a class to plugins that can never get this class.
    #[error("the policy grants `{class}` to {whom}: {why}")]
    Class {
        /// Class that cannot be granted.
        class: Class,
        /// Author or side that the policy grants the class to.
        whom: String,
        /// Why the class cannot be granted.
        why: &'static str,
    },
    /// An author's or a log's key is malformed.
    #[error("the policy has a malformed key of {0}: write `ed25519:` and 64 hexadecimal digits")]
    Key(String),
    /// A hash in the list of withdrawn plugins is malformed.
    #[error(
        "the policy has a malformed hash {0:?} in `withdrawn`: write `sha256:` and 64 lower-case hexadecimal digits, as `equic plugin inspect` shows hashes"
    )]
    Hash(String),
    /// The policy's `max_age` is malformed.
    #[error(
        "the policy has an invalid `max_age` {0:?}: write a time of at least a second, such as \"90d\" or \"12h\""
    )]
    MaxAge(String),
    /// The `since` of a log is malformed.
    #[error(
        "the policy has an invalid `since` {since:?} for the log {log}: write a time such as \"2026-01-31T00:00:00Z\""
    )]
    Since {
        /// Name of the log whose `since` is malformed.
        log: String,
        /// The value that is not a time.
        since: String,
    },
    /// The policy requires a log for an author, but does not define that log.
    #[error(
        "the policy requires that {author}'s plugins are in the log {log}, but does not contain the key of this log: add a [[log]]"
    )]
    NoLog {
        /// Name of the author.
        author: String,
        /// Name of the undefined log.
        log: String,
    },
    /// Two logs of the policy have the same name.
    #[error("the policy has the log {0} twice: remove one of them")]
    LogTwice(String),
    /// Two authors have the same key.
    #[error("the policy has the key of {0} twice: remove one of the authors")]
    Twice(String),
}

/// The structure of the TOML file, before its values are checked.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(title = "Policy for plugins of peers"))]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    /// Classes for every plugin, even if it is unsigned or its author is unknown.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::classes_of_anyone"))]
    anyone: Vec<Class>,
    /// Authors whose signed plugins get more classes.
    #[serde(default)]
    author: Vec<Named>,
    /// Transparency logs that can be required for an author's plugins.
    #[serde(default)]
    log: Vec<NamedLog>,
    /// Hashes of plugins that are refused even with a valid signature.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::hashes"))]
    withdrawn: Vec<String>,
    /// Maximum time until a plugin expires, such as `90d`. Default: no limit.
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::age"))]
    #[serde(default)]
    max_age: Option<String>,
    /// Limits of size, memory, steps and frames.
    #[serde(default)]
    limits: Limits,
}

/// An author whose signed plugins get more classes.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct Named {
    /// Name that the owner gives the author, for messages.
    name: String,
    /// Public key of the author: `ed25519:` and 64 hexadecimal digits.
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::key"))]
    key: String,
    /// Classes that the author's plugins get.
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::classes_of_author"))]
    classes: Vec<Class>,
    /// Name of the log that must contain the author's plugins. Default: no log is required.
    log: Option<String>,
}

/// A transparency log.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct NamedLog {
    /// Name of the log in this policy.
    name: String,
    /// Public key of the log: `ed25519:` and 64 hexadecimal digits.
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::key"))]
    key: String,
    /// Minimum time of the log's head in a plugin's proof, such as `2026-01-31T00:00:00Z`. Default:
    /// any time.
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::time"))]
    #[serde(default)]
    since: Option<String>,
}

impl Policy {
    /// Parses a policy. An empty text grants nothing.
    pub fn parse(text: &str) -> Result<Policy, PolicyError> {
        if text.len() > MAX_POLICY {
            return Err(PolicyError::Toml(format!(
                "the text has more than {MAX_POLICY} bytes, which is the maximum"
            )));
        }
        let file: File =
            toml::from_str(text).map_err(|error| PolicyError::Toml(error.to_string()))?;
        let anyone: BTreeSet<Class> = file.anyone.into_iter().collect();
        can_be_granted(&anyone, "anyone", false)?;
        let logs = logs(file.log)?;
        let mut authors: Vec<Author> = Vec::with_capacity(file.author.len());
        for Named { name, key, classes, log } in file.author {
            let key = key.parse().map_err(|_| PolicyError::Key(name.clone()))?;
            if authors.iter().any(|author| author.key == key) {
                return Err(PolicyError::Twice(name));
            }
            let classes: BTreeSet<Class> = classes.into_iter().collect();
            can_be_granted(&classes, &name, true)?;
            let log = match log {
                Some(log) => {
                    let found = logs.iter().find(|(known, _)| *known == log);
                    let missing = || PolicyError::NoLog { author: name.clone(), log };
                    Some(found.ok_or_else(missing)?.1)
                }
                None => None,
            };
            authors.push(Author { name, key, classes, log });
        }
        let withdrawn = freshness::hashes(&file.withdrawn)?;
        let max_age = file.max_age.as_deref().map(freshness::max_age).transpose()?;
        Ok(Policy { anyone, authors, withdrawn, max_age, limits: file.limits })
    }

    /// Returns the classes that plugins of at least one author may get.
    pub fn granted_to_somebody(&self) -> BTreeSet<Class> {
        let named = self.authors.iter().flat_map(|author| &author.classes);
        self.anyone.iter().chain(named).copied().collect()
    }

    fn author(&self, key: Option<PublicKey>) -> Option<&Author> {
        self.authors.iter().find(|author| Some(author.key) == key)
    }
}

/// Returns the logs that a policy defines, with their names.
fn logs(named: Vec<NamedLog>) -> Result<Vec<(String, Log)>, PolicyError> {
    let mut logs: Vec<(String, Log)> = Vec::with_capacity(named.len());
    for NamedLog { name, key, since } in named {
        let key = key.parse().map_err(|_| PolicyError::Key(name.clone()))?;
        let since = match since {
            Some(since) => freshness::time(&since)
                .ok_or_else(|| PolicyError::Since { log: name.clone(), since })?,
            None => 0,
        };
        if logs.iter().any(|(known, _)| *known == name) {
            return Err(PolicyError::LogTwice(name));
        }
        logs.push((name, Log { key, since }));
    }
    Ok(logs)
}

/// Returns an error for a grant that can have no effect, because it is probably a mistake.
fn can_be_granted(classes: &BTreeSet<Class>, whom: &str, signed: bool) -> Result<(), PolicyError> {
    for class in classes {
        let why = match class.requires() {
            Requires::Nothing => continue,
            Requires::Signature if signed => continue,
            Requires::Signature => "this class requires a signature: name the author and the key",
            Requires::OwnPlugin => "plugins of peers never get this class",
            Requires::Impossible => "no plugin gets this class",
        };
        return Err(PolicyError::Class { class: *class, whom: whom.to_owned(), why });
    }
    Ok(())
}

/// The permissions of a plugin that may run: those that its manifest declares, and no others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    classes: BTreeSet<Class>,
}

impl Granted {
    /// Returns all permissions, for examining the code of a plugin without running it.
    pub(crate) fn everything() -> Granted {
        Granted { classes: Class::ALL.iter().copied().collect() }
    }

    #[cfg(test)]
    pub(crate) fn of(classes: impl Iterator<Item = Class>) -> Granted {
        Granted { classes: classes.collect() }
    }

    /// Returns true if this class is granted.
    pub fn has(&self, class: Class) -> bool {
        self.classes.contains(&class)
    }

    /// Returns all classes that are granted.
    pub fn classes(&self) -> impl Iterator<Item = Class> {
        self.classes.iter().copied()
    }
}

/// Why a plugin may not run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The plugin is written for another version of the plugin interface (ABI).
    #[error("the plugin is written for ABI {0}, but this endpoint has ABI {ABI}")]
    Abi(u32),
    /// The plugin has expired.
    #[error("the plugin expired at Unix time {0}")]
    Expired(u64),
    /// The policy lists a hash of the plugin as withdrawn.
    #[error("the policy has withdrawn the plugin: its {what} has the hash {hash}")]
    Withdrawn {
        /// Part of the bundle that has the withdrawn hash: object, manifest or whole bundle.
        what: &'static str,
        /// The withdrawn hash, as the policy writes it.
        hash: String,
    },
    /// The plugin is valid for longer than the policy's `max_age`.
    #[error(
        "{}, but the policy's `max_age` requires an expiry at Unix time {latest} or earlier: the author must sign a new version",
        expires.map_or("the plugin never expires".to_owned(), |at| format!("the plugin expires at Unix time {at}"))
    )]
    ValidTooLong {
        /// Expiry of the plugin, in seconds since the Unix epoch. `None` if it never expires.
        expires: Option<u64>,
        /// Latest expiry that the policy accepts now, in seconds since the Unix epoch.
        latest: u64,
    },
    /// The signed tree head in the plugin's log proof is older than the policy permits.
    #[error(
        "the plugin's log proof is too old: it is from Unix time {time}, but the policy requires {since} or later: `equic plugin log staple` creates a new proof"
    )]
    OldProof {
        /// Time of the tree head, in seconds since the Unix epoch.
        time: u64,
        /// Minimum time that the policy accepts, in seconds since the Unix epoch.
        since: u64,
    },
    /// The plugin exceeds a limit of the policy.
    #[error("the plugin's {what} is {found}, but the policy's limit is {limit}")]
    TooLarge {
        /// Name of the quantity that exceeds the limit.
        what: &'static str,
        /// Amount that the plugin declares, in the quantity's unit.
        found: u64,
        /// Maximum that the policy allows, in the quantity's unit.
        limit: u64,
    },
    /// The plugin defines frames that are not ack-eliciting. The congestion window does not limit
    /// such frames (RFC 9002 s.2), so a peer's plugin could send without limit.
    #[error(
        "the plugin's frames of type {0:#x} are not ack-eliciting, but all frames of a peer's plugin must be"
    )]
    Silent(u64),
    /// The policy grants nothing to plugins of this author, or to unsigned plugins.
    #[error("the policy permits no plugin {}", author.map_or("without a signature".to_owned(), |key| format!("signed by {key}")))]
    NotAccepted {
        /// Public key that signed the bundle. `None` if the bundle is not signed.
        author: Option<PublicKey>,
    },
    /// The policy requires that a log contains plugins of this author, but the bundle has no proof
    /// that it does.
    #[error(
        "the plugin has no proof that it is in the log {log}, which the policy requires for {author}'s plugins"
    )]
    NotLogged {
        /// Name of the author in the policy.
        author: String,
        /// Public key of the log that the policy requires.
        log: PublicKey,
    },
    /// The plugin needs a class that the policy does not grant to this plugin.
    #[error("{what} needs the class `{class}`, which the policy does not grant")]
    NotGranted {
        /// Name of the operation or field that needs the class.
        what: String,
        /// The class.
        class: Class,
    },
    /// The plugin needs a class that only plugins signed by an author of the policy can get.
    #[error(
        "{what} needs the class `{class}`, which requires the signature of an author that the policy names"
    )]
    NotSigned {
        /// Name of the operation or field that needs the class.
        what: String,
        /// The class.
        class: Class,
    },
    /// The plugin needs a class that a peer's plugin never gets.
    #[error("{what} needs the class `{class}`, which a peer's plugin never gets")]
    OfThePeer {
        /// Name of the operation or field that needs the class.
        what: String,
        /// The class.
        class: Class,
    },
    /// The plugin uses an operation or field that is not available to plugins.
    #[error("{what} is not available to plugins")]
    Impossible {
        /// Name of the operation or field.
        what: String,
    },
}

/// Decides whether a plugin may run, and returns its permissions. `now` is in seconds since the
/// Unix epoch. The owner's own plugins need no policy, because the owner chose them. They get
/// everything that they declare, except the class [`Class::Never`].
pub fn decide(
    bundle: &Bundle<'_>,
    origin: Origin,
    policy: &Policy,
    now: u64,
) -> Result<Granted, Refusal> {
    let in_log = |log: &Log| match bundle.staple().map(Staple::head) {
        Some(head) if head.log() == log.key => Ok(head.time()),
        _ => Err(NotInLog),
    };
    decide_by(bundle.preamble(), || bundle.hash(), in_log, origin, policy, now)
}

/// Decides about a peer's plugin as [`decide`] does, but before its object has arrived. It uses the
/// bundle hash from the offer. A log proof follows the object, so this function only checks that
/// the bundle has one.
pub(crate) fn decide_early(
    preamble: &Preamble<'_>,
    hash: [u8; 32],
    policy: &Policy,
    now: u64,
) -> Result<Granted, Refusal> {
    let in_log = |_: &Log| if preamble.has_staple() { Ok(u64::MAX) } else { Err(NotInLog) };
    decide_by(preamble, || hash, in_log, Origin::Peer, policy, now)
}

/// Error: the bundle has no proof that the required log contains it.
struct NotInLog;

fn decide_by(
    preamble: &Preamble<'_>,
    hash: impl FnOnce() -> [u8; 32],
    in_log: impl Fn(&Log) -> Result<u64, NotInLog>,
    origin: Origin,
    policy: &Policy,
    now: u64,
) -> Result<Granted, Refusal> {
    let (manifest, author) = (&preamble.manifest, preamble.author());
    if manifest.abi != ABI {
        return Err(Refusal::Abi(manifest.abi));
    }
    if let Some(expires) = manifest.expires
        && now >= expires
    {
        return Err(Refusal::Expired(expires));
    }
    if let Origin::Peer = origin {
        freshness::not_withdrawn(preamble, hash, &policy.withdrawn)?;
        freshness::not_too_long(manifest.expires, policy.max_age, now)?;
        accepted(author, in_log, policy)?;
        sizes(manifest, preamble.header.code, &policy.limits)?;
        if let Some(own) = manifest.frames.iter().find(|own| !own.ack_eliciting) {
            return Err(Refusal::Silent(own.frame_type));
        }
    }
    for (what, class) in manifest.uses() {
        granted(what, class, author, origin, policy)?;
    }
    // A declared class needs a grant even if the plugin does not use it.
    for class in &manifest.capabilities {
        granted("its manifest".to_owned(), *class, author, origin, policy)?;
    }
    Ok(Granted { classes: manifest.capabilities.clone() })
}

fn accepted(
    author: Option<PublicKey>,
    in_log: impl Fn(&Log) -> Result<u64, NotInLog>,
    policy: &Policy,
) -> Result<(), Refusal> {
    let named = policy.author(author);
    if let Some(Author { name, log: Some(log), .. }) = named {
        match in_log(log) {
            Err(NotInLog) => {
                return Err(Refusal::NotLogged { author: name.clone(), log: log.key });
            }
            Ok(time) if time < log.since => {
                return Err(Refusal::OldProof { time, since: log.since });
            }
            Ok(_) => {}
        }
    }
    if named.is_some_and(|author| !author.classes.is_empty()) || !policy.anyone.is_empty() {
        return Ok(());
    }
    Err(Refusal::NotAccepted { author })
}

fn sizes(manifest: &Manifest, code: usize, limits: &Limits) -> Result<(), Refusal> {
    let checks = [
        ("object", code as u64, limits.code as u64),
        ("memory", manifest.memory as u64, limits.memory as u64),
        ("number of steps", manifest.steps, limits.steps),
        ("number of frame types", manifest.frames.len() as u64, limits.frames as u64),
    ];
    match checks.into_iter().find(|(_, found, limit)| found > limit) {
        Some((what, found, limit)) => Err(Refusal::TooLarge { what, found, limit }),
        None => Ok(()),
    }
}

fn granted(
    what: String,
    class: Class,
    author: Option<PublicKey>,
    origin: Origin,
    policy: &Policy,
) -> Result<(), Refusal> {
    let named = policy.author(author);
    match (class.requires(), origin) {
        (Requires::Impossible, _) => Err(Refusal::Impossible { what }),
        (_, Origin::Own) => Ok(()),
        (Requires::OwnPlugin, Origin::Peer) => Err(Refusal::OfThePeer { what, class }),
        (Requires::Signature, Origin::Peer) => match named {
            None => Err(Refusal::NotSigned { what, class }),
            Some(author) if author.classes.contains(&class) => Ok(()),
            Some(_) => Err(Refusal::NotGranted { what, class }),
        },
        (Requires::Nothing, Origin::Peer) => {
            let by_name = named.is_some_and(|author| author.classes.contains(&class));
            // An author in the policy also has the classes of `anyone`.
            let may = by_name || policy.anyone.contains(&class);
            if may { Ok(()) } else { Err(Refusal::NotGranted { what, class }) }
        }
    }
}
