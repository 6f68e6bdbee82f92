//! Measurements of the plugins in the source tree. [`demo`] shows where they help, and runs hostile
//! plugins. [`bench`] compares all plugins, with [`scheduler`]. [`limits`] measures the load that
//! peers can cause with plugins, and compares it with the goals.

pub(crate) mod bench;
pub(crate) mod demo;
mod limits;
mod scheduler;
