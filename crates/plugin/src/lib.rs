//! Protocol plugins: bytecode that changes operations of a QUIC connection, from its owner or from the peer.
//!
//! Before any bytecode runs it is decided whether it may:
//!
//! * [`Bundle`]: a plugin as a file or on the wire: manifest, object, signature (`docs/plugins.md` has the format);
//! * [`Manifest`]: what a plugin declares; what it does not declare it does not get;
//! * [`Class`]: what operations and fields mean for who lets a plugin use them, as one table: `class`;
//! * [`Policy`]: what the owner of an endpoint grants, to whom; and [`decide`], a function of nothing but its
//!   arguments, which says what a plugin gets, or why it gets nothing;
//! * [`transparency`]: logs of what authors have signed, and proofs that a bundle is in one;
//! * [`exchange`]: plugins that one end of a connection gives to the other.
//!
//! Then it runs: [`Plugin`] is a bundle that was loaded, with what it was granted; [`Plugin::attach`] gives it memory
//! of its own and puts it on the operations of one connection. The module `runtime` does that.
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
pub use sdk::{Header, HelperInfo, headers, helpers, included_headers, plain};
