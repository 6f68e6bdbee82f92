//! The command as a user runs it, a file for each part of it; [`arrows`] looks at how the workspace
//! is built. Whole experiments are in `tests/long`, the gateway with servers and attacks in `tests/e2e`.
//!
//! One program for all of them, as each is linked to everything that the command is. Tests run side by
//! side: names of labs and gateways, ports and folders are each test's own.

mod arrows;
mod author;
mod book;
mod capture;
mod config;
mod daemon;
mod exchange;
mod explain;
mod fec;
mod first_plugin;
mod gateway;
mod get;
mod help;
mod hostile_server;
mod manual;
mod metrics;
mod moved;
mod moves;
mod plugin;
mod qlog;
mod reload_keys;
mod scripts;
mod serve;
mod service;
mod usage;
mod watch;

use equic_testing as common;
