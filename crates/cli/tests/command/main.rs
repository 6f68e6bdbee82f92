//! Tests of the command `equic` as a user sees it, with a file for each part of the command.
//! [`arrows`] checks the dependencies between crates. Whole experiments are in `tests/long`, and
//! tests of the gateway with servers and attacks are in `tests/e2e`.
//!
//! All of them are one test program, because each needs all the libraries of the command. Tests run
//! in parallel, so each test uses its own names of labs and gateways, its own ports and its own
//! directories.

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
mod schemas;
mod scripts;
mod serve;
mod service;
mod typed;
mod usage;
mod watch;

use equic_testing as common;
