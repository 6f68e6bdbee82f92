//! The kernel's side.
pub(crate) fn lacking_capabilities() -> Vec<&'static str> { Vec::new() }
