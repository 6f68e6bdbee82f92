//! The tree's plugins measured: [`demo`], where they help, and plugins that mean harm; [`bench`], all of them side by
//! side, with [`scheduler`]; [`limits`], what peers can cause, against the goals.

pub(crate) mod bench;
pub(crate) mod demo;
mod limits;
mod scheduler;
