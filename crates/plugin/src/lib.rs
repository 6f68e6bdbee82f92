//! Protocol plugins: bytecode that changes operations of a QUIC connection. The plugins come from
//! the endpoint's owner or from the peer.
//!
//! These items decide whether bytecode may run:
//!
//! * [`Bundle`]: a plugin as a file or on the wire, with manifest, object and signature
//!   (`docs/plugins.md` has the format).
//! * [`Manifest`]: the declarations of a plugin. A plugin gets only what it declares.
//! * [`Class`]: the classes of permissions. One table in the module `class` assigns each operation
//!   and field to a class.
//! * [`Policy`]: the permissions that the owner of an endpoint grants. [`decide`] is a pure
//!   function that returns a plugin's permissions, or why it is refused.
//! * [`transparency`]: logs of signed plugins, and proofs that a log contains a bundle.
//! * [`exchange`]: the protocol with which one end of a connection offers plugins to the other.
//!
//! The module `runtime` runs plugins. [`Plugin`] is a loaded bundle with its permissions.
//! [`Plugin::attach`] gives it memory of its own and attaches it to the operations of one
//! connection.
//!
//! Start reading at [`decide`], then at `runtime/mod.rs`.

#![forbid(unsafe_code)]

mod bundle;
mod class;
pub mod exchange;
mod file;
mod freshness;
mod key;
mod manifest;
mod policy;
mod preamble;
mod runtime;
#[cfg(feature = "schema")]
mod schema;
mod sdk;
pub mod transparency;

pub use bundle::{
    Bundle, BundleError, MAX_BUNDLE, MAX_CODE, MAX_MANIFEST, PackError, pack, sign, staple,
};
pub use class::{Class, Origin, Requires, class_of, class_of_setting};
pub use key::{KeyError, PublicKey, SigningKey};
pub use manifest::{
    ABI, Anchor, Calls, Frame, Manifest, ManifestError, Operation, Provides, Unfit, Version,
};
pub use policy::{Author, Granted, Limits, Log, Policy, PolicyError, Refusal, decide};
pub use runtime::{
    Account, Accounts, Allowance, Answer, Bytes, Clock, DEFAULT, DONE, MAX_BYTES_OF_PEERS,
    MAX_OF_PEERS, Plugin, PluginError, Trace, Traced, Usage, lint,
};
#[cfg(feature = "schema")]
pub use schema::{manifest_schema, policy_schema};
pub use sdk::{Header, HelperInfo, headers, helpers, included_headers, plain};
