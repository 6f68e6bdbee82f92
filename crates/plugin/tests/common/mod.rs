//! Builds manifests, keys and bundles for the tests of this crate.
#![allow(dead_code, reason = "each test program takes what it needs")]

use equic_plugin::{SigningKey, pack};

pub(crate) const CODE: &[u8] = b"\x7fELF and so on";

/// Returns a manifest whose plugin observes one operation. `top` and `end` are additional lines at
/// its beginning and end.
pub(crate) fn manifest(capabilities: &str, top: &str, end: &str) -> String {
    format!(
        r#"
name = "example"
version = "1.2.3"
author = "Ann Author"
abi = 2
steps = 1000
capabilities = [{capabilities}]
{top}

[[operations]]
operation = "UpdateRtt"
anchor = "after"
function = "on_rtt"
{end}
"#
    )
}

/// Returns manifest lines that attach one more function to an operation.
pub(crate) fn operation(name: &str, anchor: &str) -> String {
    format!("[[operations]]\noperation = \"{name}\"\nanchor = \"{anchor}\"\nfunction = \"f\"\n")
}

pub(crate) fn key(number: u8) -> SigningKey {
    SigningKey::from_seed(&[number; 32]).unwrap()
}

pub(crate) fn bundle(manifest: &str, key: Option<&SigningKey>) -> Vec<u8> {
    pack(manifest, CODE, key).unwrap_or_else(|error| panic!("{error}\n{manifest}"))
}
