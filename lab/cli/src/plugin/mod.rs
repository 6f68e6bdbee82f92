//! Measurements of the source tree's plugins: [`demo`] shows where they help, and runs hostile
//! plugins. [`bench`] compares all of them, with [`scheduler`]. [`limits`] compares the load that
//! peers can cause with the goals.

pub(crate) mod bench;
pub(crate) mod demo;
mod limits;
mod scheduler;
